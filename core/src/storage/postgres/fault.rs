//! How a command on the database can fail, and the errors that callers get.
//!
//! A [`Fault::Domain`] is an answer of our own, such as a lost lease or an unknown run. A [`Fault::Sql`] is an error of
//! the database itself. The committer undoes the transaction and turns it into an error that says what was asked, what
//! PostgreSQL said and what to do.

use crate::error::{Code, Error};
use crate::storage::sql::Failing;
use crate::storage::sql::database_error::{DatabaseError, REFUSED, unreadable};
use tokio_postgres::error::SqlState;

/// Why a command failed.
#[derive(Debug)]
pub(in crate::storage) enum Fault {
    /// The answer is an error; the database is fine.
    Domain(Error),
    /// The database could not carry the command out.
    Sql(tokio_postgres::Error),
    /// A stored row cannot be read.
    Unreadable(String),
}

/// The result of a command.
pub(super) type Done<T> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Domain(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl Failing for Fault {
    fn answer(self) -> Result<Error, Self> {
        match self {
            Self::Domain(error) => Ok(error),
            Self::Sql(_) | Self::Unreadable(_) => Err(self),
        }
    }

    fn refusal(self, asked: &str) -> Result<Error, Self> {
        match self {
            Self::Sql(_) => Err(self),
            fault => Ok(fault.into_error(asked, "nothing was changed")),
        }
    }

    fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable(_))
    }
}

impl Fault {
    /// The error that the caller gets. `outcome` says what became of the request.
    pub(super) fn into_error(self, asked: &str, outcome: &str) -> Error {
        match self {
            Self::Domain(error) => error,
            Self::Sql(error) => explain(asked, error, outcome),
            Self::Unreadable(what) => unreadable(asked, &what),
        }
    }
}

/// Whether the command failed because of another transaction, so that it may be run again at once.
pub(super) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    let conflicts = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    // Another process has claimed a run of the same concurrency key at the same moment. The next attempt sees that.
    let key = error.as_db_error().and_then(|error| error.constraint()) == Some("agent_execution_key_held");
    key || error.code().is_some_and(|code| conflicts.contains(code))
}

/// PostgreSQL's own words.
fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(database) => format!("{} ({})", database.message(), database.code().code()),
        None => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            text
        }
    }
}

/// Turns PostgreSQL's error into ours. `outcome` says what became of the request.
pub(super) fn explain(asked: &str, error: tokio_postgres::Error, outcome: &str) -> Error {
    let said = words(&error);
    let class = error.code().map_or("", |code| code.code().get(..2).unwrap_or_default());
    let (code, found, advice) = match (error.code(), class) {
        // Errors that a pooler itself gives.
        _ if said.contains("statement pooling") => (
            Code::InvalidArgument,
            "a pooler gives each statement another session, in which no transaction can be",
            "set pool_mode = transaction or session in it, or connect to PostgreSQL itself",
        ),
        _ if said.contains("unsupported startup parameter") => (
            Code::InvalidArgument,
            "a pooler takes no such option",
            "leave it out of the URL, or set it in the pooler (PgBouncer: connect_query) or for the user (ALTER ROLE … SET)",
        ),
        (Some(code), _) if [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(code) => {
            let advice = "if a pooler of transactions stands between, say so in the URL: ?pooler=transaction";
            (Code::StorageUnavailable, REFUSED, advice)
        }
        (Some(code), _) if *code == SqlState::UNIQUE_VIOLATION => {
            (Code::InvalidArgument, "an id in the request is taken by another row", "use a fresh one")
        }
        (Some(code), _) if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE => (
            Code::InvalidArgument,
            "a name or text holds a NUL character, which PostgreSQL cannot store",
            "leave it out",
        ),
        (_, "22" | "54") => (Code::InvalidArgument, "a value does not fit its column", "send another"),
        (_, "23") => (Code::InvalidArgument, "the request names a row that is not there", "make that first"),
        (_, "28" | "3D") => (Code::StorageUnavailable, REFUSED, "check user, password and database of the URL"),
        (_, "40") => (Code::StorageUnavailable, REFUSED, "other writers were in the way"),
        (_, "42") => {
            let advice = "give the user its rights on the tables, and let nobody else change them";
            (Code::StorageUnavailable, REFUSED, advice)
        }
        (_, "53") => (Code::StorageUnavailable, REFUSED, "give the server more room (disk, memory or connections)"),
        (_, "25") => (Code::StorageUnavailable, REFUSED, "connect to the primary, not to a standby"),
        (_, "XX") => (Code::CorruptCheckpoint, REFUSED, "restore the database from a backup"),
        _ => (Code::StorageUnavailable, REFUSED, "see whether the server runs and can be reached"),
    };
    DatabaseError { asked, found, said, outcome, advice }.into_error(code, "PostgreSQL").caused_by(error)
}
