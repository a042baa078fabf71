//! The `run-sandbox` tool: a program in Python or TypeScript, alone: no network, no files of the machine, bounded memory and
//! time.

mod bubblewrap;
mod docker;

use super::bash::{open_record, outcome};
use super::fault::Fault;
use super::process::{Bounds, Confined, Job, run};
use super::{Availability, Effect, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;

/// Runs a program in a sandbox of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunSandbox;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Language {
    Python,
    TypeScript,
}

#[derive(Deserialize)]
struct Input {
    language: Language,
    code: String,
}

/// A program as one of the engines runs it.
struct Prepared {
    engine: &'static str,
    confined: Confined,
    supervised: bool,
    bounds: Option<Bounds>,
    input: Option<File>,
    ended_early: Option<Box<dyn FnOnce() + Send>>,
    /// Holds the program while it runs.
    _folder: Option<tempfile::TempDir>,
    /// What the model is told beside a failure.
    hint: Option<String>,
}

#[async_trait]
impl Tool for RunSandbox {
    fn name(&self) -> &str {
        "run-sandbox"
    }

    fn description(&self) -> &str {
        "Run a program in Python or TypeScript in a sandbox of its own and see what it prints. It has no network, sees no \
         files of the working directory, may use 256 MB of memory and take 30 seconds; only /tmp can be written and is gone \
         afterwards. Good for calculations and for trying things out."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "language": { "type": "string", "enum": ["python", "typescript"] },
                "code": { "type": "string", "minLength": 1, "description": "The whole program." }
            },
            "required": ["language", "code"],
            "additionalProperties": false
        })
    }

    fn effect(&self) -> Effect {
        Effect::Exec
    }

    /// What it does is gone with it.
    fn recovery(&self) -> super::Recovery {
        super::Recovery::Again
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        Fault::into_outcome(run_sandbox(arguments, environment).await)
    }
}

async fn run_sandbox(arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome, Fault> {
    let input: Input = parse("run-sandbox", arguments)?;
    let (call, scope) = (environment.call_name(), environment.clone());
    let name = call.clone();
    let prepared = tokio::task::spawn_blocking(move || prepare(&scope, &name, &input)).await;
    let failed = |error| Fault::machine("a sandbox could not be made".into(), error);
    let prepared = prepared.map_err(|error| failed(error.into()))??;
    let limits = &environment.limits;
    let ended = run(Job {
        confined: prepared.confined,
        supervised: prepared.supervised,
        call,
        timeout: limits.sandbox_time,
        grace: limits.grace,
        drain: limits.drain,
        bounds: prepared.bounds,
        terminal: environment.terminal.clone(),
        stop: environment.stop.clone(),
        record_to: open_record(environment)?,
        input: prepared.input,
        ended_early: prepared.ended_early,
    })
    .await?;
    let mut ended_outcome =
        outcome(&ended, limits.sandbox_time, environment)?.with_details(json!({ "sandbox": prepared.engine }));
    if let Some(hint) = prepared.hint.filter(|_| ended_outcome.is_error) {
        ended_outcome.content.push(crate::message::Part::text(format!("\n[{hint}]")));
    }
    Ok(ended_outcome)
}

/// Prepares a program for Docker where a daemon answers and has the image, else for bubblewrap.
fn prepare(environment: &ToolEnvironment, call: &str, input: &Input) -> Result<Prepared, Fault> {
    let docker = match docker::prepare(&environment.limits, call, input.language, &input.code) {
        Ok(prepared) => return prepared,
        Err(why) => why,
    };
    let available = environment.available.clone().unwrap_or_else(|| Availability::probe().clone());
    let bubblewrap = match available.bubblewrap {
        Ok(program) => match bubblewrap::prepare(&program, &environment.limits, input.language, &input.code) {
            Ok(prepared) => return prepared,
            Err(why) => why,
        },
        Err(why) => why,
    };
    let message = format!(
        "run-sandbox has nothing to run the program in. Docker: {docker}; bubblewrap: {bubblewrap}. Whoever runs the worker \
         can start Docker, or install bubblewrap with Python or Node.js beside it."
    );
    Err(Fault::ForModel("no_sandbox", message))
}
