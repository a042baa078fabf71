//! The `write` tool: it creates a file or replaces it atomically.

use super::directory::hash;
use super::fault::{Fault, blocking};
use super::record::Progress;
use super::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, diff, excerpt, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::Deserialize;
use serde_json::{Value, json};

/// Makes a file, or replaces all of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Write;

#[derive(Deserialize)]
struct Input {
    path: String,
    content: String,
}

#[async_trait]
impl Tool for Write {
    fn name(&self) -> &str {
        "write"
    }

    fn description(&self) -> &str {
        "Write a file of the working directory: make it, with the directories above it, or replace all of its content. \
         For a change of a part use edit."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the working directory or absolute inside it." },
                "content": { "type": "string", "description": "All that the file shall hold." }
            },
            "required": ["path", "content"],
            "additionalProperties": false
        })
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn recovery(&self) -> Recovery {
        Recovery::Compare
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = environment.clone();
        blocking(move || {
            let Input { path, content } = parse("write", arguments)?;
            let (limit, size) = (environment.limits.file, content.len() as u64);
            if size > limit {
                let message =
                    format!("The content has {}; write takes at most {}.", excerpt::size(size), excerpt::size(limit));
                return Err(Fault::ForModel("too_large", message));
            }
            change(&environment, &path, |_, _| {
                Ok(Change { content: content.into_bytes(), text: None, details: Value::Null })
            })
        })
        .await
    }
}

/// The new content of a file, with the text and details of the outcome.
pub(super) struct Change {
    pub content: Vec<u8>,
    /// The text for the model. Without one, it is told the size.
    pub text: Option<String>,
    pub details: Value,
}

/// Replaces the content of a file. `make` gets the present content, and whether the model has seen that content.
///
/// No other tool of this process changes the file meanwhile, so what `make` gets is still there when its result is
/// written. The record is durable before the file is replaced: an attempt after a crash learns from it whether the
/// change was made.
pub(super) fn change(
    environment: &ToolEnvironment,
    requested: &str,
    make: impl FnOnce(Option<&[u8]>, bool) -> Result<Change, Fault>,
) -> Result<ToolOutcome, Fault> {
    let directory = &environment.directory;
    let location = directory.locate(&directory.inner_path(requested)?)?;
    directory.alone(&location.path, || {
        let before = location.read(environment.limits.file)?;
        let old = before.as_deref().map(hash);
        let seen = match (&environment.seen, &old) {
            (Some(seen), Some(old)) => environment.lineage.follows(&location.path, seen, old),
            _ => true,
        };
        let change = make(before.as_deref(), seen)?;
        let new = hash(&change.content);
        let path = location.path.to_string_lossy();
        let action = if before.is_some() { "overwritten" } else { "created" };
        let text = change
            .text
            .unwrap_or_else(|| format!("Wrote {} to {path} ({action}).", excerpt::size(change.content.len() as u64)));
        let outcome = ToolOutcome::text(text)
            .with_details(json!({
                "path": path,
                "said": requested,
                "action": action,
                "bytes": change.content.len(),
                "before": old,
                "hash": new,
            }))
            .with_details(diff::details(&path, before.as_deref(), &change.content))
            .with_details(change.details);
        if environment.is_stopped() {
            return Err(Fault::stopped());
        }
        if let Some(record) = &environment.record {
            let progress = Progress::Replacing {
                path: location.path.clone(),
                before: old.clone(),
                after: new.clone(),
                outcome: outcome.clone(),
            };
            record.note(&progress).map_err(Fault::Machine)?;
        }
        location.replace(&change.content, &environment.call_name())?;
        environment.lineage.changed(&location.path, old.as_deref(), &new);
        Ok(outcome)
    })
}
