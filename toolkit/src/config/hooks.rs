//! Hooks: commands of the user's own that run before and after tool calls, outside of the sandbox.
//!
//! A hook reads an object of JSON (`hook_event_name`, `tool_name`, `tool_input`, `cwd`, after a call also `tool_response`). With
//! the exit code 2 it blocks: a call does not run, or its result says what the hook has said. Other failures are noted in the
//! details of the outcome. Hooks run in the process that runs the tool, as a part of its attempt: where that process dies
//! they may run again, so each runs at least once and not exactly once.

use crate::mcp::InputRequired;
use crate::message::Part;
use crate::tools::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, Toolbox};
use async_trait::async_trait;
use flovyn_core::error::{Code, Error, Result};
use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The exit code that blocks.
const BLOCKS: i32 = 2;
/// How long a hook may run, unless it says so itself.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How much of a hook's output is kept.
const MAX_OUTPUT: u64 = 64 * 1024;

/// The hooks of tool calls.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ToolHooks {
    /// Run before a call that is allowed.
    pub before: Vec<ToolHook>,
    /// Run after a call that has ended, also with an error.
    pub after: Vec<ToolHook>,
}

/// A hook of some tools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ToolHook {
    /// The names or patterns of the tools; all unless given.
    pub tools: Vec<String>,
    /// What is run.
    pub hook: Hook,
}

/// A command that is run as a hook.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Hook {
    /// The line for `sh`.
    pub command: String,
    /// How long it may run, in milliseconds; a minute unless given.
    pub timeout_ms: Option<u64>,
    /// Variables that are set for it.
    pub env: std::collections::BTreeMap<String, String>,
}

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookEnd {
    /// With success, and what it has printed.
    Passed(String),
    /// It blocks, and says why.
    Blocked(String),
    /// It has failed, which changes nothing: what went wrong, for people.
    Failed(String),
}

impl Hook {
    /// Runs it in a directory. When the future is dropped, the hook is ended.
    pub async fn run(&self, input: &Value, directory: &Path) -> HookEnd {
        let failed = |what: String| HookEnd::Failed(format!("the hook {:?} {what}", self.command));
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).current_dir(directory).kill_on_drop(true).process_group(0);
        command.env("FLOVYN_PROJECT_DIR", directory).env("CLAUDE_PROJECT_DIR", directory).envs(&self.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return failed(format!("could not be started: {error}")),
        };
        let mut group = Group(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let written = async {
            if let Some(mut stdin) = stdin {
                // A hook need not read what it is told.
                let _ = stdin.write_all(input.to_string().as_bytes()).await;
            }
        };
        let ended = async { tokio::join!(written, text_of(stdout), text_of(stderr), child.wait()) };
        let timeout = self.timeout_ms.map_or(TIMEOUT, Duration::from_millis);
        let ended = tokio::time::timeout(timeout, ended).await;
        let Ok(((), out, err, status)) = ended else {
            return failed(format!("was ended after {} s", timeout.as_secs_f64()));
        };
        group.0 = None;
        match status.map(|status| status.code()) {
            Ok(Some(0)) => blocked_by_json(&out).unwrap_or(HookEnd::Passed(out)),
            Ok(Some(BLOCKS)) => {
                let why = if err.trim().is_empty() { &out } else { &err };
                HookEnd::Blocked(why.trim().to_owned())
            }
            Ok(Some(code)) => failed(format!("ended with the exit code {code}: {}", err.trim())),
            Ok(None) => failed("was ended by a signal".to_owned()),
            Err(error) => failed(format!("could not be waited for: {error}")),
        }
    }
}

/// The words of a hook that blocks by the JSON that it prints, as hooks of Claude Code do.
fn blocked_by_json(out: &str) -> Option<HookEnd> {
    let said: Value = serde_json::from_str(out.trim()).ok()?;
    let own = &said["hookSpecificOutput"];
    let reason = match (said["decision"].as_str(), own["permissionDecision"].as_str()) {
        (Some("block"), _) => &said["reason"],
        (_, Some("deny")) => &own["permissionDecisionReason"],
        _ => return None,
    };
    Some(HookEnd::Blocked(reason.as_str().unwrap_or("a hook refused it").to_owned()))
}

