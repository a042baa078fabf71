//! What an ended call gives back to Python.

use crate::decode;
use flovyn_core::payload::Payload;
use pyo3::prelude::*;

/// Makes an object of Python's.
type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

pub(crate) enum Reply {
    Nothing,
    Flag(bool),
    Text(String),
    /// A value of the user's.
    Value(Payload),
    /// Facts as JSON: a dict or a list for Python.
    Facts(serde_json::Value),
    /// An object of the native module, made while the GIL is held.
    Object(Make),
}

impl Reply {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Nothing => py.None().into_bound(py),
            Self::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
            Self::Text(text) => text.into_pyobject(py)?.into_any(),
            Self::Value(payload) => decode::payload(py, &payload)?,
            Self::Facts(facts) => decode::json(py, facts.to_string().as_bytes())?,
            Self::Object(make) => make(py)?.into_bound(py),
        })
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

impl From<bool> for Reply {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Payload> for Reply {
    fn from(payload: Payload) -> Self {
        Self::Value(payload)
    }
}

impl From<serde_json::Value> for Reply {
    fn from(facts: serde_json::Value) -> Self {
        Self::Facts(facts)
    }
}
