//! The confinement of a model's commands: bubblewrap, else Landlock, else none.
//!
//! Under bubblewrap a command sees the machine's files read-only, writes in the working directory and a `/tmp` of its own,
//! but not to what is run later outside (`guarded`), does not see keys and credentials of the user, has no network unless it
//! is given one, and all it started ends with it. Landlock alone confines writing and TCP, and reading of keys. It grants
//! whole directories, so what is run later is put back when the command has ended.

use super::super::ToolEnvironment;
use super::super::environment::Sandbox;
use super::super::fault::Fault;
use super::super::guarded;
use super::visible;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The means of confinement on this machine, each with the reason where it is not available.
#[derive(Debug, Clone, PartialEq)]
pub struct Availability {
    /// Bubblewrap's program.
    pub bubblewrap: Result<PathBuf, String>,
    /// Landlock of this kernel.
    pub landlock: Result<(), String>,
}

/// The confinement of a command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Confinement {
    Bubblewrap(PathBuf),
    Landlock,
    Nothing,
}

impl Confinement {
    /// The word in `details.sandbox`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Bubblewrap(_) => "bubblewrap",
            Self::Landlock => "landlock",
            Self::Nothing => "off",
        }
    }
}

impl Availability {
    /// Tries what this machine has. The first call takes some milliseconds, the others nothing.
    pub fn probe() -> &'static Self {
        static FOUND: OnceLock<Availability> = OnceLock::new();
        FOUND.get_or_init(|| Self { bubblewrap: probe_bubblewrap(), landlock: landlock::probe() })
    }

    /// A machine where nothing confines commands, for a reason.
    pub fn none(reason: &str) -> Self {
        Self { bubblewrap: Err(reason.to_owned()), landlock: Err(reason.to_owned()) }
    }

    /// What confines commands here, for people: `bubblewrap`, `landlock`, `off`, or `none`, where they are refused.
    pub fn word(&self, sandbox: Sandbox) -> &'static str {
        self.choose(sandbox).map_or("none", |confinement| confinement.word())
    }

    /// What confines the commands of an environment.
    pub(crate) fn choose(&self, sandbox: Sandbox) -> Result<Confinement, Fault> {
        match (sandbox, &self.bubblewrap, &self.landlock) {
            (Sandbox::Off, ..) => Ok(Confinement::Nothing),
            (Sandbox::Required, Ok(program), _) => Ok(Confinement::Bubblewrap(program.clone())),
            (Sandbox::Required, Err(_), Ok(_)) => Ok(Confinement::Landlock),
            (Sandbox::Required, Err(bubblewrap), Err(landlock)) => {
                let message = format!(
                    "Commands have to run confined and nothing here can do it. bubblewrap: {bubblewrap}; Landlock: \
                     {landlock}. Whoever runs the worker can install bubblewrap (apt-get install bubblewrap), or turn the \
                     sandbox off where the whole machine may be used."
                );
                Err(Fault::ForModel("no_sandbox", message))
            }
        }
    }
}

/// Finds a program as a shell would.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file())
}