async fn text_of(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut bytes).await;
        // The rest is read too, so that the hook does not wait for a reader.
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The processes of a hook, which are ended with it unless it ended by itself.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let group = self.0.and_then(|group| Pid::from_raw(i32::try_from(group).ok()?));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Hooks that are ready to run.
struct Compiled {
    before: Vec<(Vec<GlobMatcher>, Hook)>,
    after: Vec<(Vec<GlobMatcher>, Hook)>,
}

impl ToolHooks {
    /// The tools of a toolbox with these hooks around their calls.
    pub fn around(&self, toolbox: &Toolbox) -> Result<Toolbox> {
        if self.before.is_empty() && self.after.is_empty() {
            return Ok(toolbox.clone());
        }
        let hooks = Arc::new(Compiled { before: compiled(&self.before)?, after: compiled(&self.after)? });
        let tools = toolbox.names().filter_map(|name| toolbox.get(name)).cloned();
        tools.into_iter().try_fold(Toolbox::new(), |hooked, tool| {
            hooked.with_shared(Arc::new(HookedTool { tool, hooks: hooks.clone() }))
        })
    }
}

fn compiled(hooks: &[ToolHook]) -> Result<Vec<(Vec<GlobMatcher>, Hook)>> {
    let matcher = |pattern: &String| {
        Glob::new(pattern).map(|glob| glob.compile_matcher()).map_err(|error| {
            Error::new(
                Code::InvalidArgument,
                format!("a hook is for the tools {pattern:?}, which is no pattern: {error}"),
            )
        })
    };
    let compile = |hook: &ToolHook| Ok((hook.tools.iter().map(matcher).collect::<Result<_>>()?, hook.hook.clone()));
    hooks.iter().map(compile).collect()
}

fn of_tool<'h>(hooks: &'h [(Vec<GlobMatcher>, Hook)], name: &'h str) -> impl Iterator<Item = &'h Hook> {
    let holds = |tools: &[GlobMatcher], name: &str| tools.is_empty() || tools.iter().any(|tool| tool.is_match(name));
    hooks.iter().filter(move |(tools, _)| holds(tools, name)).map(|(_, hook)| hook)
}

/// A tool with hooks around its calls.
struct HookedTool {
    tool: Arc<dyn Tool>,
    hooks: Arc<Compiled>,
}

#[async_trait]
impl Tool for HookedTool {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    fn input_schema(&self) -> Value {
        self.tool.input_schema()
    }

    fn output_schema(&self) -> Option<Value> {
        self.tool.output_schema()
    }

    fn effect(&self) -> Effect {
        self.tool.effect()
    }

