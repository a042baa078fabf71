//! What an ACP agent has done by its host: files of the workspace, and commands in terminals that run as those of the tool
//! `bash` do, confined and ended with all they started.

use super::INTERNAL_ERROR;
use crate::external::process::Outbox;
use crate::tools::fault::Fault;
use crate::tools::process::{Confinement, Job, run, shell};
use crate::tools::{Availability, Effect, ToolEnvironment, WorkingDirectory, excerpt};
use flovyn_core::sync::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 32 << 20;
/// How much of the output of a terminal is kept unless the agent says otherwise, and at most.
const OUTPUT: usize = 1 << 20;
/// How long a terminal may run.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// The most terminals of one session.
const TERMINALS: usize = 64;

/// Serves requests of an agent. Answers are sent when they are there.
pub(super) struct Host {
    environment: ToolEnvironment,
    outbox: Outbox,
    terminals: BTreeMap<String, Terminal>,
    last: u64,
}

/// A command that runs. It is stopped when this is dropped.
struct Terminal {
    state: Arc<TerminalState>,
    exit: watch::Receiver<Option<Value>>,
}

struct TerminalState {
    output: Mutex<(String, bool)>,
    limit: usize,
    stop: AtomicBool,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
    }
}

/// A change that an agent wants, as the tool call that rules of approvals know.
pub(super) fn as_tool(method: &str, params: &Value) -> (&'static str, Effect, Value) {
    match method {
        "fs/write_text_file" => {
            let size = params["content"].as_str().map_or(0, str::len);
            ("write", Effect::Write, json!({ "path": params["path"], "bytes": size }))
        }
        _ => ("bash", Effect::Exec, json!({ "command": command_of(params), "cwd": params["cwd"] })),
    }
}

/// The line of a shell for the command of a terminal.
fn command_of(params: &Value) -> String {
    let command = params["command"].as_str().unwrap_or_default();
    let args: Vec<_> = params["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Without arguments the command may be a whole line of a shell.
    if args.is_empty() { command.to_owned() } else { line_of(std::iter::once(command).chain(args)) }
}

/// The line of a shell for the words of a command.
pub(super) fn line_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = |word: &str| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.to_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

impl Host {
    pub(super) fn new(environment: ToolEnvironment, outbox: Outbox) -> Self {
        Self { environment, outbox, terminals: BTreeMap::new(), last: 0 }
    }

    /// Whether a command runs.
    pub(super) fn is_busy(&self) -> bool {
        self.terminals.values().any(|terminal| terminal.exit.borrow().is_none())
    }

    /// Reads a file of the workspace.
    pub(super) fn read(&self, request: Value, params: Value) {
        let (directory, outbox) = (self.environment.directory().clone(), self.outbox.clone());
        tokio::task::spawn_blocking(move || {
            let content = read(&directory, &params).map(|content| json!({ "content": content }));
            answer(&outbox, &request, content);
        });
    }

    /// Writes a file of the workspace, or starts a command there.
    pub(super) fn change(&mut self, request: Value, method: &str, params: Value) {
        if method == "terminal/create" {
            let created = self.create(&params).map(|id| json!({ "terminalId": id }));
            return answer(&self.outbox, &request, created);
        }
        let (directory, outbox) = (self.environment.directory().clone(), self.outbox.clone());
        tokio::task::spawn_blocking(move || answer(&outbox, &request, write(&directory, &params).map(|()| json!({}))));
    }

    /// Does something with a terminal.
    pub(super) fn terminal(&mut self, request: Value, method: &str, params: &Value) {
        let id = params["terminalId"].as_str().unwrap_or_default();
        let Some(terminal) = self.terminals.get(id) else {
            return answer(&self.outbox, &request, Err(format!("There is no terminal {id:?}.")));
        };
        let done = match method {
            "terminal/output" => {
                let (output, truncated) = terminal.state.output.lock().clone();
                let mut result = json!({ "output": output, "truncated": truncated });
                if let Some(exit) = &*terminal.exit.borrow() {
                    result["exitStatus"] = exit.clone();
                }
                Ok(result)
            }
            "terminal/wait_for_exit" => {
                let (mut exit, outbox) = (terminal.exit.clone(), self.outbox.clone());
                tokio::spawn(async move {
                    let ended = match exit.wait_for(Option::is_some).await {
                        Ok(ended) => ended.clone().unwrap_or_default(),
                        Err(_) => json!({ "exitCode": null, "signal": "SIGKILL" }),
                    };
                    answer(&outbox, &request, Ok(ended));
                });
                return;
            }
            "terminal/kill" => {
                terminal.state.stop.store(true, Ordering::Release);
                Ok(json!({}))
            }
            "terminal/release" => {
                self.terminals.remove(id);
                Ok(json!({}))
            }
            other => Err(format!("Flovyn has no method {other:?}.")),
        };
        answer(&self.outbox, &request, done);
    }

    fn create(&mut self, params: &Value) -> Result<String, String> {
        if self.terminals.len() >= TERMINALS {
            return Err(format!("There are {TERMINALS} terminals; release one."));
        }
        let mut environment = self.environment.clone();
        if let Some(cwd) = params["cwd"].as_str() {
            let base = self.environment.directory();
            let inner = base.inner_path(cwd).map_err(said)?;
            let real = base.real(&inner).map_err(said)?;
            environment.writable.push(base.path().to_owned());
            environment.directory =
                WorkingDirectory::open(base.path().join(real)).map_err(|error| error.message().to_owned())?;
        }
        for variable in params["env"].as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                environment = environment.with_value(name, value);
            }
        }
        let limit = params["outputByteLimit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(OUTPUT).min(OUTPUT);
        let state = Arc::new(TerminalState { output: Mutex::default(), limit, stop: AtomicBool::new(false) });
        let available = environment.available.clone().unwrap_or_else(|| Availability::probe().clone());
        let confinement = available.choose(environment.sandbox).map_err(said)?;
        let (printed, stopped) = (state.clone(), state.clone());
        let command = command_of(params);
        if command.contains('\0') {
            return Err("The command contains a zero byte.".to_owned());
        }
        let job = Job {
            confined: shell(&environment, &confinement, &command).map_err(|error| error.to_string())?,
            supervised: matches!(confinement, Confinement::Bubblewrap(_)),
            call: environment.call_name(),
            timeout: LONGEST,
            grace: environment.limits.grace,
            drain: environment.limits.drain,
            bounds: None,
            terminal: Some(Arc::new(move |event| printed.print(&event.data))),
            stop: Some(Arc::new(move || stopped.stop.load(Ordering::Acquire))),
            record_to: None,
            input: None,
            ended_early: None,
        };
        let (ended, exit) = watch::channel(None);
        let failed = state.clone();
        tokio::spawn(async move {
            // The scratch folder of the environment has to stay as long as the command runs.
            let _environment = environment;
            let exit = match run(job).await {
                Ok(end) => {
                    let signal = end.status.signal().map(|signal| format!("signal {signal}"));
                    json!({ "exitCode": end.status.code(), "signal": signal })
                }
                Err(fault) => {
                    failed.print(&said(fault));
                    json!({ "exitCode": 127, "signal": null })
                }
            };
            ended.send_replace(Some(exit));
        });
        self.last += 1;
        let id = format!("terminal-{}", self.last);
        self.terminals.insert(id.clone(), Terminal { state, exit });
        Ok(id)
    }
}

