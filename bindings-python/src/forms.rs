//! Values that JSON has no type for: their form is `flovyn/serde/forms.py`'s to give, the order of a set is decided here.

use crate::encode::Stop;
use crate::error::type_name;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::cmp::Ordering;

static FORM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DUMPED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static KEY_FORM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static FORMLESS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Cell = &'static PyOnceLock<Py<PyAny>>;

fn named<'py>(py: Python<'py>, cell: Cell, module: &str, name: &str) -> PyResult<&'py Bound<'py, PyAny>> {
    let find = || py.import(module)?.getattr(name).map(Bound::unbind);
    Ok(cell.get_or_try_init(py, find)?.bind(py))
}

/// What stands in JSON for a value.
pub(crate) fn of<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Stop> {
    formed(value, named(value.py(), &FORM, "flovyn.serde.forms", "form")?)
}

/// What pydantic writes of a model.
pub(crate) fn of_model<'py>(model: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Stop> {
    formed(model, named(model.py(), &DUMPED, "flovyn.serde.dumped", "dumped")?)
}

fn formed<'py>(value: &Bound<'py, PyAny>, form: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Stop> {
    let py = value.py();
    form.call1((value,)).map_err(|error| {
        let class = named(py, &FORMLESS, "flovyn.serde.forms", "Formless");
        if !class.is_ok_and(|class| error.matches(py, class).unwrap_or(false)) {
            return Stop::from(error);
        }
        let why = error.value(py).str().map_or_else(|_| String::new(), |why| why.to_string());
        Stop::refused(type_name(&value.get_type()), why)
    })
}

/// The text that stands in JSON for a key that is none.
pub(crate) fn of_key<'py>(key: &Bound<'py, PyAny>) -> Result<Bound<'py, PyString>, Stop> {
    let formed = named(key.py(), &KEY_FORM, "flovyn.serde.forms", "key_form")?.call1((key,))?;
    formed.cast_into::<PyString>().map_err(|_| {
        let shown = key.repr().map_or_else(|_| "?".to_owned(), |shown| shown.to_string());
        let found = format!("a dict with the key {shown} of type {}", type_name(&key.get_type()));
        Stop::refused(found, ": keys must be str, or have a text that stands for them; pass a list of pairs")
    })
}

/// Sorts the items of a set by what they are: numbers by their value, text as keys are, anything else by its JSON.
pub(crate) fn sort(texts: &mut [Vec<u8>]) {
    texts.sort_by(|a, b| order(a, b));
}

fn order(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        // Whole numbers that are one double are told apart by their digits.
        let digits = (a.len(), a).cmp(&(b.len(), b));
        return x.total_cmp(&y).then(if x < 0.0 { digits.reverse() } else { digits });
    }
    // As RFC 8785 compares keys.
    match (text(a), text(b)) {
        (Some(a), Some(b)) => a.encode_utf16().cmp(b.encode_utf16()),
        _ => String::from_utf8_lossy(a).encode_utf16().cmp(String::from_utf8_lossy(b).encode_utf16()),
    }
}

fn number(json: &[u8]) -> Option<f64> {
    json.first().filter(|byte| byte.is_ascii_digit() || **byte == b'-')?;
    std::str::from_utf8(json).ok()?.parse().ok()
}

fn text(json: &[u8]) -> Option<String> {
    json.first().filter(|byte| **byte == b'"')?;
    serde_json::from_slice(json).ok()
}
