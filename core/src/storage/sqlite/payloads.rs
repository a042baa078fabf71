//! Large values: content-addressed by BLAKE3, in pieces of 1 MiB, compressed where that helps, checked when read.
//!
//! Hashing and compressing happen on a blocking thread of the caller's, a few pieces ahead of the writer; pieces go in by
//! small transactions of their own that need no fsync, because the commit that refers to them has one. A payload nobody
//! refers to is kept for a day by its touch time.

use super::SqliteStorage;
use super::fault::{Done, Fault, corrupt};
use super::run::Run;
use super::tx::{Tx, all, first};
use super::values::blob;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::payload::{Body, ByteSource, ContentHash, INLINE_LIMIT, Payload};
use bytes::Bytes;
use rusqlite::{Connection, params};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of one piece.
const PIECE: usize = 1 << 20;
/// Pieces on their way to the writer at once.
const AHEAD: usize = 4;
/// How long an unreferenced payload is kept after its last touch.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// A value in memory as a source.
struct InMemory(Bytes);

impl ByteSource for InMemory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).map_err(std::io::Error::other)?;
        let piece = self.0.get(start..start + into.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(piece);
        Ok(())
    }
}

impl SqliteStorage {
    /// Puts a value where a row can hold it: a large one into the payload table, a small streamed one into memory.
    pub(super) async fn settle(&self, org: OrgId, payload: &mut Payload) -> Result<()> {
        payload.check_size(self.0.options.max_payload)?;
        let source: Arc<dyn ByteSource> = match &payload.body {
            Body::Stored { .. } => return Ok(()),
            Body::Inline(bytes) if bytes.len() <= INLINE_LIMIT => return Ok(()),
            Body::Inline(bytes) => Arc::new(InMemory(bytes.clone())),
            Body::Source(source) if source.size() <= INLINE_LIMIT as u64 => {
                let mut bytes = vec![0; source.size() as usize];
                source.read_at(0, &mut bytes).map_err(unreadable)?;
                payload.body = Body::Inline(bytes.into());
                return Ok(());
            }
            Body::Source(source) => source.clone(),
        };
        let size = source.size();
        let hashing = source.clone();
        let hash = blocking(move || hash_of(&*hashing)).await?;
        if !self.pin(org, hash, size).await? {
            let storage = self.clone();
            blocking(move || storage.upload(org, hash, &*source)).await?;
        }
        payload.body = Body::Stored { hash, size };
        Ok(())
    }

    /// Touches a payload that is there in full.
    async fn pin(&self, org: OrgId, hash: ContentHash, size: u64) -> Result<bool> {
        self.write("look for a payload", move |tx| {
            let touched = tx.execute(
                "UPDATE payload SET touched_at = ?4 WHERE org_id = ?1 AND hash = ?2 AND size = ?3 AND complete = 1",
                params![blob(&org.0), &hash.0[..], size, tx.now.0],
            )?;
            if touched == 0 {
                tx.execute(
                    "INSERT INTO payload (org_id, hash, size, complete, touched_at) VALUES (?1, ?2, ?3, 0, ?4) \
                     ON CONFLICT (org_id, hash) DO UPDATE SET touched_at = excluded.touched_at",
                    params![blob(&org.0), &hash.0[..], size, tx.now.0],
                )?;
            }
            Ok(touched > 0)
        })
        .await
    }

    /// Sends the pieces to the writer, a few at a time. Runs on a blocking thread.
    fn upload(&self, org: OrgId, hash: ContentHash, source: &dyn ByteSource) -> Result<()> {
        let mut sent: VecDeque<oneshot::Receiver<Result<()>>> = VecDeque::new();
        let wait = |answer: oneshot::Receiver<Result<()>>| answer.blocking_recv().unwrap_or_else(|_| Err(closed()));
        let mut hasher = blake3::Hasher::new();
        let mut compress = None;
        let mut offset = 0;
        let mut n = 0u32;
        while offset < source.size() {
            let length = PIECE.min((source.size() - offset) as usize);
            let mut piece = vec![0; length];
            source.read_at(offset, &mut piece).map_err(unreadable)?;
            hasher.update(&piece);
            let packed = match compress {
                Some(false) => None,
                _ => zstd::bulk::compress(&piece, 1).ok().filter(|packed| packed.len() < length - length / 8),
            };
            compress.get_or_insert(packed.is_some());
            let (data, packed) = packed.map_or((piece, false), |packed| (packed, true));
            sent.push_back(self.0.writer.run_lazily("store a piece of a payload", move |tx| {
                tx.execute(
                    "INSERT OR REPLACE INTO payload_piece (payload, n, zstd, data) \
                     SELECT id, ?3, ?4, ?5 FROM payload WHERE org_id = ?1 AND hash = ?2 AND complete = 0",
                    params![blob(&org.0), &hash.0[..], n, packed, data],
                )?;
                Ok(())
            }));
            if sent.len() >= AHEAD
                && let Some(first) = sent.pop_front()
            {
                wait(first)?;
            }
            offset += length as u64;
            n += 1;
        }
        sent.into_iter().try_for_each(wait)?;
        if hasher.finalize().as_bytes() != &hash.0 {
            return Err(Error::new(
                Code::InvalidArgument,
                "a streamed payload changed while it was stored; keep the file as it is until the call returns",
            ));
        }
        wait(self.0.writer.run_lazily("store a payload", move |tx| {
            tx.execute(
                "UPDATE payload SET complete = 1, touched_at = ?3 WHERE org_id = ?1 AND hash = ?2",
                params![blob(&org.0), &hash.0[..], tx.now.0],
            )?;
            Ok(())
        }))
    }
}

