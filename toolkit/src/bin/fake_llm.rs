//! `fake-llm`: the scripted model server as a command.

use clap::Parser;
use flovyn_toolkit::fake_llm::{FakeLlm, Script};
use std::path::PathBuf;
use std::process::ExitCode;

/// Serves a script as a model on 127.0.0.1, for tests without a model.
#[derive(Parser)]
#[command(name = "fake-llm", version)]
struct Arguments {
    /// The script: JSON by its ending, else TOML.
    script: PathBuf,
    /// The port; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// A file to which each request is appended as a line of JSON.
    #[arg(long)]
    log: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = Script::from_file(&arguments.script).map_err(|error| error.to_string()).and_then(|script| {
        FakeLlm::start_at(script, arguments.port, arguments.log.as_deref()).map_err(|error| error.to_string())
    });
    let fake = match started {
        Ok(fake) => fake,
        Err(error) => {
            eprintln!("fake-llm: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("listening on {}", fake.url());
    let stopped = tokio::signal::ctrl_c().await;
    println!("{} requests, {} paid", fake.requests().len(), fake.paid());
    if stopped.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
