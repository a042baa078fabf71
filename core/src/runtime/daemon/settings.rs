//! What a program says of the machine that it is, checked before anything is connected.

use super::connection::MachineCredentials;
use super::key::MachineKey;
use crate::error::{Code, Error, Result};
use crate::runtime::home::home;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// What a program says of the machine that it is.
#[derive(Clone, Default)]
pub struct MachineSettings {
    /// The server; that of the home's key without it.
    pub server_url: Option<String>,
    /// The key of the machine; that of the home without it.
    pub auth_token: Option<String>,
    /// The folder with `daemon.key`; `FLOVYN_HOME`, else `~/.flovyn`, without it.
    pub home: Option<PathBuf>,
    /// What the machine has to be called.
    pub name: Option<String>,
    /// The directories that its work is about.
    pub workspaces: Vec<PathBuf>,
}

impl MachineSettings {
    /// What the machine shows its server, and its workspaces by their real paths.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: there is no key, it is for another server or another name, or a workspace is no directory.
    pub fn check(&self) -> Result<(MachineCredentials, Vec<PathBuf>)> {
        let server = self.server_url.as_deref().map(|url| url.trim_end_matches('/'));
        if let Some(url) = server.filter(|url| !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme))) {
            return Err(invalid(format!(
                "the server of a machine is http://HOST:PORT or https://HOST:PORT, not {url:?}"
            )));
        }
        let (credentials, home) = match self.auth_token.as_deref() {
            Some(token) if token.trim().is_empty() => {
                return Err(invalid("the key of the machine is empty; give what `flovyn daemon pair` has kept".into()));
            }
            Some(token) => {
                let server = server.ok_or_else(|| invalid("a key was given and no server; give its URL too".into()))?;
                let (server, token) = (server.to_owned(), token.trim().to_owned());
                (MachineCredentials::Given { server, token, name: self.name.clone() }, None)
            }
            None => {
                let home = match &self.home {
                    Some(home) => expanded(home),
                    None => home().ok_or_else(|| {
                        invalid(
                            "neither FLOVYN_HOME nor HOME is set, and no key was given; give the machine's key".into(),
                        )
                    })?,
                };
                let key = MachineKey::read(&home)?;
                key.check(server, self.name.as_deref())?;
                (MachineCredentials::Stored(key), Some(home))
            }
        };
        let workspaces = self.workspaces.iter().map(|path| workspace(path, home.as_deref())).collect::<Result<_>>()?;
        Ok((credentials, workspaces))
    }
}

/// The real path of a workspace of the machine whose key is in `home`.
///
/// # Errors
///
/// `InvalidArgument`: it is no directory, or holds the key.
pub fn workspace(path: &Path, home: Option<&Path>) -> Result<PathBuf> {
    let real = expanded(path).canonicalize().ok().filter(|real| real.is_dir());
    let Some(real) = real else {
        return Err(invalid(format!(
            "the workspace {} is no directory here; make it, or name another",
            path.display()
        )));
    };
    if home.is_some_and(|home| home.canonicalize().is_ok_and(|home| home.starts_with(&real))) {
        let home = home.unwrap_or(Path::new("")).display();
        return Err(invalid(format!(
            "the workspace {} holds the daemon's own key ({home}); name a directory beside it",
            real.display()
        )));
    }
    Ok(real)
}

/// A path that may begin with `~/`.
pub fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    }
}

/// What every machine tells its server of itself: for people, and for whoever chooses a machine. It is told, not promised.
pub fn offers(version: &str, kinds: &[String], workspaces: &[PathBuf]) -> Value {
    json!({
        "host": host_name(),
        "os": std::env::consts::OS,
        "version": version,
        "kinds": kinds,
        "workspaces": workspaces,
    })
}

/// What this computer is called.
pub fn host_name() -> String {
    let named = ["/proc/sys/kernel/hostname", "/etc/hostname"].iter().find_map(|file| fs::read_to_string(file).ok());
    let asked = || String::from_utf8(std::process::Command::new("hostname").output().ok()?.stdout).ok();
    let name = named.or_else(asked).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "computer".to_owned() } else { name.to_owned() }
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_machine_is_refused_before_it_connects() {
        let home = tempfile::tempdir().unwrap();
        let settings = MachineSettings { home: Some(home.path().into()), ..MachineSettings::default() };
        let given = MachineSettings {
            server_url: Some("http://localhost:1/".into()),
            auth_token: Some("fk_1\n".into()),
            ..settings.clone()
        };
        let (credentials, _) = given.check().unwrap();
        assert_eq!((credentials.server(), credentials.name()), ("http://localhost:1", None));
        let absent = vec![home.path().join("absent")];
        for (settings, message) in [
            (settings.clone(), "is not paired"),
            (MachineSettings { auth_token: Some(" ".into()), ..given.clone() }, "key of the machine is empty"),
            (MachineSettings { server_url: None, ..given.clone() }, "no server"),
            (MachineSettings { server_url: Some("sqlite:x".into()), ..given.clone() }, "not \"sqlite:x\""),
            (MachineSettings { workspaces: absent, ..given }, "is no directory"),
        ] {
            let error = settings.check().err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
