//! The `edit` tool: texts of a file are replaced where they are found exactly once.

mod matching;
mod text;

use super::fault::{Fault, blocking};
use super::write::{Change, Seen, change, stale};
use super::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use matching::{Found, find};
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::Range;
use text::FileText;

/// Replaces texts of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Edit;

#[derive(Deserialize)]
struct Input {
    path: String,
    #[serde(flatten)]
    single: Partial,
    edits: Option<Edits>,
}

/// Models give a list as a list, as its only member, or as text that holds either.
#[derive(Deserialize)]
#[serde(untagged)]
enum Edits {
    Many(Vec<Replacement>),
    One(Replacement),
    Text(String),
}

#[derive(Deserialize)]
struct Partial {
    old_string: Option<String>,
    new_string: Option<String>,
    #[serde(default)]
    replace_all: bool,
}

#[derive(Deserialize)]
struct Replacement {
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

#[async_trait]
impl Tool for Edit {
    fn name(&self) -> &str {
        "edit"
    }

    fn description(&self) -> &str {
        "Replace text in a file of the working directory. old_string must be in the file exactly once, so give enough lines \
         around it, without the line numbers that read shows; or set replace_all. Several changes of one file go into edits, \
         which are all matched against the file as it was. Line endings are kept."
    }

    fn input_schema(&self) -> Value {
        let replacement = json!({
            "old_string": { "type": "string", "minLength": 1, "description": "The text to replace." },
            "new_string": { "type": "string", "description": "The text to put in its place." },
            "replace_all": { "type": "boolean", "description": "Replace every occurrence; false unless given." }
        });
        let one = json!({
            "type": "object",
            "properties": replacement,
            "required": ["old_string", "new_string"],
            "additionalProperties": false
        });
        let mut properties = json!({
            "path": { "type": "string", "minLength": 1, "description": "The file, relative to the working directory or absolute inside it." },
            "edits": {
                "description": "Several replacements, instead of old_string and new_string.",
                "anyOf": [{ "type": "array", "items": one, "minItems": 1 }, one, { "type": "string" }]
            }
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut properties, replacement) {
            all.extend(more);
        }
        json!({ "type": "object", "properties": properties, "required": ["path"], "additionalProperties": false })
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
            let input: Input = parse("edit", arguments)?;
            let path = input.path.clone();
            let edits = input.replacements()?;
            let inner_path = environment.directory.inner_path(&path)?;
            // Also keeps directories from being made for a file that is not there.
            environment.directory.open_file(&inner_path)?;
            change(&environment, &path, |content, seen| match content {
                None => Err(Fault::for_model("not_found", format!("There is no file {path:?}."))),
                Some(_) if seen == Seen::Otherwise => Err(stale(&path, "edit")),
                // A file that was never read may be edited: old_string names all that is replaced.
                Some(content) => apply(&path, content, &edits),
            })
        })
        .await
    }
}

impl Input {
    fn replacements(self) -> Result<Vec<Replacement>, Fault> {
        let wrong = |message: &str| Fault::for_model("invalid_arguments", message);
        let Partial { old_string, new_string, replace_all } = self.single;
        let edits = match (self.edits, old_string, new_string) {
            (Some(Edits::Many(edits)), None, None) => edits,
            (Some(Edits::One(edit)), None, None) => vec![edit],
            (Some(Edits::Text(text)), None, None) => match serde_json::from_str(&text) {
                Ok(Edits::Many(edits)) => edits,
                Ok(Edits::One(edit)) => vec![edit],
                _ => return Err(wrong("edits is a text that is no JSON list of {old_string, new_string}.")),
            },
            (None, Some(old_string), Some(new_string)) => vec![Replacement { old_string, new_string, replace_all }],
            (Some(_), ..) => return Err(wrong("Give either edits, or old_string and new_string, not both.")),
            (None, ..) => return Err(wrong("Give old_string and new_string, or edits.")),
        };
        if edits.is_empty() || edits.iter().any(|edit| edit.old_string.is_empty()) {
            return Err(wrong("old_string is empty. Give the text to replace; a new file is made with write."));
        }
        Ok(edits)
    }
}

/// One replacement of a range of the text as it was.
struct Splice<'e> {
    range: Range<usize>,
    new: &'e str,
    edit: usize,
}

