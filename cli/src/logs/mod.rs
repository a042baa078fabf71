//! The log of a server or worker on standard error: lines for people, or one JSON object a line.

mod json;

use self::json::Json;
use crate::{Failed, Result};
use clap::ValueEnum;
use flovyn_server::LogFormat;
use serde_json::{Map, Value};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::filter::LevelFilter;

/// The level: `off`, `error`, `warn`, `info`, `debug` or `trace`. Default: `warn`; in JSON `info`, since those who collect the log
/// do not see what the process prints when it starts.
const VARIABLE: &str = "FLOVYN_LOG";

/// The target of lines that do not come from `tracing`.
const TARGET: &str = "flovyn";

/// Whether this process logs JSON.
static LOGS_JSON: AtomicBool = AtomicBool::new(false);

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
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

/// Starts the log. A subscriber that the process has already stays in place.
pub(crate) fn init(format: Format) -> Result {
    let level = match std::env::var(VARIABLE) {
        Ok(word) if !word.is_empty() => Some(word.parse().map_err(|_| {
            Failed::Usage(format!("{VARIABLE}={word} is no level; use off, error, warn, info, debug or trace"))
        })?),
        _ => None,
    };
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr);
    match format {
        Format::Text => {
            let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let _ = subscriber.with_max_level(level.unwrap_or(LevelFilter::WARN)).with_ansi(colored).try_init();
        }
        Format::Json => {
            let level = level.unwrap_or(LevelFilter::INFO);
            let subscriber = subscriber.with_max_level(level).with_ansi(false).fmt_fields(Json).event_format(Json);
            if subscriber.try_init().is_ok() {
                LOGS_JSON.store(true, Ordering::Relaxed);
                log_panics();
            }
        }
    }
    Ok(())
}

/// Logs why the process ends with an error, if it logs JSON.
pub(crate) fn fatal(code: &str, message: &str) -> bool {
    let logs_json = LOGS_JSON.load(Ordering::Relaxed);
    if logs_json {
        write_error(message, Map::from_iter([("code".to_owned(), code.into())]));
    }
    logs_json
}

/// Logs panics as JSON too: readers of the log expect objects alone.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).map_or(Value::Null, Value::String);
        let thread = std::thread::current().name().map_or(Value::Null, |name| name.into());
        let text = panic.payload().downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.payload().downcast_ref::<String>().cloned());
        let message = message.map_or(Value::Null, Value::String);
        let fields = [("panic", message), ("place", location), ("thread", thread)];
        write_error("a thread met a bug", fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    }));
}

fn write_error(message: &str, fields: Map<String, Value>) {
    let line = json::line("ERROR", TARGET, message, fields, Vec::new());
    let _ = writeln!(std::io::stderr(), "{line}");
}
