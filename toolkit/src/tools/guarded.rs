//! Paths that matter beyond the command or the change that touches them: what is run later, outside of the sandbox, and
//! what holds the keys of the user.
//!
//! What is run later (hooks and the configuration of git, editors, shells and agents) is changed by file tools only after a
//! person was asked, and is read-only for confined commands. Keys are unreadable for them.

use flovyn_core::sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

/// Directories whose files are run or obeyed later.
const FOLDERS: &[&str] = &[
    ".git",
    ".githooks",
    ".hg",
    ".husky",
    ".vscode",
    ".idea",
    ".zed",
    ".cursor",
    ".devcontainer",
    ".claude",
    ".flovyn",
];
/// Files that are run or obeyed later.
const FILES: &[&str] = &[
    ".envrc",
    ".mcp.json",
    ".gitmodules",
    ".gitconfig",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".inputrc",
    ".exrc",
    ".vimrc",
    ".gvimrc",
    ".nvimrc",
    ".nvim.lua",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    ".lefthook.yml",
];
/// The ends of the names of files with tasks and settings of an editor.
const ENDINGS: &[&str] = &[".code-workspace"];
/// What of a git directory is run or obeyed; the rest is data.
const OF_GIT: &[&str] = &["hooks", "config", "config.worktree", "info", "modules"];

/// Paths below the home directory that hold keys and credentials.
const KEYS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".git-credentials",
    ".config/git/credentials",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".gem/credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".terraform.d",
    ".terraformrc",
    ".vault-token",
    ".local/share/keyrings",
    ".password-store",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".config/github-copilot",
    ".flovyn",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".cache/mozilla",
    "snap/firefox",
    "snap/chromium",
    ".var/app/org.mozilla.firefox",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".node_repl_history",
    ".sqlite_history",
    ".local/share/fish/fish_history",
    "Library/Keychains",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
];

/// How deep a directory is searched for guarded paths, and among how many entries.
const DEEPEST: usize = 3;
const MOST_ENTRIES: usize = 5_000;
/// Folders of packages and build results, which have many entries.
const SKIPPED: &[&str] = &["node_modules", "target", ".venv", "venv", "__pycache__", "dist", "build"];
/// How much of guarded files is remembered while a command runs, in bytes.
const MOST_REMEMBERED: u64 = 4 << 20;

/// Whether what a path names is run or obeyed later, by something that is not confined.
pub(crate) fn runs_later(path: &Path) -> bool {
    let names: Vec<_> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    let is_named =
        |name: &String| FILES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending));
    names.last().is_some_and(is_named) || names.iter().any(|name| FOLDERS.contains(&name.as_str()))
}

/// The existing paths with keys of the user, without links.
pub(crate) fn keys() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_home = variable("HOME").into_iter().flat_map(|home| KEYS.iter().map(move |name| home.join(name)));
    let mut found: Vec<_> =
        of_home.chain(variable("FLOVYN_HOME")).filter_map(|path| path.canonicalize().ok()).collect();
    found.sort();
    found.dedup();
    // Nobody keeps keys in the root directory, and to hide it would hide everything.
    found.retain(|path| path.parent().is_some());
    found
}

/// The guarded paths that exist in a directory, without links.
pub(crate) fn existing(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), MOST_ENTRIES);
    let mut folders = vec![(directory.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else { return found };
            left = rest;
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            if runs_later(Path::new(&name)) {
                // A link leads to a file that is guarded by its own name or not at all.
                if !kind.is_symlink() {
                    found.push(path);
                }
            } else if kind.is_dir() && depth < DEEPEST && !SKIPPED.iter().any(|skipped| name == *skipped) {
                folders.push((path, depth + 1));
            }
        }
    }
    found
}

/// Remembers the guarded files of a directory while commands run in it, and puts right what they have done to them.
///
/// Commands that run at the same time share what was remembered before the first of them, so that none takes what another
/// has left for what was there.
pub(crate) struct Guard {
    directory: PathBuf,
    /// Whether changed files are put back. Where they are mounted read-only, a confined command cannot have changed them.
    puts_back: bool,
}

