//! Large values. They are named by their BLAKE3 hash, stored in pieces of 1 MiB, compressed where that helps, and
//! checked when read.
//!
//! One job on a connection of its own stores a value, piece by piece. Each piece is a small transaction that does not
//! wait for the disk: the commit that refers to them does, and so makes them durable too. A payload that nobody refers
//! to is kept for a day after its last use. A foreign key keeps all others.

use super::PostgresStorage;
use super::committer::{WriteContext, alone};
use super::fault::{Done, Fault};
use super::link::Link;
use super::run::Run;
use super::sets::{Set, row};
use super::tx::Tx;
use super::values::Row;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::payload::{Body, Content, ContentHash, Payload};
use crate::storage::sql::Payloads;
use crate::storage::sql::database_error::corrupt;
use bytes::Bytes;
use std::borrow::Cow;
use std::time::Duration;

/// Bytes of one piece.
const PIECE: usize = 1 << 20;
/// How many pieces are read in one round trip.
const AHEAD: usize = 4;
/// How long an unreferenced payload is kept after its last use.
const KEPT: Duration = Duration::from_secs(24 * 3600);

impl PostgresStorage {
    /// Stores a large value in the payload table, unless it is there already.
    pub(super) async fn put_away(&self, org: OrgId, content: Content) -> Result<ContentHash> {
        self.check_process()?;
        let context = self.0.context.clone();
        let store = move |link: &mut Link| {
            let hash = match &content {
                Content::Source(source) if let Some(known) = source.name() => known,
                _ => content.hash()?,
            };
            upload(link, &context, org, hash, &content)?;
            Ok(hash)
        };
        self.0.movers.run("store a payload", store).await
    }
}

/// Stores a value unless it is there already. Either way notes its use.
fn upload(link: &mut Link, context: &WriteContext, org: OrgId, hash: ContentHash, content: &Content) -> Result<()> {
    let size = content.size();
    let complete = alone(link, context, "look for a payload", move |tx| {
        let found = tx.execute_returning(
            "INSERT INTO payload (org_id, hash, size, complete, touched_at) VALUES ($1, $2, $3, FALSE, $4) \
             ON CONFLICT (org_id, hash) DO UPDATE SET touched_at = excluded.touched_at RETURNING complete",
            row![org.0, &hash.0[..], size, tx.now],
            |row| row.get::<bool>(0),
        )?;
        found.ok_or_else(|| super::values::missing("the row of a payload").into())
    })?;
    if complete {
        return Ok(());
    }
    let mut hasher = content.may_change().then(blake3::Hasher::new);
    let mut compress = true;
    for (n, offset) in (0..size).step_by(PIECE).enumerate() {
        let length = PIECE.min((size - offset) as usize);
        let piece = content.piece(offset, length)?;
        if let Some(hasher) = &mut hasher {
            hasher.update(&piece);
        }
        let packed = match compress {
            true => zstd::bulk::compress(&piece, 1).ok().filter(|packed| packed.len() < length - length / 8),
            false => None,
        };
        // If the first piece does not shrink, the others are not tried.
        compress &= n > 0 || packed.is_some();
        let (data, packed) = packed.map_or((piece, false), |packed| (packed.into(), true));
        alone(link, context, "store a piece of a payload", move |tx| {
            tx.execute("SET LOCAL synchronous_commit TO off", row![])?;
            tx.execute(
                "INSERT INTO payload_piece (org_id, hash, n, zstd, data) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (org_id, hash, n) DO UPDATE SET zstd = excluded.zstd, data = excluded.data",
                row![org.0, &hash.0[..], n as i64, packed, &data[..]],
            )
        })?;
    }
    if hasher.is_some_and(|hasher| hasher.finalize().as_bytes() != &hash.0) {
        return Err(Error::new(
            Code::InvalidArgument,
            "a streamed payload changed while it was stored; keep the file as it is until the call returns",
        ));
    }
    alone(link, context, "store a payload", move |tx| {
        tx.execute(
            "UPDATE payload SET complete = TRUE, touched_at = $3 WHERE org_id = $1 AND hash = $2",
            row![org.0, &hash.0[..], tx.now],
        )
    })
}

static REFERENCE: Set = Set::add("payload_reference", "org_id uuid, hash bytea, run bigint");

