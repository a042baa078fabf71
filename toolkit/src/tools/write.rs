//! The `write` tool: it creates a file or replaces it atomically.

use super::directory::hash;
use super::fault::{Fault, blocking};
use super::guarded::{consent, runs_later};
use super::record::Progress;
use super::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, diff, excerpt, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

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
        "Write a file of the working directory: make it, with the directories above it, or replace all of its content. A \
         file that exists has to be read first, and again if it has changed since. For a change of a part use edit."
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
            change(&environment, &path, |present, seen| {
                let is_same = present.is_some_and(|present| present == content.as_bytes());
                match seen {
                    Seen::Never if !is_same => {
                        let message =
                            format!("{path:?} exists and was not read. Read it, then write, so that nothing is lost.");
                        return Err(Fault::ForModel("not_read", message));
                    }
                    Seen::Otherwise if !is_same => return Err(stale(&path, "write")),
                    Seen::Present | Seen::Never | Seen::Otherwise => {}
                }
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

/// What the model has seen of the present content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// This content, or there is no file, or nobody keeps account.
    Present,
    /// Another content, which somebody else has changed since.
    Otherwise,
    /// Nothing: it has never read the file.
    Never,
}

/// The fault of a change of a file that somebody else has changed since it was read.
pub(super) fn stale(path: &str, then: &str) -> Fault {
    Fault::ForModel("stale", format!("{path:?} has changed since it was read. Read it again, then {then}."))
}

/// Replaces the content of a file. `make` gets the present content, and what the model has seen of it.
///
/// No other tool of this process changes the file meanwhile, so what `make` gets is still there when its result is
/// written. The record is durable before the file is replaced: an attempt after a crash learns from it whether the
/// change was made.
pub(super) fn change(
    environment: &ToolEnvironment,
    requested: &str,
    make: impl FnOnce(Option<&[u8]>, Seen) -> Result<Change, Fault>,
) -> Result<ToolOutcome, Fault> {
    let directory = &environment.directory;
    let location = directory.locate(&directory.inner_path(requested)?)?;
    // The person who was asked has seen the requested path. One that leads elsewhere by a link would deceive them.
    if runs_later(&location.path) && !runs_later(Path::new(requested)) {
        let message = format!(
            "{requested:?} leads to {:?}, which is run later outside of the sandbox. Name it so, and a person is asked.",
            location.path
        );
        return Err(Fault::ForModel("guarded", message));
    }
    directory.alone(&location.path, || {
        let before = location.read(environment.limits.file)?;
        let old = before.as_deref().map(hash);
        let seen = match (&environment.seen, &old) {
            (Some(seen), Some(old)) if !environment.lineage.follows(&location.path, seen, old) => Seen::Otherwise,
            // What an earlier call of the same turn has written was not seen before the turn.
            (None, Some(old)) if environment.knows_reads && !environment.lineage.has_made(&location.path, old) => {
                Seen::Never
            }
            _ => Seen::Present,
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
        if runs_later(&location.path) {
            consent(directory.path(), &location.path);
        }
        environment.lineage.changed(&location.path, old.as_deref(), &new);
        Ok(outcome)
    })
}
