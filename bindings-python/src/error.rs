//! Errors on their way to Python: one engine error becomes the class of its code in `flovyn.errors`.

use flovyn_core::Error;
use flovyn_core::error::Code;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

static FROM_NATIVE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// An engine error, or an exception that Python raised while it was asked something.
pub(crate) enum Failure {
    Engine(Error),
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Engine(error) => Python::attach(|py| raised(py, &error)),
        }
    }
}

/// Raises what the engine has against something.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for flovyn_core::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| Failure::Engine(error).into())
    }
}

/// The exception of an engine error.
pub(crate) fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let context = PyDict::new(py);
    for (name, value) in error.context() {
        context.set_item(&**name, value)?;
    }
    let make = FROM_NATIVE
        .get_or_try_init(py, || py.import("flovyn.errors")?.getattr("from_native").map(Bound::unbind))?
        .bind(py);
    make.call1((error.code().as_str(), error.message(), context, error.is_retryable()))
}

/// The exception of an engine error, ready to be raised.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(other) => other,
    }
}

/// `NotSerializable` for the value at a path.
pub(crate) fn not_serializable(path: &str, found: &str, why: &str) -> Error {
    Error::new(Code::NotSerializable, format!("the value at {path} is {found}, which has no JSON form{why}"))
        .with("path", path)
        .with("type", found)
}

/// The qualified name of a type, as people write it.
pub(crate) fn type_name(of: &Bound<'_, PyType>) -> String {
    let name = of.qualname().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    match of.module().map(|module| module.to_string()) {
        Ok(module) if module != "builtins" => format!("{module}.{name}"),
        _ => name,
    }
}
