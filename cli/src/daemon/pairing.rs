//! How a computer becomes a machine: `flovyn daemon pair`, and the key that it is given, in a file that only its user reads.

use super::settings::Settings;
use super::{Options, invalid};
use crate::print::{Output, moment};
use crate::{Failed, Result};
use clap::Args;
use flovyn_core::error::{Code, Error, Kind};
use flovyn_core::id::OrgId;
use flovyn_core::storage::machines::Paired;
use flovyn_core::storage::remote::{PairingClient, Tokens};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file, in the daemon's home.
const FILE: &str = "daemon.key";
/// How often the server is asked whether somebody has approved.
const ASK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct Pair {
    #[command(flatten)]
    options: Options,
    /// Pair again, in place of the key that is there
    #[arg(long)]
    replace: bool,
}

/// The key of this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Key {
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

impl Key {
    /// The key of a home.
    pub(super) fn read(home: &Path) -> Result<Self> {
        let file = home.join(FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = format!(
                    "this computer is not paired: there is no {}; run `flovyn daemon pair --server URL`",
                    file.display()
                );
                return Err(invalid(message).into());
            }
            Err(error) => return Err(invalid(format!("{} cannot be read: {error}", file.display())).into()),
        };
        check_private(&file)?;
        let key: Self = serde_json::from_str(&text).map_err(|error| {
            invalid(format!("{} holds no key ({error}); pair again: flovyn daemon pair --replace", file.display()))
        })?;
        Ok(Self { file, ..key })
    }

    /// Refuses options that name another server or another name than this key is for.
    pub(super) fn check_options(&self, options: &Options) -> Result {
        for (option, given, own) in [("--server", &options.server, &self.server), ("--name", &options.name, &self.name)]
        {
            if let Some(given) = given
                && given.trim_end_matches('/') != own
            {
                return Err(Failed::Usage(format!(
                    "{option} is {given}, and this computer is paired as {} with {}; pair again (flovyn daemon pair \
                     --replace), or give the other daemon a home of its own (FLOVYN_HOME)",
                    self.name, self.server
                )));
            }
        }
        Ok(())
    }

    /// Its org.
    pub(super) fn org(&self) -> Result<OrgId> {
        let wrong =
            |_| invalid(format!("{} names no org; pair again: flovyn daemon pair --replace", self.file.display()));
        Ok(self.org.parse().map_err(wrong)?)
    }

    /// Says of a refusal what it means for this machine.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error.kind() {
            Kind::Denied => {
                let message = format!(
                    "{} does not let the machine {:?} in any more: it was revoked, or its key has ended. Pair again: \
                     flovyn daemon pair --replace",
                    self.server, self.name
                );
                Error::new(error.code(), message).caused_by(error)
            }
            _ => error,
        }
    }

    /// Writes it to a home, for its user alone.
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
impl Tokens for Key {
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
fn check_private(file: &Path) -> Result {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let Ok(metadata) = fs::metadata(file)
            && metadata.mode() & 0o077 != 0
        {
            let file = file.display();
            let message = format!("{file} can be read by others of this computer; run chmod 600 {file}, or pair again");
            return Err(invalid(message).into());
        }
    }
    Ok(())
}

/// Runs `flovyn daemon pair`: asks, shows the code, waits, keeps the key.
pub(super) async fn pair(args: Pair, out: &mut Output) -> Result {
    let home = flovyn_toolkit::config::home()?;
    let settings = Settings::of_file(&home)?;
    let file = home.join(FILE);
    if !args.replace
        && let Ok(known) = Key::read(&home)
    {
        return Err(Failed::Usage(format!(
            "this computer is paired as {} with {}; --replace pairs it again, and FLOVYN_HOME gives a second daemon a home of \
             its own",
            known.name, known.server
        )));
    }
    let server = args.options.server.or(settings.server).or_else(|| std::env::var("FLOVYN_URL").ok());
    let server = server.ok_or_else(|| Failed::Usage("name the server: --server URL, or FLOVYN_URL".into()))?;
    let server = server.trim_end_matches('/').to_owned();
    if !["http://", "https://"].iter().any(|scheme| server.starts_with(scheme)) {
        return Err(Failed::Usage(format!("--server takes http://HOST:PORT or https://HOST:PORT, not {server:?}")));
    }
    let host = host_name();
    let name = args.options.name.or(settings.name).unwrap_or_else(|| name_of_host(&host));
    let pairings = PairingClient::of(&server).await?;
    let pairing = pairings.request_pairing(&name, &host).await?;
    let (code, until) = (pairing.code, moment(pairing.expires_at));
    if out.is_json() {
        out.value(&json!({ "server": server, "name": name, "code": code, "expiresAt": until }))?;
    } else {
        out.line(&format!("{name} asks {server} to be let in. The code, until {until}:"))?;
        out.line(&format!("\n    {code}\n"))?;
        out.line(&format!("Whoever may: flovyn machines approve {server} {code}"))?;
    }
    let paired = wait(&pairings, &pairing.secret).await?;
    let Paired { org, name, token } = paired;
    let key = Key { server, name, org: org.to_string(), token, file };
    key.write().map_err(|error| invalid(format!("the key cannot be kept in {}: {error}", key.file.display())))?;
    let kept = key.file.display();
    if out.is_json() {
        return out.value(&json!({ "paired": true, "name": key.name, "org": org, "key": kept.to_string() }));
    }
    out.line(&format!("It is let in as {}. Its key is in {kept}.", key.name))?;
    out.line("`flovyn daemon --workspace DIR` starts it, `flovyn daemon install` with the computer.")
}

