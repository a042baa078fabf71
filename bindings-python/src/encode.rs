//! Python values to JSON text.
//!
//! Keys are sorted, numbers are written in their shortest form, and what has no JSON form is refused with its place.

use crate::blob::Source;
use crate::error::{Failure, not_serializable};
use crate::forms;
use crate::memory::{HostValue, LARGE, shared};
use flovyn_core::Error;
use flovyn_core::host::PreviewCode;
use flovyn_core::payload::{Body, Encoding, FileSource, Payload};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

/// How deep a value may be nested: digests are taken of the parsed text, which is read no deeper either.
const MAX_DEPTH: usize = 120;

static DATACLASS_FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A task's output as a payload: like [`payload`], but a large immutable value is handed back as the object it is.
pub(crate) fn output(value: &Bound<'_, PyAny>) -> Result<Payload, Failure> {
    if let Ok(bytes) = value.cast_exact::<PyBytes>()
        && bytes.as_bytes().len() >= LARGE
    {
        return Ok(HostValue::of_bytes(bytes));
    }
    if let Ok(object) = value.cast_exact::<PyString>()
        && let Ok(text) = object.to_str()
        && text.len() >= LARGE
    {
        if plain_until(text.as_bytes()) == text.len() {
            return Ok(HostValue::of_plain_text(object, text));
        }
        let mut json = Vec::new();
        quote(text, &mut json);
        return Ok(HostValue::of_written_text(object, json));
    }
    payload(value)
}

/// A value as a payload: JSON, or raw bytes for `bytes` at the top.
pub(crate) fn payload(value: &Bound<'_, PyAny>) -> Result<Payload, Failure> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(match bytes.as_bytes() {
            small if small.len() < LARGE => Payload::raw(small.to_vec()),
            _ => Payload::raw(shared(bytes)),
        });
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Payload::raw(bytes.to_vec()));
    }
    if is_blob(value)? {
        return blob(value);
    }
    Ok(Payload::json(json(value)?))
}

fn is_blob(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = value.get_type();
    Ok(class.name()?.to_str()? == "Blob" && class.module()?.to_str()? == "flovyn.blob")
}

/// A blob's bytes, or the file or store they are read from piece by piece.
fn blob(value: &Bound<'_, PyAny>) -> Result<Payload, Failure> {
    let data = value.getattr(intern!(value.py(), "data"))?;
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Payload { encoding: Encoding::Blob, body: Body::Inline(shared(bytes)) });
    }
    let source = value.getattr(intern!(value.py(), "source"))?;
    if let Ok(source) = source.cast::<Source>() {
        return Ok(Payload::blob(source.get().0.clone()));
    }
    let path: std::path::PathBuf = value.getattr(intern!(value.py(), "path"))?.extract()?;
    let file = std::fs::File::open(&path).and_then(FileSource::of).map_err(PyErr::from)?;
    Ok(Payload::blob(std::sync::Arc::new(file)))
}

/// A value as JSON text.
pub(crate) fn json(value: &Bound<'_, PyAny>) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::with_capacity(64);
    write(value, &mut out, 0).map_err(Stop::failure)?;
    Ok(out)
}

/// A preview of a kind as the engine carries it: text for a token, else JSON.
pub(crate) fn preview(kind: u32, data: &Bound<'_, PyAny>) -> PyResult<String> {
    if kind == PreviewCode::Token.number() {
        return Ok(data.cast::<PyString>()?.to_str()?.to_owned());
    }
    Ok(String::from_utf8_lossy(&json(data)?).into_owned())
}

