//! Reads the URL that chooses the backend.

use crate::error::{Code, Error, Result};
use crate::payload::HIGHEST_CEILING;
use std::path::PathBuf;
use std::time::Duration;

/// The lowest limit for payloads that a URL may give. Payloads up to this size are sent in one piece.
const LOWEST_CEILING: u64 = 64 << 10;

/// The backend that a URL names. For the crates of this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// In the memory of this process.
    Memory {
        /// All who open the same name in this process share one backend; without a name it is not shared.
        name: Option<String>,
    },
    /// One file.
    Sqlite {
        /// The file.
        path: PathBuf,
        /// `?synchronous=normal`: may lose acknowledged commits at power loss.
        normal: bool,
        /// `?retention=30d`: ended runs are removed after so long; kept for ever otherwise.
        retention: Option<Duration>,
        /// `?max_payload=1GiB`: the ceiling of one payload in bytes; 256 MiB otherwise.
        max_payload: Option<u64>,
        /// `minimal:FILE`: runs that are started without saying so keep no journal.
        minimal: bool,
    },
    /// A server.
    Server {
        /// `http://HOST:PORT`, or `https://` where the server shows a certificate.
        url: String,
    },
    /// A PostgreSQL database.
    Postgres {
        /// The URL without the options of this engine, as PostgreSQL's own clients take it.
        url: String,
        /// `?retention=30d`: ended runs are removed after so long; kept for ever otherwise.
        retention: Option<Duration>,
        /// `?max_payload=1GiB`: the ceiling of one payload in bytes; 256 MiB otherwise.
        max_payload: Option<u64>,
    },
}

/// The URL of the backend to open, and where it comes from. For the crates of this repository.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The URL.
    pub url: String,
    /// Where it comes from, in words, if the caller has not given it.
    by: Option<&'static str>,
}

impl Chosen {
    /// The URL that is given, or else `FLOVYN_URL`, or else `sqlite:flovyn.db`.
    pub fn of(given: Option<&str>) -> Self {
        if let Some(url) = given {
            return Self { url: url.to_owned(), by: None };
        }
        match std::env::var("FLOVYN_URL") {
            Ok(url) if !url.is_empty() => Self { url, by: Some("FLOVYN_URL names this backend") },
            _ => {
                let by = "no URL is given and FLOVYN_URL is not set, so it is sqlite:flovyn.db";
                Self { url: "sqlite:flovyn.db".into(), by: Some(by) }
            }
        }
    }

    /// Adds to an error of opening it where the URL comes from.
    #[must_use]
    pub fn explain(&self, error: Error) -> Error {
        match self.by {
            Some(by) => error.noting(by),
            None => error,
        }
    }
}

/// Reads a URL.
pub fn parse_url(url: &str) -> Result<Backend> {
    let wrong = |why: String| Error::new(Code::InvalidArgument, format!("{url:?} is no backend URL: {why}"));
    if let Some(name) = url.strip_prefix("memory:") {
        return Ok(Backend::Memory { name: (!name.is_empty()).then(|| name.to_owned()) });
    }
    let minimal = url.starts_with("minimal:");
    if let Some(rest) = url.strip_prefix("sqlite:").or_else(|| url.strip_prefix("minimal:")) {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            let scheme = if minimal { "minimal" } else { "sqlite" };
            return Err(wrong(format!("it names no file; write {scheme}:agents.db")));
        }
        let (common, others) = CommonOptions::of(query).map_err(|error| wrong(error.message().to_owned()))?;
        let mut normal = false;
        for option in others {
            match option {
                "synchronous=normal" => normal = true,
                "synchronous=full" => normal = false,
                _ => {
                    let known = "synchronous=full or normal, retention=30d and max_payload=1GiB";
                    return Err(wrong(format!("option {option:?} is unknown; known are {known}")));
                }
            }
        }
        let CommonOptions { retention, max_payload } = common;
        return Ok(Backend::Sqlite { path: path.into(), normal, retention, max_payload, minimal });
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let (server, query) = url.split_once('?').unwrap_or((url, ""));
        let (CommonOptions { retention, max_payload }, theirs) =
            CommonOptions::of(query).map_err(|error| wrong(error.message().to_owned()))?;
        let query = if theirs.is_empty() { String::new() } else { format!("?{}", theirs.join("&")) };
        return Ok(Backend::Postgres { url: format!("{server}{query}"), retention, max_payload });
    }
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "http" | "https" if url[scheme.len()..].starts_with("://") => {
            Ok(Backend::Server { url: url.trim_end_matches('/').to_owned() })
        }
        "postgres" | "postgresql" => Err(wrong("write postgres://user@host/database".into())),
        _ => Err(wrong(
            "it starts with no known scheme; use sqlite:FILE, minimal:FILE, postgres://, memory:, http://HOST:PORT or https://HOST:PORT".into(),
        )),
    }
}