/// The content that a call would leave of a file.
pub(super) fn edited(arguments: Value, content: &[u8]) -> Result<Vec<u8>, Fault> {
    let input: Input = parse("edit", arguments)?;
    let path = input.path.clone();
    Ok(apply(&path, content, &input.replacements()?)?.content)
}

fn apply(path: &str, content: &[u8], edits: &[Replacement]) -> Result<Change, Fault> {
    let Ok(content) = std::str::from_utf8(content) else {
        return Err(Fault::for_model(
            "not_utf8",
            format!("{path:?} is no UTF-8 text; edit would damage it. Use bash."),
        ));
    };
    let text = FileText::new(content);
    let (mut splices, mut fuzzy) = (Vec::new(), false);
    for (number, edit) in edits.iter().enumerate() {
        let which = if edits.len() > 1 { format!("edits[{number}]: ") } else { String::new() };
        let old = text::plain(&edit.old_string);
        if old == text::plain(&edit.new_string) {
            let message = format!("{which}old_string and new_string are the same; nothing would change.");
            return Err(Fault::ForModel("no_change", message));
        }
        let found = find(text.plain(), &old);
        fuzzy |= matches!(found, Found::Fuzzy(_));
        let ranges = match found {
            Found::Exact(ranges) if ranges.len() > 1 && !edit.replace_all => {
                return Err(not_unique(&which, path, &text, &ranges));
            }
            Found::Exact(ranges) => ranges,
            Found::Fuzzy(range) => vec![range],
            Found::Nothing(near) => return Err(not_found(&which, path, &near)),
        };
        splices.extend(ranges.into_iter().map(|range| Splice { range, new: &edit.new_string, edit: number }));
    }
    splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
    let overlapping = splices.iter().zip(splices.iter().skip(1)).find(|(a, b)| b.range.start < a.range.end);
    if let Some((first, second)) = overlapping {
        let message = format!(
            "edits[{}] and edits[{}] change the same text in line {} of {path:?}; make them one.",
            first.edit,
            second.edit,
            text.line_of(second.range.start)
        );
        return Err(Fault::ForModel("overlap", message));
    }
    let first = splices.first().map_or(1, |splice| text.line_of(splice.range.start));
    let changed = text.spliced(splices.iter().map(|splice| (splice.range.clone(), splice.new)));
    if changed == content {
        return Err(Fault::for_model("no_change", format!("The edit leaves {path:?} as it is.")));
    }
    let count = splices.len();
    let plural = if count == 1 { "" } else { "s" };
    let lines: Vec<_> = splices.iter().take(20).map(|splice| text.line_of(splice.range.start).to_string()).collect();
    let mut summary = format!("Replaced {count} occurrence{plural} in {path:?} (line{plural} {}).", lines.join(", "));
    if fuzzy {
        summary.push_str(
            " The text was found only after differences of spaces, quotes or dashes were overlooked; check the result.",
        );
    }
    Ok(Change {
        content: changed.into_bytes(),
        text: Some(summary),
        details: json!({ "replacements": count, "firstChangedLine": first, "fuzzy": fuzzy }),
    })
}

fn not_unique(which: &str, path: &str, text: &FileText<'_>, ranges: &[Range<usize>]) -> Fault {
    let lines: Vec<_> = ranges.iter().take(20).map(|range| text.line_of(range.start).to_string()).collect();
    let more = if ranges.len() > lines.len() { ", …" } else { "" };
    let message = format!(
        "{which}Found {} occurrences of old_string in {path:?}, at lines {}{more}. Add lines around it until it is the only \
         one, or set replace_all.",
        ranges.len(),
        lines.join(", ")
    );
    Fault::ForModel("not_unique", message)
}

fn not_found(which: &str, path: &str, near: &[(usize, String)]) -> Fault {
    let mut message = format!(
        "{which}Could not find the exact text of old_string in {path:?}. It has to match in every character, spaces and line \
         ends included."
    );
    if !near.is_empty() {
        message.push_str(" The lines that come nearest to its first line:");
        for (line, text) in near {
            message.push_str(&format!("\n{line:>6}\t{text}"));
        }
    }
    Fault::ForModel("not_found", message)
}