impl Payloads for Tx<'_> {
    fn refer(&self, run: &Run, payload: &Payload) -> Done<()> {
        let Some((hash, size)) = payload.stored() else { return Ok(()) };
        let key = run.home.key;
        let there = self.first(
            "SELECT complete FROM payload WHERE org_id = $1 AND hash = $2 AND size = $3",
            row![key.org.0, &hash.0[..], size],
            |row| row.get::<bool>(0),
        )?;
        if there != Some(true) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("a payload of {size} bytes ({hash:?}) is named but not stored; send its bytes"),
            )
            .into());
        }
        self.put(&REFERENCE, row![key.org.0, &hash.0[..], key.run]);
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
            Body::Stored { hash, .. } | Body::Kept { hash, .. } => {
                match Stored::find(self, org, hash).and_then(|stored| stored.read(self, |_| ())) {
                    Ok(()) => Ok(Some(hash.0)),
                    // It is damaged or gone. Either way it is not what was saved.
                    Err(Fault::Domain(_) | Fault::Unreadable(_)) => Ok(None),
                    Err(fault) => Err(fault),
                }
            }
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
    stored.read(tx, |piece| bytes.extend_from_slice(piece))?;
    Ok(bytes.into())
}

/// A part of a stored payload. Its hash is not checked, since that needs the whole.
fn read_part(tx: &Tx, org: OrgId, hash: &ContentHash, offset: u64, length: usize) -> Done<Bytes> {
    let stored = Stored::find(tx, org, hash)?;
    let mut part = Vec::with_capacity(length);
    while part.len() < length {
        let at = offset + part.len() as u64;
        let (number, skip) = (at / PIECE as u64, (at % PIECE as u64) as usize);
        let rows = tx.ask(ONE_PIECE, row![org.0, &hash.0[..], number])?;
        let piece = stored.unpack(rows.first(), number)?;
        let taken = piece.get(skip..).unwrap_or_default();
        if taken.is_empty() {
            return Err(stored.damaged());
        }
        part.extend_from_slice(&taken[..taken.len().min(length - part.len())]);
    }
    Ok(part.into())
}

const ONE_PIECE: &str = "SELECT zstd, data FROM payload_piece WHERE org_id = $1 AND hash = $2 AND n = $3";

/// A payload of which all pieces are stored.
struct Stored {
    org: OrgId,
    hash: ContentHash,
    size: u64,
}

impl Stored {
    fn find(tx: &Tx, org: OrgId, hash: &ContentHash) -> Done<Self> {
        let found = tx.first(
            "SELECT size FROM payload WHERE org_id = $1 AND hash = $2 AND complete",
            row![org.0, &hash.0[..]],
            |row| Ok(Self { org, hash: *hash, size: row.get(0)? }),
        )?;
        found.ok_or_else(|| {
            let message =
                format!("no payload with the hash {hash:?} is stored here; pass a reference this database returned");
            Error::new(Code::InvalidArgument, message).into()
        })
    }

    /// Calls `each` with the pieces, one after the other. Fails at the end if all of them together do not have the
    /// hash.
    fn read(&self, tx: &Tx, mut each: impl FnMut(&[u8])) -> Done<()> {
        let mut hasher = blake3::Hasher::new();
        let count = self.size.div_ceil(PIECE as u64);
        for first in (0..count).step_by(AHEAD) {
            let numbers = first..count.min(first + AHEAD as u64);
            let questions: Vec<_> =
                numbers.clone().map(|n| (ONE_PIECE, row![self.org.0, &self.hash.0[..], n])).collect();
            for (number, rows) in numbers.zip(tx.ask_all(&questions)?) {
                let piece = self.unpack(rows.first(), number)?;
                hasher.update(&piece);
                each(&piece);
            }
        }
        match hasher.finalize().as_bytes() == &self.hash.0 {
            true => Ok(()),
            false => Err(self.damaged()),
        }
    }

    /// The bytes of a piece. Fails if it does not have the length that it must have.
    fn unpack<'r>(&self, row: Option<&'r Row>, number: u64) -> Done<Cow<'r, [u8]>> {
        let Some(row) = row else { return Err(self.damaged()) };
        let (zstd, data) = (row.get::<bool>(0)?, row.bytes(1)?);
        let left = self.size.saturating_sub(number * PIECE as u64);
        let length = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
        let piece = match zstd {
            true => Cow::Owned(zstd::bulk::decompress(data, length).map_err(|_| self.damaged())?),
            false => Cow::Borrowed(data),
        };
        if piece.len() == length { Ok(piece) } else { Err(self.damaged()) }
    }

    fn damaged(&self) -> Fault {
        corrupt(format!(
            "a payload of {} bytes ({:?}) is not what was stored; restore the database from a backup",
            self.size, self.hash
        ))
        .into()
    }
}

/// Removes payloads that nobody refers to and nobody has used for a day.
pub(super) fn collect(tx: &Tx) -> Done<()> {
    tx.execute(
        "DELETE FROM payload p WHERE p.touched_at < $1 \
         AND NOT EXISTS (SELECT FROM payload_reference r WHERE r.org_id = p.org_id AND r.hash = p.hash)",
        row![tx.now.0.saturating_sub(super::values::micros(KEPT))],
    )
}
