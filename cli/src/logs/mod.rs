//! What a process that serves has to say to its operator, on standard error: lines for people, or one JSON object a line.

mod json;

use self::json::Json;
use crate::{Failed, Result};
use clap::ValueEnum;
use flovyn_server::LogFormat;
use serde_json::{Map, Value};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::filter::LevelFilter;

/// How much is told: `off`, `error`, `warn`, `info`, `debug` or `trace`. Where it is not set: warnings and errors; in JSON also
/// what the server does by itself, for whoever collects the log has not seen what it printed when it started.
const VARIABLE: &str = "FLOVYN_LOG";

/// Where these lines come from.
const TARGET: &str = "flovyn";

/// Whether this process tells JSON.
static TELLS_JSON: AtomicBool = AtomicBool::new(false);

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One object a line, for programs
    Json,
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Begins to tell. Where the process has somebody else to tell it, it stays so.
pub(crate) fn begin(format: Format) -> Result {
    let level = match std::env::var(VARIABLE) {
        Ok(word) if !word.is_empty() => Some(word.parse().map_err(|_| {
            Failed::Usage(format!("{VARIABLE}={word} is no level; use off, error, warn, info, debug or trace"))
        })?),
        _ => None,
    };
    let told = tracing_subscriber::fmt().with_writer(std::io::stderr);
    match format {
        Format::Text => {
            let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let _ = told.with_max_level(level.unwrap_or(LevelFilter::WARN)).with_ansi(colored).try_init();
        }
        Format::Json => {
            let level = level.unwrap_or(LevelFilter::INFO);
            let told = told.with_max_level(level).with_ansi(false).fmt_fields(Json).event_format(Json);
            if told.try_init().is_ok() {
                TELLS_JSON.store(true, Ordering::Relaxed);
                tell_panics();
            }
        }
    }
    Ok(())
}

/// Tells why the process ends with an error, if it tells JSON.
pub(crate) fn fatal(code: &str, message: &str) -> bool {
    let tells = TELLS_JSON.load(Ordering::Relaxed);
    if tells {
        say(message, Map::from_iter([("code".to_owned(), code.into())]));
    }
    tells
}

/// A panic is told in the words of the log too: whoever reads the log reads objects alone.
fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).map_or(Value::Null, Value::String);
        let thread = std::thread::current().name().map_or(Value::Null, |name| name.into());
        let text = panic.payload().downcast_ref::<&str>().map(|text| (*text).to_owned());
        let words = text.or_else(|| panic.payload().downcast_ref::<String>().cloned());
        let words = words.map_or(Value::Null, Value::String);
        let fields = [("panic", words), ("place", place), ("thread", thread)];
        say("a thread met a bug", fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    }));
}

fn say(message: &str, fields: Map<String, Value>) {
    let line = json::line("ERROR", TARGET, message, fields, Vec::new());
    let _ = writeln!(std::io::stderr(), "{line}");
}
