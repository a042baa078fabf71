//! Commands in the background: `bash` starts one and gives its handle, `bash-output` reads what it has printed so far, and
//! `bash-stop` ends it.
//!
//! A command belongs to the worker that started it, and ends with it. What is known of it is in files beside the records of
//! calls, so that a later worker can say that it was lost, and what it had printed. The owner holds a lock while it lives.

use super::fault::{Fault, blocking};
use super::guarded::Guard;
use super::process::{Capture, Job, Why, end_marked, run};
use super::record::CallRecord;
use super::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use flovyn_core::sync::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a command may run in the background.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// How many a worker runs at the same time.
const MOST: usize = 32;
/// How much of the output one call shows at most, in bytes; the newest counts.
const SHOWN: u64 = 256 * 1024;

/// The commands that run in the background of one worker. They end when it is dropped.
#[derive(Default)]
pub(crate) struct Background(Mutex<HashMap<String, Arc<AtomicBool>>>);

/// How a command in the background ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndNote {
    code: i32,
    stopped: bool,
    #[serde(default)]
    put_right: Vec<String>,
}

impl Drop for Background {
    fn drop(&mut self) {
        for (handle, stop) in self.0.lock().drain() {
            stop.store(true, Ordering::Release);
            end_marked(&handle);
        }
    }
}

/// Starts a command. Its output goes to the file of its record.
pub(super) fn start(environment: &ToolEnvironment, mut job: Job, guards: Vec<Guard>) -> Result<ToolOutcome, Fault> {
    let Some(records) = &environment.records else {
        return Err(Fault::for_model("no_background", "Commands cannot run in the background here."));
    };
    let commands = environment.background.clone();
    let handle = format!("background-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    let record = records.of(handle.clone());
    let failed = |error| Fault::machine("a command could not be started in the background".into(), error);
    let owner = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(owner_of(&record));
    let owner = owner.and_then(|owner| owner.lock().map(|()| owner)).map_err(failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    {
        let mut running = commands.0.lock();
        if running.len() >= MOST {
            let message = format!("{MOST} commands run in the background already. Stop one with bash-stop.");
            return Err(Fault::ForModel("too_many", message));
        }
        running.insert(handle.clone(), stop.clone());
    }
    let is_stopped = stop.clone();
    job.call.clone_from(&handle);
    job.timeout = LONGEST;
    job.terminal = None;
    job.stop = Some(Arc::new(move || is_stopped.load(Ordering::Acquire)));
    job.record_to = Some((record.create_output().map_err(Fault::Machine)?, environment.limits.kept_output));
    // The task must not keep alive what ends it when the worker goes.
    let (name, of_worker) = (handle.clone(), Arc::downgrade(&commands));
    tokio::spawn(async move {
        let ended = run(job).await;
        let put_right = guards.iter().filter_map(|guard| guard.put_right().ok()).collect::<Vec<_>>().concat();
        let note = match &ended {
            Ok(ended) => EndNote { code: ended.code(), stopped: ended.why == Why::Stopped, put_right },
            Err(_) => EndNote { code: -1, stopped: false, put_right },
        };
        if let Ok(text) = serde_json::to_vec(&note) {
            let _ = fs::write(end_of(&record), text);
        }
        if let Some(commands) = of_worker.upgrade() {
            commands.0.lock().remove(&name);
        }
        drop(owner);
    });
    let text = format!(
        "The command runs in the background as {handle}. bash-output shows what it has printed, bash-stop ends it. It ends with \
         the worker at the latest."
    );
    Ok(ToolOutcome::text(text).with_details(json!({ "handle": handle, "background": true })))
}

fn owner_of(record: &CallRecord) -> PathBuf {
    record.output().with_extension("owner")
}

fn end_of(record: &CallRecord) -> PathBuf {
    record.output().with_extension("end")
}

/// What has become of a command.
enum State {
    Runs,
    Ended(EndNote),
    /// Its worker died while it ran.
    Lost,
    Unknown,
}

fn state(record: &CallRecord) -> State {
    let note = || fs::read(end_of(record)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(note) = note() {
        return State::Ended(note);
    }
    let Ok(owner) = File::open(owner_of(record)) else { return State::Unknown };
    match owner.try_lock_shared() {
        Err(TryLockError::WouldBlock) => State::Runs,
        // It may have ended between the two looks.
        _ => note().map_or(State::Lost, State::Ended),
    }
}

/// Shows what a command in the background has printed.
#[derive(Debug, Clone, Copy, Default)]
pub struct BashOutput;

/// Ends a command in the background.
#[derive(Debug, Clone, Copy, Default)]
pub struct BashStop;

#[derive(Deserialize)]
struct Input {
    handle: String,
    #[serde(default)]
    from: u64,
}

/// The record of a handle. It is a name that was given out, and no path.
fn record_of(environment: &ToolEnvironment, handle: &str) -> Result<CallRecord, Fault> {
    let is_name =
        handle.strip_prefix("background-").is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_hexdigit()));
    let record = environment.records.as_ref().filter(|_| is_name).map(|records| records.of(handle.to_owned()));
    record.ok_or_else(|| Fault::for_model("unknown_handle", format!("There is no command {handle:?}.")))
}

fn show(environment: &ToolEnvironment, input: &Input) -> Result<ToolOutcome, Fault> {
    let record = record_of(environment, &input.handle)?;
    let state = state(&record);
    let handle = &input.handle;
    let (word, status, is_error) = match &state {
        State::Unknown => {
            return Err(Fault::for_model("unknown_handle", format!("There is no command {handle:?}.")));
        }
        State::Runs => ("running", "It runs.".to_owned(), false),
        State::Ended(EndNote { stopped: true, .. }) => ("stopped", "It was stopped.".to_owned(), false),
        State::Ended(EndNote { code, .. }) => ("ended", format!("It ended with exit code {code}."), *code != 0),
        State::Lost => {
            // Under bubblewrap it died with its worker; elsewhere what it started may live.
            end_marked(handle);
            let text = "It was lost: the worker that ran it died, and the command with it. What it did until then may be half done.";
            ("lost", text.to_owned(), true)
        }
    };
    let mut output = Vec::new();
    let failed = |error| Fault::machine("the output of a command cannot be read".into(), error);
    let mut file = File::open(record.output()).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let from = input.from.min(length).max(length.saturating_sub(SHOWN));
    file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut output)).map_err(failed)?;
    let next = from + output.len() as u64;
    let mut capture = Capture::default();
    capture.push(&String::from_utf8_lossy(&output));
    let text = anstream::adapter::strip_str(&capture.finish().text).to_string();
    let printed = if text.trim().is_empty() { "(no new output)".to_owned() } else { text.trim_end().to_owned() };
    let mut said = format!("{printed}\n\n[{status} The next output begins at {next}.]");
    if let State::Ended(EndNote { put_right, .. }) = &state
        && !put_right.is_empty()
    {
        said.push_str(&format!("\n[It changed what is run later, outside of the sandbox:\n{}]", put_right.join("\n")));
    }
    let mut outcome = ToolOutcome::text(said).with_details(json!({ "state": word, "handle": handle, "next": next }));
    outcome.is_error = is_error;
    Ok(outcome)
}

