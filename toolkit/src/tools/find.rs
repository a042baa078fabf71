//! The `find` tool: paths that match a glob.

use super::excerpt::MAX_BYTES;
use super::fault::{Fault, blocking};
use super::grep::{MOST_NAMED, glob_of, matches, shown};
use super::search::{Named, walk};
use super::{Effect, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// Finds files and directories by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Find;

#[derive(Deserialize)]
struct Input {
    pattern: String,
    path: Option<String>,
}

#[async_trait]
impl Tool for Find {
    fn name(&self) -> &str {
        "find"
    }

    fn description(&self) -> &str {
        "Find files and directories by a glob such as *.rs, src/**/*.ts or * (everything). Shows at most 1000 paths in \
         order; directories end in /. What .gitignore names and hidden files are left out, unless pattern or path name them \
         (.env, .github/**, node_modules/x/*.js). Links are left out."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "The glob. Without a slash it matches names at any depth." },
                "path": { "type": "string", "minLength": 1, "description": "The directory to search; the working directory unless given." }
            },
            "required": ["pattern"],
            "additionalProperties": false
        })
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = environment.clone();
        blocking(move || {
            let Input { pattern, path } = parse("find", arguments)?;
            find(&environment, &pattern, path.as_deref().unwrap_or("."))
        })
        .await
    }
}

fn find(environment: &ToolEnvironment, pattern: &str, path: &str) -> Result<ToolOutcome, Fault> {
    let directories_only = pattern.len() > 1 && pattern.ends_with('/');
    let glob = glob_of(pattern.strip_suffix('/').filter(|_| directories_only).unwrap_or(pattern))?.compile_matcher();
    let from = environment.directory.inner_path(path)?;
    let named = Named::of(pattern);
    let (mut text, mut count, mut cut) = (String::new(), 0, false);
    let stopped = || environment.is_stopped();
    let unread = walk(&environment.directory, &from, &named, &stopped, &mut |entry| {
        if (entry.is_dir || !directories_only) && matches(&glob, entry.path, entry.below) {
            let path = entry.path.to_string_lossy();
            if count == environment.limits.paths || text.len() + path.len() + 2 > MAX_BYTES {
                cut = true;
                return Ok(ControlFlow::Break(()));
            }
            let _ = writeln!(text, "{path}{}", if entry.is_dir { "/" } else { "" });
            count += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if count == 0 {
        text.push_str("No files found.");
    }
    if cut {
        let _ = write!(text, "\n[Only the first {count} paths are shown. Narrow the pattern or the path.]");
    }
    for folder in unread.iter().take(MOST_NAMED) {
        let _ = write!(text, "\n[Not searched: {} cannot be read]", shown(folder).display());
    }
    if unread.len() > MOST_NAMED {
        let _ = write!(text, "\n[Nor were {} more directories.]", unread.len() - MOST_NAMED);
    }
    Ok(ToolOutcome::text(text).with_details(json!({ "paths": count, "cut": cut, "leftOut": unread.len() })))
}
