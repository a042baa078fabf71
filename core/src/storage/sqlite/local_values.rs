//! Values of runs whose rows are in another store: this file is then that of the machine which runs them, and the other store
//! has references to what is here.
//!
//! A value is here before the other store refers to it, so what is referred to is here. What a commit left behind that never
//! came to the other store takes room, and nothing else.

use super::SqliteStorage;
use super::fault::Done;
use super::tx::Tx;
use super::values::{Cell, blob, micros, payload};
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::payload::{ContentHash, Payload};
use crate::storage::sql::Backend;
use rusqlite::params;
use std::collections::HashMap;
use std::time::Duration;

/// How long the values of a run are kept after its end, for a fork of it or one who tries it again.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

impl SqliteStorage {
    /// Keeps values of a run, which this file knows from then on. They are durable when this returns. A large one is named by its hash from then on, and stays in
    /// memory.
    pub(crate) async fn keep_values(
        &self,
        org: OrgId,
        run: ExecutionId,
        values: &mut [(ContentHash, Payload)],
    ) -> Result<()> {
        for (_, value) in &mut *values {
            self.settle_and_keep(org, value).await?;
        }
        let values = values.to_vec();
        self.write_alone("keep values of a run", move |tx| {
            let number = number_of(tx, org, run)?;
            for (hash, value) in &values {
                tx.execute(
                    "INSERT OR IGNORE INTO local_value (run, hash, value) VALUES (?1, ?2, ?3)",
                    params![number, &hash.0, Cell(value)],
                )?;
                refer(tx, org, number, value)?;
            }
            // A run that goes on has not ended.
            tx.execute("UPDATE local_run SET ended_at = NULL WHERE number = ?1 AND ended_at IS NOT NULL", [number])?;
            Ok(())
        })
        .await
    }

    /// Whether the run has begun with this file.
    pub(crate) async fn knows(&self, org: OrgId, run: ExecutionId) -> Result<bool> {
        let sql = "SELECT 1 FROM local_run WHERE org_id = ?1 AND id = ?2";
        self.read("look for a local run", org, move |tx| {
            Ok(tx.first(sql, params![blob(&org.0), blob(&run.0)], |_| Ok(()))?.is_some())
        })
        .await
    }

    /// The values with these hashes, as far as they are here. Large ones are named by their hash.
    pub(crate) async fn kept_values(
        &self,
        org: OrgId,
        hashes: Vec<ContentHash>,
    ) -> Result<HashMap<ContentHash, Payload>> {
        self.read("read values of a run", org, move |tx| {
            let mut found = HashMap::with_capacity(hashes.len());
            for hash in &hashes {
                let value = tx.first(
                    "SELECT v.value FROM local_value v JOIN local_run r ON r.number = v.run \
                     WHERE v.hash = ?1 AND r.org_id = ?2 LIMIT 1",
                    params![&hash.0, blob(&org.0)],
                    |row| payload(row, 0),
                )?;
                found.extend(value.map(|value| (*hash, value)));
            }
            Ok(found)
        })
        .await
    }

    /// Notes that a run has ended, and removes the values of those that ended long ago.
    pub(crate) async fn end_values(&self, org: OrgId, run: ExecutionId) -> Result<()> {
        self.write_later("note the end of a run", run, move |tx| {
            tx.execute(
                "UPDATE local_run SET ended_at = ?3 WHERE org_id = ?1 AND id = ?2",
                params![blob(&org.0), blob(&run.0), tx.now.0],
            )?;
            let before = tx.now.0.saturating_sub(micros(KEPT));
            tx.execute(
                "DELETE FROM payload_reference WHERE run IN (SELECT number FROM local_run WHERE ended_at < ?1)",
                [before],
            )?;
            tx.execute("DELETE FROM local_run WHERE ended_at < ?1", [before])?;
            super::payloads::collect(tx)?;
            Ok(())
        })
        .await
    }
}

/// The number of a run in this file.
fn number_of(tx: &Tx, org: OrgId, run: ExecutionId) -> Done<i64> {
    let find = || {
        tx.first(
            "SELECT number FROM local_run WHERE org_id = ?1 AND id = ?2",
            params![blob(&org.0), blob(&run.0)],
            |row| row.get(0),
        )
    };
    if let Some(number) = find()? {
        return Ok(number);
    }
    tx.execute(
        "INSERT INTO local_run (number, org_id, id) SELECT coalesce(min(number), 0) - 1, ?1, ?2 FROM local_run",
        params![blob(&org.0), blob(&run.0)],
    )?;
    find()?.ok_or_else(|| super::values::missing("the row of a local run").into())
}

/// Keeps a large value from being removed as long as the run has it.
fn refer(tx: &Tx, org: OrgId, number: i64, value: &Payload) -> Done<()> {
    let Some((hash, size)) = value.stored() else { return Ok(()) };
    let referred = tx.execute(
        "INSERT OR IGNORE INTO payload_reference (payload, run) \
         SELECT id, ?4 FROM payload WHERE org_id = ?1 AND hash = ?2 AND size = ?3 AND complete = 1 \
         AND NOT EXISTS (SELECT 1 FROM payload_reference WHERE payload = payload.id AND run = ?4)",
        params![blob(&org.0), &hash.0, size, number],
    )?;
    let known = || {
        tx.first(
            "SELECT 1 FROM payload WHERE org_id = ?1 AND hash = ?2 AND size = ?3 AND complete = 1",
            params![blob(&org.0), &hash.0, size],
            |_| Ok(()),
        )
    };
    if referred == 0 && known()?.is_none() {
        let message = format!("a payload of {size} bytes ({hash:?}) is named but not stored on this machine");
        return Err(Error::new(Code::InvalidArgument, message).into());
    }
    Ok(())
}
