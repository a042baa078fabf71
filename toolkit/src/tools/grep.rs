//! The `grep` tool: lines that match a regular expression, found with ripgrep's libraries in this process.

use super::directory::open_regular;
use super::excerpt::{self, GREP_LINE, MAX_BYTES};
use super::fault::{Fault, blocking};
use super::search::walk;
use super::{Effect, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use globset::{Glob, GlobBuilder, GlobMatcher};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::types::{Types, TypesBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

/// Searches the contents of files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Grep;

#[derive(Deserialize)]
struct Input {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    r#type: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
}

#[async_trait]
impl Tool for Grep {
    fn name(&self) -> &str {
        "grep"
    }

    fn description(&self) -> &str {
        "Search the contents of files with a regular expression (Rust syntax). Shows path:line: text, at most 100 matching \
         lines in the order of paths. Files that .gitignore names, hidden files, binary files and links are left out."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "The regular expression." },
                "path": { "type": "string", "minLength": 1, "description": "The directory or file to search; the working directory unless given." },
                "glob": { "type": "string", "minLength": 1, "description": "Only files whose path or name matches, such as *.rs or src/**/*.ts." },
                "type": { "type": "string", "minLength": 1, "description": "Only files of a type that ripgrep knows, such as rust, py, ts." },
                "ignore_case": { "type": "boolean", "description": "Overlook upper and lower case." },
                "literal": { "type": "boolean", "description": "Take the pattern as plain text." }
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
        blocking(move || grep(&environment, parse("grep", arguments)?)).await
    }
}

fn grep(environment: &ToolEnvironment, input: Input) -> Result<ToolOutcome, Fault> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(input.ignore_case)
        .fixed_strings(input.literal)
        .crlf(true)
        .size_limit(16 << 20)
        .build(&input.pattern)
        .map_err(|error| {
            let message = format!("The pattern cannot be used: {error}. For plain text set literal.");
            Fault::Told("invalid_pattern", message)
        })?;
    let filter = Filter::new(input.glob.as_deref(), input.r#type.as_deref())?;
    let from = environment.directory.inside(input.path.as_deref().unwrap_or("."))?;
    let mut found = Matches::new(environment);
    let mut searcher = SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(8 << 20))
        .build();
    let stopped = || environment.is_stopped();
    walk(&environment.directory, &from, &stopped, &mut |entry| {
        if !entry.is_dir && filter.takes(entry.path, entry.below) {
            let name = entry.path.file_name().unwrap_or_default();
            // A file that went away meanwhile or may not be read has no matches.
            if let Ok((file, _)) = open_regular(entry.dir, name, &from.said) {
                found.search(&mut searcher, &matcher, entry.path, file.into_std())?;
            }
        }
        Ok(if found.is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found.finish())
}

/// Which files are searched.
struct Filter {
    glob: Option<GlobMatcher>,
    types: Option<Types>,
}

impl Filter {
    fn new(glob: Option<&str>, kind: Option<&str>) -> Result<Self, Fault> {
        let types = kind.map(|kind| {
            let mut types = TypesBuilder::new();
            types.add_defaults().select(kind).build().map_err(|_| {
                let message = format!("The file type {kind:?} is not known. Use ripgrep's names, such as rust, py, js, ts, go, md, or a glob.");
                Fault::Told("unknown_type", message)
            })
        });
        Ok(Self {
            glob: glob.map(|glob| glob_of(glob).map(|glob| glob.compile_matcher())).transpose()?,
            types: types.transpose()?,
        })
    }

    fn takes(&self, path: &Path, below: &Path) -> bool {
        self.glob.as_ref().is_none_or(|glob| matches(glob, path, below))
            && self.types.as_ref().is_none_or(|types| types.matched(path, false).is_whitelist())
    }
}

/// Reads a glob; `*` stays inside one name.
pub(super) fn glob_of(glob: &str) -> Result<Glob, Fault> {
    let plain = glob.strip_prefix("./").unwrap_or(glob);
    GlobBuilder::new(plain)
        .literal_separator(true)
        .build()
        .map_err(|error| Fault::told("invalid_pattern", format!("The glob {glob:?} cannot be used: {error}.")))
}

/// Whether a glob matches a file: its path from either end of the walk, or its name alone.
pub(super) fn matches(glob: &GlobMatcher, path: &Path, below: &Path) -> bool {
    let by_name = !glob.glob().glob().contains('/');
    glob.is_match(below) || glob.is_match(path) || (by_name && path.file_name().is_some_and(|name| glob.is_match(name)))
}

/// The lines that were found.
struct Matches<'e> {
    environment: &'e ToolEnvironment,
    text: String,
    lines: usize,
    files: usize,
    is_full: bool,
    was_stopped: bool,
}

impl<'e> Matches<'e> {
    fn new(environment: &'e ToolEnvironment) -> Self {
        Self { environment, text: String::new(), lines: 0, files: 0, is_full: false, was_stopped: false }
    }

    fn search(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        path: &Path,
        file: std::fs::File,
    ) -> Result<(), Fault> {
        let before = self.lines;
        // A file with a line that does not fit the buffer is left out.
        let _ = searcher.search_reader(matcher, file, InFile { path, matches: self });
        self.files += usize::from(self.lines > before);
        if self.was_stopped { Err(Fault::stopped()) } else { Ok(()) }
    }

    fn add(&mut self, path: &Path, number: u64, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes);
        let added = format!("{}:{number}: {}\n", path.display(), excerpt::line(line.trim_end(), GREP_LINE));
        if self.lines == self.environment.limits.matches || self.text.len() + added.len() > MAX_BYTES {
            self.is_full = true;
            return;
        }
        self.text.push_str(&added);
        self.lines += 1;
    }

    fn finish(mut self) -> ToolOutcome {
        if self.lines == 0 {
            self.text.push_str("No matches.");
        }
        if self.is_full {
            let _ = write!(
                self.text,
                "\n[Only the first {} matches are shown. Narrow the pattern, the path or the glob.]",
                self.lines
            );
        }
        ToolOutcome::text(self.text)
            .with_details(json!({ "matches": self.lines, "files": self.files, "cut": self.is_full }))
    }
}

struct InFile<'m, 'e> {
    path: &'m Path,
    matches: &'m mut Matches<'e>,
}

impl Sink for InFile<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let first = found.line_number().unwrap_or_default();
        for (index, line) in found.lines().enumerate() {
            self.matches.add(self.path, first + index as u64, line);
        }
        self.matches.was_stopped = self.matches.environment.is_stopped();
        Ok(!self.matches.is_full && !self.matches.was_stopped)
    }
}
