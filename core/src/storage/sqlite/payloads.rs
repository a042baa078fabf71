//! Large values. They are named by their BLAKE3 hash, stored in pieces of 1 MiB, compressed where that helps, and
//! checked when read.
//!
//! A blocking thread of the caller hashes and compresses, a few pieces ahead of the writer. The pieces are written in
//! small transactions without an fsync: the commit that refers to them has one, and so makes them durable too. A
//! payload that nobody refers to is kept for a day after its last use, so that it is not removed between its upload and
//! that commit.

use super::SqliteStorage;
use super::fault::{Done, Fault};
use super::run::Run;
use super::tx::Tx;
use super::values::blob;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::payload::{Body, Content, ContentHash, Payload};
use crate::storage::sql::database_error::corrupt;
use crate::storage::sql::{Backend, Payloads};
use bytes::Bytes;
use rusqlite::blob::Blob;
use rusqlite::{MAIN_DB, params};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::oneshot;
use zstd::bulk::Compressor;

/// Bytes of one piece.
const PIECE: usize = 1 << 20;
/// The most pieces that are on their way to the writer at once.
const AHEAD: usize = 4;
/// How long an unreferenced payload is kept after its last use.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// How many low bits of a piece's key are its number in the payload.
const PIECES: u32 = 20;

impl SqliteStorage {
    /// Stores a large value in the payload table, unless it is there already.
    pub(super) async fn put_away(&self, org: OrgId, content: Content) -> Result<ContentHash> {
        let size = content.size();
        let hash = match &content {
            Content::Source(source) if let Some(known) = source.name() => known,
            _ => {
                let hashing = content.clone();
                blocking(move || hashing.hash()).await?
            }
        };
        let (id, complete) = self.pin(org, hash, size).await?;
        if !complete {
            let storage = self.clone();
            blocking(move || storage.upload(id, hash, &content)).await?;
        }
        Ok(hash)
    }

    /// Notes the use of a payload, and makes its row if there is none. Returns the row's id, and whether all pieces are
    /// stored.
    async fn pin(&self, org: OrgId, hash: ContentHash, size: u64) -> Result<(i64, bool)> {
        self.write_alone("look for a payload", move |tx| {
            tx.execute(
                "INSERT INTO payload (org_id, hash, size, complete, touched_at) VALUES (?1, ?2, ?3, 0, ?4) \
                 ON CONFLICT (org_id, hash) DO UPDATE SET touched_at = excluded.touched_at",
                params![blob(&org.0), &hash.0, size, tx.now.0],
            )?;
            let row = tx.first(
                "SELECT id, complete FROM payload WHERE org_id = ?1 AND hash = ?2",
                params![blob(&org.0), &hash.0],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            row.ok_or_else(|| super::values::missing("the row of a payload").into())
        })
        .await
    }

    /// Sends the pieces to the writer, a few at a time. Runs on a blocking thread.
    fn upload(&self, payload: i64, hash: ContentHash, content: &Content) -> Result<()> {
        let size = content.size();
        let mut sent: VecDeque<oneshot::Receiver<Result<()>>> = VecDeque::new();
        let wait = |answer: oneshot::Receiver<Result<()>>| answer.blocking_recv().unwrap_or_else(|_| Err(closed()));
        let mut hasher = content.may_change().then(blake3::Hasher::new);
        let mut packer = Compressor::new(1).ok();
        for (n, offset) in (0..size).step_by(PIECE).enumerate() {
            let length = PIECE.min((size - offset) as usize);
            let piece = content.piece(offset, length)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&piece);
            }
            let packed = packer.as_mut().and_then(|packer| packer.compress(&piece).ok());
            let packed = packed.filter(|packed| packed.len() < length - length / 8);
            // If the first piece does not shrink, the others are not tried.
            packer = packer.filter(|_| n > 0 || packed.is_some());
            let (data, packed) = packed.map_or((piece, false), |packed| (packed.into(), true));
            let key = payload << PIECES | n as i64;
            sent.push_back(self.0.writer.run_lazily("store a piece of a payload", move |tx| {
                tx.execute(
                    "INSERT OR REPLACE INTO payload_piece (key, zstd, data) VALUES (?1, ?2, ?3)",
                    params![key, packed, &data[..]],
                )?;
                Ok(())
            }));
            if sent.len() >= AHEAD
                && let Some(first) = sent.pop_front()
            {
                wait(first)?;
            }
        }
        sent.into_iter().try_for_each(wait)?;
        if hasher.is_some_and(|hasher| hasher.finalize().as_bytes() != &hash.0) {
            return Err(Error::new(
                Code::InvalidArgument,
                "a streamed payload changed while it was stored; keep the file as it is until the call returns",
            ));
        }
        wait(self.0.writer.run_lazily("store a payload", move |tx| {
            tx.execute("UPDATE payload SET complete = 1, touched_at = ?2 WHERE id = ?1", [payload, tx.now.0])?;
            Ok(())
        }))
    }
}

