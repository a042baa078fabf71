//! The walk of `grep` and `find`: beneath the working directory, without following links, ignored files left out, in the
//! order of paths.

mod decoded;

pub(super) use decoded::Decoded;

use super::directory::{InnerPath, WorkingDirectory, normal};
use super::fault::Fault;
use cap_std::fs::Dir;
use globset::{Glob, GlobMatcher};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::io::{self, Read};
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

/// The hidden and ignored files that a glob names. They are visited, as what nobody names is not.
#[derive(Default)]
pub(super) struct Named {
    /// The names of a glob with `/`, up to its first `**`.
    path: Vec<GlobMatcher>,
    /// The name that a glob without `/` stands for.
    name: Option<GlobMatcher>,
    /// Whether everything in the directories of `path` is named.
    is_open: bool,
}

impl Named {
    /// What a glob names.
    pub(super) fn of(glob: &str) -> Self {
        let plain = normal(glob.strip_prefix("./").unwrap_or(glob).trim_end_matches('/'));
        let plain = plain.strip_prefix("**/").unwrap_or(&plain);
        let matcher = |name: &str| {
            let is_said = name.starts_with('.') || !name.contains(['*', '?', '[', '{']);
            Glob::new(name).ok().filter(|_| is_said).map(|glob| glob.compile_matcher())
        };
        if !plain.contains('/') {
            return Self { name: matcher(plain), ..Self::default() };
        }
        let names: Vec<_> = plain.split('/').collect();
        let path: Vec<_> = names.iter().map_while(|name| matcher(name)).collect();
        Self { is_open: !path.is_empty(), path, name: None }
    }

    /// Whether an entry is named: it is on the way that the glob names, or is all of it.
    fn includes(&self, below: &Path) -> bool {
        let is = |glob: &GlobMatcher, name: &OsStr| name.to_str().is_some_and(|name| glob.is_match(normal(name)));
        if let (Some(glob), Some(name)) = (&self.name, below.file_name()) {
            return is(glob, name);
        }
        let is_on_the_way = (1..=self.path.len()).contains(&below.iter().count());
        is_on_the_way && below.iter().zip(&self.path).all(|(name, glob)| is(glob, name))
    }

    /// Whether everything below is named too.
    fn opens(&self, below: &Path) -> bool {
        self.is_open && self.includes(below)
    }
}

/// Walks what is beneath a path; a path of a file visits that alone. `visit` may end the walk. If the path is hidden or
/// ignored itself, everything beneath is visited. Returns the directories that were to be entered and could not be read.
pub(super) fn walk(
    directory: &WorkingDirectory,
    from: &InnerPath,
    named: &Named,
    stopped: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>, Fault>,
) -> Result<Vec<PathBuf>, Fault> {
    let fault = |error| Fault::of_file(&from.requested, error);
    let root = directory.dir();
    let start = directory.real(from)?;
    let metadata = root.metadata(if start.as_os_str().is_empty() { Path::new(".") } else { &start }).map_err(fault)?;
    if !metadata.is_dir() {
        let (parent, name) = (start.parent().unwrap_or(Path::new("")), start.file_name().unwrap_or_default());
        let parent =
            root.open_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).map_err(fault)?;
        let _ = visit(Entry { path: &start, below: Path::new(name), dir: &parent, is_dir: false })?;
        return Ok(Vec::new());
    }
    let mut dir = root.try_clone().map_err(fault)?;
    let mut rules = Vec::new();
    rules.extend(excludes(&dir));
    let mut path = PathBuf::new();
    let mut is_open = false;
    for part in start.components() {
        rules.extend(rules_of(&dir, &path));
        path.push(part);
        is_open |= is_hidden(part.as_os_str()) || is_ignored(&rules, &path, true);
        dir = dir.open_dir(part).map_err(fault)?;
    }
    let mut walk = Walk { stopped, visit, rules, start: &start, named, unread: Vec::new() };
    let _ = walk.enter(&dir, &path, 0, is_open)?;
    Ok(walk.unread)
}

struct Walk<'w> {
    stopped: &'w dyn Fn() -> bool,
    visit: &'w mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>, Fault>,
    rules: Vec<Gitignore>,
    start: &'w Path,
    named: &'w Named,
    /// The directories that could not be read.
    unread: Vec<PathBuf>,
}

impl Walk<'_> {
    fn enter(&mut self, dir: &Dir, path: &Path, depth: usize, is_open: bool) -> Result<ControlFlow<()>, Fault> {
        let before = self.rules.len();
        self.rules.extend(rules_of(dir, path));
        let ended = self.members(dir, path, depth, is_open);
        self.rules.truncate(before);
        ended
    }

    /// Visits the members of a directory. With `is_open` also those that are hidden or ignored.
    fn members(&mut self, dir: &Dir, path: &Path, depth: usize, is_open: bool) -> Result<ControlFlow<()>, Fault> {
        // A directory that may not be read is no reason to end the walk.
        let Some(entries) = self.readable(path, dir.entries()) else { return Ok(ControlFlow::Continue(())) };
        let mut members: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?)))
            .filter(|(_, kind)| kind.is_file() || kind.is_dir())
            .collect();
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, kind) in members {
            if (self.stopped)() {
                return Err(Fault::stopped());
            }
            let path = path.join(&name);
            let below = path.strip_prefix(self.start).unwrap_or(&path);
            let is_left_out = !is_open && (is_hidden(&name) || is_ignored(&self.rules, &path, kind.is_dir()));
            if is_left_out && !self.named.includes(below) {
                continue;
            }
            let is_entered = !is_left_out || self.named.opens(below);
            if (self.visit)(Entry { path: &path, below, dir, is_dir: kind.is_dir() })?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // Opened beneath its parent: a link that took its place meanwhile leads nowhere else.
            if kind.is_dir()
                && is_entered
                && depth < DEEPEST
                && let Some(inner) = self.readable(&path, dir.open_dir(&name))
                && self.enter(&inner, &path, depth + 1, is_open || is_left_out)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What was opened of a directory; takes note of one that is there and cannot be read.
    fn readable<T>(&mut self, path: &Path, opened: io::Result<T>) -> Option<T> {
        match opened {
            Ok(opened) => Some(opened),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.unread.push(path.to_owned());
                }
                None
            }
        }
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The rules nearest to the file that say something about it decide.
fn is_ignored(rules: &[Gitignore], path: &Path, is_dir: bool) -> bool {
    let decided = rules.iter().rev().map(|rules| rules.matched(path, is_dir)).find(|found| !found.is_none());
    decided.is_some_and(|found| found.is_ignore())
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
