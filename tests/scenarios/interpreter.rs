//! The scenarios' interpreter in Rust: starts runs of programs, steers them, tells how they ended. README.md holds the words.
//!
//! interpreter URL [KILL_AT] < programs, one JSON object a line; dies at the n-th place where it counts.

mod program;

use flovyn_core::Payload;
use flovyn_core::client::{Client, Handle, StartOptions, StreamEvent};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{OpId, Slot};
use flovyn_core::journal::OnDivergence;
use flovyn_core::model::{
    CancelMode, Delivery, ForkFrom, PageRequest, Persistence, Resolution, ResumeRequest, StartLimits, Status,
    TaskStatus,
};
use flovyn_core::runtime::FlovynClient;
use program::{Below, Bulk, Charge, Double, Echo, Fails, Flaky, Hopeless, Linear, Looping, Programs, Slow, said};
use serde_json::{Value, json};
use std::io::BufRead;
use std::time::Duration;

const PAGE: PageRequest = PageRequest { limit: 1_000, after: None };

fn name(program: &Value) -> &str {
    program["name"].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(options: &Value, name: &str) -> Option<u32> {
    options[name].as_u64().and_then(|number| u32::try_from(number).ok())
}

fn options(program: &Value, id: &str) -> StartOptions {
    let given = &program["options"];
    let limits = StartLimits {
        max_steps: number(given, "max_steps"),
        max_total_steps: number(given, "max_total_steps"),
        max_tail: number(given, "max_tail"),
        ..StartLimits::default()
    };
    let persistence = given["persistence"].as_str().and_then(|word| Persistence::parse(word).ok());
    StartOptions { limits, persistence, ..StartOptions::with_id(id) }
}

fn delivery(word: Option<&Value>) -> Result<Delivery> {
    let parsed = word.map(|word| serde_json::from_value(word.clone())).transpose();
    parsed.map(Option::unwrap_or_default).map_err(|_| Error::new(Code::InvalidArgument, "no such delivery"))
}

async fn send(handle: &Handle, signal: &Value, number: usize) -> Result<()> {
    let [name, value, rest @ ..] = list(signal) else { return Ok(()) };
    let (name, value) = (name.as_str().unwrap_or_default(), Payload::of(value)?);
    handle.signal(name, value, delivery(rest.first())?, Some(number.to_string())).await.map(drop)
}

/// Starts the run of a program and does what comes before it advances.
async fn start(client: &Client, program: &Value) -> Result<Handle> {
    let agent = program["agent"].as_str().unwrap_or_default();
    let handle = client.start(agent, Payload::of(&program["input"])?, options(program, name(program))).await?;
    for (number, signal) in list(&program["signals"]).iter().enumerate() {
        send(&handle, signal, number).await?;
    }
    Ok(handle)
}

/// Waits for the end, steering as the program says.
async fn ended(handle: &Handle, program: &Value, told: &mut Value) -> Result<Value> {
    if !program["resolve"].is_null() {
        match handle.result(Some(Duration::from_secs(20))).await {
            Err(error) if error.code() == Code::InDoubt => {
                told["doubt"] = code(&error);
                let tasks = handle.tasks(PAGE).await?.items;
                let doubt = tasks.iter().find(|task| task.status == TaskStatus::InDoubt);
                let doubt = doubt.ok_or_else(|| Error::new(Code::InDoubt, "no task is in doubt"))?;
                let op = OpId { execution: doubt.execution, slot: doubt.slot, once: None };
                handle.resolve(op, Resolution::Result(Payload::of(&program["resolve"])?)).await?;
            }
            other => return other?.parse(),
        }
    }
    if program["cancel"] == true {
        while !matches!(handle.status().await?, Status::Waiting | Status::Completed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        handle.cancel(CancelMode::Graceful, Duration::from_secs(30)).await?;
    }
    let resume = &program["resume"];
    let until = program["until"].as_str().or((!resume.is_null()).then_some("PAUSED"));
    if let Some(until) = until {
        let mut status = handle.status().await?;
        while status.as_str() != until && !matches!(status, Status::Completed | Status::Failed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            status = handle.status().await?;
        }
        if resume.is_null() {
            return Ok(json!(status.as_str()));
        }
        if status.as_str() == until {
            let (max_steps, max_tail) = (number(resume, "max_steps"), number(resume, "max_tail"));
            handle.resume(ResumeRequest { max_steps, max_tail, ..ResumeRequest::default() }).await?;
        }
    }
    handle.result(Some(Duration::from_secs(60))).await?.parse()
}

/// Does what a caller does with an ended run.
async fn after(client: &Client, handle: &Handle, program: &Value, call: &Value) -> Result<Value> {
    let words = list(call);
    let agent = program["agent"].as_str().unwrap_or_default();
    let word = |at: usize| words.get(at).and_then(Value::as_str).unwrap_or_default();
    let whole = |at: usize| words.get(at).and_then(Value::as_u64).unwrap_or_default();
    match word(0) {
        "signal" => {
            handle.signal(word(1), Payload::of(&words[2])?, Delivery::default(), None).await?;
        }
        "signal_again" => send(handle, &program["signals"][whole(1) as usize], whole(1) as usize).await?,
        "resume" => {
            handle.resume(ResumeRequest::default()).await?;
        }
        "start_other" => {
            client.start(agent, Payload::of(&words[1])?, options(program, name(program))).await?;
        }
        "start_same" => {
            let input = Payload::of(&program["input"])?;
            return Ok(json!(client.start(agent, input, options(program, name(program))).await?.id() == handle.id()));
        }
        "handle" => {
            client.handle(word(1)).await?;
        }
        "start_id" => {
            client.start(agent, Payload::null(), StartOptions::with_id(word(1))).await?;
        }
        "result_within" => {
            let limit = Duration::from_secs_f64(words[1].as_f64().unwrap_or_default());
            handle.result(Some(limit)).await?;
        }
        "fork" => {
            let op = ForkFrom::Op(Slot { segment: 0, sequence: whole(1) as u32 });
            let fork = handle.fork(op, Some(&format!("{} (fork)", name(program))), None, None).await?;
            return fork.result(Some(Duration::from_secs(60))).await?.parse();
        }
        "messages" => return said(&handle.messages().await?),
        "tasks" => {
            let tasks = handle.tasks(PAGE).await?.items;
            let told = tasks.iter().map(|task| {
                let why = task.failure.as_ref().map(|failure| &failure.error_type);
                json!([task.new.kind, task.status, task.attempt, why])
            });
            return Ok(told.collect());
        }
        "checkpoints" => return Ok(json!(handle.checkpoints(PAGE).await?.items.len())),
        _ => return Err(Error::new(Code::InvalidArgument, format!("unknown call {call}"))),
    }
    Ok(Value::Null)
}

fn code(error: &Error) -> Value {
    json!(error.code().as_str())
}

/// Tells how a run ended.
async fn report(client: &Client, handle: &Handle, program: &Value) -> Result<Value> {
    let mut told = json!({ "name": name(program) });
    match ended(handle, program, &mut told).await {
        Ok(result) => told["result"] = result,
        Err(error) => told["error"] = code(&error),
    }
    let failure = handle.describe().await?.failure;
    told["failure"] = json!(failure.map(|failure| json!([failure.code.as_str(), failure.error_type, failure.message])));
    if program["until"].is_null() {
        let (mut events, mut reader) = (Vec::new(), handle.follow(None));
        while let Some(told) = reader.next().await? {
            events.push(match told.event {
                StreamEvent::Durable(event) => json!(event.kind),
                StreamEvent::Chunk(_, chunk) => json!(chunk.kind),
                StreamEvent::Retract { .. } => json!("retract"),
                StreamEvent::Gap(_) => json!("gap"),
            });
        }
        told["events"] = events.into();
    }
    let mut answers = Vec::new();
    for call in list(&program["after"]) {
        answers.push(after(client, handle, program, call).await.unwrap_or_else(|error| code(&error)));
    }
    told["after"] = answers.into();
    Ok(told)
}

fn read() -> Vec<Value> {
    let lines = std::io::stdin().lock().lines().map_while(std::result::Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "memory:".into());
    program::kill_at(words.next().and_then(|word| word.parse().ok()).unwrap_or(0));
    let given = read();
    let programs: Programs =
        std::sync::Arc::new(given.iter().map(|program| (name(program).to_owned(), program.clone())).collect());
    let version = given.first().and_then(|program| program["version"].as_str()).unwrap_or("1").to_owned();
    let linear =
        |kind, on_divergence| Linear { kind, on_divergence, version: version.clone(), programs: programs.clone() };
    let looping = |hasty| Looping { hasty, version: version.clone(), programs: programs.clone() };
    let flovyn = FlovynClient::builder()
        .url(&url)
        .agent(linear("linear", OnDivergence::Continue))
        .agent(linear("strict", OnDivergence::Fail))
        .agent(linear("careful", OnDivergence::Pause))
        .agent(looping(false))
        .agent(looping(true))
        .agent(Below)
        .task(Double)
        .task(Echo)
        .task(Fails)
        .task(Flaky)
        .task(Hopeless)
        .task(Slow)
        .task(Charge)
        .task_executor(Bulk)
        .build()
        .await?;
    let mut handles = Vec::new();
    for program in &given {
        handles.push(start(flovyn.client(), program).await?);
    }
    flovyn.worker().await?;
    for (handle, program) in handles.iter().zip(&given) {
        println!("{}", report(flovyn.client(), handle, program).await?);
    }
    flovyn.close().await
}
