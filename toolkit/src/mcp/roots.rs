//! The directories that servers are told of: those where the tools of runs work.

use flovyn_core::sync::RwLock;
use reqwest::Url;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Directories that may change while servers are connected.
#[derive(Default)]
pub(super) struct Roots(RwLock<Vec<PathBuf>>);

impl Roots {
    /// Sets the directories; returns whether they are others than before.
    pub(super) fn set(&self, roots: &[PathBuf]) -> bool {
        let mut known = self.0.write();
        let is_new = *known != roots;
        *known = roots.to_vec();
        is_new
    }

    /// Whether there are none. Then servers are not told that they may ask for them.
    pub(super) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// The answer to a server that asks for them: addresses of files, with the last part of each path as its name.
    pub(super) fn listed(&self) -> Value {
        let root = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            Some(json!({ "uri": Url::from_file_path(path).ok()?.to_string(), "name": name.unwrap_or_default() }))
        };
        json!({ "roots": self.0.read().iter().filter_map(root).collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_become_addresses_of_files() {
        let roots = Roots::default();
        assert!(roots.is_empty() && roots.set(&["/tmp/two words".into(), "/".into(), "not/absolute".into()]));
        assert!(!roots.set(&["/tmp/two words".into(), "/".into(), "not/absolute".into()]), "they are the same");
        let expected =
            json!([{ "uri": "file:///tmp/two%20words", "name": "two words" }, { "uri": "file:///", "name": "" }]);
        assert_eq!(roots.listed()["roots"], expected);
    }
}