/// Runs heavy work of the caller's beside the async runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(closed()))
}

fn closed() -> Error {
    Error::new(Code::StorageUnavailable, "a payload could not be stored: the database or the program is shutting down")
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Code::InvalidArgument, format!("a streamed payload could not be read: {error}")).caused_by(error)
}

fn hash_of(source: &dyn ByteSource) -> Result<ContentHash> {
    let mut hasher = blake3::Hasher::new();
    crate::payload::for_each_chunk(source, |chunk| {
        hasher.update(chunk);
        Ok(())
    })?;
    Ok(ContentHash(*hasher.finalize().as_bytes()))
}

/// Notes that a run refers to a payload, so that it is kept; one that is not there is refused.
pub(super) fn refer(tx: &Tx, run: &Run, payload: &Payload) -> Done<()> {
    refer_from(tx, run.org, run.run, payload)
}

/// Like [`refer`], for a run whose row is being made.
pub(super) fn refer_from(tx: &Tx, org: OrgId, run: i64, payload: &Payload) -> Done<()> {
    let Body::Stored { hash, size } = &payload.body else { return Ok(()) };
    let found: Option<i64> = tx.first(
        "SELECT id FROM payload WHERE org_id = ?1 AND hash = ?2 AND size = ?3 AND complete = 1",
        params![blob(&org.0), &hash.0[..], size],
        |row| row.get(0),
    )?;
    let Some(payload) = found else {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("a payload of {size} bytes ({hash:?}) is named but not stored; send its bytes"),
        )
        .into());
    };
    tx.execute("INSERT OR IGNORE INTO payload_reference (payload, run) VALUES (?1, ?2)", [payload, run])?;
    Ok(())
}

/// The bytes of a stored payload, checked against their hash.
pub(super) fn read(conn: &Connection, org: OrgId, hash: &ContentHash, size: u64) -> Done<Bytes> {
    let capacity =
        usize::try_from(size).map_err(|_| corrupt(format!("a payload of {size} bytes does not fit here")))?;
    let mut bytes = Vec::with_capacity(capacity);
    each_piece(conn, org, hash, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    if bytes.len() as u64 != size {
        return Err(damaged(hash, size));
    }
    Ok(bytes.into())
}

fn each_piece(conn: &Connection, org: OrgId, hash: &ContentHash, mut each: impl FnMut(&[u8]) -> Done<()>) -> Done<()> {
    let found: Option<(i64, u64)> = first(
        conn,
        "SELECT id, size FROM payload WHERE org_id = ?1 AND hash = ?2 AND complete = 1",
        params![blob(&org.0), &hash.0[..]],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let Some((payload, size)) = found else {
        let message =
            format!("no payload with the hash {hash:?} is stored here; pass a reference this database returned");
        return Err(Error::new(Code::InvalidArgument, message).into());
    };
    let mut hasher = blake3::Hasher::new();
    let pieces = all(conn, "SELECT n FROM payload_piece WHERE payload = ?1 ORDER BY n", [payload], |row| row.get(0))?;
    for n in pieces {
        let n: i64 = n;
        let sql = "SELECT zstd, data FROM payload_piece WHERE payload = ?1 AND n = ?2";
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([payload, n])?;
        let Some(row) = rows.next()? else { return Err(damaged(hash, size)) };
        let data = row.get_ref(1)?.as_blob().map_err(|_| damaged(hash, size))?;
        if row.get(0)? {
            let piece = zstd::bulk::decompress(data, PIECE).map_err(|_| damaged(hash, size))?;
            hasher.update(&piece);
            each(&piece)?;
        } else {
            hasher.update(data);
            each(data)?;
        }
    }
    if hasher.finalize().as_bytes() != &hash.0 {
        return Err(damaged(hash, size));
    }
    Ok(())
}

fn damaged(hash: &ContentHash, size: u64) -> Fault {
    corrupt(format!(
        "a payload of {size} bytes ({hash:?}) is missing or not what was stored; restore the file from a backup"
    ))
    .into()
}

/// The hash of a value's bytes; `None` when a stored one is damaged.
pub(super) fn content_hash(conn: &Connection, org: OrgId, payload: &Payload) -> Done<Option<[u8; 32]>> {
    match &payload.body {
        Body::Inline(bytes) => Ok(Some(*blake3::hash(bytes).as_bytes())),
        Body::Stored { hash, .. } => match each_piece(conn, org, hash, |_| Ok(())) {
            Ok(()) => Ok(Some(hash.0)),
            // Damaged or gone: either way not what was saved.
            Err(Fault::Domain(_)) => Ok(None),
            Err(fault) => Err(fault),
        },
        Body::Source(_) => Ok(None),
    }
}

/// Removes payloads that nobody refers to and nobody has touched for a day.
pub(super) fn collect(tx: &Tx) -> Done<usize> {
    let before = tx.now.0.saturating_sub(super::values::micros(KEPT));
    tx.execute(
        "DELETE FROM payload WHERE touched_at < ?1 \
         AND NOT EXISTS (SELECT 1 FROM payload_reference WHERE payload_reference.payload = payload.id)",
        [before],
    )
}
