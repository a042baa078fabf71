//! The messages of database errors. The owner of the database gets its own words too; callers of a server do not.

use crate::error::{Code, Error};

/// Stands for `found` if only the database's own words say what was wrong.
pub(in crate::storage) const REFUSED: &str = "the database did not do it";

/// The parts of the message of a command that failed.
pub(in crate::storage) struct DatabaseError<'a> {
    /// What the command was to do.
    pub asked: &'a str,
    /// What was wrong.
    pub found: &'a str,
    /// The database's own words.
    pub said: String,
    /// What became of the request.
    pub outcome: &'a str,
    /// What the caller can do.
    pub advice: &'a str,
}

impl DatabaseError<'_> {
    /// Makes the error.
    pub(in crate::storage) fn into_error(self, code: Code, database: &str) -> Error {
        let Self { asked, found, said, outcome, advice } = self;
        let again = if code.is_retryable() { ", then the same request may be sent again" } else { "" };
        let tell = |found: &str| format!("{asked}: {found}; {outcome}; {advice}{again}");
        let inside = match found {
            REFUSED => format!("{database} says \"{said}\""),
            found => format!("{found}: {database} says \"{said}\""),
        };
        Error::new(code, tell(&inside)).outside(tell(found))
    }
}

/// The error for damaged stored data.
pub(in crate::storage) fn corrupt(message: impl Into<String>) -> Error {
    Error::new(Code::CorruptCheckpoint, message)
}

/// The error for a row that cannot be read. `what` says what is wrong with it.
pub(in crate::storage) fn unreadable(asked: &str, what: &str) -> Error {
    corrupt(format!("{asked}: a stored row is not readable: {what}"))
        .outside(format!("{asked}: a stored row is not readable; who runs the server must look"))
}

/// The error for a command that came after the database was closed.
pub(in crate::storage) fn closed(asked: &str) -> Error {
    Error::new(Code::StorageUnavailable, format!("{asked}: the database is closed; open it again"))
}

/// The error for an id that names nothing.
pub(in crate::storage) fn unknown(what: &str, id: impl std::fmt::Display) -> Error {
    Error::new(Code::NotFound, format!("there is no {what} {id} here; check the id and the database"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_a_server_are_told_what_to_do_and_nothing_of_the_database() {
        let (said, outcome, advice) = ("disk full: /data/runs.db".to_owned(), "nothing was changed", "make room");
        let trouble = DatabaseError { asked: "commit", found: REFUSED, said, outcome, advice };
        let error = trouble.into_error(Code::StorageUnavailable, "SQLite");
        assert!(error.message().contains("SQLite says \"disk full: /data/runs.db\""), "{error}");
        let outside = "commit: the database did not do it; nothing was changed; make room, then the same request may be \
                       sent again";
        assert!(error.tells_inside() && error.message_outside() == outside, "{}", error.message_outside());
    }
}
