//! Brings a database to this version's schema, by numbered steps that only go forward. Each is one transaction under a
//! lock.
//!
//! The number of the last step is in `flovyn_schema`. The lock is an advisory one, which ends with the transaction:
//! several processes may open a new database at the same time, and one that is killed blocks nobody.

use super::fault::Done;
use super::link::Ask;
use super::link::Link;
use crate::error::{Code, Error, Result};
use crate::storage::sql::database_error::corrupt;

/// Every step in order; the first brings an empty database to version 1.
pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_expectations.sql"),
    include_str!("migrations/0003_children.sql"),
    include_str!("migrations/0004_families.sql"),
    include_str!("migrations/0005_conversations.sql"),
    include_str!("migrations/0006_handoffs.sql"),
    include_str!("migrations/0007_start_timeouts.sql"),
    include_str!("migrations/0008_persistence.sql"),
    include_str!("migrations/0009_machines.sql"),
    include_str!("migrations/0010_returned_signals.sql"),
];

/// Begins a step and takes the lock. The number is "FLVN".
const LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(1179407950)";
const NOTEBOOK: &str = "CREATE TABLE IF NOT EXISTS flovyn_schema (version INTEGER NOT NULL)";
const VERSION: &str = "SELECT max(version), to_regclass('agent_execution') IS NOT NULL FROM flovyn_schema";

/// Applies the steps that a database lacks.
pub(super) fn migrate(link: &mut Link) -> Result<()> {
    link.connect()?;
    let migrated = steps(link);
    if migrated.is_err() {
        link.rollback();
    }
    migrated.map_err(|fault| {
        fault
            .into_error("bring the database to this version's schema", "the schema is as it was before the failed step")
    })
}

fn steps(link: &mut Link) -> Done<()> {
    let newest = STEPS.len();
    // First without the lock. If there is nothing to do, the user needs no right to create tables.
    if version(link)? == Some(newest) {
        return Ok(());
    }
    loop {
        link.batch(LOCK)?;
        link.batch(NOTEBOOK)?;
        let version = version(link)?.unwrap_or(0);
        if version > newest {
            return Err(Error::new(
                Code::SchemaTooNew,
                format!(
                    "the database has schema {version} and this version knows {newest}; use a newer version, or another \
                     database"
                ),
            )
            .with("found", version)
            .with("known", newest)
            .into());
        }
        let Some(sql) = STEPS.get(version) else { return link.batch("COMMIT") };
        link.batch(sql)?;
        link.batch(&format!("INSERT INTO flovyn_schema VALUES ({})", version + 1))?;
        link.batch("COMMIT")?;
    }
}

/// Whether row-level security holds for the session's user. If that cannot be found out, it is taken not to.
pub(super) fn is_held(link: &mut Link) -> bool {
    let held = "SELECT NOT (rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname = current_user";
    let told = link.exchange(&[Ask::plain(held)]).ok();
    told.and_then(|answers| answers.first()?.first()?.try_get(0).ok()).unwrap_or(false)
}

/// The version of the database's schema. None for a database that was never migrated.
fn version(link: &mut Link) -> Done<Option<usize>> {
    let there = link.exchange(&[Ask::plain("SELECT to_regclass('flovyn_schema') IS NOT NULL")])?;
    if !there[0][0].try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let found = link.exchange(&[Ask::plain(VERSION)])?;
    let (version, tables): (Option<i32>, bool) = (found[0][0].try_get(0)?, found[0][0].try_get(1)?);
    match version {
        Some(version) => {
            let version = usize::try_from(version);
            version.map(Some).map_err(|_| corrupt("the number of the schema is negative; restore it").into())
        }
        None if tables => Err(Error::new(
            Code::InvalidArgument,
            "the schema has a table agent_execution that is not ours; name a database or a search_path of its own for runs",
        )
        .into()),
        None => Ok(None),
    }
}
