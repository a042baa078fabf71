//! Python's own large values as payloads: stored without a copy, and handed back as the very objects they are.
//!
//! Only immutable values, so that what is handed back is what a later process reads: exact `bytes` and `str`.

use bytes::Bytes;
use flovyn_core::payload::{Body, ByteSource, Encoding, Payload};
use flovyn_core::storage::stored::Room;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::any::Any;
use std::sync::Arc;

/// Values from this size on are taken as they are; smaller ones are cheaper to copy.
pub(crate) const LARGE: usize = 64 * 1024;

/// A Python object with its bytes: those of a `bytes`, or the JSON text of a `str`.
pub(crate) struct HostValue {
    object: Py<PyAny>,
    bytes: Bytes,
    /// The JSON text has quotes around the bytes.
    quoted: bool,
}

impl HostValue {
    /// A task's output that is handed back as the same object.
    pub(crate) fn of_bytes(value: &Bound<'_, PyBytes>) -> Payload {
        let value = Self { object: value.clone().into_any().unbind(), bytes: shared(value), quoted: false };
        Payload { encoding: Encoding::Raw, body: Body::Source(Arc::new(value)) }
    }

    /// A task's output whose JSON text is its own characters in quotes.
    pub(crate) fn of_plain_text(value: &Bound<'_, PyString>, text: &str) -> Payload {
        let bytes = Bytes::from_owner(PinnedMemory::new(value.as_any(), text.as_bytes()));
        Self::of_text(value, bytes, true)
    }

    /// A task's output whose JSON text had to be written.
    pub(crate) fn of_written_text(value: &Bound<'_, PyString>, json: Vec<u8>) -> Payload {
        Self::of_text(value, json.into(), false)
    }

    fn of_text(value: &Bound<'_, PyString>, bytes: Bytes, quoted: bool) -> Payload {
        let value = Self { object: value.clone().into_any().unbind(), bytes, quoted };
        Payload { encoding: Encoding::Json, body: Body::Source(Arc::new(value)) }
    }

    /// The object behind a source, where there is one.
    pub(crate) fn object<'py>(py: Python<'py>, source: &dyn ByteSource) -> Option<Bound<'py, PyAny>> {
        Some(source.host_value()?.downcast_ref::<Py<PyAny>>()?.bind(py).clone())
    }
}

impl ByteSource for HostValue {
    fn size(&self) -> u64 {
        self.bytes.len() as u64 + if self.quoted { 2 } else { 0 }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let mut at = offset as usize;
        let mut into = into;
        let quote = |at: usize| self.quoted && (at == 0 || at == self.bytes.len() + 1);
        while let Some(first) = into.first_mut() {
            if quote(at) {
                *first = b'"';
                (at, into) = (at + 1, &mut into[1..]);
                continue;
            }
            let from = at - usize::from(self.quoted);
            let there =
                self.bytes.get(from..).filter(|there| !there.is_empty()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
            let length = there.len().min(into.len());
            into[..length].copy_from_slice(&there[..length]);
            (at, into) = (at + length, &mut into[length..]);
        }
        Ok(())
    }

    fn piece(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let from = offset as usize;
        let inside = match self.quoted {
            true => from.checked_sub(1).filter(|from| from + length <= self.bytes.len()),
            false => Some(from).filter(|from| from + length <= self.bytes.len()),
        };
        if let Some(from) = inside {
            return Ok(self.bytes.slice(from..from + length));
        }
        let mut piece = vec![0; length];
        self.read_at(offset, &mut piece)?;
        Ok(piece.into())
    }

    fn host_value(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.object)
    }
}

/// The bytes of a `bytes`, which lives as long as they are used.
pub(crate) fn shared(value: &Bound<'_, PyBytes>) -> Bytes {
    Bytes::from_owner(PinnedMemory::new(value.as_any(), value.as_bytes()))
}

/// Memory of an object that is held so that it stays there.
struct PinnedMemory {
    _object: Py<PyAny>,
    start: *const u8,
    length: usize,
}

// SAFETY: the memory belongs to an immutable object that is held; any thread may read it.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// `memory` must be the object's own and stay as it is while the object lives.
    fn new(object: &Bound<'_, PyAny>, memory: &[u8]) -> Self {
        Self { _object: object.clone().unbind(), start: memory.as_ptr(), length: memory.len() }
    }
}

impl AsRef<[u8]> for PinnedMemory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the object is held, and with it its memory.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// A `bytes` that is being filled by the thread that reads it from the store; nobody else knows it yet.
pub(crate) struct Filling {
    object: Py<PyAny>,
    start: *mut u8,
    length: usize,
    filled: usize,
}

// SAFETY: the object is known to nobody else until it is full, and filled by one thread at a time.
unsafe impl Send for Filling {}

impl Filling {
    /// Makes room for a stored `bytes`; none where the interpreter is ending or has no memory.
    pub(crate) fn for_bytes(size: u64) -> Option<Box<dyn Room>> {
        let length = isize::try_from(size).ok()?;
        Python::try_attach(|py| {
            // SAFETY: without bytes to start with the call makes a new object whose memory is written before it is shown.
            let object = unsafe {
                let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
                Bound::from_owned_ptr_or_err(py, made)
            };
            let Ok(object) = object else { return None };
            // SAFETY: the object is a `bytes`.
            let start = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast::<u8>();
            let room: Box<dyn Room> =
                Box::new(Self { object: object.unbind(), start, length: length as usize, filled: 0 });
            Some(room)
        })?
    }
}

impl Room for Filling {
    fn next(&mut self, length: usize) -> &mut [u8] {
        let from = self.filled;
        self.filled += length;
        assert!(self.filled <= self.length, "a stored value is longer than was said");
        // SAFETY: inside the object's memory, which is this room's alone; it is written before it is read.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), length) }
    }

    fn body(self: Box<Self>) -> Body {
        // SAFETY: the object is held by what is made of it, and full.
        let memory = unsafe { std::slice::from_raw_parts(self.start, self.length) };
        let pinned = Python::try_attach(|py| self.object.clone_ref(py));
        match pinned {
            Some(object) => {
                let held = PinnedMemory { _object: object, start: self.start, length: self.length };
                Body::Source(Arc::new(HostValue { object: self.object, bytes: Bytes::from_owner(held), quoted: false }))
            }
            None => Body::Inline(Bytes::copy_from_slice(memory)),
        }
    }
}