/// Runs heavy work outside of the async runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(closed()))
}

fn closed() -> Error {
    Error::new(Code::StorageUnavailable, "a payload could not be stored: the database or the program is shutting down")
}

impl Payloads for Tx<'_> {
    fn refer(&self, run: &Run, payload: &Payload) -> Done<()> {
        let Some((hash, size)) = payload.stored() else { return Ok(()) };
        let found: Option<i64> = self.first(
            "SELECT id FROM payload WHERE org_id = ?1 AND hash = ?2 AND size = ?3 AND complete = 1",
            params![blob(&run.home.org.0), &hash.0, size],
            |row| row.get(0),
        )?;
        let Some(payload) = found else {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("a payload of {size} bytes ({hash:?}) is named but not stored; send its bytes"),
            )
            .into());
        };
        self.execute(
            "INSERT OR IGNORE INTO payload_reference (payload, run) VALUES (?1, ?2)",
            [payload, run.home.run],
        )?;
        Ok(())
    }

    fn payload(&self, org: OrgId, hash: &ContentHash, size: u64) -> Done<Bytes> {
        read(self, org, hash, size)
    }

    fn payload_part(&self, org: OrgId, hash: &ContentHash, offset: u64, length: usize) -> Done<Bytes> {
        read_part(self, org, hash, offset, length)
    }

    fn content_hash(&self, org: OrgId, payload: &Payload) -> Done<Option<[u8; 32]>> {
        match &payload.body {
            Body::Inline(bytes) => Ok(Some(*blake3::hash(bytes).as_bytes())),
            Body::Stored { hash, .. } | Body::Kept { hash, .. } => match Stored::find(self, org, hash)
                .and_then(|stored| stored.read(self, &mut Vec::with_capacity(PIECE), false))
            {
                Ok(()) => Ok(Some(hash.0)),
                // It is damaged or gone. Either way it is not what was saved.
                Err(Fault::Domain(_)) => Ok(None),
                Err(fault) => Err(fault),
            },
            Body::Source(_) | Body::Row { .. } => Ok(None),
        }
    }
}

/// The bytes of a stored payload, checked against their hash.
fn read(tx: &Tx, org: OrgId, hash: &ContentHash, size: u64) -> Done<Bytes> {
    let stored = Stored::find(tx, org, hash)?;
    if stored.size != size {
        return Err(stored.damaged());
    }
    let capacity =
        usize::try_from(size).map_err(|_| corrupt(format!("a payload of {size} bytes does not fit here")))?;
    let mut bytes = Vec::with_capacity(capacity);
    stored.read(tx, &mut bytes, true)?;
    Ok(bytes.into())
}

/// A part of a stored payload. Its hash is not checked, since that needs the whole.
fn read_part(tx: &Tx, org: OrgId, hash: &ContentHash, offset: u64, length: usize) -> Done<Bytes> {
    let stored = Stored::find(tx, org, hash)?;
    let mut part = Vec::with_capacity(length);
    let mut piece = Vec::new();
    while part.len() < length {
        let at = offset + part.len() as u64;
        let (number, skip) = (at / PIECE as u64, (at % PIECE as u64) as usize);
        stored.piece(tx, number, &mut piece)?;
        let taken = piece.get(skip..).unwrap_or_default();
        if taken.is_empty() {
            return Err(stored.damaged());
        }
        part.extend_from_slice(&taken[..taken.len().min(length - part.len())]);
    }
    Ok(part.into())
}

