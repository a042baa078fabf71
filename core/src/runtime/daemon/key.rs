//! The key of a machine, in a file that only its user reads: `daemon.key` of the daemon's home.

use crate::error::{Code, Error, Result};
use crate::storage::machines::Paired;
use crate::storage::remote::Tokens;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The file, in the daemon's home.
const FILE: &str = "daemon.key";

/// The key of this machine, as `flovyn daemon pair` keeps it.
#[derive(Clone, Serialize, Deserialize)]
pub struct MachineKey {
    /// The server that has given it.
    pub server: String,
    /// The machine's name there.
    pub name: String,
    org: String,
    token: String,
    /// Where it is kept.
    #[serde(skip)]
    file: PathBuf,
}

impl MachineKey {
    /// Reads the key of a home.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: there is none, others of this computer can read it, or the file holds something else.
    pub fn read(home: &Path) -> Result<Self> {
        let file = home.join(FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(invalid(format!(
                    "this computer is not paired: there is no {}; run `flovyn daemon pair --server URL`",
                    file.display()
                )));
            }
            Err(error) => return Err(invalid(format!("{} cannot be read: {error}", file.display()))),
        };
        check_private(&file)?;
        let key: Self = serde_json::from_str(&text).map_err(|error| {
            invalid(format!("{} holds no key ({error}); pair again: flovyn daemon pair --replace", file.display()))
        })?;
        Ok(Self { file, ..key })
    }

    /// Keeps what a pairing has come to in a home, for its user alone.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the file cannot be written.
    pub fn keep(home: &Path, server: String, paired: Paired) -> Result<Self> {
        let Paired { org, name, token } = paired;
        let key = Self { server, name, org: org.to_string(), token, file: home.join(FILE) };
        key.write().map_err(|error| invalid(format!("the key cannot be kept in {}: {error}", key.file.display())))?;
        Ok(key)
    }

    /// Where it is kept.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Refuses another server or another name than this key is for.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with what was given and what the key is for.
    pub fn check(&self, server: Option<&str>, name: Option<&str>) -> Result<()> {
        for (what, given, own) in [("server", server, &self.server), ("name", name, &self.name)] {
            if let Some(given) = given
                && given.trim_end_matches('/') != own
            {
                return Err(invalid(format!(
                    "the {what} is given as {given}, and this computer is paired as {} with {}; pair again (flovyn daemon \
                     pair --replace), or give the other daemon a home of its own (FLOVYN_HOME)",
                    self.name, self.server
                )));
            }
        }
        Ok(())
    }

    fn write(&self) -> std::io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let fresh = folder.join(format!("{FILE}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&fresh).and_then(|mut file| {
            file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
            file.sync_all()
        });
        let moved = written.and_then(|()| fs::rename(&fresh, &self.file));
        if moved.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        moved
    }
}

/// The file is read again when a token was refused: the machine may have been paired anew meanwhile.
impl Tokens for MachineKey {
    fn token(&self) -> Option<String> {
        let now = self.file.parent().and_then(|home| Self::read(home).ok());
        Some(
            now.filter(|now| now.name == self.name && now.server == self.server)
                .map_or_else(|| self.token.clone(), |now| now.token),
        )
    }

    fn describe(&self) -> String {
        format!("it was sent the key of {}", self.file.display())
    }
}

/// Refuses a key that others of this computer can read.
fn check_private(file: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let Ok(metadata) = fs::metadata(file)
            && metadata.mode() & 0o077 != 0
        {
            let file = file.display();
            let message = format!("{file} can be read by others of this computer; run chmod 600 {file}, or pair again");
            return Err(invalid(message));
        }
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::OrgId;

    const SERVER: &str = "http://localhost:9090";

    fn keep(home: &Path, token: &str) -> MachineKey {
        let paired = Paired { org: OrgId::DEFAULT, name: "laptop".into(), token: token.into() };
        MachineKey::keep(home, SERVER.into(), paired).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn a_key_is_of_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join("own");
        let message = MachineKey::read(&own).err().unwrap().to_string();
        assert!(message.contains("is not paired") && message.contains("flovyn daemon pair"), "{message}");
        keep(&own, "fk_0");
        let file = keep(&own, "fk_1").file().to_owned();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let read = MachineKey::read(&own).unwrap();
        assert_eq!((read.name.as_str(), read.token().as_deref()), ("laptop", Some("fk_1")));
        // Paired anew, it sends the new token.
        keep(&own, "fk_2");
        assert_eq!(read.token().as_deref(), Some("fk_2"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let message = MachineKey::read(&own).err().unwrap().to_string();
        assert!(message.contains("chmod 600"), "{message}");
    }

    #[test]
    fn a_key_is_for_one_server_and_one_name() {
        let home = tempfile::tempdir().unwrap();
        let key = keep(home.path(), "fk_1");
        key.check(Some("http://localhost:9090/"), Some("laptop")).unwrap();
        key.check(None, None).unwrap();
        let message = key.check(None, Some("desktop")).unwrap_err().to_string();
        assert!(message.contains("name is given as desktop") && message.contains("paired as laptop"), "{message}");
        assert!(key.check(Some("http://other:1"), None).is_err());
    }
}
