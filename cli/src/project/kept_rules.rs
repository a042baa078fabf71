//! Rules that a person keeps for a project, in this machine's own settings of it, which belong to no repository.

use super::folders::{Folders, OWN};
use super::permission::written;
use crate::Result;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::tools::approval::Rule;
use serde_json::{Map, Value, json};
use std::fs;
use std::io;
use std::path::Path;

/// This machine's own settings of a project.
const FILE: &str = "settings.local.json";

/// Adds rules that allow to the settings of a directory's project, and gives a note for the person.
///
/// # Errors
///
/// The settings are no JSON, or they cannot be written.
pub(crate) fn keep(directory: &Path, rules: &[Rule]) -> Result<String> {
    let folders = Folders::of(directory, None);
    let folder = folders.root.join(OWN);
    let file = folder.join(FILE);
    if rules.is_empty() {
        return Ok("It is allowed this once; a person is asked about it each time.".to_owned());
    }
    let texts: Option<Vec<_>> = rules.iter().map(written).collect();
    let Some(texts) = texts else {
        return Ok("It is allowed for this chat; it cannot be written as a rule of the project.".to_owned());
    };
    let wrong = |why: String| {
        let message = format!("the rule could not be kept in {}: {why}", file.display());
        Error::new(Code::InvalidArgument, message)
    };
    let mut settings: Map<String, Value> = match fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(wrong(error.to_string()).into()),
    };
    let permissions = settings.entry("permissions").or_insert_with(|| json!({}));
    let allow = permissions.as_object_mut().map(|lists| lists.entry("allow").or_insert_with(|| json!([])));
    let Some(Value::Array(allow)) = allow else {
        return Err(wrong("permissions.allow is no list".to_owned()).into());
    };
    for text in &texts {
        if !allow.iter().any(|known| known == text) {
            allow.push(json!(text));
        }
    }
    let write = || -> io::Result<()> {
        fs::create_dir_all(&folder)?;
        let ignored = folder.join(".gitignore");
        let known = fs::read_to_string(&ignored).unwrap_or_default();
        if !known.lines().any(|line| line.trim() == FILE) {
            let gap = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
            fs::write(&ignored, format!("{known}{gap}{FILE}\n"))?;
        }
        // Renamed into place, so that a reader never sees half of it.
        let fresh = folder.join(format!("{FILE}.{}", std::process::id()));
        fs::write(&fresh, serde_json::to_string_pretty(&settings)? + "\n")?;
        fs::rename(&fresh, &file)
    };
    write().map_err(|error| wrong(error.to_string()))?;
    Ok(format!("Kept in {}: {}", folders.shown(&file), texts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::permission::parse;
    use super::*;
    use flovyn_toolkit::tools::Effect;
    use flovyn_toolkit::tools::approval::{ApprovalRequest, Decision};

    #[test]
    fn rules_are_added_to_what_is_there_and_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let sub = folder.path().join("sub");
        fs::create_dir_all(folder.path().join(".git")).expect("a repository");
        fs::create_dir_all(&sub).expect("a folder");
        let own = folder.path().join(".flovyn");
        fs::create_dir(&own).expect("a folder");
        fs::write(own.join(FILE), r#"{"model": "opus", "permissions": {"deny": ["edit"]}}"#).expect("a file");
        fs::write(own.join(".gitignore"), "cache").expect("a file");
        let rules = |line: &str| {
            ApprovalRequest::new("1", "bash", Effect::Exec, &json!({ "command": line })).expect("a request").alike()
        };
        let line = "cargo test -q && ls -la | tail -n 5; echo 'a b'";
        let note = keep(&sub, &rules(line)).expect("it is kept");
        assert!(note.starts_with("Kept in .flovyn/settings.local.json: bash(cargo test:*)"), "{note}");
        keep(&sub, &rules("cargo test")).expect("it is there already");
        keep(&sub, &rules("echo $(date)")).expect("it is kept");
        let read: Value = serde_json::from_str(&fs::read_to_string(own.join(FILE)).expect("a file")).expect("JSON");
        assert_eq!((&read["model"], &read["permissions"]["deny"]), (&json!("opus"), &json!(["edit"])));
        let allow: Vec<_> =
            read["permissions"]["allow"].as_array().expect("a list").iter().flat_map(Value::as_str).collect();
        let expected =
            ["bash(cargo test:*)", "bash(ls -la)", "bash(tail -n 5)", "bash(echo 'a b')", "bash(echo $(date))"];
        assert_eq!(allow, expected);
        let again: Vec<_> = allow[..4].iter().map(|text| parse(text, Decision::Allow).expect("a rule")).collect();
        assert_eq!(again, rules(line));
        assert_eq!(fs::read_to_string(own.join(".gitignore")).expect("a file"), "cache\nsettings.local.json\n");
        // It would be read as every `rm`, so it is not written.
        let note = keep(&sub, &rules("rm *")).expect("it is allowed for the chat");
        assert!(note.contains("cannot be written"), "{note}");
        assert!(!fs::read_to_string(own.join(FILE)).expect("a file").contains("rm *"));
        // No rule allows it, whatever is kept.
        let note = keep(&sub, &[]).expect("it is allowed");
        assert!(note.contains("this once"), "{note}");
    }
}
