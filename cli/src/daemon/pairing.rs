//! How a computer becomes a machine: `flovyn daemon pair`, which gives it a key.

use super::Options;
use super::settings::Settings;
use crate::print::{Output, moment};
use crate::{Failed, Result};
use clap::Args;
use flovyn_core::error::Code;
use flovyn_core::runtime::daemon::{MachineKey, host_name};
use flovyn_core::storage::machines::Paired;
use flovyn_core::storage::remote::PairingClient;
use serde_json::json;
use std::time::Duration;

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

/// Refuses options that name another server or another name than a key is for.
pub(super) fn check_options(key: &MachineKey, options: &Options) -> Result {
    let checked = key.check(options.server.as_deref(), options.name.as_deref());
    checked.map_err(|error| Failed::Usage(error.message().to_owned()))
}

/// Runs `flovyn daemon pair`: asks, shows the code, waits, keeps the key.
pub(super) async fn pair(args: Pair, out: &mut Output) -> Result {
    let home = flovyn_toolkit::config::home()?;
    let settings = Settings::of_file(&home)?;
    if !args.replace
        && let Ok(known) = MachineKey::read(&home)
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
    let org = paired.org;
    let key = MachineKey::keep(&home, server, paired)?;
    let kept = key.file().display();
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

    #[test]
    fn a_host_gives_a_name() {
        for (host, name) in [("Otter.local", "otter"), ("-", "computer"), ("", "computer"), ("büro pc", "bropc")] {
            assert_eq!(name_of_host(host), name, "{host}");
        }
    }
}
