//! The `flovyn` command as a library: the binary, the Python package and the npm package all call [`run`].
//!
//! Most commands open a backend without a worker and never create a database: they are about runs that are there. `chat` and
//! `worker` serve the built-in agent. Exit codes: 0 done, 1 an error, 2 wrong usage, 130 interrupted; those of `chat -p`
//! beside them are in `chat::exit`.

mod args;
mod catalog;
mod chat;
mod commands;
mod daemon;
mod event;
mod logs;
mod print;
mod project;
mod target;
mod view;

use args::Cli;
use clap::Parser;
use flovyn_core::Error;
use print::Output;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The words on the command line make no sense together.
    Usage(String),
    /// The engine refused.
    Refused(Error),
    /// The terminal or pipe is gone.
    Unwritable(std::io::Error),
    /// It has said everything itself; what is left is the exit code.
    Exit(i32),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Unwritable(error)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Refused(error) => f.write_str(error.message()),
            Self::Unwritable(error) => write!(f, "the terminal cannot be used: {error}"),
            Self::Exit(code) => write!(f, "it ended with the exit code {code}"),
        }
    }
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failed>;

/// Runs the command whose words are `args`, the program's name first, and gives its exit code.
///
/// Reads `FLOVYN_URL`, `FLOVYN_LOG`, `FLOVYN_LOG_FORMAT` and `NO_COLOR`, writes to standard output and error, and leaves nothing behind in the process
/// but, where it served, who takes its log.
/// May be called from any thread, also one of an async runtime; blocks until the command is done.
pub fn run(args: Vec<OsString>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    // A thread of its own: the caller's may belong to an async runtime, which cannot be blocked for another.
    let worker = std::thread::Builder::new().name("flovyn-cli".into()).spawn(move || execute(cli));
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        _ => 1,
    }
}

fn execute(cli: Cli) -> i32 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failed::Unwritable(error), false),
    };
    let json = cli.json;
    // A server ends in its own order, and so does a chat.
    let ends_itself = matches!(
        cli.command,
        args::Command::Dev(_)
            | args::Command::Server(_)
            | args::Command::Worker(_)
            | args::Command::Chat(_)
            | args::Command::Daemon(_)
    );
    let mut output = Output::of_terminal(json, cli.color);
    let done = runtime.block_on(async {
        tokio::select! {
            done = commands::dispatch(cli.command, &mut output) => Some(done),
            _ = tokio::signal::ctrl_c(), if !ends_itself => None,
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match done {
        Some(Ok(())) => 0,
        Some(Err(failed)) => report(&failed, json),
        None => 130,
    }
}

/// Tells standard error what went wrong and gives the exit code.
fn report(failed: &Failed, json: bool) -> i32 {
    match failed {
        Failed::Usage(message) if logs::fatal("Usage", message) => return 2,
        Failed::Refused(error) if logs::fatal(error.code().as_str(), error.message()) => return 1,
        _ => {}
    }
    let mut out = std::io::stderr().lock();
    let (code, written) = match failed {
        Failed::Exit(code) => return *code,
        Failed::Unwritable(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return 0,
        Failed::Unwritable(error) => (1, writeln!(out, "error: the output could not be written: {error}")),
        Failed::Usage(message) if json => {
            let error = serde_json::json!({ "error": { "code": "Usage", "message": message } });
            (2, writeln!(out, "{error}"))
        }
        Failed::Usage(message) => (2, writeln!(out, "error: {message}\n\nFor more information, try '--help'.")),
        Failed::Refused(error) if json => (1, writeln!(out, "{}", view::error(error))),
        Failed::Refused(error) => (1, writeln!(out, "error[{}]: {}", error.code(), error.message())),
    };
    let _ = written;
    code
}
