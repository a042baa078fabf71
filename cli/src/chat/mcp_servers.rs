//! The MCP servers of a session or a worker: those of the files that the user names, else of the user's own `mcp.json` and of
//! settings, to which the `.mcp.json` of a trusted project belongs.

use crate::Result;
use crate::project::Settings;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::config::home;
use flovyn_toolkit::mcp::McpConfig;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The user's own file, in Flovyn's folder.
const USER_FILE: &str = "mcp.json";
/// The expected contents of a file.
const EXPECTED: &str = r#"expected is {"mcpServers": {"NAME": {"command": "PROGRAM", "args": ["…"]}}}, or {"url": "https://…"} in place of a command"#;

/// The servers of named files, by their names.
///
/// # Errors
///
/// A file cannot be read or used, or two of them name a server alike; the message says which file and what was found there.
pub(crate) fn of_files(files: &[PathBuf]) -> Result<Map<String, Value>> {
    let (mut servers, mut from) = (Map::new(), BTreeMap::new());
    for file in files {
        for (name, server) in read(file)? {
            if let Some(other) = from.insert(name.clone(), file) {
                let message = format!(
                    "the MCP server {name:?} is in {} and in {}; rename one, for its tools carry its name",
                    other.display(),
                    file.display()
                );
                return Err(Error::new(Code::InvalidArgument, message).into());
            }
            servers.insert(name, server);
        }
    }
    Ok(servers)
}

/// The servers of named files; without any, those of the user's own file, where there is one, and of settings. What of the
/// settings cannot be used is told.
pub(super) fn of_files_or_settings(
    files: &[PathBuf],
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Result<Map<String, Value>> {
    if !files.is_empty() {
        return of_files(files);
    }
    let own = home().ok().map(|home| home.join(USER_FILE)).filter(|file| file.exists());
    let mut servers = of_files(own.as_slice())?;
    for (name, server) in &settings.mcp_servers {
        let text = json!({ "mcpServers": { name: server } }).to_string();
        match McpConfig::parse(&text, |name| std::env::var(name).ok()) {
            Ok(_) => drop(servers.insert(name.clone(), server.clone())),
            Err(error) => notices.push(format!("The MCP servers: {}. It goes on without it.", error.message())),
        }
    }
    if let Some(enabled) = &settings.enabled_mcp_servers {
        servers.retain(|name, _| enabled.contains(name));
    }
    Ok(servers)
}

fn read(file: &Path) -> Result<Map<String, Value>> {
    let invalid = |what: &str| {
        let message = format!("the MCP configuration {}: {what}; {EXPECTED}", file.display());
        Error::new(Code::InvalidArgument, message)
    };
    let text = std::fs::read_to_string(file).map_err(|error| invalid(&format!("it cannot be read: {error}")))?;
    McpConfig::parse(&text, |name| std::env::var(name).ok()).map_err(|error| invalid(error.message()))?;
    let whole: Value = serde_json::from_str(&text).map_err(|error| invalid(&error.to_string()))?;
    Ok(whole["mcpServers"].as_object().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_joined_and_what_is_wrong_with_one_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).expect("a file");
            file
        };
        let one = file("one.json", r#"{"mcpServers": {"a": {"command": "x"}}, "other": 1}"#);
        let two = file("two.json", r#"{"mcpServers": {"b": {"url": "http://127.0.0.1:1/"}}}"#);
        let joined = of_files(&[one.clone(), two.clone()]).expect("two files");
        assert_eq!(joined.keys().collect::<Vec<_>>(), ["a", "b"]);
        let invalid = |files: &[PathBuf]| of_files(files).expect_err("it is wrong").to_string();
        let twice = invalid(&[one, two, file("three.json", r#"{"mcpServers": {"a": {"command": "y"}}}"#)]);
        assert!(twice.contains("one.json and in") && twice.contains("rename one"), "{twice}");
        for (text, found) in [
            ("{", "it is no JSON object"),
            (r#"{"servers": {}}"#, "only \"servers\""),
            (r#"{"mcpServers": {"a": {}}}"#, "the MCP server \"a\": it needs a \"command\" or a \"url\""),
        ] {
            let message = invalid(&[file("wrong.json", text)]);
            assert!(
                message.contains("wrong.json") && message.contains(found) && message.contains("expected is"),
                "{message}"
            );
        }
        assert!(invalid(&[folder.path().join("none.json")]).contains("none.json: it cannot be read"));
    }
}