fn probe_bubblewrap() -> Result<PathBuf, String> {
    let found = program("bwrap").ok_or("there is no program bwrap")?;
    let tried = Command::new(&found)
        .args([
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-net",
        ])
        .args(["--die-with-parent", "true"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("bwrap does not start: {error}"))?;
    if tried.status.success() {
        return Ok(found);
    }
    let stderr = String::from_utf8_lossy(&tried.stderr);
    Err(format!("bwrap does not work here: {}", stderr.trim().lines().last().unwrap_or("it says nothing")))
}

/// Restricts the present thread and all it starts from then on.
pub(crate) type Restrict = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A command as it is confined.
pub(crate) struct Confined {
    pub command: Command,
    /// Restricts the thread that starts the command, before it does.
    pub restrict: Option<Box<dyn FnOnce() -> io::Result<()> + Send>>,
}

/// Confines a shell command of an environment.
pub(crate) fn shell(environment: &ToolEnvironment, confinement: &Confinement, script: &str) -> io::Result<Confined> {
    let directory = environment.directory.path();
    let shell = program("bash").unwrap_or_else(|| PathBuf::from("/bin/sh"));
    let mut writable = vec![directory.to_owned()];
    writable.extend(environment.writable.iter().filter_map(|path| path.canonicalize().ok()));
    let caches = match confinement {
        Confinement::Nothing => Vec::new(),
        _ => environment.cache_folders(),
    };
    for (_, folder) in &caches {
        std::fs::create_dir_all(folder)?;
        writable.push(folder.canonicalize()?);
    }
    if let Some((_, folder)) = caches.iter().find(|(variable, _)| *variable == "CARGO_HOME") {
        // Which registries there are, and how they are reached, is as the user has it.
        let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/config.toml"));
        if let Some(own) = own.filter(|own| own.exists()) {
            let _ = std::os::unix::fs::symlink(own, folder.join("config.toml"));
        }
    }
    let mut restrict: Option<Restrict> = None;
    let mut temporary = None;
    let mut command = match confinement {
        Confinement::Nothing => Command::new(&shell),
        Confinement::Landlock => {
            let scratch = environment.scratch.path()?.to_owned();
            writable.push(scratch.clone());
            temporary = Some(scratch);
            let (network, keys) = (environment.network, guarded::keys());
            let readable = readable(environment);
            if let Some(key) = keys.iter().find(|key| writable.iter().any(|path| key.starts_with(path))) {
                let message = format!(
                    "{} holds keys, and Landlock cannot keep a part of the working directory from commands; install \
                     bubblewrap, or work in another directory",
                    key.display()
                );
                return Err(io::Error::other(message));
            }
            restrict = Some(Box::new(move || landlock::restrict(&writable, &keys, readable, network)));
            Command::new(&shell)
        }
        Confinement::Bubblewrap(program) => {
            temporary = Some(PathBuf::from("/tmp"));
            let mut command = Command::new(program);
            command.args(bubblewrap(environment, &writable)?).arg("--").arg(&shell);
            command
        }
    };
    command.arg("-c").arg(script).current_dir(directory).env_clear().envs(environment.variables());
    command.envs(caches);
    if let Some(temporary) = temporary {
        command.env("TMPDIR", temporary);
    }
    Ok(Confined { command, restrict })
}

/// What commands see of the machine besides what they may write to; all of it where there is nothing said.
fn readable(environment: &ToolEnvironment) -> Option<Vec<PathBuf>> {
    let named = environment.readable.as_ref()?.iter().filter_map(|path| path.canonicalize().ok());
    Some(visible::system().chain(named).collect())
}

fn bubblewrap(environment: &ToolEnvironment, writable: &[PathBuf]) -> io::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |option: &str, paths: &[&Path]| {
        words.push(option.into());
        words.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
    };
    let readable = readable(environment);
    match &readable {
        None => add("--ro-bind", &[Path::new("/"), Path::new("/")]),
        Some(readable) => {
            if let Some(home) = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.parent().is_some()) {
                add("--tmpfs", &[&home]);
            }
            readable.iter().for_each(|path| add("--ro-bind-try", &[path, path]));
        }
    }
    add("--dev", &[Path::new("/dev")]);
    add("--proc", &[Path::new("/proc")]);
    // Sockets of daemons are there: a read-only mount does not keep anybody from speaking to them.
    add("--tmpfs", &[Path::new("/run")]);
    if environment.network {
        let resolver = Path::new("/run/systemd/resolve");
        add("--ro-bind-try", &[resolver, resolver]);
    }
    add("--bind", &[environment.scratch.path()?, Path::new("/tmp")]);
    let keys = guarded::keys();
    let hide = |add: &mut dyn FnMut(&str, &[&Path]), key: &Path| match key.is_dir() {
        true => add("--tmpfs", &[key]),
        false => add("--ro-bind", &[Path::new("/dev/null"), key]),
    };
    // What is mounted later lies above. A directory with keys may hold the working directory, or lie in it.
    let (inside, outside): (Vec<_>, Vec<_>) =
        keys.iter().partition(|key| writable.iter().any(|path| key.starts_with(path)));
    // Of what is not shown nothing has to be hidden.
    let is_shown =
        |key: &&&PathBuf| readable.as_ref().is_none_or(|readable| readable.iter().any(|path| key.starts_with(path)));
    outside.iter().filter(is_shown).for_each(|key| hide(&mut add, key));
    writable.iter().for_each(|path| add("--bind", &[path, path]));
    for path in environment.directories().flat_map(guarded::existing) {
        add("--ro-bind", &[&path, &path]);
    }
    inside.into_iter().for_each(|key| hide(&mut add, key));
    add("--chdir", &[environment.directory.path()]);
    ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
        .into_iter()
        .for_each(|word| add(word, &[]));
    if !environment.network {
        add("--unshare-net", &[]);
    }
    Ok(words)
}

