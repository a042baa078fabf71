//! Remembers which content of a file a model has seen, so that an edit of any other content is refused.
//!
//! `read`, `write` and `edit` report a hash of the content, and the next edit of the file is sent with that hash. All
//! edits of one turn name the content that was read before the turn, although each edit changes it. [`Lineage`] knows
//! that the changed contents were made from that one, also after the process has died between two edits.

use super::ToolOutcome;
use flovyn_core::sync::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The hashes of the file contents that a model has seen, by path. They are part of an agent's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FilesSeen(BTreeMap<String, String>);

impl FilesSeen {
    /// Takes note of the content of a file that an outcome has shown.
    pub fn note(&mut self, outcome: &ToolOutcome) {
        let field = |name| outcome.details.get(name).and_then(Value::as_str);
        let Some(hash) = field("hash") else { return };
        for path in [field("path"), field("said")].into_iter().flatten() {
            self.0.insert(path.to_owned(), hash.to_owned());
        }
    }

    /// The hash to send with a call whose arguments name a file; none if the model has not seen the file.
    pub fn of_call(&self, arguments: &Value) -> Option<&str> {
        let requested = arguments.get("path")?.as_str()?;
        let plain: PathBuf = Path::new(requested).components().collect();
        self.0.get(requested).or_else(|| self.0.get(plain.to_str()?)).map(String::as_str)
    }
}

/// The contents that this session's own changes have made, by file.
#[derive(Clone, Default)]
pub(crate) struct Lineage(Arc<Changes>);

#[derive(Default)]
struct Changes {
    files: Mutex<HashMap<PathBuf, Vec<String>>>,
    /// Where they are kept for the next process.
    log: Option<PathBuf>,
}

/// A line of the log: the file, and its content before and after.
type Change = (PathBuf, Option<String>, String);

impl Lineage {
    /// The changes of a session that go on in a file, with those that earlier processes have made.
    pub(crate) fn open(log: PathBuf) -> Self {
        let known = fs::read_to_string(&log).unwrap_or_default();
        let lineage = Self(Arc::new(Changes { files: Mutex::default(), log: Some(log) }));
        // The last line is not whole if its process died while it wrote it.
        for (path, before, after) in known.lines().filter_map(|line| serde_json::from_str::<Change>(line).ok()) {
            lineage.note(&path, before.as_deref(), &after);
        }
        lineage
    }

    /// Takes note of a change of a file from one content to another.
    pub(crate) fn changed(&self, path: &Path, before: Option<&str>, after: &str) {
        self.note(path, before, after);
        let Some(log) = &self.0.log else { return };
        let Ok(line) = serde_json::to_string(&(path, before, after)) else { return };
        let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(log);
        // If a change is lost, the model only has to read the file again.
        let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }

    fn note(&self, path: &Path, before: Option<&str>, after: &str) {
        let mut files = self.0.files.lock();
        let line = files.entry(path.to_owned()).or_default();
        if line.last().map(String::as_str) != before {
            line.clear();
            line.extend(before.map(str::to_owned));
        }
        line.push(after.to_owned());
    }

    /// Whether the present content was made by this session.
    pub(crate) fn has_made(&self, path: &Path, present: &str) -> bool {
        self.0.files.lock().get(path).is_some_and(|line| line.last().is_some_and(|last| last == present))
    }

    /// Whether the present content is the one that was seen, or was made from it only by changes of this session.
    pub(crate) fn follows(&self, path: &Path, seen: &str, present: &str) -> bool {
        seen == present
            || self.0.files.lock().get(path).is_some_and(|line| {
                line.last().is_some_and(|last| last == present) && line.iter().any(|one| one == seen)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_of_somebody_else_cuts_the_line() {
        let (lineage, file) = (Lineage::default(), Path::new("a"));
        lineage.changed(file, Some("1"), "2");
        lineage.changed(file, Some("2"), "3");
        assert!(lineage.follows(file, "1", "3") && lineage.follows(file, "2", "3"));
        assert!(lineage.follows(file, "9", "9"));
        assert!(!lineage.follows(file, "1", "2"), "somebody put back what was there before");
        lineage.changed(file, Some("other"), "4");
        assert!(!lineage.follows(file, "1", "4") && lineage.follows(file, "other", "4"));
        assert!(!lineage.follows(Path::new("b"), "1", "3"));
    }

    #[test]
    fn what_was_read_goes_with_the_edit() {
        let mut seen = FilesSeen::default();
        seen.note(
            &ToolOutcome::text("…").with_details(json!({"path": "src/a.rs", "said": "/w/src/a.rs", "hash": "h1"})),
        );
        seen.note(&ToolOutcome::text("a command").with_details(json!({"exitCode": 0})));
        assert_eq!(seen.of_call(&json!({"path": "src/a.rs"})), Some("h1"));
        assert_eq!(seen.of_call(&json!({"path": "src/./a.rs"})), Some("h1"));
        assert_eq!(seen.of_call(&json!({"path": "/w/src/a.rs"})), Some("h1"));
        assert_eq!(seen.of_call(&json!({"path": "b.rs"})), None);
        assert_eq!(seen.of_call(&json!({"pattern": "a"})), None);
    }
}
