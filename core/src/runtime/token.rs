//! Tokens for servers: the file in which `flovyn dev` leaves its own, and the token that a client sends.

use super::home::home;
use std::path::PathBuf;

/// The file in which `flovyn dev` on a gRPC port leaves its token: `$FLOVYN_HOME/dev-PORT.token`, by default in `~/.flovyn`.
pub fn dev_token_file(port: u16) -> Option<PathBuf> {
    Some(home()?.join(format!("dev-{port}.token")))
}

/// The token for a server: `FLOVYN_TOKEN`, or else the one of a `flovyn dev` on this machine. Both are looked up for
/// each request for the token, because a server that was restarted may have another one.
#[cfg(feature = "remote")]
pub(super) struct Found {
    /// The file in which a `flovyn dev` with the server's address leaves its token.
    file: Option<PathBuf>,
}

#[cfg(feature = "remote")]
impl Found {
    /// For the server of a URL. The token of a `flovyn dev` is only sent to a server on this machine.
    pub(super) fn of(url: &str) -> Self {
        Self { file: port_here(url).and_then(dev_token_file) }
    }

    fn kept(&self) -> Option<String> {
        let token = std::fs::read_to_string(self.file.as_ref()?).ok()?;
        Some(token.trim().to_owned())
    }
}

#[cfg(feature = "remote")]
impl crate::storage::remote::Tokens for Found {
    fn token(&self) -> Option<String> {
        named().or_else(|| self.kept())
    }

    fn describe(&self) -> String {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        match (named().is_some(), file) {
            (true, Some(file)) if self.kept().is_some() => {
                format!(
                    "it was sent the token of FLOVYN_TOKEN, which counts before the one that `flovyn dev` left in {file}"
                )
            }
            (true, _) => "it was sent the token of FLOVYN_TOKEN".into(),
            (false, Some(file)) if self.kept().is_some() => {
                format!("it was sent the token that `flovyn dev` left in {file}")
            }
            (false, Some(file)) => {
                format!("it was sent no token: FLOVYN_TOKEN is not set, and no `flovyn dev` has left one in {file}")
            }
            (false, None) => "it was sent no token: FLOVYN_TOKEN is not set".into(),
        }
    }
}

#[cfg(feature = "remote")]
fn named() -> Option<String> {
    std::env::var("FLOVYN_TOKEN").ok().filter(|token| !token.is_empty())
}

/// The port of a URL whose server is on this machine; none for any other URL.
#[cfg(feature = "remote")]
fn port_here(url: &str) -> Option<u16> {
    let host = url.strip_prefix("http://")?.split('/').next()?;
    let (name, port) = host.rsplit_once(':')?;
    ["localhost", "127.0.0.1", "[::1]"].contains(&name).then(|| port.parse().ok()).flatten()
}
