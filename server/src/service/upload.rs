//! An upload of a payload. It is spooled to a file, so that the server never has a large one in memory.

use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::payload::{Body, ContentHash, Encoding, FileSource, Payload};
use flovyn_core::storage::Storage;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

/// An upload that sends nothing for so long is cut.
pub const IDLE: Duration = Duration::from_secs(30);

/// An upload: the bytes received so far.
pub struct Upload {
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    size: u64,
    ceiling: u64,
}

impl Upload {
    /// Nothing yet, of at most so many bytes.
    pub fn new(ceiling: u64) -> Result<Self> {
        let file = tempfile::tempfile().map_err(unavailable)?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), hasher: blake3::Hasher::new(), size: 0, ceiling })
    }

    /// Takes the next bytes.
    ///
    /// Errors: `PayloadTooLarge` before more than the ceiling is written.
    pub fn take(&mut self, bytes: &[u8]) -> Result<()> {
        check(self.size + bytes.len() as u64, self.ceiling)?;
        self.size += bytes.len() as u64;
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(unavailable)
    }

    /// The bytes taken.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The name of what was taken.
    pub fn hash(&self) -> ContentHash {
        ContentHash(*self.hasher.finalize().as_bytes())
    }

    /// Stores it, for a call that will refer to it within a day.
    ///
    /// Errors: `InvalidArgument` for one that is so small that it is sent in place.
    pub async fn store(self, storage: &dyn Storage, org: OrgId, encoding: Encoding) -> Result<(ContentHash, u64)> {
        let size = self.size;
        let file = self.file.into_inner().map_err(|error| unavailable(error.into_error()))?;
        let spooled = FileSource::of(file).map_err(unavailable)?;
        let payload = Payload { encoding, body: Body::Source(Arc::new(spooled)) };
        match storage.store_payload(org, payload).await?.body {
            Body::Stored { hash, size } => Ok((hash, size)),
            _ => {
                Err(Error::new(Code::InvalidArgument, format!("a payload of {size} bytes is small; send it in place")))
            }
        }
    }

    /// Refuses what is no JSON.
    pub fn check_json(mut self) -> Result<Self> {
        use std::io::Seek;
        self.file.flush().map_err(unavailable)?;
        let mut file = self.file.get_ref().try_clone().map_err(unavailable)?;
        file.rewind().map_err(unavailable)?;
        match serde_json::from_reader::<_, serde::de::IgnoredAny>(BufReader::with_capacity(1 << 20, file)) {
            Ok(_) => Ok(self),
            Err(error) => {
                let message =
                    format!("the payload is sent as JSON and is none ({error}); send it as application/octet-stream");
                Err(Error::new(Code::InvalidArgument, message))
            }
        }
    }
}

/// Refuses a payload over the ceiling.
pub fn check(size: u64, ceiling: u64) -> Result<()> {
    Payload { encoding: Encoding::Raw, body: Body::Stored { hash: ContentHash([0; 32]), size } }.check_size(ceiling)
}

fn unavailable(error: std::io::Error) -> Error {
    Error::new(Code::StorageUnavailable, format!("the server cannot spool an upload: {error}; send it again later"))
}