/// Why a value cannot be written, with the steps from the top to it in reverse.
pub(crate) enum Stop {
    Refused { steps: Vec<PathStep>, found: String, why: Cow<'static, str> },
    Python(PyErr),
}

pub(crate) enum PathStep {
    Key(String),
    Index(usize),
}

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Stop {
    pub(crate) fn refused(found: impl Into<String>, why: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { steps: Vec::new(), found: found.into(), why: why.into() }
    }

    fn at(mut self, step: impl FnOnce() -> PathStep) -> Self {
        if let Self::Refused { steps, .. } = &mut self {
            steps.push(step());
        }
        self
    }

    fn failure(self) -> Failure {
        match self {
            Self::Python(error) => Failure::Python(error),
            Self::Refused { steps, found, why } => Failure::Engine(refusal(&steps, &found, &why)),
        }
    }
}

fn refusal(steps: &[PathStep], found: &str, why: &str) -> Error {
    let mut path = String::from("$");
    for step in steps.iter().rev() {
        let _ = match step {
            PathStep::Index(index) => write!(path, "[{index}]"),
            PathStep::Key(key) if is_plain(key) => write!(path, ".{key}"),
            PathStep::Key(key) => write!(path, "[{key:?}]"),
        };
    }
    not_serializable(&path, found, why)
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !key.as_bytes()[0].is_ascii_digit()
}

fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
    if depth > MAX_DEPTH {
        return Err(Stop::refused("nested too deeply", ": it may refer to itself; at most 120 levels are allowed"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return write_text(text, out);
    }
    if value.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(flag) = value.cast::<PyBool>() {
        out.extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
    } else if let Ok(number) = value.cast::<PyInt>() {
        write_int(number, out)?;
    } else if let Ok(number) = value.cast::<PyFloat>() {
        write_float(number.value(), out)?;
    } else if let Ok(map) = value.cast::<PyDict>() {
        write_dict(map, out, depth)?;
    } else if let Ok(items) = value.cast::<PyList>() {
        write_items(items.iter(), out, depth)?;
    } else if let Ok(items) = value.cast::<PyTuple>() {
        write_items(items.iter(), out, depth)?;
    } else if let Ok(items) = value.cast::<PySet>() {
        write_unordered(items.iter(), out, depth)?;
    } else if let Ok(items) = value.cast::<PyFrozenSet>() {
        write_unordered(items.iter(), out, depth)?;
    } else {
        write_object(value, out, depth)?;
    }
    Ok(())
}

fn write_int(number: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> Result<(), Stop> {
    match number.extract::<i64>() {
        Ok(small) => out.extend_from_slice(itoa::Buffer::new().format(small).as_bytes()),
        Err(_) => {
            // `int.__str__`: a subclass may print itself in another way.
            let digits = number.py().get_type::<PyInt>().call_method1(intern!(number.py(), "__repr__"), (number,));
            let digits = digits.map_err(|_| Stop::refused("an int of too many digits", ""))?;
            out.extend_from_slice(digits.cast::<PyString>().map_err(PyErr::from)?.to_str()?.as_bytes());
        }
    }
    Ok(())
}

fn write_float(number: f64, out: &mut Vec<u8>) -> Result<(), Stop> {
    if !number.is_finite() {
        return Err(Stop::refused(number.to_string(), ": JSON knows finite numbers only; pass None or a string"));
    }
    serde_json::to_writer(out, &number).map_err(|_| Stop::refused(number.to_string(), ": it has no JSON form"))
}

fn write_text(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> Result<(), Stop> {
    let text = text
        .to_str()
        .map_err(|_| Stop::refused("a str with a lone surrogate", ": decode the bytes it came from as UTF-8"))?;
    quote(text, out);
    Ok(())
}

fn quote(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_until(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = special.split_first() else { break };
        rest = after;
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            _ => b"",
        };
        if escape.is_empty() {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        } else {
            out.extend_from_slice(escape);
        }
    }
    out.push(b'"');
}

/// How many bytes from the start stand for themselves inside a JSON string.
pub(crate) fn plain_until(bytes: &[u8]) -> usize {
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // A block is looked at as a whole, which the compiler does many bytes at a time.
    let (blocks, _) = bytes.as_chunks::<64>();
    let clean = blocks.iter().take_while(|block| !block.iter().fold(false, |any, byte| any | special(byte))).count();
    let from = clean * 64;
    bytes[from..].iter().position(special).map_or(bytes.len(), |at| from + at)
}

fn write_items<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Stop> {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(&item, out, depth + 1).map_err(|stop| stop.at(|| PathStep::Index(index)))?;
    }
    out.push(b']');
    Ok(())
}

/// The items of a set. Python's own order changes from process to process.
fn write_unordered<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Stop> {
    let mut texts = Vec::new();
    for item in items {
        // An item has no place by which it could be found.
        let mut text = Vec::new();
        write(&item, &mut text, depth + 1)?;
        texts.push(text);
    }
    forms::sort(&mut texts);
    out.push(b'[');
    out.extend_from_slice(&texts.join(&b','));
    out.push(b']');
    Ok(())
}

fn write_dict(map: &Bound<'_, PyDict>, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
    let mut pairs = Vec::with_capacity(map.len());
    let mut formed = false;
    for (key, value) in map.iter() {
        let text = match key.cast::<PyString>() {
            Ok(text) => text.to_str().map(str::to_owned),
            Err(_) => {
                formed = true;
                forms::of_key(&key)?.to_str().map(str::to_owned)
            }
        };
        let text = text.map_err(|_| Stop::refused("a dict whose key has a lone surrogate", ""))?;
        pairs.push((text, value));
    }
    let mut seen = HashSet::new();
    if formed && let Some((twice, _)) = pairs.iter().find(|(key, _)| !seen.insert(key)) {
        let found = format!("a dict with two keys that are both written {twice:?}");
        return Err(Stop::refused(found, ": one of them would be lost"));
    }
    write_pairs(pairs, out, depth)
}

fn write_pairs(mut pairs: Vec<(String, Bound<'_, PyAny>)>, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
    // RFC 8785 sorts by UTF-16 code units, which is byte order for ASCII.
    if pairs.iter().all(|(key, _)| key.is_ascii()) {
        pairs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    } else {
        pairs.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    }
    out.push(b'{');
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        quote(key, out);
        out.push(b':');
        write(value, out, depth + 1).map_err(|stop| stop.at(|| PathStep::Key(key.clone())))?;
    }
    out.push(b'}');
    Ok(())
}

fn write_object(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
    let py = value.py();
    let class = value.get_type();
    if class.hasattr(intern!(py, "__pydantic_core_schema__"))? && class.hasattr(intern!(py, "model_dump"))? {
        let plain = forms::of_model(value)?;
        return write(&plain, out, depth + 1);
    }
    if class.hasattr(intern!(py, "__dataclass_fields__"))? {
        let fields = DATACLASS_FIELDS
            .get_or_try_init(py, || py.import("dataclasses")?.getattr("fields").map(Bound::unbind))?
            .bind(py);
        let mut pairs = Vec::new();
        for field in fields.call1((value,))?.try_iter()? {
            let name: String = field?.getattr(intern!(py, "name"))?.extract()?;
            let inner = value.getattr(name.as_str())?;
            pairs.push((name, inner));
        }
        return write_pairs(pairs, out, depth);
    }
    write(&forms::of(value)?, out, depth + 1)
}