/// A payload of which all pieces are stored.
struct Stored {
    id: i64,
    hash: ContentHash,
    size: u64,
}

impl Stored {
    fn find(tx: &Tx, org: OrgId, hash: &ContentHash) -> Done<Self> {
        let found = tx.first(
            "SELECT id, size FROM payload WHERE org_id = ?1 AND hash = ?2 AND complete = 1",
            params![blob(&org.0), &hash.0],
            |row| Ok(Self { id: row.get(0)?, hash: *hash, size: row.get(1)? }),
        )?;
        found.ok_or_else(|| {
            let message =
                format!("no payload with the hash {hash:?} is stored here; pass a reference this database returned");
            Error::new(Code::InvalidArgument, message).into()
        })
    }

    /// Reads one piece.
    fn piece(&self, tx: &Tx, number: u64, into: &mut Vec<u8>) -> Done<()> {
        let start = number * PIECE as u64;
        let found = tx.first(
            "SELECT zstd, data FROM payload_piece WHERE key = ?1",
            [self.id << PIECES | number as i64],
            |row| {
                let data = row.get_ref(1)?.as_blob()?;
                into.clear();
                match row.get(0)? {
                    true => {
                        into.resize(PIECE.min(usize::try_from(self.size.saturating_sub(start)).unwrap_or(PIECE)), 0);
                        Ok(zstd::bulk::decompress_to_buffer(data, &mut into[..])
                            .is_ok_and(|length| length == into.len()))
                    }
                    false => {
                        into.extend_from_slice(data);
                        Ok(true)
                    }
                }
            },
        )?;
        match found {
            Some(true) => Ok(()),
            _ => Err(self.damaged()),
        }
    }

    /// Reads the pieces into `into`, one after the other, and checks the hash. Without `keep` only one piece is in
    /// memory at a time.
    fn read(&self, tx: &Tx, into: &mut Vec<u8>, keep: bool) -> Done<()> {
        let low = self.id << PIECES;
        let pieces = tx.all(
            "SELECT key, zstd FROM payload_piece WHERE key BETWEEN ?1 AND ?2 ORDER BY key",
            [low, low | ((1 << PIECES) - 1)],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)),
        )?;
        let mut hasher = blake3::Hasher::new();
        let mut packed = Vec::new();
        let mut left = self.size;
        // Pieces are read through SQLite's blob interface: a query would copy each piece into a value first.
        let mut blob: Option<Blob<'_>> = None;
        for (key, zstd) in pieces {
            let blob = match &mut blob {
                Some(blob) => {
                    blob.reopen(key)?;
                    blob
                }
                None => blob.insert(tx.conn.blob_open(MAIN_DB, c"payload_piece", c"data", key, true)?),
            };
            if !keep {
                into.clear();
            }
            let length = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
            let start = into.len();
            let there = if zstd { &mut packed } else { &mut *into };
            let from = if zstd { 0 } else { start };
            there.truncate(from);
            there.resize(from + blob.len(), 0);
            blob.read_at_exact(&mut there[from..], 0)?;
            if zstd {
                into.resize(start + length, 0);
                let unpacked = zstd::bulk::decompress_to_buffer(&packed, &mut into[start..]);
                unpacked.ok().filter(|unpacked| *unpacked == length).ok_or_else(|| self.damaged())?;
            }
            if into.len() != start + length {
                return Err(self.damaged());
            }
            hasher.update(&into[start..]);
            left -= length as u64;
        }
        match left == 0 && hasher.finalize().as_bytes() == &self.hash.0 {
            true => Ok(()),
            false => Err(self.damaged()),
        }
    }

    fn damaged(&self) -> Fault {
        corrupt(format!(
            "a payload of {} bytes ({:?}) is not what was stored; restore the file from a backup",
            self.size, self.hash
        ))
        .into()
    }
}

/// Removes payloads that nobody refers to and nobody has used for a day.
pub(super) fn collect(tx: &Tx) -> Done<usize> {
    let before = tx.now.0.saturating_sub(super::values::micros(KEPT));
    tx.execute(
        "DELETE FROM payload WHERE touched_at < ?1 \
         AND NOT EXISTS (SELECT 1 FROM payload_reference WHERE payload_reference.payload = payload.id)",
        [before],
    )
}