fn schema(more: Value) -> Value {
    let mut properties =
        json!({ "handle": { "type": "string", "minLength": 1, "description": "What bash returned." } });
    if let (Value::Object(all), Value::Object(more)) = (&mut properties, more) {
        all.extend(more);
    }
    json!({ "type": "object", "properties": properties, "required": ["handle"], "additionalProperties": false })
}

#[async_trait]
impl Tool for BashOutput {
    fn name(&self) -> &str {
        "bash-output"
    }

    fn description(&self) -> &str {
        "Show what a command in the background has printed so far, and whether it still runs. from leaves out what was shown \
         before."
    }

    fn input_schema(&self) -> Value {
        schema(json!({
            "from": { "type": "integer", "minimum": 0, "description": "Where the output begins that is to be shown; 0 unless given." }
        }))
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = environment.clone();
        blocking(move || show(&environment, &parse("bash-output", arguments)?)).await
    }
}

#[async_trait]
impl Tool for BashStop {
    fn name(&self) -> &str {
        "bash-stop"
    }

    fn description(&self) -> &str {
        "End a command in the background, with all that it started, and show what it had printed."
    }

    fn input_schema(&self) -> Value {
        schema(json!({}))
    }

    /// It ends only what was allowed to be started, so nobody is asked.
    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = environment.clone();
        blocking(move || {
            let input: Input = parse("bash-stop", arguments)?;
            let record = record_of(&environment, &input.handle)?;
            match environment.background.0.lock().get(&input.handle) {
                Some(stop) => stop.store(true, Ordering::Release),
                // Another worker of this machine runs it.
                None if matches!(state(&record), State::Runs) => {
                    end_marked(&input.handle);
                }
                None => {}
            }
            let grace = environment.limits.grace + environment.limits.drain + Duration::from_secs(3);
            let since = std::time::Instant::now();
            while matches!(state(&record), State::Runs) && since.elapsed() < grace {
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut outcome = show(&environment, &input)?;
            outcome.is_error = outcome.details["state"] == "running";
            Ok(outcome)
        })
        .await
    }
}