impl TerminalState {
    fn print(&self, text: &str) {
        let (output, truncated) = &mut *self.output.lock();
        output.push_str(text);
        if output.len() > self.limit {
            *output = excerpt::suffix(output, self.limit).to_owned();
            *truncated = true;
        }
    }
}

fn answer(outbox: &Outbox, request: &Value, done: Result<Value, String>) {
    let record = match done {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": request, "result": result }),
        Err(message) => {
            json!({ "jsonrpc": "2.0", "id": request, "error": { "code": INTERNAL_ERROR, "message": message } })
        }
    };
    // An agent that takes no more input is found dead by whoever reads it.
    let _ = outbox.send(&record);
}

/// A fault in words.
fn said(fault: Fault) -> String {
    match fault {
        Fault::ForModel(_, message) => message,
        Fault::Machine(error) => error.message().to_owned(),
    }
}

fn read(directory: &WorkingDirectory, params: &Value) -> Result<String, String> {
    let path = params["path"].as_str().ok_or("fs/read_text_file needs a path")?;
    let inner = directory.inner_path(path).map_err(said)?;
    let (file, metadata) = directory.open_file(&inner).map_err(said)?;
    if metadata.len() > LARGEST {
        return Err(format!("{path:?} has more than {}.", excerpt::size(LARGEST)));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|error| said(Fault::of_file(path, error)))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{path:?} is no text."))?;
    let number = |name: &str| params[name].as_u64().and_then(|number| usize::try_from(number).ok());
    let (first, most) = (number("line").unwrap_or(1).max(1) - 1, number("limit").unwrap_or(usize::MAX));
    match (first, most) {
        (0, usize::MAX) => Ok(text),
        _ => Ok(text.split_inclusive('\n').skip(first).take(most).collect()),
    }
}

fn write(directory: &WorkingDirectory, params: &Value) -> Result<(), String> {
    let path = params["path"].as_str().ok_or("fs/write_text_file needs a path")?;
    let content = params["content"].as_str().ok_or("fs/write_text_file needs a content")?;
    let inner = directory.inner_path(path).map_err(said)?;
    if let Some(parent) = inner.path.parent().filter(|parent| *parent != Path::new("")) {
        directory.dir().create_dir_all(parent).map_err(|error| said(Fault::of_file(path, error)))?;
    }
    let call = uuid::Uuid::new_v4().to_string();
    directory.alone(&inner.path, || {
        let location = directory.locate(&inner).map_err(said)?;
        location.replace(content.as_bytes(), &call).map_err(said)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(command_of(&json!({"command": "ls -la | wc"})), "ls -la | wc");
        assert_eq!(command_of(&json!({"command": "grep", "args": ["it's", "-n", ""]})), r"grep 'it'\''s' -n ''");
    }

    #[test]
    fn files_are_those_of_the_workspace() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = WorkingDirectory::open(folder.path()).expect("it opens");
        let path = folder.path().join("a/b.txt");
        write(&directory, &json!({"path": path, "content": "1\n2\n3\n"})).expect("it is written");
        assert_eq!(read(&directory, &json!({"path": path})).as_deref(), Ok("1\n2\n3\n"));
        assert_eq!(read(&directory, &json!({"path": path, "line": 2, "limit": 1})).as_deref(), Ok("2\n"));
        for outside in ["/etc/passwd", "../x", "~/x"] {
            let error = read(&directory, &json!({"path": outside})).expect_err("it leads out");
            assert!(error.contains("outside"), "{error}");
            assert!(write(&directory, &json!({"path": outside, "content": ""})).is_err());
        }
    }
}