/// Waits until somebody has approved. A server that does not answer for a moment is asked again.
async fn wait(pairings: &PairingClient, secret: &str) -> Result<Paired> {
    loop {
        match pairings.collect_pairing(secret).await {
            Ok(Some(paired)) => return Ok(paired),
            Ok(None) => {}
            Err(error) if error.is_retryable() && error.code() != Code::RateLimited => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// What this computer is called.
pub(super) fn host_name() -> String {
    let named = ["/proc/sys/kernel/hostname", "/etc/hostname"].iter().find_map(|file| fs::read_to_string(file).ok());
    let asked = || String::from_utf8(std::process::Command::new("hostname").output().ok()?.stdout).ok();
    let name = named.or_else(asked).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "computer".to_owned() } else { name.to_owned() }
}

/// A name for a machine on this host: what of the host's own name may be in one.
fn name_of_host(host: &str) -> String {
    let short = host.split('.').next().unwrap_or_default().to_lowercase();
    let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let name: String = short.chars().filter(fits).skip_while(|c| !c.is_ascii_alphanumeric()).take(63).collect();
    if name.is_empty() { "computer".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(home: &Path) -> Key {
        let (server, name) = ("http://localhost:9090".to_owned(), "laptop".to_owned());
        let (org, token) = (OrgId::DEFAULT.to_string(), "fk_1".to_owned());
        Key { server, name, org, token, file: home.join(FILE) }
    }

    #[cfg(unix)]
    #[test]
    fn a_key_is_of_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join("own");
        let message = Key::read(&own).unwrap_err().to_string();
        assert!(message.contains("is not paired") && message.contains("flovyn daemon pair"), "{message}");
        key(&own).write().unwrap();
        key(&own).write().unwrap();
        let file = own.join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let read = Key::read(&own).unwrap();
        assert_eq!((read.name.as_str(), read.token().as_deref()), ("laptop", Some("fk_1")));
        // Paired anew, it sends the new token.
        Key { token: "fk_2".into(), ..key(&own) }.write().unwrap();
        assert_eq!(read.token().as_deref(), Some("fk_2"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let message = Key::read(&own).unwrap_err().to_string();
        assert!(message.contains("chmod 600"), "{message}");
    }

    #[test]
    fn a_key_is_for_one_server_and_one_name() {
        let key = key(Path::new("/nowhere"));
        let options = |server: Option<&str>, name: Option<&str>| Options {
            server: server.map(str::to_owned),
            name: name.map(str::to_owned),
            ..Options::default()
        };
        key.check_options(&options(Some("http://localhost:9090/"), Some("laptop"))).unwrap();
        key.check_options(&options(None, None)).unwrap();
        let message = key.check_options(&options(None, Some("desktop"))).unwrap_err().to_string();
        assert!(message.contains("--name is desktop") && message.contains("paired as laptop"), "{message}");
        assert!(key.check_options(&options(Some("http://other:1"), None)).is_err());
    }

    #[test]
    fn a_host_gives_a_name() {
        for (host, name) in [("Otter.local", "otter"), ("-", "computer"), ("", "computer"), ("büro pc", "bropc")] {
            assert_eq!(name_of_host(host), name, "{host}");
        }
    }
}
