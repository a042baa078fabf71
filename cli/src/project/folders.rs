//! The folders whose files speak to the agent: the user's own, and those from the root of the repository down to the working
//! directory.

use std::path::{Path, PathBuf};

/// The folder of a project with files for this agent.
const OWN: &str = ".flovyn";
/// The same of Claude Code, which many projects have.
pub(super) const CLAUDE: &str = ".claude";

/// The folders of a directory.
pub(super) struct Folders {
    /// The user's own, `~/.flovyn`.
    pub home: Option<PathBuf>,
    /// The root of the repository, else the directory.
    pub root: PathBuf,
    /// From the root down to the directory.
    pub chain: Vec<PathBuf>,
}

impl Folders {
    /// Finds them. The repository is the nearest folder above with a `.git`, which worktrees have as a file.
    pub(super) fn of(directory: &Path, home: Option<&Path>) -> Self {
        let root = directory.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(directory);
        let mut chain: Vec<_> =
            directory.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect();
        chain.reverse();
        let home = home.map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
        Self { home, root: root.to_owned(), chain }
    }

    /// The files for this agent of a folder of the project. The user's own are no project's, also where somebody works in
    /// their home.
    pub(super) fn own_of(&self, folder: &Path) -> Option<PathBuf> {
        Some(folder.join(OWN)).filter(|own| self.home.as_ref() != Some(own))
    }

    /// A path for people: relative to the root, or to the user's home.
    pub(super) fn shown(&self, path: &Path) -> String {
        if let Ok(inside) = path.strip_prefix(&self.root) {
            return inside.display().to_string();
        }
        match &self.home {
            Some(home) if path.starts_with(home) => {
                format!("~/.flovyn/{}", path.strip_prefix(home).unwrap_or(path).display())
            }
            _ => path.display().to_string(),
        }
    }
}
