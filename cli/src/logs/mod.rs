//! What a process that serves has to say to its operator, on standard error.

use crate::{Failed, Result};
use std::io::IsTerminal;
use tracing_subscriber::filter::LevelFilter;

/// How much is told: `off`, `error`, `warn`, `info`, `debug` or `trace`; warnings and errors where it is not set.
const VARIABLE: &str = "FLOVYN_LOG";

/// Begins to tell. Where the process has somebody else to tell it, it stays so.
pub(crate) fn begin() -> Result {
    let level = match std::env::var(VARIABLE) {
        Ok(word) if !word.is_empty() => word.parse().map_err(|_| {
            Failed::Usage(format!("{VARIABLE}={word} is no level; use off, error, warn, info, debug or trace"))
        })?,
        _ => LevelFilter::WARN,
    };
    let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let told = tracing_subscriber::fmt().with_max_level(level).with_ansi(colored).with_writer(std::io::stderr);
    let _ = told.try_init();
    Ok(())
}
