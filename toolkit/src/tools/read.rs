//! The `read` tool: numbered lines of a text file, or an image.

use super::directory::{InnerPath, WorkingDirectory};
use super::excerpt::{MAX_BYTES, MAX_LINES, READ_LINE};
use super::fault::{Fault, blocking};
use super::{Effect, Tool, ToolEnvironment, ToolOutcome, image, parse};
use crate::message::Part;
use async_trait::async_trait;
use flovyn_core::error::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _};

/// The largest image that is read, in bytes.
const LARGEST_IMAGE: u64 = 64 << 20;
/// How many of the first bytes of a file decide whether it is text.
const SAMPLE: usize = 8 * 1024;

/// Reads a text file with line numbers, or an image.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read;

#[derive(Deserialize)]
struct Input {
    path: String,
    offset: Option<u64>,
    limit: Option<usize>,
}

#[async_trait]
impl Tool for Read {
    fn name(&self) -> &str {
        "read"
    }

    fn description(&self) -> &str {
        "Read a file of the working directory. Text comes with line numbers, at most 2000 lines or 50 KB at once: use \
         offset and limit for the rest of a long file. PNG, JPEG, GIF and WebP files come as images. Other binary files \
         are refused. Directories are listed with find."
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the working directory or absolute inside it." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line to read, counted from 1." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LINES, "description": "How many lines to read; 2000 unless given." }
            },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        let environment = environment.clone();
        blocking(move || {
            let input: Input = parse("read", arguments)?;
            let inner_path = environment.directory.inner_path(&input.path)?;
            read(
                &environment,
                &inner_path,
                input.offset.unwrap_or(1).max(1),
                input.limit.unwrap_or(MAX_LINES).min(MAX_LINES),
            )
        })
        .await
    }
}

fn read(
    environment: &ToolEnvironment,
    inner_path: &InnerPath,
    offset: u64,
    limit: usize,
) -> Result<ToolOutcome, Fault> {
    let requested = &inner_path.requested;
    let fault = |error| Fault::of_file(requested, error);
    let (file, metadata) = environment.directory.open_file(inner_path)?;
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let sample = reader.fill_buf().map_err(fault)?;
    let sample = &sample[..sample.len().min(SAMPLE)];
    if let Some(format) = image::sniff(sample) {
        if metadata.len() > LARGEST_IMAGE {
            return Err(Fault::for_model("too_large", format!("The image {requested:?} has more than 64 MB.")));
        }
        let mut bytes = Vec::new();
        reader.take(LARGEST_IMAGE).read_to_end(&mut bytes).map_err(fault)?;
        return show_image(requested, image::prepare(requested, format, bytes)?);
    }
    if sample.contains(&0) {
        let message = format!(
            "{requested:?} is a binary file ({} bytes). Look at it with bash: file, xxd, strings.",
            metadata.len()
        );
        return Err(Fault::ForModel("binary", message));
    }
    let mut page = Page::new(offset, limit);
    loop {
        if environment.is_stopped() {
            return Err(Fault::stopped());
        }
        let chunk = reader.fill_buf().map_err(fault)?;
        if chunk.is_empty() {
            break;
        }
        page.take(chunk);
        let length = chunk.len();
        reader.consume(length);
    }
    page.finish(&environment.directory, inner_path)
}

fn show_image(requested: &str, image: image::Prepared) -> Result<ToolOutcome, Fault> {
    let shrunk =
        image.original.map_or(String::new(), |(width, height)| format!(", made smaller from {width}×{height}"));
    let text = format!("The image {requested:?} ({}, {}×{}{shrunk}):", image.mime, image.width, image.height);
    let details = json!({ "path": requested, "mime": image.mime, "width": image.width, "height": image.height });
    let mut outcome = ToolOutcome::text(text).with_details(details);
    outcome.content.push(Part::media(image.mime, image.base64));
    Ok(outcome)
}

