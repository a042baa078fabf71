//! JSON text to Python values.

use crate::blob::Source;
use crate::encode::plain_until;
use crate::error::Failure;
use crate::memory::HostValue;
use flovyn_core::Error;
use flovyn_core::error::Code;
use flovyn_core::payload::{Body, Encoding, Payload};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// Texts from elsewhere may be nested deeper than what this package writes.
const MAX_DEPTH: usize = 1_000;

static BLOB: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A payload as a value: what its JSON says, `bytes` where it is raw, a `flovyn.Blob` where it is one.
pub(crate) fn payload<'py>(py: Python<'py>, payload: &Payload) -> Result<Bound<'py, PyAny>, Failure> {
    if let Body::Source(source) = &payload.body {
        if let Some(object) = HostValue::object(py, &**source) {
            return Ok(object);
        }
        if payload.encoding == Encoding::Blob {
            return blob(py, Py::new(py, Source(source.clone()))?.into_bound(py).as_any());
        }
    }
    let bytes = payload.bytes()?;
    match payload.encoding {
        Encoding::Raw => Ok(PyBytes::new(py, bytes).into_any()),
        Encoding::Blob => blob(py, PyBytes::new(py, bytes).as_any()),
        Encoding::Json => json(py, bytes),
    }
}

/// A `flovyn.Blob` over bytes or a source.
fn blob<'py>(py: Python<'py>, of: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Failure> {
    let make = || py.import("flovyn.blob")?.getattr("received").map(Bound::unbind);
    Ok(BLOB.get_or_try_init(py, make)?.bind(py).call1((of,))?)
}

/// JSON text as a value.
pub(crate) fn json<'py>(py: Python<'py>, text: &[u8]) -> Result<Bound<'py, PyAny>, Failure> {
    let text = std::str::from_utf8(text).map_err(|error| invalid(error.valid_up_to(), "no UTF-8"))?;
    let mut reader = Reader { py, text, at: 0 };
    reader.skip_space();
    let value = reader.value(0)?;
    reader.skip_space();
    match reader.at == text.len() {
        true => Ok(value),
        false => Err(invalid(reader.at, "more text after the value")),
    }
}

fn invalid(at: usize, what: &str) -> Failure {
    Failure::Engine(Error::new(Code::NotSerializable, format!("a stored value is no JSON text: {what} at byte {at}")))
}

struct Reader<'a, 'py> {
    py: Python<'py>,
    text: &'a str,
    at: usize,
}

impl<'py> Reader<'_, 'py> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Failure> {
        if depth > MAX_DEPTH {
            return Err(invalid(self.at, "nested too deeply"));
        }
        match self.peek() {
            b'"' => self.string(),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b't' => self.word("true", PyBool::new(self.py, true).to_owned().into_any()),
            b'f' => self.word("false", PyBool::new(self.py, false).to_owned().into_any()),
            b'n' => self.word("null", self.py.None().into_bound(self.py)),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(invalid(self.at, "no value")),
        }
    }

    fn word(&mut self, word: &str, value: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Failure> {
        if !self.text[self.at..].starts_with(word) {
            return Err(invalid(self.at, "no value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Bound<'py, PyAny>, Failure> {
        let start = self.at;
        let mut whole = true;
        while let byte @ (b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.peek() {
            whole &= byte == b'-' || byte.is_ascii_digit();
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        if !whole {
            let number: f64 = digits.parse().map_err(|_| invalid(start, "no number"))?;
            return Ok(PyFloat::new(self.py, number).into_any());
        }
        match digits.parse::<i64>() {
            Ok(number) => Ok(PyInt::new(self.py, number).into_any()),
            Err(_) => Ok(self.py.get_type::<PyInt>().call1((digits,))?),
        }
    }

    fn string(&mut self) -> Result<Bound<'py, PyAny>, Failure> {
        let (start, end, plain) = self.quoted()?;
        let raw = &self.text[start..end];
        Ok(match plain {
            true => PyString::new(self.py, raw).into_any(),
            false => PyString::new(self.py, &unescape(raw, start)?).into_any(),
        })
    }

    fn key(&mut self) -> Result<Bound<'py, PyString>, Failure> {
        if self.peek() != b'"' {
            return Err(invalid(self.at, "no key"));
        }
        let (start, end, plain) = self.quoted()?;
        let raw = &self.text[start..end];
        Ok(match plain {
            true => PyString::intern(self.py, raw),
            false => PyString::new(self.py, &unescape(raw, start)?),
        })
    }

    /// Moves past a string; gives where its content starts and ends and whether it is free of escapes.
    fn quoted(&mut self) -> Result<(usize, usize, bool), Failure> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        let mut plain = true;
        loop {
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    at += 2;
                }
                Some(0..=0x1f) | None => return Err(invalid(at, "a string that does not end")),
                Some(_) => at += plain_until(&bytes[at..]),
            }
        }
        self.at = at + 1;
        Ok((start, at, plain))
    }

    fn array(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Failure> {
        let items = PyList::empty(self.py);
        self.at += 1;
        self.skip_space();
        if self.peek() == b']' {
            self.at += 1;
            return Ok(items.into_any());
        }
        loop {
            self.skip_space();
            items.append(self.value(depth + 1)?)?;
            self.skip_space();
            self.at += 1;
            match self.text.as_bytes().get(self.at - 1) {
                Some(b',') => {}
                Some(b']') => return Ok(items.into_any()),
                _ => return Err(invalid(self.at - 1, "no comma")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Failure> {
        let map = PyDict::new(self.py);
        self.at += 1;
        self.skip_space();
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(map.into_any());
        }
        loop {
            self.skip_space();
            let key = self.key()?;
            self.skip_space();
            if self.peek() != b':' {
                return Err(invalid(self.at, "no colon"));
            }
            self.at += 1;
            self.skip_space();
            map.set_item(key, self.value(depth + 1)?)?;
            self.skip_space();
            self.at += 1;
            match self.text.as_bytes().get(self.at - 1) {
                Some(b',') => {}
                Some(b'}') => return Ok(map.into_any()),
                _ => return Err(invalid(self.at - 1, "no comma")),
            }
        }
    }
}

fn unescape(raw: &str, offset: usize) -> Result<String, Failure> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let place = offset + (raw.len() - rest.len()) + at;
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(0);
        rest = rest.get(at + 2..).ok_or_else(|| invalid(place, "an unknown escape"))?;
        out.push(match escape {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (character, after) = unicode(rest).ok_or_else(|| invalid(place, "a lone surrogate"))?;
                rest = after;
                character
            }
            _ => return Err(invalid(place, "an unknown escape")),
        });
    }
    out.push_str(rest);
    Ok(out)
}

/// The character of the hex digits after `\u`, a second escape included where it is needed.
fn unicode(rest: &str) -> Option<(char, &str)> {
    let first = u32::from_str_radix(rest.get(..4)?, 16).ok()?;
    let rest = &rest[4..];
    if let Some(character) = char::from_u32(first) {
        return Some((character, rest));
    }
    let second = u32::from_str_radix(rest.strip_prefix("\\u")?.get(..4)?, 16).ok()?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, &rest[6..]))
}
