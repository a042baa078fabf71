//! `flovyn daemon install`: the file by which systemd or launchd starts the daemon with the computer, for its user alone.

use super::pairing::check_options;
use super::settings::Settings;
use super::{Options, invalid};
use crate::print::Output;
use crate::{Failed, Result};
use clap::{Args, ValueEnum};
use flovyn_core::runtime::daemon::MachineKey;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Install {
    #[command(flatten)]
    options: Options,
    /// What starts it; that of this system without it
    #[arg(long, value_enum, value_name = "SYSTEM")]
    by: Option<By>,
    /// Print the file instead of writing it
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// A user unit of systemd
    Systemd,
    /// An agent of launchd
    Launchd,
}

/// A file that starts the daemon.
struct Unit {
    file: PathBuf,
    text: String,
    /// What the user runs then, a command a line.
    next: Vec<String>,
}

/// Runs `flovyn daemon install`.
pub(super) fn install(args: &Install, out: &mut Output) -> Result {
    let home = flovyn_toolkit::config::home()?;
    let home = std::path::absolute(&home)?;
    let key = MachineKey::read(&home)?;
    check_options(&key, &args.options)?;
    let settings = Settings::read(&home, &args.options)?;
    let by = args.by.unwrap_or(if cfg!(target_os = "macos") { By::Launchd } else { By::Systemd });
    let unit = unit(by, &program()?, &home, &key.name, &settings)?;
    if args.print {
        return out.part(&unit.text);
    }
    let folder = unit.file.parent().unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&unit.file, &unit.text));
    written.map_err(|error| invalid(format!("{} cannot be written: {error}", unit.file.display())))?;
    if out.is_json() {
        return out.value(&json!({ "file": unit.file, "run": unit.next }));
    }
    out.line(&format!("{} is written. It starts the daemon once you run:", unit.file.display()))?;
    unit.next.iter().try_for_each(|line| out.line(&format!("  {line}")))
}

/// The command that is started: this one.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().ok().filter(|own| own.file_stem().is_some_and(|stem| stem == "flovyn"));
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("flovyn")).find(|file| file.is_file())
    };
    own.or_else(on_path).ok_or_else(|| Failed::Usage("there is no flovyn on PATH for the file to start".into()))
}

fn unit(by: By, program: &Path, home: &Path, name: &str, settings: &Settings) -> Result<Unit> {
    let user = std::env::var_os("HOME").map(PathBuf::from);
    let user = user.ok_or_else(|| Failed::Usage("HOME is not set; where the file goes is not known".into()))?;
    let workspaces = settings.workspaces.iter().flat_map(|path| ["--workspace".to_owned(), path.display().to_string()]);
    let words: Vec<_> = [program.display().to_string(), "daemon".into()].into_iter().chain(workspaces).collect();
    let home = home.display().to_string();
    Ok(match by {
        By::Systemd => {
            let named = format!("flovyn-daemon-{name}.service");
            let folder = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| user.join(".config"), PathBuf::from);
            let text = format!(
                "[Unit]\nDescription=Flovyn daemon: the machine {name}\nAfter=network-online.target\n\
                 Wants=network-online.target\n\n[Service]\nExecStart={}\nEnvironment={}\nRestart=on-failure\n\
                 RestartSec=10\nKillMode=mixed\nTimeoutStopSec=30\n\n[Install]\nWantedBy=default.target\n",
                words.iter().map(|word| of_systemd(word)).collect::<Vec<_>>().join(" "),
                of_systemd(&format!("FLOVYN_HOME={home}")),
            );
            let next = vec![
                "systemctl --user daemon-reload".to_owned(),
                format!("systemctl --user enable --now {named}"),
                "loginctl enable-linger   # so that it runs while you are not logged in".to_owned(),
            ];
            Unit { file: folder.join("systemd/user").join(named), text, next }
        }
        By::Launchd => {
            let label = format!("dev.flovyn.daemon.{name}");
            let file = user.join("Library/LaunchAgents").join(format!("{label}.plist"));
            let words: String = words.iter().map(|word| format!("    <string>{}</string>\n", of_xml(word))).collect();
            let log = of_xml(&format!("{home}/daemon.log"));
            let (home, quoted) = (of_xml(&home), of_xml(&label));
            let text = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
                 \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n  \
                 <key>Label</key>\n  <string>{quoted}</string>\n  <key>ProgramArguments</key>\n  <array>\n{words}  \
                 </array>\n  <key>EnvironmentVariables</key>\n  <dict>\n    <key>FLOVYN_HOME</key>\n    \
                 <string>{home}</string>\n  </dict>\n  <key>RunAtLoad</key>\n  <true/>\n  <key>KeepAlive</key>\n  \
                 <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  <key>ThrottleInterval</key>\n  \
                 <integer>10</integer>\n  <key>StandardErrorPath</key>\n  <string>{log}</string>\n</dict>\n</plist>\n"
            );
            let next = vec![format!("launchctl bootstrap gui/$(id -u) '{}'", file.display())];
            Unit { file, text, next }
        }
    })
}

/// A word of a unit: quoted, without specifiers and variables.
fn of_systemd(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{word}\"")
}

/// A text of XML.
fn of_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(by: By) -> Unit {
        let settings = Settings { workspaces: vec!["/home/ann/a b & 100%".into()], ..Settings::default() };
        unit(by, Path::new("/opt/flovyn"), Path::new("/home/ann/.flovyn"), "laptop", &settings).unwrap()
    }

    #[test]
    fn a_unit_starts_the_daemon_of_this_home() {
        let unit = of(By::Systemd);
        assert!(unit.file.ends_with("systemd/user/flovyn-daemon-laptop.service"), "{}", unit.file.display());
        for line in [
            "ExecStart=\"/opt/flovyn\" \"daemon\" \"--workspace\" \"/home/ann/a b & 100%%\"",
            "Environment=\"FLOVYN_HOME=/home/ann/.flovyn\"",
            "WantedBy=default.target",
        ] {
            assert!(unit.text.lines().any(|there| there == line), "{line}\n{}", unit.text);
        }
        assert!(unit.next.iter().any(|line| line.ends_with("enable --now flovyn-daemon-laptop.service")));
    }

    #[test]
    fn an_agent_of_launchd_is_xml() {
        let unit = of(By::Launchd);
        assert!(unit.file.ends_with("Library/LaunchAgents/dev.flovyn.daemon.laptop.plist"));
        assert!(unit.text.contains("<string>/home/ann/a b &amp; 100%</string>"), "{}", unit.text);
        assert_eq!(unit.text.matches("<dict>").count(), unit.text.matches("</dict>").count());
    }
}
