//! What this computer allows: `daemon.toml` in the daemon's home, and the options of the command line in place of it. The
//! server can ask for less, never for more.

use super::external::External;
use super::{Options, invalid};
use crate::{Failed, Result};
use flovyn_core::runtime::daemon;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file, in the daemon's home.
pub(super) const FILE: &str = "daemon.toml";

/// What the file says. Unknown names are errors: what is misspelt must not be silently a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    /// The server that `flovyn daemon pair` asks.
    pub server: Option<String>,
    /// The name that it asks for.
    pub name: Option<String>,
    /// The directories that runs may work in. Where a run names none it works in the first.
    pub workspaces: Vec<PathBuf>,
    /// The kinds under which the built-in agent is served.
    pub kinds: Vec<String>,
    /// What is done without asking a person: `reads`, `edits`, `all`, or the file of a policy.
    pub approve: String,
    /// Variables of the daemon that commands see beside the usual ones; `NAME*` for several.
    pub env: Vec<String>,
    /// Whether commands may use the network.
    pub network: bool,
    /// Whether commands run confined. Without it they have all rights of the daemon's user, and can read every file.
    pub sandbox: bool,
    /// What commands may read beside the system's programs and the workspace, such as `~/.cargo`.
    pub readable: Vec<PathBuf>,
    /// Files with MCP servers, which run with all rights of the daemon's user.
    pub mcp: Vec<PathBuf>,
    /// Agents of others that runs may be of.
    pub external: Vec<External>,
    /// Runs that advance at the same time.
    pub max_agents: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: None,
            name: None,
            workspaces: Vec::new(),
            kinds: vec![flovyn_toolkit::react::KIND.to_owned()],
            approve: "reads".to_owned(),
            env: Vec::new(),
            network: false,
            sandbox: true,
            readable: Vec::new(),
            mcp: Vec::new(),
            external: Vec::new(),
            max_agents: 100,
        }
    }
}

impl Settings {
    /// What the file of a home says; nothing where there is none.
    pub(super) fn of_file(home: &Path) -> Result<Self> {
        let file = home.join(FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(invalid(format!("{} cannot be read: {error}", file.display())).into()),
        };
        let settings = toml::from_str(&text)
            .map_err(|error| invalid(format!("{} is not as expected: {error}", file.display())))?;
        Ok(settings)
    }

    /// What the file of a home and the options allow, each workspace an existing directory by its real path.
    pub(super) fn read(home: &Path, options: &Options) -> Result<Self> {
        let mut settings = Self::of_file(home)?;
        if !options.workspaces.is_empty() {
            settings.workspaces.clone_from(&options.workspaces);
        }
        if settings.workspaces.is_empty() {
            return Err(no_workspace());
        }
        for workspace in &mut settings.workspaces {
            *workspace = daemon::workspace(workspace, Some(home))?;
        }
        for path in settings.readable.iter_mut().chain(&mut settings.mcp) {
            *path = daemon::expanded(path);
        }
        if settings.kinds.is_empty() {
            return Err(invalid(format!("kinds in {FILE} is empty; name at least one, or leave it out")).into());
        }
        Ok(settings)
    }

    /// The kinds of the built-in agent and of agents of others.
    pub(super) fn all_kinds(&self) -> Vec<String> {
        self.kinds.iter().cloned().chain(self.external.iter().map(External::kind)).collect()
    }
}

/// The error where no workspace is named.
pub(super) fn no_workspace() -> Failed {
    Failed::Usage(format!("name what runs may work in: --workspace DIR, or workspaces = [\"DIR\"] in {FILE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, workspaces: &[&Path]) -> Result<Settings> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE), file).unwrap();
        let workspaces = workspaces.iter().map(|path| path.to_path_buf()).collect();
        Settings::read(home.path(), &Options { workspaces, ..Options::default() })
    }

    #[test]
    fn a_machine_allows_what_its_file_says_and_nothing_by_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let settings = read("approve = \"edits\"\nenv = [\"AWS_*\"]\nkinds = [\"coder\"]\n", &[folder.path()]).unwrap();
        assert_eq!((settings.approve.as_str(), settings.network, settings.sandbox), ("edits", false, true));
        assert_eq!((settings.kinds, settings.env), (vec!["coder".to_owned()], vec!["AWS_*".to_owned()]));
        assert_eq!(settings.workspaces, [folder.path().canonicalize().unwrap()]);
        for (file, message) in [
            ("aprove = \"all\"", "unknown field `aprove`"),
            ("kinds = []", "kinds in daemon.toml is empty"),
            ("workspaces = 1", "invalid type"),
            ("[[external]]\ndriver = \"telepathy\"", "unknown variant `telepathy`"),
            ("[[external]]\ndriver = \"pi\"\nmodle = \"m\"", "unknown field `modle`"),
        ] {
            let error = read(file, &[folder.path()]).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let error = read("", &[]).unwrap_err().to_string();
        assert!(error.contains("--workspace"), "{error}");
        let error = read("", &[&folder.path().join("absent")]).unwrap_err().to_string();
        assert!(error.contains("is no directory"), "{error}");
        let error = read("", &[Path::new("/")]).unwrap_err().to_string();
        assert!(error.contains("holds the daemon's own key"), "{error}");
    }
}
