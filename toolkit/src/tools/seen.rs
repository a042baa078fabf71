//! Remembers which content of a file a model has seen, so that an edit of any other content is refused.
//!
//! The hash that `read`, `write` and `edit` report goes with the next edit of the file. Edits of one turn run beside each
//! other and all name the content that was read; [`Lineage`] knows that the others' results came from it.

use super::ToolOutcome;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The contents of files that a model has seen, by path: part of an agent's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FilesSeen(BTreeMap<String, String>);

impl FilesSeen {
    /// Notes what an outcome showed of a file.
    pub fn note(&mut self, outcome: &ToolOutcome) {
        let field = |name| outcome.details.get(name).and_then(Value::as_str);
        let Some(hash) = field("hash") else { return };
        for path in [field("path"), field("said")].into_iter().flatten() {
            self.0.insert(path.to_owned(), hash.to_owned());
        }
    }

    /// The hash to send with a call whose arguments name a file; none where the model has not seen it.
    pub fn of_call(&self, arguments: &Value) -> Option<&str> {
        let requested = arguments.get("path")?.as_str()?;
        let plain: PathBuf = Path::new(requested).components().collect();
        self.0.get(requested).or_else(|| self.0.get(plain.to_str()?)).map(String::as_str)
    }
}

/// The results of this session's own changes, by file.
#[derive(Clone, Default)]
pub(crate) struct Lineage(Arc<Mutex<HashMap<PathBuf, Vec<String>>>>);

impl Lineage {
    /// Notes a change of a file from one content to another.
    pub fn changed(&self, path: &Path, before: Option<&str>, after: &str) {
        let mut files = self.0.lock();
        let line = files.entry(path.to_owned()).or_default();
        if line.last().map(String::as_str) != before {
            line.clear();
            line.extend(before.map(str::to_owned));
        }
        line.push(after.to_owned());
    }

    /// Whether the present content is the one seen, or came from it by this session's changes alone.
    pub fn follows(&self, path: &Path, seen: &str, present: &str) -> bool {
        seen == present
            || self.0.lock().get(path).is_some_and(|line| {
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
