//! Hooks of settings files, in the form that Claude Code gives them: before and after tools, at the user's prompt, at the end.

use super::permission::tool_pattern;
use flovyn_toolkit::config::{Hook, HookEnd, ToolHook, ToolHooks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// How often hooks at the end may let the agent go on before it stops all the same.
pub(crate) const MAX_CONTINUATIONS: u32 = 5;

/// The hooks of one or several files.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Hooks {
    pre_tool_use: Vec<Group>,
    post_tool_use: Vec<Group>,
    user_prompt_submit: Vec<Group>,
    stop: Vec<Group>,
    /// Variables for all of them.
    #[serde(skip)]
    env: BTreeMap<String, String>,
}

/// Hooks of the tools of a matcher.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Group {
    matcher: String,
    hooks: Vec<Written>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Written {
    command: String,
    /// In seconds.
    timeout: Option<f64>,
}

/// What hooks of a prompt say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PromptVerdict {
    /// It is sent, with what they have printed.
    Send(String),
    /// It is not sent.
    Blocked(String),
}

impl Hooks {
    pub(super) fn is_empty(&self) -> bool {
        [&self.pre_tool_use, &self.post_tool_use, &self.user_prompt_submit, &self.stop].iter().all(|all| all.is_empty())
    }

    pub(super) fn extend(&mut self, later: Self) {
        self.pre_tool_use.extend(later.pre_tool_use);
        self.post_tool_use.extend(later.post_tool_use);
        self.user_prompt_submit.extend(later.user_prompt_submit);
        self.stop.extend(later.stop);
    }

    pub(super) fn set_env(&mut self, env: &BTreeMap<String, String>) {
        self.env.clone_from(env);
    }

    /// The hooks of tool calls, for whoever runs the tools.
    pub(crate) fn of_tools(&self) -> ToolHooks {
        let of = |groups: &[Group]| -> Vec<ToolHook> {
            let hooks = groups.iter().flat_map(|group| group.hooks.iter().map(move |hook| (group, hook)));
            hooks.map(|(group, hook)| ToolHook { tools: group.tools(), hook: self.hook(hook) }).collect()
        };
        ToolHooks { before: of(&self.pre_tool_use), after: of(&self.post_tool_use) }
    }

    fn hook(&self, written: &Written) -> Hook {
        let timeout_ms = written.timeout.map(|seconds| (seconds * 1_000.0).ceil() as u64);
        Hook { command: written.command.clone(), timeout_ms, env: self.env.clone() }
    }

    /// Asks the hooks of prompts. What fails is told to `note`.
    pub(crate) async fn on_prompt(&self, prompt: &str, directory: &Path, note: &mut dyn FnMut(&str)) -> PromptVerdict {
        let input = json!({ "hook_event_name": "UserPromptSubmit", "prompt": prompt, "cwd": directory });
        let mut printed = String::new();
        for hook in self.user_prompt_submit.iter().flat_map(|group| &group.hooks) {
            match self.hook(hook).run(&input, directory).await {
                HookEnd::Passed(text) => printed.push_str(&text),
                HookEnd::Blocked(why) => return PromptVerdict::Blocked(why),
                HookEnd::Failed(what) => note(&what),
            }
        }
        PromptVerdict::Send(printed)
    }

    /// Asks the hooks of the end: what the model is told where it has to go on.
    pub(crate) async fn on_stop(&self, input: &Value, directory: &Path, note: &mut dyn FnMut(&str)) -> Option<String> {
        for hook in self.stop.iter().flat_map(|group| &group.hooks) {
            match self.hook(hook).run(input, directory).await {
                HookEnd::Passed(_) => {}
                HookEnd::Blocked(why) => return Some(why),
                HookEnd::Failed(what) => note(&what),
            }
        }
        None
    }

    /// Whether there are hooks of the end.
    pub(crate) fn has_stop(&self) -> bool {
        !self.stop.is_empty()
    }
}

impl Group {
    /// The patterns of its tools. A matcher is a list of names with `|` between them, where `.*` and `*` stand for anything.
    fn tools(&self) -> Vec<String> {
        let names = self.matcher.split('|').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| tool_pattern(&name.replace(".*", "*"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_patterns_of_our_tools() {
        let written = json!({
            "PreToolUse": [
                { "matcher": "Bash|Edit", "hooks": [{ "type": "command", "command": "a", "timeout": 1.5 }] },
                { "matcher": "mcp__.*", "hooks": [{ "command": "b" }, { "command": "c" }] },
            ],
            "PostToolUse": [{ "hooks": [{ "command": "d" }] }],
        });
        let hooks: Hooks = serde_json::from_value(written).expect("hooks");
        let ToolHooks { before, after } = hooks.of_tools();
        let shown: Vec<_> = before.iter().map(|hook| (hook.tools.join(" "), hook.hook.command.as_str())).collect();
        assert_eq!(
            shown,
            [("bash {edit,write}".to_owned(), "a"), ("mcp__*".to_owned(), "b"), ("mcp__*".to_owned(), "c")]
        );
        assert_eq!((before[0].hook.timeout_ms, before[1].hook.timeout_ms), (Some(1_500), None));
        assert!(after[0].tools.is_empty(), "no matcher is every tool");
        assert!(!hooks.is_empty() && !hooks.has_stop() && Hooks::default().is_empty());
    }

    #[tokio::test]
    async fn hooks_speak_at_the_prompt_and_at_the_end() {
        let written = json!({
            "UserPromptSubmit": [{ "hooks": [
                { "command": "echo today is Friday" },
                { "command": "exit 7" },
                { "command": "grep -q secret && { echo 'no secrets' >&2; exit 2; }; exit 0" },
            ] }],
            "Stop": [{ "hooks": [{ "command": "test -e done || { echo 'not done' >&2; exit 2; }" }] }],
        });
        let hooks: Hooks = serde_json::from_value(written).expect("hooks");
        let folder = tempfile::tempdir().expect("a folder");
        let mut noted = Vec::new();
        let mut note = |line: &str| noted.push(line.to_owned());
        let sent = hooks.on_prompt("Hi", folder.path(), &mut note).await;
        assert_eq!(sent, PromptVerdict::Send("today is Friday\n".into()));
        let blocked = hooks.on_prompt("my secret", folder.path(), &mut note).await;
        assert_eq!(blocked, PromptVerdict::Blocked("no secrets".into()));
        let on = hooks.on_stop(&json!({}), folder.path(), &mut note).await;
        assert_eq!(on.as_deref(), Some("not done"));
        std::fs::write(folder.path().join("done"), "").expect("a file");
        assert_eq!(hooks.on_stop(&json!({}), folder.path(), &mut note).await, None);
        assert!(noted.len() == 2 && noted[0].contains("exit code 7"), "{noted:?}");
    }
}