/// The options that every database takes.
#[derive(Default)]
struct CommonOptions {
    retention: Option<Duration>,
    max_payload: Option<u64>,
}

impl CommonOptions {
    /// Reads these options from a query, and returns the other options of the query.
    fn of(query: &str) -> Result<(Self, Vec<&str>)> {
        let (mut common, mut others) = (Self::default(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("retention", age)) => common.retention = Some(parse_age(age)?),
                Some(("max_payload", size)) => common.max_payload = Some(parse_ceiling(size)?),
                _ => others.push(option),
            }
        }
        Ok((common, others))
    }
}

/// Reads a limit for payloads, such as `512MiB` or `1GiB`.
fn parse_ceiling(size: &str) -> Result<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((size.strip_suffix(unit)?, shift)));
    let read = unit.and_then(|(number, shift)| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    let allowed = read.filter(|bytes| (LOWEST_CEILING..=HIGHEST_CEILING).contains(bytes));
    allowed.ok_or_else(|| {
        let message = format!("{size:?} is no ceiling of payloads; write 64KiB to 1GiB, such as 512MiB");
        Error::new(Code::InvalidArgument, message)
    })
}

/// Reads an age such as `30d` or `12h`.
///
/// Errors: `InvalidArgument`.
pub fn parse_age(age: &str) -> Result<Duration> {
    let hours = [('d', 24), ('h', 1)].into_iter().find_map(|(unit, hours)| Some((age.strip_suffix(unit)?, hours)));
    let read = hours
        .and_then(|(number, hours)| Some(Duration::from_secs(u64::from(number.parse::<u32>().ok()?) * hours * 3_600)));
    read.ok_or_else(|| Error::new(Code::InvalidArgument, format!("{age:?} is no age; write 30d or 12h")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_backends() {
        assert_eq!(parse_url("memory:").unwrap(), Backend::Memory { name: None });
        assert_eq!(parse_url("memory:a").unwrap(), Backend::Memory { name: Some("a".into()) });
        assert_eq!(
            parse_url("sqlite:a.db").unwrap(),
            Backend::Sqlite { path: "a.db".into(), normal: false, retention: None, max_payload: None, minimal: false }
        );
        let forgets =
            Backend::Sqlite { path: "a.db".into(), normal: false, retention: None, max_payload: None, minimal: true };
        assert_eq!(parse_url("minimal:a.db").unwrap(), forgets);
        let absolute = Backend::Sqlite {
            path: "/x/a.db".into(),
            normal: true,
            retention: None,
            max_payload: Some(512 << 20),
            minimal: false,
        };
        assert_eq!(parse_url("sqlite:/x/a.db?synchronous=normal&max_payload=512MiB").unwrap(), absolute);
        let retention = Some(Duration::from_secs(30 * 86_400));
        let month =
            Backend::Sqlite { path: "a.db".into(), normal: false, retention, max_payload: None, minimal: false };
        assert_eq!(parse_url("sqlite:a.db?retention=30d").unwrap(), month);
        let server = Backend::Server { url: "http://localhost:9090".into() };
        assert_eq!(parse_url("http://localhost:9090/").unwrap(), server);
        assert_eq!(parse_url("https://h:1/").unwrap(), Backend::Server { url: "https://h:1".into() });
        let url = "postgres://me@db/runs?sslmode=disable".to_owned();
        assert_eq!(
            parse_url(&url).unwrap(),
            Backend::Postgres { url: url.clone(), retention: None, max_payload: None }
        );
        let retention = Some(Duration::from_secs(12 * 3_600));
        let half = Backend::Postgres { url, retention, max_payload: Some(1 << 30) };
        assert_eq!(parse_url("postgres://me@db/runs?retention=12h&sslmode=disable&max_payload=1GiB").unwrap(), half);
        for wrong in [
            "",
            "a.db",
            "sqlite:",
            "minimal:",
            "sqlite:a?x=1",
            "sqlite:a?retention=",
            "sqlite:a?retention=3",
            "sqlite:a?max_payload=1",
            "sqlite:a?max_payload=63KiB",
            "postgres://me@db/runs?max_payload=2GiB",
            "postgres:x",
            "postgres://me@db/runs?retention=soon",
            "https:x",
        ] {
            assert_eq!(parse_url(wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }
}
