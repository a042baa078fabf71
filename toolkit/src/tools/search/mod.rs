//! The walk of `grep` and `find`: beneath the working directory, without following links, ignored files left out, in the
//! order of paths.

use super::directory::{InnerPath, WorkingDirectory};
use super::fault::Fault;
use cap_std::fs::Dir;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How deep directories are walked.
const DEEPEST: usize = 128;
/// Rule files up to this size count.
const LARGEST_RULES: u64 = 1 << 20;
/// Files with rules of what to ignore; the later one wins.
const RULES: [&str; 2] = [".gitignore", ".ignore"];

/// A file or directory on the walk.
pub(super) struct Entry<'w> {
    /// Relative to the working directory.
    pub path: &'w Path,
    /// Relative to where the walk began.
    pub below: &'w Path,
    /// The directory it is in.
    pub dir: &'w Dir,
    /// Whether it is a directory itself.
    pub is_dir: bool,
}

/// Walks what is beneath a path; a path of a file visits that alone. `visit` may end the walk.
pub(super) fn walk(
    directory: &WorkingDirectory,
    from: &InnerPath,
    stopped: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>, Fault>,
) -> Result<(), Fault> {
    let fault = |error| Fault::of_file(&from.requested, error);
    let root = directory.dir();
    let start = directory.real(from)?;
    let metadata = root.metadata(if start.as_os_str().is_empty() { Path::new(".") } else { &start }).map_err(fault)?;
    if !metadata.is_dir() {
        let (parent, name) = (start.parent().unwrap_or(Path::new("")), start.file_name().unwrap_or_default());
        let parent =
            root.open_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).map_err(fault)?;
        let _ = visit(Entry { path: &start, below: Path::new(name), dir: &parent, is_dir: false })?;
        return Ok(());
    }
    let mut dir = root.try_clone().map_err(fault)?;
    let mut rules = Vec::new();
    rules.extend(excludes(&dir));
    let mut path = PathBuf::new();
    for part in start.components() {
        rules.extend(rules_of(&dir, &path));
        path.push(part);
        dir = dir.open_dir(part).map_err(fault)?;
    }
    let mut walk = Walk { stopped, visit, rules, start: &start };
    walk.enter(&dir, &path, 0).map(|_| ())
}

struct Walk<'w> {
    stopped: &'w dyn Fn() -> bool,
    visit: &'w mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>, Fault>,
    rules: Vec<Gitignore>,
    start: &'w Path,
}

impl Walk<'_> {
    fn enter(&mut self, dir: &Dir, path: &Path, depth: usize) -> Result<ControlFlow<()>, Fault> {
        let before = self.rules.len();
        self.rules.extend(rules_of(dir, path));
        let ended = self.members(dir, path, depth);
        self.rules.truncate(before);
        ended
    }

    fn members(&mut self, dir: &Dir, path: &Path, depth: usize) -> Result<ControlFlow<()>, Fault> {
        // A directory that went away or may not be read has nothing to show; the rest of the walk goes on.
        let Ok(entries) = dir.entries() else { return Ok(ControlFlow::Continue(())) };
        let mut members: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?)))
            .filter(|(name, kind)| (kind.is_file() || kind.is_dir()) && !name.as_encoded_bytes().starts_with(b"."))
            .collect();
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, kind) in members {
            if (self.stopped)() {
                return Err(Fault::stopped());
            }
            let path = path.join(&name);
            if self.is_ignored(&path, kind.is_dir()) {
                continue;
            }
            let below = path.strip_prefix(self.start).unwrap_or(&path);
            if (self.visit)(Entry { path: &path, below, dir, is_dir: kind.is_dir() })?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // Opened beneath its parent: a link that took its place meanwhile leads nowhere else.
            if kind.is_dir()
                && depth < DEEPEST
                && let Ok(inner) = dir.open_dir(&name)
                && self.enter(&inner, &path, depth + 1)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The rules nearest to the file that say something about it decide.
    fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let decided = self.rules.iter().rev().map(|rules| rules.matched(path, is_dir)).find(|found| !found.is_none());
        decided.is_some_and(|found| found.is_ignore())
    }
}

/// The rules that a directory holds.
fn rules_of(dir: &Dir, path: &Path) -> Vec<Gitignore> {
    RULES.iter().filter_map(|name| rules_in(dir, name, path)).collect()
}

/// The rules that a repository keeps for this machine alone.
fn excludes(root: &Dir) -> Option<Gitignore> {
    rules_in(root, ".git/info/exclude", Path::new(""))
}

fn rules_in(dir: &Dir, name: &str, path: &Path) -> Option<Gitignore> {
    let (file, _) = super::directory::open_regular(dir, name.as_ref(), name).ok()?;
    let mut text = Vec::new();
    file.take(LARGEST_RULES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&text).lines() {
        // A rule that cannot be read hides nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}
