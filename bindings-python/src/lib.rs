//! The native half of the `flovyn` Python package: conversion, and the bridge between the engine and an event loop.
//!
//! Rust never runs Python code; a thread of its own attaches only to make the object a large value is read into. What happens on its threads goes into the queue of a [`hub`], which the loop
//! drains; what Python asks is either answered at once or ends through that queue.

mod blob;
mod daemon;
mod decode;
mod encode;
mod error;
mod forms;
mod handle;
mod hub;
mod memory;
mod reply;
mod runtime;
mod session;
mod task;
mod test_world;
mod toolkit;
mod value;
mod worker;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// JSON text of a value, as it would be stored.
#[pyfunction]
fn encode_json<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &encode::json(value)?))
}

/// The value of JSON text.
#[pyfunction]
fn decode_json<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    Ok(decode::json(py, text)?)
}

/// Runs the `flovyn` command with the program's name and its arguments; gives the exit code.
#[pyfunction]
fn cli(py: Python<'_>, words: Vec<std::ffi::OsString>) -> i32 {
    py.detach(|| flovyn_cli::run(words))
}

#[pymodule(name = "_native", gil_used = false)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<blob::Source>()?;
    module.add_class::<hub::Hub>()?;
    module.add_class::<daemon::Daemon>()?;
    module.add_class::<runtime::Runtime>()?;
    module.add_class::<worker::Worker>()?;
    module.add_class::<test_world::TestWorld>()?;
    module.add_class::<handle::Handle>()?;
    module.add_class::<handle::Abort>()?;
    module.add_class::<handle::Watching>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<task::TaskSpec>()?;
    module.add_class::<toolkit::FakeLlm>()?;
    module.add_class::<toolkit::Toolkit>()?;
    module.add_class::<worker::Ticket>()?;
    module.add_function(wrap_pyfunction!(cli, module)?)?;
    module.add_function(wrap_pyfunction!(encode_json, module)?)?;
    module.add_function(wrap_pyfunction!(decode_json, module)?)?;
    module.add_function(wrap_pyfunction!(toolkit::generate, module)?)
}
