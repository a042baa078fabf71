//! Settings files: the user's, the project's and this machine's own of the project, the later before the earlier.

use super::folders::{CLAUDE, Folders};
use super::hooks::Hooks;
use super::permission;
use super::schema::{SETTINGS, check};
use crate::Result;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::tools::approval::{Decision, Rule};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a folder, the later before the earlier.
const FILES: [&str; 2] = ["settings.json", "settings.local.json"];
/// MCP servers of a project, by the name that other clients use.
const MCP: &str = ".mcp.json";

/// The settings of one or several files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The model, by reference or short name.
    pub model: Option<String>,
    /// The level of thinking, as its option is written.
    pub thinking: Option<String>,
    /// Short names of models.
    pub model_aliases: BTreeMap<String, String>,
    /// What calls are allowed, asked about and refused.
    pub rules: Vec<Rule>,
    /// Variables of commands and hooks.
    pub env: BTreeMap<String, String>,
    /// MCP servers by name.
    pub mcp_servers: Map<String, Value>,
    /// Those of them that are started; all unless given.
    pub enabled_mcp_servers: Option<Vec<String>>,
    /// Commands around calls and turns.
    pub hooks: Hooks,
    /// Other directories whose files may be read and written.
    pub additional_directories: Vec<PathBuf>,
    /// Whether commands run confined.
    pub sandbox: Option<bool>,
    /// Whether confined commands may use the network.
    pub network: Option<bool>,
}

/// A file as it is written.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    model: Option<String>,
    thinking: Option<String>,
    model_aliases: BTreeMap<String, String>,
    permissions: Permissions,
    env: BTreeMap<String, String>,
    mcp_servers: Map<String, Value>,
    enabled_mcp_servers: Option<Vec<String>>,
    hooks: Hooks,
    additional_directories: Vec<String>,
    sandbox: Sandbox,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Permissions {
    allow: Vec<String>,
    ask: Vec<String>,
    deny: Vec<String>,
    /// Where Claude Code has them.
    additional_directories: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sandbox {
    enabled: Option<bool>,
    network: Option<bool>,
}

/// The settings of the user, which hold everywhere.
pub(super) fn of_user(folders: &Folders, notices: &mut Vec<String>) -> Result<Settings> {
    let mut settings = Settings::default();
    if let Some(home) = &folders.home {
        settings.merge(read(&home.join(FILES[0]), folders, notices)?.unwrap_or_default());
    }
    Ok(settings)
}

/// The settings of the project, of each folder from its root down: those of Claude Code, the project's, this machine's own.
pub(super) fn of_project(folders: &Folders, notices: &mut Vec<String>) -> Result<Settings> {
    let mut settings = Settings::default();
    for folder in &folders.chain {
        for name in FILES {
            settings.merge(read_claude(&folder.join(CLAUDE).join(name), folders, notices).unwrap_or_default());
        }
        settings.mcp_servers.extend(read_mcp(&folder.join(MCP), folders, notices).unwrap_or_default());
        for file in folders.own_of(folder).iter().flat_map(|own| FILES.map(|name| own.join(name))) {
            settings.merge(read(&file, folders, notices)?.unwrap_or_default());
        }
    }
    Ok(settings)
}

impl Settings {
    /// Takes over later settings: what they have replaces what was there, and rules and hooks add up.
    pub(super) fn merge(&mut self, later: Self) {
        self.model = later.model.or(self.model.take());
        self.thinking = later.thinking.or(self.thinking.take());
        self.model_aliases.extend(later.model_aliases);
        self.rules.extend(later.rules);
        self.env.extend(later.env);
        self.mcp_servers.extend(later.mcp_servers);
        self.enabled_mcp_servers = later.enabled_mcp_servers.or(self.enabled_mcp_servers.take());
        self.hooks.extend(later.hooks);
        self.additional_directories.extend(later.additional_directories);
        self.sandbox = later.sandbox.or(self.sandbox);
        self.network = later.network.or(self.network);
        self.hooks.set_env(&self.env);
    }

    /// What of them runs or allows something, in words.
    pub(super) fn risks(&self) -> Vec<String> {
        let allows = self.rules.iter().any(|rule| rule.decision == Decision::Allow);
        let opens = self.sandbox == Some(false) || self.network == Some(true);
        let risks = [
            (!self.hooks.is_empty(), "hooks"),
            (!self.mcp_servers.is_empty(), "MCP servers"),
            (allows, "permissions that allow"),
            (!self.env.is_empty(), "env"),
            (!self.additional_directories.is_empty(), "additionalDirectories"),
            (opens, "sandbox"),
        ];
        risks.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name.to_owned()).collect()
    }

    /// The rest of them.
    pub(super) fn without_risks(self) -> Self {
        let rules = self.rules.into_iter().filter(|rule| rule.decision != Decision::Allow).collect();
        Self {
            rules,
            hooks: Hooks::default(),
            env: BTreeMap::new(),
            mcp_servers: Map::new(),
            additional_directories: Vec::new(),
            sandbox: self.sandbox.filter(|sandbox| *sandbox),
            network: self.network.filter(|network| !*network),
            ..self
        }
    }
}

fn json_of(file: &Path) -> Option<std::result::Result<Value, String>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return None,
        Err(error) => return Some(Err(format!("it cannot be read: {error}"))),
    };
    Some(serde_json::from_str(&text).map_err(|error| format!("it is no JSON: {error}")))
}

