//! Values on their way between JavaScript and the engine: JSON text as a string, raw bytes as a Buffer, blobs as sources.

use crate::error::{invalid, of_value, thrown};
use flovyn_core::error::Code;
use flovyn_core::host::Language;
use flovyn_core::payload::{Body, ByteSource, Encoding, FileSource, Payload};
use napi::bindgen_prelude::{BufferSlice, ClassInstance, Either3, Null, ToNapiValue, TypeName, Unknown, ValueType};
use napi::{Env, sys};
use napi_derive::napi;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are copied at once while a blob is saved.
const PIECE: usize = 1 << 20;

/// A value as JavaScript gives it: JSON text, bytes, or a blob.
pub(crate) type Wire<'a> = Either3<String, BufferSlice<'a>, ClassInstance<'a, Source>>;

/// A given value as a payload.
pub(crate) fn payload(value: Wire<'_>) -> Payload {
    match value {
        Either3::A(text) => Payload::json(text.into_bytes()),
        Either3::B(bytes) => Payload::raw(bytes.to_vec()),
        Either3::C(source) => Payload::blob(source.0.clone()),
    }
}

/// A payload on its way to JavaScript.
pub struct WireOut(pub(crate) Payload);

impl TypeName for WireOut {
    fn type_name() -> &'static str {
        "string | Buffer | Source"
    }

    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

impl ToNapiValue for WireOut {
    unsafe fn to_napi_value(env: sys::napi_env, value: Self) -> napi::Result<sys::napi_value> {
        let payload = value.0;
        if payload.encoding == Encoding::Blob {
            let source: Arc<dyn ByteSource> = match &payload.body {
                Body::Source(source) => source.clone(),
                _ => Arc::new(Memory(payload.bytes().map_err(thrown)?.clone())),
            };
            // SAFETY: the environment is the one that asks.
            return unsafe { Source::to_napi_value(env, Source(source)) };
        }
        let bytes = match &payload.body {
            Body::Source(source) => {
                let whole = source.piece(0, source.size() as usize);
                whole.map_err(|error| invalid(format!("a value could not be read: {error}")))?
            }
            _ => payload.bytes().map_err(thrown)?.clone(),
        };
        if payload.encoding == Encoding::Json {
            let text = std::str::from_utf8(&bytes).map_err(|error| {
                let message = format!("a stored value is no JSON text: {error}");
                thrown(flovyn_core::Error::new(Code::NotSerializable, message))
            })?;
            // SAFETY: the environment is the one that asks.
            return unsafe { <&str>::to_napi_value(env, text) };
        }
        let buffer = BufferSlice::copy_from(&Env::from_raw(env), &bytes)?;
        // SAFETY: as above.
        unsafe { <&BufferSlice<'_>>::to_napi_value(env, &buffer) }
    }
}

/// A value of JavaScript, or why there is none, as JSON text: so that one value costs nothing but itself.
pub(crate) fn to_js<'env>(
    env: &'env Env,
    value: impl ToNapiValue,
) -> napi::Result<std::result::Result<Unknown<'env>, String>> {
    // SAFETY: the environment is the one that asks, and the value is of it.
    let made = unsafe { ToNapiValue::to_napi_value(env.raw(), value) };
    made.map_or_else(
        |error| of_value(error).map(Err),
        // SAFETY: as above.
        |raw| Ok(Ok(unsafe { Unknown::from_raw_unchecked(env.raw(), raw) })),
    )
}

/// A value or nothing.
pub struct OrNull<T>(pub(crate) Option<T>);

impl<T: ToNapiValue> ToNapiValue for OrNull<T> {
    unsafe fn to_napi_value(env: sys::napi_env, value: Self) -> napi::Result<sys::napi_value> {
        // SAFETY: the environment is the one that asks.
        unsafe {
            match value.0 {
                Some(value) => T::to_napi_value(env, value),
                None => Null::to_napi_value(env, Null),
            }
        }
    }
}

/// The bytes behind a `Blob`, which stay in their file or store until they are asked for.
#[napi]
pub struct Source(pub(crate) Arc<dyn ByteSource>);

#[napi]
impl Source {
    /// Names a file.
    #[napi(factory)]
    pub fn from_path(path: String) -> napi::Result<Self> {
        let opened = std::fs::File::open(&path).and_then(FileSource::of);
        Ok(Self(Arc::new(opened.map_err(|error| invalid(format!("{path} could not be opened: {error}")))?)))
    }

    /// Keeps a copy of bytes.
    #[napi(factory)]
    pub fn from_bytes(bytes: BufferSlice<'_>) -> Self {
        Self(Arc::new(Memory(bytes.to_vec().into())))
    }

    /// The number of bytes.
    #[napi(getter)]
    pub fn size(&self) -> f64 {
        self.0.size() as f64
    }

    /// Bytes from `offset` on, at most `length`, all without one.
    #[napi]
    pub fn read<'env>(&self, env: &'env Env, offset: f64, length: Option<f64>) -> napi::Result<BufferSlice<'env>> {
        let offset = offset.max(0.0) as u64;
        let left = self.0.size().saturating_sub(offset);
        let wanted = length.map_or(left, |length| (length.max(0.0) as u64).min(left));
        let mut bytes = vec![0; wanted as usize];
        self.0.read_at(offset, &mut bytes).map_err(|error| unreadable(&error))?;
        BufferSlice::from_data(env, bytes)
    }

    /// Writes the bytes into a file, piece by piece.
    #[napi]
    pub fn save(&self, path: String) -> napi::Result<()> {
        let write = || {
            let mut file = std::fs::File::create(path)?;
            let size = self.0.size();
            for offset in (0..size).step_by(PIECE) {
                file.write_all(&self.0.piece(offset, PIECE.min((size - offset) as usize))?)?;
            }
            file.flush()
        };
        write().map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &std::io::Error) -> napi::Error {
    invalid(format!("a blob could not be read: {error}"))
}

struct Memory(bytes::Bytes);

impl ByteSource for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let from = offset as usize;
        let there = self.0.get(from..from + into.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(there);
        Ok(())
    }
}

/// Milliseconds as a duration.
pub(crate) fn duration(ms: f64) -> napi::Result<Duration> {
    Language::TypeScript.duration(ms).map_err(thrown)
}
