//! The `bash` tool: a shell command in the working directory, confined, with its output streamed.

use super::background;
use super::fault::Fault;
use super::guarded::Guard;
use super::process::{Confinement, Ended, Job, Why, run, shell};
use super::{Availability, Effect, Sandbox, Tool, ToolEnvironment, ToolOutcome, excerpt, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Runs a shell command.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bash;

#[derive(Deserialize)]
struct Input {
    command: String,
    timeout: Option<f64>,
    #[serde(default, rename = "outsideSandbox")]
    outside_sandbox: bool,
    reason: Option<String>,
    #[serde(default)]
    background: bool,
}

#[async_trait]
impl Tool for Bash {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> &str {
        "Run a shell command in the working directory. Every call is a new shell without input; nothing may ask for a \
         password or wait for a key. Shows standard output and error as they came, the first 10 KB and the last 40 KB. \
         A command that takes longer than timeout seconds is ended with all it started. It runs in a sandbox, which may \
         have no network, hides keys, and lets it write in the working directory but not to .git, editor settings and the \
         like. If a command cannot do its work there (such as git commit), ask for it with outsideSandbox and a reason: a \
         person is asked each time."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "The command." },
                "timeout": { "type": "number", "exclusiveMinimum": 0, "maximum": 600, "description": "Seconds it may take; 120 unless given." },
                "outsideSandbox": { "type": "boolean", "description": "Run this command outside of the sandbox, once, if a person allows it." },
                "reason": { "type": "string", "description": "Why it has to run outside, for that person." },
                "background": { "type": "boolean", "description": "Do not wait for its end, such as for a server: gives a handle for bash-output and bash-stop." }
            },
            "required": ["command"],
            "additionalProperties": false
        })
    }

    fn effect(&self) -> Effect {
        Effect::Exec
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        Fault::into_outcome(bash(arguments, environment).await)
    }
}

async fn bash(arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome, Fault> {
    let input: Input = parse("bash", arguments)?;
    let limits = &environment.limits;
    let longest = limits.longest;
    let timeout = match input.timeout.map(Duration::try_from_secs_f64) {
        None => limits.timeout,
        Some(Ok(requested)) if !requested.is_zero() && requested <= longest => requested,
        Some(_) => {
            let message = format!("timeout has to be more than 0 and at most {} seconds.", longest.as_secs());
            return Err(Fault::ForModel("invalid_arguments", message));
        }
    };
    if input.outside_sandbox && input.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(Fault::for_model("invalid_arguments", "outsideSandbox needs a reason, which a person is shown."));
    }
    if input.command.contains('\0') {
        return Err(Fault::for_model("invalid_arguments", "The command contains a zero byte."));
    }
    let available = environment.available.clone().unwrap_or_else(|| Availability::probe().clone());
    let sandbox = if input.outside_sandbox { Sandbox::Off } else { environment.sandbox };
    let confinement = available.choose(sandbox)?;
    let is_confined = confinement != Confinement::Nothing;
    let guard = |directory| Guard::of(directory, confinement == Confinement::Landlock);
    let guards: Vec<_> = environment.directories().filter(|_| is_confined).map(guard).collect();
    let failed = |error| Fault::machine("the sandbox of a command could not be made".into(), error);
    let job = Job {
        confined: shell(environment, &confinement, &input.command).map_err(failed)?,
        supervised: matches!(confinement, Confinement::Bubblewrap(_)),
        call: environment.call_name(),
        timeout,
        grace: limits.grace,
        drain: limits.drain,
        bounds: None,
        terminal: environment.terminal.clone(),
        stop: environment.stop.clone(),
        record_to: open_record(environment)?,
        input: None,
        ended_early: None,
    };
    if input.background {
        return background::start(environment, job, guards);
    }
    let ended = run(job).await;
    let put_right = guards.iter().map(Guard::put_right).collect::<std::io::Result<Vec<_>>>();
    let mut outcome = outcome(&ended?, timeout, environment)?.with_details(json!({ "sandbox": confinement.word() }));
    let put_right = put_right.map_err(|error| Fault::machine("guarded files could not be put right".into(), error))?;
    let put_right = put_right.concat();
    if !put_right.is_empty() {
        let note = format!(
            "\n[The command changed what is run later, outside of the sandbox:\n{}\nTo change it, use write or edit, or ask for \
             outsideSandbox.]",
            put_right.join("\n")
        );
        outcome.content.push(crate::message::Part::text(note));
        outcome.is_error = true;
    }
    Ok(outcome)
}

/// Where the whole output goes, for a call with a record.
pub(super) fn open_record(environment: &ToolEnvironment) -> Result<Option<(std::fs::File, u64)>, Fault> {
    let file = environment.record.as_ref().map(|record| record.create_output()).transpose().map_err(Fault::Machine)?;
    Ok(file.map(|file| (file, environment.limits.kept_output)))
}

/// The outcome of a command for the model.
pub(super) fn outcome(ended: &Ended, timeout: Duration, environment: &ToolEnvironment) -> Result<ToolOutcome, Fault> {
    let code = ended.code();
    let seconds = timeout.as_secs_f64();
    let status = match ended.why {
        Why::Stopped => return Err(Fault::stopped()),
        Why::TimedOut => {
            Some(format!("The command took longer than {seconds} seconds and was ended with all it started."))
        }
        Why::TooMuchMemory => Some("The command used more memory than it may and was ended.".to_owned()),
        Why::TooManyProcesses => Some("The command started more processes than it may and was ended.".to_owned()),
        Why::Exited if code != 0 => Some(format!("Command exited with code {code}.")),
        Why::Exited => None,
    };
    let mut text = anstream::adapter::strip_str(&ended.output.text).to_string();
    if text.trim().is_empty() {
        text = "(no output)".into();
    }
    let mut note = |line: &str| {
        text.truncate(text.trim_end_matches('\n').len());
        text.push_str("\n\n");
        text.push_str(line);
    };
    if ended.is_held {
        note(
            "[The shell has ended, and a process that it left in the background still holds its output. What that process \
             prints from now on is not seen; send its output to a file.]",
        );
    }
    if let Some(status) = &status {
        note(status);
    }
    let record = environment.record.as_ref().filter(|_| ended.output.missing > 0);
    let full = record.map(
        |record| json!({ "call": record.name(), "bytes": ended.output.bytes.min(environment.limits.kept_output) }),
    );
    let mut outcome = ToolOutcome::text(text).with_details(json!({
        "exitCode": code,
        "durationMs": ended.took.as_millis() as u64,
        "timedOut": ended.why == Why::TimedOut,
        "bytes": ended.output.bytes,
        "missingBytes": ended.output.missing,
        "cut": ended.output.missing > 0,
        "background": ended.is_held,
        "fullOutput": full,
    }));
    outcome.is_error = status.is_some();
    Ok(outcome)
}

/// The outcome of a command whose worker died while it ran.
pub(super) fn interrupted(output: Option<&str>) -> ToolOutcome {
    let mut text = String::from(
        "Interrupted after start, outcome unknown: the worker died while this call ran. It was not run again, for it may have \
         taken effect. Look at what it changed before you repeat it.",
    );
    match output.map(str::trim_end).filter(|output| !output.is_empty()) {
        Some(output) => text.push_str(&format!("\n\nWhat it printed until then:\n{output}")),
        None => text.push_str("\n\nNothing that it printed is known."),
    }
    ToolOutcome::error("interrupted", text)
        .with_details(json!({ "bytes": output.map_or(0, str::len), "cut": output.is_some_and(|output| output.len() > excerpt::MAX_BYTES) }))
}