/// Reads one of our own files; none where there is none.
fn read(file: &Path, folders: &Folders, notices: &mut Vec<String>) -> Result<Option<Settings>> {
    let Some(value) = json_of(file) else { return Ok(None) };
    let wrong = |why: String| Error::new(Code::InvalidArgument, format!("the settings {}: {why}", file.display()));
    let mut value = value.map_err(wrong)?;
    let mut unknown = Vec::new();
    check(&mut value, &SETTINGS, "", &mut unknown).map_err(wrong)?;
    let shown = folders.shown(file);
    notices.extend(unknown.iter().map(|unknown| format!("{shown}: {unknown}")));
    let written: Written = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(written.settings(file, &shown, notices)))
}

/// Reads permissions and hooks of a file of Claude Code, whose other keys are not for us. What cannot be used is told, each of
/// the two by itself: a hook of a kind that is not known here takes no refusal with it.
fn read_claude(file: &Path, folders: &Folders, notices: &mut Vec<String>) -> Option<Settings> {
    let shown = folders.shown(file);
    let mut settings = Settings::default();
    let value = json_of(file)?.map_err(|why| notices.push(format!("{shown} is left out: {why}"))).ok()?;
    for key in ["permissions", "hooks"] {
        let Some(part) = value.get(key) else { continue };
        let mut part = json!({ key: part });
        let read = check(&mut part, &SETTINGS, "", &mut Vec::new())
            .and_then(|()| serde_json::from_value::<Written>(part).map_err(|error| error.to_string()));
        match read {
            Ok(written) => settings.merge(written.settings(file, &shown, notices)),
            Err(why) => notices.push(format!("{shown}: its {key} are left out: {why}")),
        }
    }
    Some(settings)
}

fn read_mcp(file: &Path, folders: &Folders, notices: &mut Vec<String>) -> Option<Map<String, Value>> {
    let read = json_of(file)?.and_then(|value| match value.get("mcpServers") {
        Some(Value::Object(servers)) => Ok(servers.clone()),
        _ => Err("it has no object mcpServers".to_owned()),
    });
    read.map_err(|why| notices.push(format!("{} is left out: {why}", folders.shown(file)))).ok()
}

impl Written {
    fn settings(self, file: &Path, shown: &str, notices: &mut Vec<String>) -> Settings {
        let Permissions { allow, ask, deny, additional_directories } = self.permissions;
        // Relative to the folder that has the folder with the file.
        let base = file.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let mut directories = Vec::new();
        for written in self.additional_directories.iter().chain(&additional_directories) {
            let inside = written.strip_prefix("~/").zip(std::env::var_os("HOME"));
            let path = inside.map_or_else(|| base.join(written), |(rest, home)| Path::new(&home).join(rest));
            match path.canonicalize() {
                Ok(path) if path.is_dir() => directories.push(path),
                _ => notices.push(format!("{shown}: additionalDirectories: there is no directory {written}")),
            }
        }
        let lists = [("allow", allow, Decision::Allow), ("ask", ask, Decision::Ask), ("deny", deny, Decision::Deny)];
        let mut rules = Vec::new();
        for (list, texts, decision) in lists {
            for text in texts {
                match permission::parse(&text, decision) {
                    Ok(rule) => rules.push(rule),
                    Err(why) => notices.push(format!("{shown}: permissions.{list}: the rule {text:?} {why}")),
                }
            }
        }
        Settings {
            model: self.model,
            thinking: self.thinking,
            model_aliases: self.model_aliases,
            rules,
            env: self.env,
            mcp_servers: self.mcp_servers,
            enabled_mcp_servers: self.enabled_mcp_servers,
            hooks: self.hooks,
            additional_directories: directories,
            sandbox: self.sandbox.enabled,
            network: self.sandbox.network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_read_as_far_as_they_can_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        };
        write(
            ".claude/settings.json",
            r#"{"permissions": {"deny": ["Bash(rm:*)"], "defaultMode": "plan"}, "env": {"A": "b"}, "model": "opus",
                "hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "Done?"}]}]}}"#,
        );
        write(".claude/settings.local.json", "{");
        write(".mcp.json", r#"{"mcpServers": []}"#);
        let mut notices = Vec::new();
        let folders = Folders::of(folder.path(), None);
        let settings = of_project(&folders, &mut notices).expect("settings");
        assert_eq!(settings.rules, [Rule::new("bash", Decision::Deny).with_command("rm")]);
        assert!(settings.env.is_empty() && settings.model.is_none() && settings.risks().is_empty());
        let said = [
            ".claude/settings.json: its hooks are left out: hooks.Stop[0].hooks[0].type",
            ".claude/settings.local.json is left out",
            ".mcp.json is left out",
        ];
        assert_eq!(notices.len(), said.len(), "{notices:?}");
        for (notice, said) in notices.iter().zip(said) {
            assert!(notice.starts_with(said), "{notice}");
        }
    }

    #[test]
    fn what_runs_or_allows_something_is_a_risk_and_the_rest_is_not() {
        let risky = Settings {
            rules: vec![Rule::new("bash", Decision::Allow), Rule::new("write", Decision::Deny)],
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            mcp_servers: Map::from_iter([("a".to_owned(), json!({}))]),
            sandbox: Some(false),
            network: Some(false),
            model: Some("opus".into()),
            ..Settings::default()
        };
        assert_eq!(risky.risks(), ["MCP servers", "permissions that allow", "env", "sandbox"]);
        let rest = risky.without_risks();
        assert!(rest.risks().is_empty());
        assert_eq!((rest.rules.len(), rest.network, rest.sandbox), (1, Some(false), None));
        assert_eq!(rest.model.as_deref(), Some("opus"));
    }
}
