//! What the word before the cursor may become: a command of the chat, or a file of the directory.

use ignore::WalkBuilder;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Candidates that are offered.
const MAX_CANDIDATES: usize = 8;
/// Files of a directory that are looked at.
const MAX_FILES: usize = 100_000;

/// Something that the word may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// What replaces the word.
    pub text: String,
    /// What it is.
    pub about: String,
}

/// The candidates for the word before the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Candidates {
    /// Where the word begins, in bytes.
    pub start: usize,
    /// Best first; at least one.
    pub list: Vec<Candidate>,
    /// Whether the word is a command; else a file.
    pub is_command: bool,
}

/// Knows all candidates.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    commands: Vec<Candidate>,
    /// The prompts of MCP servers, once they are known.
    prompts: Vec<Candidate>,
    directory: Option<PathBuf>,
    /// The files of the directory, once they are known.
    files: Option<Arc<Mutex<Vec<String>>>>,
}

impl Completions {
    /// The commands, and the files of a directory but for those that its `.gitignore` names.
    pub(super) fn new(commands: Vec<Candidate>, directory: &Path) -> Self {
        Self { commands, directory: Some(directory.to_owned()), ..Self::default() }
    }

    /// Finds candidates for what stands before the cursor; none if it is neither a command nor a file.
    pub(super) fn find(&mut self, before: &str, behind: &str) -> Option<Candidates> {
        if before.starts_with('/') && !before.contains(char::is_whitespace) {
            if !behind.is_empty() {
                return None;
            }
            let known = self.commands.iter().chain(&self.prompts);
            let matching = known.filter(|command| command.text.starts_with(before)).cloned();
            return candidates(0, matching.collect(), true);
        }
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = before[start..].strip_prefix('@')?;
        let files = self.files()?;
        let files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = files.iter().filter_map(|file| Some((rank(file, word)?, file.len(), file))).collect();
        found.sort_unstable();
        let list = found.into_iter().take(MAX_CANDIDATES);
        candidates(
            start,
            list.map(|(_, _, file)| Candidate { text: format!("@{file}"), about: String::new() }).collect(),
            false,
        )
    }

    /// The files; they are listed when they are asked for first.
    fn files(&mut self) -> Option<Arc<Mutex<Vec<String>>>> {
        if self.files.is_none() {
            let directory = self.directory.clone()?;
            let files = Arc::new(Mutex::new(Vec::new()));
            let filled = files.clone();
            let listing =
                std::thread::Builder::new().name("flovyn-files".into()).spawn(move || list(&directory, &filled));
            let listing = listing.ok()?;
            self.files = Some(files);
            // Most directories are listed before a person has written the next letter.
            let since = std::time::Instant::now();
            while !listing.is_finished() && since.elapsed() < std::time::Duration::from_millis(100) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        self.files.clone()
    }

    /// Replaces the commands that MCP servers have.
    pub(super) fn set_prompts(&mut self, prompts: Vec<Candidate>) {
        self.prompts = prompts;
    }

    /// Lists the files anew when they are asked for next, since a turn may have changed them.
    pub(super) fn forget_files(&mut self) {
        self.files = None;
    }
}

fn candidates(start: usize, list: Vec<Candidate>, is_command: bool) -> Option<Candidates> {
    (!list.is_empty()).then_some(Candidates { start, list, is_command })
}

fn list(directory: &Path, files: &Mutex<Vec<String>>) {
    let walk = WalkBuilder::new(directory).require_git(false).hidden(true).build();
    let found = walk.filter_map(Result::ok).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let names = found.filter_map(|entry| Some(entry.path().strip_prefix(directory).ok()?.to_str()?.to_owned()));
    for name in names.take(MAX_FILES) {
        files.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }
}

/// How well a path fits a word, best first; none if the letters of the word are not in it in their order.
fn rank(path: &str, word: &str) -> Option<u8> {
    let (path, word) = (path.to_lowercase(), word.to_lowercase());
    let name = path.rsplit('/').next().unwrap_or(&path);
    if path.starts_with(&word) || name == word {
        return Some(0);
    }
    if name.starts_with(&word) {
        return Some(1);
    }
    if path.contains(&word) {
        return Some(2);
    }
    let mut rest = path.chars();
    word.chars().all(|letter| rest.any(|other| other == letter)).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_commands_and_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["src/main.rs", "src/view/main_view.rs", "README.md", "target/main.rs"] {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
            std::fs::write(file, "").expect("a file");
        }
        std::fs::write(folder.path().join(".gitignore"), "target\n").expect("a file");
        let command = |name: &str| Candidate { text: name.to_owned(), about: "About it.".to_owned() };
        let mut completions =
            Completions::new(vec![command("/model"), command("/mcp"), command("/cost")], folder.path());
        let mut texts = |before: &str, behind: &str| {
            let found = completions.find(before, behind);
            found.map(|found| (found.start, found.list.into_iter().map(|candidate| candidate.text).collect::<Vec<_>>()))
        };
        assert_eq!(texts("/m", ""), Some((0, vec!["/model".into(), "/mcp".into()])));
        assert_eq!(texts("/model x", ""), None);
        assert_eq!(texts("/x", ""), None);
        let found = texts("see @main", " then");
        assert_eq!(found, Some((4, vec!["@src/main.rs".into(), "@src/view/main_view.rs".into()])), "no ignored file");
        assert_eq!(texts("@smv", "").expect("by its letters").1, ["@src/view/main_view.rs"]);
        assert_eq!(texts("me@main", ""), None, "an address is no file");
    }
}
