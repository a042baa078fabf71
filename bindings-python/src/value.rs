//! Small values on their way from Python: times and JSON text.

use crate::encode;
use crate::error::OrRaise;
use flovyn_core::host::Language;
use pyo3::prelude::*;
use std::time::Duration;

/// Seconds as a duration.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Language::Python.duration(seconds).or_raise()
}

/// JSON text of a small value.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(String::from_utf8_lossy(&encode::json(value)?).into_owned())
}
