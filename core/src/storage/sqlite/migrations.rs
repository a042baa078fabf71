//! Brings a file to this version's schema, by numbered steps that only go forward. Each is one transaction under the
//! write lock.
//!
//! The number of the last step is SQLite's `user_version`. The library refinery is not used: if several processes open
//! a new file at the same time, the check of the version and the step have to be in one IMMEDIATE transaction, and with
//! refinery they are not.

use super::fault::explain;
use crate::error::{Code, Error, Result};
use rusqlite::{Connection, TransactionBehavior};

/// Every step in order; the first brings an empty file to version 1.
pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_children.sql"),
    include_str!("migrations/0003_families.sql"),
    include_str!("migrations/0004_conversations.sql"),
    include_str!("migrations/0005_handoffs.sql"),
    include_str!("migrations/0006_start_timeouts.sql"),
    include_str!("migrations/0007_persistence.sql"),
    include_str!("migrations/0008_machines.sql"),
    include_str!("migrations/0009_returned_signals.sql"),
    include_str!("migrations/0010_local_values.sql"),
];

/// Marks the file as ours ("FLVN").
const APPLICATION_ID: i64 = 0x464c_564e;

/// Whether a database is ours and has this version's schema.
pub(super) fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(number("PRAGMA application_id")? == APPLICATION_ID && number("PRAGMA user_version")? == STEPS.len() as i64)
}

/// Applies the steps that a file lacks. A file that lacks none is only read, so that it opens while others write
/// without a pause or hold the write lock for long.
pub(super) fn migrate(connection: &mut Connection) -> Result<()> {
    let _inside = crate::forks::enter();
    let told = |error| explain("bring the database to this version's schema", error, "the file is as it was");
    if is_ours(connection).map_err(told)? {
        return Ok(());
    }
    let newest = STEPS.len();
    loop {
        let step = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(told)?;
        let version: usize = step.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(told)?;
        let owner: i64 = step.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(told)?;
        let tables: i64 = step.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(told)?;
        if owner != APPLICATION_ID && (owner != 0 || version != 0 || tables != 0) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the file is a database of another program ({tables} tables); name a file of its own for runs"),
            ));
        }
        if version > newest {
            return Err(Error::new(
                Code::SchemaTooNew,
                format!(
                    "the database has schema {version} and this version knows {newest}; use a newer version, or another file"
                ),
            )
            .with("found", version)
            .with("known", newest));
        }
        let Some(sql) = STEPS.get(version) else { return Ok(()) };
        step.execute_batch(sql).map_err(told)?;
        step.execute_batch(&format!("PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={}", version + 1))
            .map_err(told)?;
        step.commit().map_err(told)?;
    }
}

/// The whole schema as one text: what `schema.sql` must hold.
#[cfg(test)]
fn described(connection: &Connection) -> String {
    let mut statement = connection
        .prepare(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC, name",
        )
        .unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|sql| format!("{};\n\n", sql.unwrap())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_file_equals_the_migrations() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/storage/sqlite/schema.sql");
        let made = format!(
            "-- Generated from the migrations; `FLOVYN_BLESS=1 cargo test` writes it.\n\n{}",
            described(&connection)
        );
        if std::env::var_os("FLOVYN_BLESS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), made);
    }

    #[test]
    fn a_newer_schema_and_a_foreign_file_are_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        connection.execute_batch("PRAGMA user_version=99").unwrap();
        assert_eq!(migrate(&mut connection).unwrap_err().code(), Code::SchemaTooNew);
        let mut foreign = Connection::open_in_memory().unwrap();
        foreign.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert_eq!(migrate(&mut foreign).unwrap_err().code(), Code::InvalidArgument);
    }
}
