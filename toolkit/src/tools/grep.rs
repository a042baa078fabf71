//! The `grep` tool: lines that match a regular expression, found with ripgrep's libraries in this process.

use super::directory::{normal, open_regular};
use super::excerpt::{self, GREP_LINE, MAX_BYTES};
use super::fault::{Fault, blocking};
use super::search::{Decoded, Named, walk};
use super::{Effect, Tool, ToolEnvironment, ToolOutcome, parse};
use async_trait::async_trait;
use flovyn_core::error::Result;
use globset::{Glob, GlobBuilder, GlobMatcher};
use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use ignore::types::{Types, TypesBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The longest line that is searched, in bytes. A line has to be in memory as a whole to be searched.
const LONGEST_LINE: usize = 64 << 20;
/// How many bytes of a long line are shown before its match.
const BEFORE: usize = 100;
/// How many of the files that were not searched are named.
pub(super) const MOST_NAMED: usize = 5;
/// Why a file or a directory was not searched.
const UNREADABLE: &str = "cannot be read";

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
         lines in the order of paths, of a long line what is around its first match. Files that .gitignore names, hidden files \
         and links are left out, unless path names them or a directory that they are in; binary files too, which is said. Files in UTF-16 (with their mark) and Windows-1252 are searched, too."
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
        // Many lines are searched at once, and `^` and `$` mean each of them.
        .multi_line(true)
        .size_limit(16 << 20)
        .build(&input.pattern)
        .map_err(|error| {
            let message = format!("The pattern cannot be used: {error}. For plain text set literal.");
            Fault::ForModel("invalid_pattern", message)
        })?;
    let filter = Filter::new(input.glob.as_deref(), input.r#type.as_deref())?;
    let from = environment.directory.inner_path(input.path.as_deref().unwrap_or("."))?;
    let mut found = Matches::new(environment, &matcher);
    let mut searcher = SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LONGEST_LINE))
        .build();
    let start = environment.directory.real(&from)?;
    let stopped = || environment.is_stopped();
    let unread = walk(&environment.directory, &from, &Named::default(), &stopped, &mut |entry| {
        if !entry.is_dir && filter.takes(entry.path, entry.below) {
            let name = entry.path.file_name().unwrap_or_default();
            // The walk visits the path that it starts from only if that is a file: then the model has asked for this
            // file.
            let is_asked = entry.path == start;
            match open_regular(entry.dir, name, &from.requested) {
                Ok((file, _)) => found.search(&mut searcher, entry.path, file.into_std(), is_asked)?,
                Err(fault) if is_asked => return Err(fault),
                // A file that was removed meanwhile has no matches.
                Err(Fault::ForModel("not_found", _)) => {}
                Err(_) => found.left_out(entry.path, UNREADABLE),
            }
        }
        Ok(if found.is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    unread.iter().for_each(|folder| found.left_out(&shown(folder), UNREADABLE));
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
                Fault::ForModel("unknown_type", message)
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

/// Reads a glob. A `*` matches only inside one name.
pub(super) fn glob_of(glob: &str) -> Result<Glob, Fault> {
    let plain = glob.strip_prefix("./").unwrap_or(glob);
    GlobBuilder::new(&normal(plain))
        .literal_separator(true)
        .build()
        .map_err(|error| Fault::for_model("invalid_pattern", format!("The glob {glob:?} cannot be used: {error}.")))
}

/// Whether a glob matches a file: its path from the working directory, its path from the start of the walk, or, for a
/// glob without `/`, just its name. Names are compared in their normal form.
pub(super) fn matches(glob: &GlobMatcher, path: &Path, below: &Path) -> bool {
    let by_name = !glob.glob().glob().contains('/');
    let is_match = |path: &Path| match path.to_str().filter(|path| !path.is_ascii()) {
        Some(path) => glob.is_match(path) || glob.is_match(normal(path)),
        None => glob.is_match(path),
    };
    is_match(below) || is_match(path) || (by_name && path.file_name().is_some_and(|name| is_match(Path::new(name))))
}

/// A directory as it is shown. That of the walk itself has no name.
pub(super) fn shown(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { "./".into() } else { folder.join("") }
}

/// The lines that were found.
struct Matches<'e> {
    environment: &'e ToolEnvironment,
    matcher: &'e RegexMatcher,
    text: String,
    lines: usize,
    files: usize,
    is_full: bool,
    /// The files that were not searched to their end: the first of them with the reasons, and how many there are.
    left_out: (Vec<String>, usize),
    /// The binary files that were left out.
    binary: Files,
    /// The files with matches that are not UTF-8.
    not_utf8: Files,
}

/// The first of some files, and how many there are.
#[derive(Default)]
struct Files {
    first: Vec<String>,
    number: usize,
}

impl Files {
    fn add(&mut self, path: &Path) {
        self.number += 1;
        if self.first.len() < MOST_NAMED {
            self.first.push(path.display().to_string());
        }
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = if self.number > self.first.len() { ", …" } else { "" };
        write!(f, "{}{more}", self.first.join(", "))
    }
}

impl<'e> Matches<'e> {
    fn new(environment: &'e ToolEnvironment, matcher: &'e RegexMatcher) -> Self {
        let (left_out, binary, not_utf8) = Default::default();
        let text = String::new();
        Self { environment, matcher, text, lines: 0, files: 0, is_full: false, left_out, binary, not_utf8 }
    }

    fn search(
        &mut self,
        searcher: &mut Searcher,
        path: &Path,
        file: std::fs::File,
        is_asked: bool,
    ) -> Result<(), Fault> {
        let (before, matcher) = (self.lines, self.matcher);
        let watched = Watched { file, environment: self.environment, failed: None };
        let mut text = Decoded::new(watched);
        let mut sink = InFile { path, matches: self, binary_from: None };
        let searched = searcher.search_reader(matcher, &mut text, &mut sink);
        let binary_from = sink.binary_from;
        let is_utf8 = text.is_utf8();
        let watched = text.into_inner();
        if self.environment.is_stopped() {
            return Err(Fault::stopped());
        }
        self.files += usize::from(self.lines > before);
        if !is_utf8 && self.lines > before {
            self.not_utf8.add(path);
        }
        match (searched, watched.failed) {
            (Ok(()), _) => match binary_from {
                Some(from) if is_asked || self.lines > before => {
                    // Before it there may be letters that have become longer.
                    let from = if is_utf8 { format!(" from byte {from} on") } else { String::new() };
                    self.left_out(path, &format!("is binary{from}; use bash: grep -a"));
                }
                Some(_) => self.binary.add(path),
                None => {}
            },
            (Err(_), Some(why)) => self.left_out(path, &format!("cannot be read: {why}")),
            // The only other error is that a line is longer than the buffer.
            (Err(_), None) => {
                let size = excerpt::size(LONGEST_LINE as u64);
                self.left_out(path, &format!("has a line longer than {size}; use bash: grep -o -b"));
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, number: u64, line: &[u8]) {
        let shown = around(line, self.matcher);
        let added = format!("{}:{number}: {shown}\n", path.display());
        if self.lines == self.environment.limits.matches || self.text.len() + added.len() > MAX_BYTES {
            self.is_full = true;
            return;
        }
        self.text.push_str(&added);
        self.lines += 1;
    }

    /// Takes note that a file may have more matches than are shown.
    fn left_out(&mut self, path: &Path, why: &str) {
        let (named, number) = &mut self.left_out;
        *number += 1;
        if named.len() < MOST_NAMED {
            named.push(format!("{} {why}", path.display()));
        }
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
        let (named, number) = &self.left_out;
        for file in named {
            let _ = write!(self.text, "\n[Not searched to the end: {file}]");
        }
        if *number > named.len() {
            let _ = write!(self.text, "\n[Nor were {} more files.]", number - named.len());
        }
        if self.not_utf8.number > 0 {
            let _ = write!(self.text, "\n[Not UTF-8, read as Windows-1252: {}]", self.not_utf8);
        }
        if self.binary.number > 0 {
            let _ =
                write!(self.text, "\n[Binary files are not searched, {} here: {}]", self.binary.number, self.binary);
        }
        ToolOutcome::text(self.text).with_details(json!({
            "matches": self.lines,
            "files": self.files,
            "cut": self.is_full,
            "leftOut": number,
            "binary": self.binary.number,
            "notUtf8": self.not_utf8.number,
        }))
    }
}

/// The part of a line that is shown: all of it, or the text around its first match if it is too long.
fn around(line: &[u8], matcher: &RegexMatcher) -> String {
    let ends = line.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
    let line = &line[..line.len() - ends];
    let plain = |line: &[u8]| excerpt::line(&String::from_utf8_lossy(line), GREP_LINE).into_owned();
    let found = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    if line.len() <= GREP_LINE || found + BEFORE < GREP_LINE {
        return plain(line);
    }
    let is_inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut start = found - BEFORE.min(found);
    // Moves the start to the beginning of a character.
    start += (0..3).take_while(|&more| is_inside(start + more)).count();
    let rest = String::from_utf8_lossy(&line[start..line.len().min(start + GREP_LINE * 4)]);
    let shown: String = rest.chars().take(GREP_LINE).collect();
    format!("[from byte {} of {}] {shown}", start + 1, line.len())
}

/// A file whose reading ends when the call has to stop.
struct Watched<'e> {
    file: std::fs::File,
    environment: &'e ToolEnvironment,
    /// The error, if it could not be read.
    failed: Option<String>,
}

impl io::Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.environment.is_stopped() {
            return Ok(0);
        }
        io::Read::read(&mut self.file, buffer).inspect_err(|error| {
            // The caller reads again after `Interrupted`, so that is no failure.
            if error.kind() != io::ErrorKind::Interrupted {
                self.failed = Some(error.to_string());
            }
        })
    }
}

struct InFile<'m, 'e> {
    path: &'m Path,
    matches: &'m mut Matches<'e>,
    /// The place of the first zero byte.
    binary_from: Option<u64>,
}

impl Sink for &mut InFile<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let first = found.line_number().unwrap_or_default();
        for (index, line) in found.lines().enumerate() {
            self.matches.add(self.path, first + index as u64, line);
        }
        Ok(!self.matches.is_full && !self.matches.environment.is_stopped())
    }

    fn finish(&mut self, _searcher: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.binary_from = end.binary_byte_offset();
        Ok(())
    }
}