/// The lines that were asked for. They are collected while the file is read, so that the file may be larger than
/// memory.
struct Page {
    offset: u64,
    limit: usize,
    hasher: blake3::Hasher,
    /// How many line ends were read.
    ends: u64,
    /// How many bytes of the present line were read, and the first of them.
    length: u64,
    line: Vec<u8>,
    text: String,
    shown: usize,
    full: bool,
    cut: Option<u64>,
    lossy: bool,
}

/// As many bytes as [`READ_LINE`] characters can have, and a byte order mark.
const LINE_BYTES: usize = READ_LINE * 4 + 8;

impl Page {
    fn new(offset: u64, limit: usize) -> Self {
        Self {
            offset,
            limit,
            hasher: blake3::Hasher::new(),
            ends: 0,
            length: 0,
            line: Vec::new(),
            text: String::new(),
            shown: 0,
            full: false,
            cut: None,
            lossy: false,
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        self.hasher.update(chunk);
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            let (body, ended) = match piece.split_last() {
                Some((b'\n', body)) => (body, true),
                _ => (piece, false),
            };
            self.length += body.len() as u64;
            if self.wanted() {
                let room = LINE_BYTES.saturating_sub(self.line.len());
                self.line.extend_from_slice(&body[..body.len().min(room)]);
            }
            if ended {
                self.end_line();
                self.ends += 1;
            }
        }
    }

    fn wanted(&self) -> bool {
        !self.full && self.ends + 1 >= self.offset
    }

    fn end_line(&mut self) {
        let (bytes, length) = (std::mem::take(&mut self.line), std::mem::take(&mut self.length));
        if !self.wanted() {
            return;
        }
        let number = self.ends + 1;
        let bytes = match number {
            1 => bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes),
            _ => &bytes,
        };
        let bytes = if length as usize <= LINE_BYTES { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes };
        let line = String::from_utf8_lossy(bytes);
        let mut shown = match line.char_indices().nth(READ_LINE) {
            None => line.as_ref().to_owned(),
            Some((end, _)) => {
                self.cut.get_or_insert(number);
                format!("{} [cut at {READ_LINE} characters of a line of {length} bytes]", &line[..end])
            }
        };
        self.lossy |= matches!(line, std::borrow::Cow::Owned(_)) && length as usize <= LINE_BYTES;
        shown.push('\n');
        let added = format!("{number:>6}\t{shown}");
        if self.shown == self.limit || self.text.len() + added.len() > MAX_BYTES {
            self.full = true;
            return;
        }
        self.text.push_str(&added);
        self.shown += 1;
    }

    fn finish(mut self, directory: &WorkingDirectory, inner_path: &InnerPath) -> Result<ToolOutcome, Fault> {
        if self.length > 0 {
            self.end_line();
            self.ends += 1;
        }
        let (requested, total) = (&inner_path.requested, self.ends);
        if self.offset > total.max(1) {
            let message =
                format!("The offset {} is behind the end of {requested:?}, which has {total} lines.", self.offset);
            return Err(Fault::ForModel("offset_too_large", message));
        }
        let last = self.offset + self.shown as u64 - u64::from(self.shown > 0);
        let mut text = self.text;
        if total == 0 {
            text.push_str("[The file is empty.]");
        } else if last < total || self.offset > 1 {
            let _ = write!(text, "\n[Showing lines {}-{last} of {total}.", self.offset);
            if last < total {
                let _ = write!(text, " Use offset={} to continue.", last + 1);
            }
            text.push(']');
        }
        if let Some(line) = self.cut {
            let _ = write!(
                text,
                "\n[Long lines are cut. See all of one with bash: sed -n '{line}p' FILE | cut -c{}-]",
                READ_LINE + 1
            );
        }
        if self.lossy {
            text.push_str(
                "\n[The file is not UTF-8; unreadable bytes are shown as \u{fffd}. edit does not change such files.]",
            );
        }
        let path = directory.real(inner_path)?;
        Ok(ToolOutcome::text(text).with_details(json!({
            "path": path,
            "said": requested,
            "hash": self.hasher.finalize().to_hex().as_str(),
            "from": self.offset,
            "to": last,
            "lines": total,
            "cut": last < total,
        })))
    }
}