    fn recovery(&self) -> Recovery {
        self.tool.recovery()
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let directory = environment.directory.path();
        let mut input = json!({
            "hook_event_name": "PreToolUse", "tool_name": self.name(), "tool_input": arguments, "cwd": directory,
        });
        let mut failures = Vec::new();
        for hook in of_tool(&self.hooks.before, self.name()) {
            match hook.run(&input, directory).await {
                HookEnd::Passed(_) => {}
                HookEnd::Blocked(why) => {
                    let message = format!("A hook of the user's does not allow this call: {why}");
                    return Ok(ToolOutcome::error("blocked_by_hook", message));
                }
                HookEnd::Failed(what) => failures.push(what),
            }
        }
        let mut outcome = self.tool.call(arguments, environment).await?;
        // The call has not ended where its server asks a person first.
        if InputRequired::of(&outcome).is_some() {
            return Ok(outcome);
        }
        input["hook_event_name"] = json!("PostToolUse");
        input["tool_response"] = json!({ "content": outcome.plain_text(), "is_error": outcome.is_error });
        for hook in of_tool(&self.hooks.after, self.name()) {
            match hook.run(&input, directory).await {
                HookEnd::Passed(_) => {}
                HookEnd::Blocked(why) => {
                    outcome.content.push(Part::text(format!("\n\nA hook of the user's says: {why}")))
                }
                HookEnd::Failed(what) => failures.push(what),
            }
        }
        Ok(if failures.is_empty() { outcome } else { outcome.with_details(json!({ "hookFailures": failures })) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hook(command: &str) -> Hook {
        Hook { command: command.into(), ..Hook::default() }
    }

    async fn end(command: &str) -> HookEnd {
        hook(command).run(&json!({"tool_name": "bash"}), Path::new("/")).await
    }

    #[tokio::test]
    async fn the_exit_code_says_what_a_hook_means() {
        assert_eq!(end("cat").await, HookEnd::Passed(r#"{"tool_name":"bash"}"#.into()));
        assert_eq!(end("echo no >&2; exit 2").await, HookEnd::Blocked("no".into()));
        assert_eq!(
            end("echo '{\"decision\": \"block\", \"reason\": \"not now\"}'").await,
            HookEnd::Blocked("not now".into())
        );
        let HookEnd::Failed(what) = end("echo broken >&2; exit 3").await else { panic!("it failed") };
        assert!(what.contains("exit code 3: broken"), "{what}");
        assert!(
            matches!(end("yes | head -c 300000 >&2").await, HookEnd::Passed(_)),
            "its output is bounded, not refused"
        );
        let slow = Hook { timeout_ms: Some(50), ..hook("sleep 600") };
        let HookEnd::Failed(what) = slow.run(&json!({}), Path::new("/")).await else { panic!("it was ended") };
        assert!(what.contains("was ended after 0.05 s"), "{what}");
        let env = BTreeMap::from([("OTTER".to_owned(), "yes".to_owned())]);
        let set = Hook { env, ..hook("test $OTTER = yes") };
        assert_eq!(set.run(&json!({}), Path::new("/")).await, HookEnd::Passed(String::new()));
    }

    #[tokio::test]
    async fn hooks_stand_around_the_calls_of_their_tools() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.txt"), "otter\n").expect("a file");
        let environment = ToolEnvironment::open(folder.path()).expect("an environment");
        let of = |tools: &[&str], command: &str| ToolHook {
            tools: tools.iter().map(|&tool| tool.to_owned()).collect(),
            hook: hook(command),
        };
        let hooks = ToolHooks {
            before: vec![
                of(&["gr*"], "grep -q secret && { echo 'not this' >&2; exit 2; }; exit 0"),
                of(&[], "cat >> heard"),
            ],
            after: vec![of(&["read"], "echo mind the otter >&2; exit 2"), of(&["read"], "exit 9")],
        };
        let toolbox = hooks.around(&Toolbox::host().expect("tools")).expect("hooks");
        let read = toolbox.call("read", json!({"path": "a.txt"}), &environment).await.expect("it runs");
        assert!(read.plain_text().contains("otter") && read.plain_text().ends_with("says: mind the otter"), "{read:?}");
        assert!(!read.is_error && read.details["hookFailures"][0].to_string().contains("exit code 9"), "{read:?}");
        let grep = |pattern: &str| toolbox.call("grep", json!({"pattern": pattern}), &environment);
        let found = grep("otter").await.expect("it runs");
        assert!(found.plain_text().contains("a.txt"), "{found:?}");
        let blocked = grep("secret").await.expect("it is answered");
        assert_eq!(blocked.error_code(), Some("blocked_by_hook"));
        assert!(blocked.plain_text().contains("not this"), "{blocked:?}");
        let heard = std::fs::read_to_string(folder.path().join("heard")).expect("it was told");
        assert_eq!(heard.matches("PreToolUse").count(), 2, "what is blocked asks no further hook: {heard}");
    }
}
