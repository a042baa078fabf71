//! What a call would change, before anybody has allowed it: the diff that its result will show.

use super::fault::Fault;
use super::{WorkingDirectory, diff, edit};
use serde_json::Value;
use std::io::Read;

/// Files that are read for a preview; those that are larger have none.
const MAX_FILE: u64 = 16 << 20;

/// The whole unified diff of what a call of `write` or `edit` would change in a directory as it is now. Nothing is changed,
/// and no other file is read. None for other tools, and for content that is not text.
///
/// # Errors
///
/// The call would fail; the text says why, as it would be told to the model.
pub fn preview(directory: &WorkingDirectory, tool: &str, arguments: &Value) -> Option<Result<String, String>> {
    if !matches!(tool, "write" | "edit") {
        return None;
    }
    let made = || -> Result<Option<String>, Fault> {
        let path = arguments["path"].as_str().unwrap_or_default();
        let before = match directory.open_file(&directory.inner_path(path)?) {
            Ok((_, metadata)) if metadata.len() > MAX_FILE => return Ok(None),
            Ok((file, _)) => {
                let mut bytes = Vec::new();
                file.take(MAX_FILE).read_to_end(&mut bytes).map_err(|error| Fault::of_file(path, error))?;
                Some(bytes)
            }
            Err(Fault::ForModel("not_found", _)) if tool == "write" => None,
            Err(fault) => return Err(fault),
        };
        let after = match (tool, &before) {
            ("edit", Some(before)) => edit::edited(arguments.clone(), before)?,
            _ => arguments["content"].as_str().unwrap_or_default().as_bytes().to_vec(),
        };
        Ok(diff::unified(path, before.as_deref(), &after))
    };
    match made() {
        Ok(diff) => diff.map(Ok),
        Err(Fault::ForModel(_, message)) => Some(Err(message)),
        Err(Fault::Machine(error)) => Some(Err(error.message().to_owned())),
    }
}