/// What was in a directory before the first of the commands that run in it.
struct Watched {
    commands: usize,
    before: BTreeMap<PathBuf, Remembered>,
}

static WATCHED: LazyLock<Mutex<HashMap<PathBuf, Watched>>> = LazyLock::new(Mutex::default);

#[derive(PartialEq)]
enum Remembered {
    Folder,
    File(Vec<u8>, u32),
    /// Something else, or too large to be remembered.
    Other,
}

impl Guard {
    /// Remembers what is there.
    pub(crate) fn of(directory: &Path, puts_back: bool) -> Self {
        let directory = directory.to_owned();
        let mut watched = WATCHED.lock();
        match watched.get_mut(&directory) {
            Some(watched) => watched.commands += 1,
            None => {
                let before = remember(&directory);
                watched.insert(directory.clone(), Watched { commands: 1, before });
            }
        }
        Self { directory, puts_back }
    }

    /// Puts back what was changed and sets aside what is new, and tells of each.
    pub(crate) fn put_right(&self) -> io::Result<Vec<String>> {
        let mut watched = WATCHED.lock();
        let Some(Watched { before, .. }) = watched.get_mut(&self.directory) else { return Ok(Vec::new()) };
        let after = remember(&self.directory);
        let mut notes = Vec::new();
        let name = |path: &Path| path.strip_prefix(&self.directory).unwrap_or(path).display().to_string();
        let mut aside: Vec<&PathBuf> = Vec::new();
        for path in after.keys() {
            if before.contains_key(path) || aside.iter().any(|moved| path.starts_with(moved)) {
                continue;
            }
            let mut other = path.clone().into_os_string();
            other.push(format!(".set-aside-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]));
            fs::rename(path, &other)?;
            notes.push(format!("{} is new; it was renamed to {}", name(path), name(Path::new(&other))));
            aside.push(path);
            before.insert(other.into(), Remembered::Other);
        }
        for (path, before) in before.iter().filter(|_| self.puts_back) {
            match (before, after.get(path)) {
                (Remembered::Other, _) => {}
                (before, Some(after)) if before == after => {}
                (Remembered::Folder, _) => {
                    fs::create_dir_all(path)?;
                    notes.push(format!("{} was removed; it was made again", name(path)));
                }
                (Remembered::File(bytes, mode), _) => {
                    if path.is_dir() {
                        fs::remove_dir_all(path)?;
                    }
                    if let Some(parent) = path.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    let _ = fs::remove_file(path);
                    fs::write(path, bytes)?;
                    fs::set_permissions(path, fs::Permissions::from_mode(*mode))?;
                    notes.push(format!("{} was changed; it was put back as it was", name(path)));
                }
            }
        }
        Ok(notes)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock();
        if let Some(of_directory) = watched.get_mut(&self.directory) {
            of_directory.commands -= 1;
            if of_directory.commands == 0 {
                watched.remove(&self.directory);
            }
        }
    }
}

/// Takes what a file tool has just written in a directory, with the consent of a person, for what was there before.
pub(crate) fn consent(directory: &Path, path: &Path) {
    if let Some(Watched { before, .. }) = WATCHED.lock().get_mut(directory) {
        let full = directory.join(path);
        for folder in full.ancestors().skip(1).take_while(|folder| folder.starts_with(directory)) {
            if folder.strip_prefix(directory).is_ok_and(runs_later) {
                before.entry(folder.to_owned()).or_insert(Remembered::Folder);
            }
        }
        let mut room = MOST_REMEMBERED;
        remember_all(full, before, &mut room, 0);
    }
}

fn remember(directory: &Path) -> BTreeMap<PathBuf, Remembered> {
    let (mut found, mut room) = (BTreeMap::new(), MOST_REMEMBERED);
    for path in existing(directory) {
        let is_git = path.file_name().is_some_and(|name| name == ".git") && path.is_dir();
        if is_git {
            found.insert(path.clone(), Remembered::Other);
            OF_GIT.iter().for_each(|part| remember_all(path.join(part), &mut found, &mut room, 0));
        } else {
            remember_all(path, &mut found, &mut room, 0);
        }
    }
    found
}

fn remember_all(path: PathBuf, found: &mut BTreeMap<PathBuf, Remembered>, room: &mut u64, depth: usize) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    let remembered = if metadata.is_dir() && depth <= 2 * DEEPEST && found.len() < MOST_ENTRIES {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            // The objects of a submodule are data.
            if entry.file_name() != "objects" && entry.file_name() != "logs" {
                remember_all(entry.path(), found, room, depth + 1);
            }
        }
        Remembered::Folder
    } else if metadata.is_file() && metadata.len() <= *room {
        *room -= metadata.len();
        match fs::read(&path) {
            Ok(bytes) => Remembered::File(bytes, metadata.permissions().mode()),
            Err(_) => Remembered::Other,
        }
    } else {
        Remembered::Other
    };
    found.insert(path, remembered);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_later_is_known_by_its_path() {
        for path in [
            ".git/hooks/pre-commit",
            "a/.git/config",
            ".git",
            "./.envrc",
            "a/b/.envrc",
            ".vscode/tasks.json",
            ".idea/x.xml",
            ".mcp.json",
            ".claude/settings.json",
            ".flovyn/settings.json",
            ".husky/pre-push",
            "/home/me/.bashrc",
            ".exrc",
            "sub/.vimrc",
            ".gvimrc",
            ".nvimrc",
            ".nvim.lua",
            ".NVIM.LUA",
            "src/.dir-locals.el",
            ".dir-locals-2.el",
            "otters.code-workspace",
            "a/.code-workspace",
            ".GIT/hooks/x",
            "a/../.git/config",
        ] {
            assert!(runs_later(Path::new(path)), "{path}");
        }
        for path in [
            "git/hooks",
            "src/main.rs",
            ".github/workflows/ci.yml",
            ".gitignore",
            ".env",
            "envrc",
            "docs/envrc/a",
            ".",
            // It says how a text looks, and nothing is run of it.
            ".editorconfig",
            "vimrc",
            "nvim.lua",
            "otters.code-workspace/a",
            "code-workspace",
        ] {
            assert!(!runs_later(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_guard_puts_back_and_sets_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let put = |name: &str, text: &str| {
            fs::create_dir_all(path(name).parent().expect("a parent")).expect("a folder");
            fs::write(path(name), text).expect("a file");
        };
        put(".git/hooks/pre-commit", "old");
        put(".git/config", "old");
        put(".vscode/tasks.json", "old");
        put("src/main.rs", "old");
        let guard = Guard::of(folder.path(), true);
        put(".git/hooks/pre-commit", "evil");
        put(".git/hooks/post-commit", "evil");
        put(".git/objects/ab/cd", "data");
        put(".git/index", "data");
        fs::remove_dir_all(path(".vscode")).expect("it goes");
        put(".envrc", "evil");
        put("sub/.husky/pre-push", "evil");
        put("src/main.rs", "new");
        // Another command begins meanwhile, and a person consents to a change.
        let other = Guard::of(folder.path(), false);
        put(".idea/a.xml", "wanted");
        consent(folder.path(), Path::new(".idea/a.xml"));
        let notes = guard.put_right().expect("it can");
        let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
        assert_eq!(
            (read(".git/hooks/pre-commit"), read(".git/config"), read(".vscode/tasks.json")),
            ("old".into(), "old".into(), "old".into())
        );
        for gone in [".git/hooks/post-commit", ".envrc", "sub/.husky"] {
            assert!(!path(gone).exists(), "{gone}");
            assert!(notes.iter().any(|line| line.starts_with(&format!("{gone} is new"))), "{notes:?}");
        }
        assert_eq!((read("src/main.rs"), read(".git/index")), ("new".into(), "data".into()));
        assert_eq!(read(".idea/a.xml"), "wanted");
        put(".envrc", "evil again");
        assert_eq!(other.put_right().expect("it can").len(), 1, "what the first has left is not what was there");
        drop((guard, other));
        assert!(
            Guard::of(folder.path(), true).put_right().expect("it can").is_empty(),
            "what was set aside is not new again"
        );
    }
}