#[cfg(target_os = "linux")]
mod landlock {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetStatus, Scope,
    };
    use std::io;
    use std::path::{Path, PathBuf};

    /// The newest interface whose rules are asked for; an older kernel keeps those it knows.
    const NEWEST: ABI = ABI::V6;

    /// Whether a thread can be restricted here, tried with one that ends at once.
    pub(super) fn probe() -> Result<(), String> {
        let tried = std::thread::spawn(|| restrict(&[], &[], None, true)).join();
        match tried {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("its probe ended early".into()),
        }
    }

    /// The largest parts of a directory that hold none of these keys. A link is no part: what it leads to has a place of
    /// its own.
    fn without(directory: &Path, keys: &[PathBuf], found: &mut Vec<PathBuf>) {
        if keys.iter().any(|key| directory.starts_with(key)) {
            return;
        }
        if !keys.iter().any(|key| key.starts_with(directory)) {
            found.push(directory.to_owned());
            return;
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                without(&entry.path(), keys, found);
            }
        }
    }

    /// Restricts this thread and all it starts: reads everything but keys, or these paths but keys, and writes below these
    /// paths alone.
    pub(super) fn restrict(
        writable: &[PathBuf],
        keys: &[PathBuf],
        visible: Option<Vec<PathBuf>>,
        network: bool,
    ) -> io::Result<()> {
        let ruleset = || -> Result<_, Box<dyn std::error::Error>> {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(NEWEST))?;
            if !network {
                ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
            }
            ruleset = ruleset.scope(Scope::from_all(NEWEST))?;
            let mut created = ruleset.create()?;
            let mut readable = Vec::new();
            // Of /proc only what tells of the machine: what is there of processes has their environments, with their keys.
            let visible =
                visible.map_or_else(|| vec!["/".into()], |paths| [paths, super::super::visible::machine()].concat());
            visible.iter().for_each(|path| without(path, keys, &mut readable));
            for path in readable {
                // What cannot be opened cannot be read anyway.
                let Ok(opened) = PathFd::new(&path) else { continue };
                let access = AccessFs::from_read(NEWEST);
                let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
                created = created.add_rule(PathBeneath::new(opened, access))?;
            }
            for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"] {
                if let Ok(device) = PathFd::new(device) {
                    created = created.add_rule(PathBeneath::new(device, AccessFs::from_file(NEWEST)))?;
                }
            }
            for path in writable {
                created = created.add_rule(PathBeneath::new(PathFd::new(path)?, AccessFs::from_all(NEWEST)))?;
            }
            Ok(created.restrict_self()?)
        };
        match ruleset() {
            Ok(status) if status.ruleset == RulesetStatus::NotEnforced => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel does not have it"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod landlock {
    use std::io;
    use std::path::PathBuf;

    pub fn probe() -> Result<(), String> {
        Err("only Linux has it".into())
    }

    pub fn restrict(_: &[PathBuf], _: &[PathBuf], _: Option<Vec<PathBuf>>, _: bool) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has it"))
    }
}
