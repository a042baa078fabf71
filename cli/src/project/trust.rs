//! Which folders are trusted: what they allow and run counts there. Asked once per folder, kept in `~/.flovyn/trust.json`.

use crate::Result;
use flovyn_core::error::{Code, Error};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file in Flovyn's folder.
const FILE: &str = "trust.json";

/// The folders that are trusted.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// By canonical path: whether it is trusted.
    folders: Map<String, Value>,
    file: Option<PathBuf>,
    /// Whether every folder is, by `--trust`.
    is_given: bool,
}

impl Trust {
    /// Reads what was answered so far. `is_given`: this process trusts without asking.
    ///
    /// # Errors
    ///
    /// The file is there and cannot be read.
    pub(crate) fn open(home: Option<&Path>, is_given: bool) -> Result<Self> {
        let Some(file) = home.map(|home| home.join(FILE)) else { return Ok(Self { is_given, ..Self::default() }) };
        let wrong = |why: String| {
            let message = format!(
                "{} cannot be read: {why}; mend it or remove it, then folders are asked about again",
                file.display()
            );
            Error::new(Code::InvalidArgument, message)
        };
        let folders = match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(wrong(error.to_string()).into()),
        };
        Ok(Self { folders, file: Some(file), is_given })
    }

    /// Whether a folder is trusted.
    pub(crate) fn covers(&self, root: &Path) -> bool {
        self.is_given || self.answered(root) == Some(true)
    }

    /// What was answered about a folder; none where nobody was asked.
    pub(crate) fn answered(&self, root: &Path) -> Option<bool> {
        self.folders.get(&key(root))?["trusted"].as_bool()
    }

    /// Whether `--trust` was given.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Remembers an answer.
    pub(crate) fn remember(&mut self, root: &Path, trusted: bool) -> Result {
        self.folders.insert(key(root), json!({ "trusted": trusted }));
        let Some(file) = &self.file else { return Ok(()) };
        let write = || {
            let text = serde_json::to_string_pretty(&self.folders)?;
            std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
            // Renamed into place, so that a reader never sees half of it.
            let fresh = file.with_extension(format!("json.{}", std::process::id()));
            std::fs::File::create(&fresh)?.write_all(text.as_bytes())?;
            std::fs::rename(&fresh, file)
        };
        write().map_err(|error| {
            let message = format!("the answer could not be written to {}: {error}", file.display());
            Error::new(Code::InvalidArgument, message).into()
        })
    }
}

fn key(root: &Path) -> String {
    root.canonicalize().unwrap_or_else(|_| root.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_remembered_by_the_folder_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, root) = (folder.path().join("home"), folder.path().join("repo"));
        std::fs::create_dir(&root).expect("a folder");
        std::os::unix::fs::symlink(&root, folder.path().join("link")).expect("a link");
        let open = |given| Trust::open(Some(&home), given).expect("it is read");
        let mut trust = open(false);
        assert_eq!((trust.covers(&root), trust.answered(&root)), (false, None));
        trust.remember(&root, true).expect("it is written");
        assert!(open(false).covers(&folder.path().join("link")));
        assert!(!open(false).covers(folder.path()), "what is above it is not trusted");
        open(false).remember(&root, false).expect("it is written");
        assert_eq!((open(false).covers(&root), open(true).covers(&root)), (false, true));
        std::fs::write(home.join(FILE), "[").expect("a file");
        assert!(Trust::open(Some(&home), false).expect_err("it is broken").to_string().contains("trust.json"));
    }
}
