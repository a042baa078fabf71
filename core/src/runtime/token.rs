//! Tokens of servers: where `flovyn dev` leaves its own, and which one a client sends.

use std::path::PathBuf;

/// The file in which `flovyn dev` on a gRPC port leaves its token: `$FLOVYN_HOME/dev-PORT.token`, by default in `~/.flovyn`.
pub fn dev_token_file(port: u16) -> Option<PathBuf> {
    let home = std::env::var_os("FLOVYN_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".flovyn")))?;
    Some(home.join(format!("dev-{port}.token")))
}

/// The token for a server: `FLOVYN_TOKEN`, else the one of a `flovyn dev` on this machine.
pub(super) fn find(url: &str) -> Option<String> {
    if let Some(token) = std::env::var("FLOVYN_TOKEN").ok().filter(|token| !token.is_empty()) {
        return Some(token);
    }
    let host = url.strip_prefix("http://")?.split('/').next()?;
    let (name, port) = host.rsplit_once(':')?;
    // A token of this machine is sent to this machine only.
    if !["localhost", "127.0.0.1", "[::1]"].contains(&name) {
        return None;
    }
    let token = std::fs::read_to_string(dev_token_file(port.parse().ok()?)?).ok()?;
    Some(token.trim().to_owned())
}
