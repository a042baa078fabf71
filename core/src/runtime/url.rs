//! One URL picks the backend.

use crate::error::{Code, Error, Result};
use std::path::PathBuf;

/// What a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// In this process; a name shares it within the process.
    Memory {
        /// The shared name.
        name: Option<String>,
    },
    /// One file.
    Sqlite {
        /// The file.
        path: PathBuf,
        /// `?synchronous=normal`: may lose acknowledged commits at power loss.
        normal: bool,
    },
}

/// Reads a URL.
pub fn parse_url(url: &str) -> Result<Backend> {
    let wrong = |why: String| Error::new(Code::InvalidArgument, format!("{url:?} is no backend URL: {why}"));
    if let Some(name) = url.strip_prefix("memory:") {
        return Ok(Backend::Memory { name: (!name.is_empty()).then(|| name.to_owned()) });
    }
    if let Some(rest) = url.strip_prefix("sqlite:") {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(wrong("it names no file; write sqlite:agents.db".into()));
        }
        let mut normal = false;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("synchronous", "normal")) => normal = true,
                Some(("synchronous", "full")) => normal = false,
                _ => return Err(wrong(format!("option {option:?} is unknown; known is synchronous=full or normal"))),
            }
        }
        return Ok(Backend::Sqlite { path: path.into(), normal });
    }
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "postgres" | "postgresql" | "http" | "https" => {
            Err(wrong(format!("this version has no {scheme} backend yet; use sqlite:FILE or memory:")))
        }
        _ => Err(wrong("it starts with no known scheme; use sqlite:FILE or memory:".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_backends() {
        assert_eq!(parse_url("memory:").unwrap(), Backend::Memory { name: None });
        assert_eq!(parse_url("memory:a").unwrap(), Backend::Memory { name: Some("a".into()) });
        assert_eq!(parse_url("sqlite:a.db").unwrap(), Backend::Sqlite { path: "a.db".into(), normal: false });
        let absolute = Backend::Sqlite { path: "/x/a.db".into(), normal: true };
        assert_eq!(parse_url("sqlite:/x/a.db?synchronous=normal").unwrap(), absolute);
        for wrong in ["", "a.db", "sqlite:", "sqlite:a?x=1", "postgres://x/y"] {
            assert_eq!(parse_url(wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }
}
