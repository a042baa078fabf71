//! How a command on the database can fail, and the errors that callers get.
//!
//! A [`Fault::Domain`] is an answer of our own, such as a lost lease or an unknown run. A [`Fault::Sql`] is an error of
//! the database itself. The writer undoes the transaction and turns it into an error that says what was asked, what
//! SQLite said and what to do.

use crate::error::{Code, Error};
use crate::storage::sql::Failing;
use crate::storage::sql::database_error::{DatabaseError, REFUSED, unreadable};
use rusqlite::ErrorCode;

/// Why a command failed.
#[derive(Debug)]
pub(in crate::storage) enum Fault {
    /// The answer is an error; the database is fine.
    Domain(Error),
    /// The database could not carry the command out.
    Sql(rusqlite::Error),
}

/// The result of a command.
pub(super) type Done<T> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Domain(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Failing for Fault {
    fn answer(self) -> Result<Error, Self> {
        match self {
            Self::Domain(error) => Ok(error),
            Self::Sql(_) => Err(self),
        }
    }

    fn refusal(self, _: &str) -> Result<Error, Self> {
        self.answer()
    }

    fn is_unreadable(&self) -> bool {
        matches!(self, Self::Sql(rusqlite::Error::FromSqlConversionFailure(..)))
    }
}

impl Fault {
    /// The error that the caller gets when nothing of the command was kept.
    pub(super) fn into_error(self, asked: &str) -> Error {
        match self {
            Self::Domain(error) => error,
            Self::Sql(error) => explain(asked, error, "nothing was changed"),
        }
    }
}

/// Whether another connection holds a lock that was needed.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Turns SQLite's error into ours. `outcome` says what became of the request.
pub(super) fn explain(asked: &str, error: rusqlite::Error, outcome: &str) -> Error {
    let (code, found, advice) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let advice =
                "wait until the process that holds the write lock is done (another tool may have the file open)";
            (Code::StorageUnavailable, REFUSED, advice)
        }
        Some(ErrorCode::DiskFull) => (Code::StorageUnavailable, REFUSED, "make room on the disk"),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            (Code::StorageUnavailable, REFUSED, "check the disk and the file's permissions")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (Code::StorageUnavailable, REFUSED, "make the file and its folder writable")
        }
        Some(ErrorCode::OutOfMemory) => (Code::StorageUnavailable, REFUSED, "free some memory"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (Code::CorruptCheckpoint, REFUSED, "restore the file from a backup")
        }
        Some(ErrorCode::ConstraintViolation) => {
            (Code::InvalidArgument, "an id in the request is taken by another row", "use a fresh one")
        }
        Some(ErrorCode::TooBig) => {
            (Code::PayloadTooLarge, "a value is too large for a row", "pass a reference instead")
        }
        Some(_) => (Code::StorageUnavailable, REFUSED, "see whether the disk and the file are sound"),
        None => return unreadable(asked, &error.to_string()).caused_by(error),
    };
    DatabaseError { asked, found, said: error.to_string(), outcome, advice }.into_error(code, "SQLite").caused_by(error)
}
