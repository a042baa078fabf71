//! The part of a tool's result that a model is shown: the first and the last lines of a long one, and a note that says
//! how to read the rest.
//!
//! The whole text of a long result is an entry of a thread of its own. No model call loads it. The agent answers calls
//! of [`NAME`] from it, also after a crash and in another process.

use super::ResultLimits;
use crate::message::{Content, Part};
use crate::provider::ToolSpec;
use crate::tools::{ToolOutcome, excerpt};
use flovyn_core::Payload;
use flovyn_core::error::Result;
use grep_matcher::Matcher;
use grep_regex::RegexMatcherBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::Range;

/// The tool that reads the rest of a long result.
pub(super) const NAME: &str = "read_result";
/// The most of one result that is kept, in bytes of JSON.
const MOST_KEPT: u64 = 64 << 20;
/// The most images and documents of one result.
const MOST_MEDIA: usize = 10;
/// The most bytes that one field of the details may have.
const MOST_DETAIL: usize = 256 * 1024;
/// A longer line counts as several lines.
const LINE_BYTES: usize = 2_000;

/// An outcome of which some text is too long for a model.
pub(super) struct LongResult {
    /// The whole text, or as much of it as is kept.
    pub kept: Payload,
    text: String,
    kept_bytes: usize,
    media: Vec<Part>,
    is_error: bool,
    details: Value,
}

/// An outcome, after its size was checked.
pub(super) enum Checked {
    /// The model may see all of it.
    Short(ToolOutcome),
    /// The model may see only a part of its text.
    Long(Box<LongResult>),
}

/// The arguments of a call of [`NAME`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadInput {
    /// The call whose result is read.
    pub call_id: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    pattern: Option<String>,
}

/// The tool as the model sees it. It is offered from the first long result on.
pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Read more of the result of an earlier tool call that was too long to be shown whole. The note \
                      in such a result says its call_id and which lines are left out. Lines come with their numbers; \
                      a line of more than 2000 bytes counts as several lines."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "call_id": { "type": "string", "minLength": 1, "description": "The call_id from the note in the result." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line to read, counted from 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines to read; as many as fit unless given." },
                "pattern": { "type": "string", "minLength": 1, "description": "A regular expression: only lines that match it are read." }
            },
            "required": ["call_id"],
            "additionalProperties": false
        }),
    }
}

/// The thread that keeps the whole result of a call. The id of a call may be longer than the name of a thread.
pub(super) fn thread_of(call_id: &str) -> String {
    format!("result-{}", &blake3::hash(call_id.as_bytes()).to_hex()[..32])
}

impl ResultLimits {
    /// Whether a text may be shown whole. The tools of this crate add notes to texts that fill their own limits, so a
    /// little more than the limit is no reason to cut.
    fn fits(&self, text: &str) -> bool {
        text.len() <= self.max_bytes.saturating_add(self.max_bytes / 8)
            && Lines::of(text).nth(self.max_lines.saturating_add(self.max_lines / 8)).is_none()
    }

    /// Checks the size of an outcome.
    pub(super) fn check(&self, outcome: ToolOutcome) -> Result<Checked> {
        let ToolOutcome { content, is_error, details } = outcome;
        let details = short_details(details);
        let texts: Vec<_> = content.iter().filter_map(Part::as_text).collect();
        let is_short = match texts.as_slice() {
            [] => true,
            [one] => self.fits(one),
            several => self.fits(&several.join("\n")),
        };
        let mut media = 0;
        let mut is_wanted = |part: &Part| {
            media += usize::from(matches!(part.content, Content::Media(_)));
            media <= MOST_MEDIA
        };
        if is_short {
            let mut content = content;
            content.retain(|part| is_wanted(part));
            content.extend(left_out(media));
            return Ok(Checked::Short(ToolOutcome { content, is_error, details }));
        }
        // A text may be hundreds of megabytes, so the only one is taken and not copied.
        let (mut texts, mut parts) = (Vec::new(), Vec::new());
        for part in content {
            match part.content {
                Content::Text { text } => texts.push(text),
                _ => parts.push(part),
            }
        }
        let text = if texts.len() == 1 { texts.swap_remove(0) } else { texts.join("\n") };
        parts.retain(|part| is_wanted(part));
        parts.extend(left_out(media));
        let (kept, kept_bytes) = keep(&text)?;
        Ok(Checked::Long(Box::new(LongResult { kept, text, kept_bytes, media: parts, is_error, details })))
    }

    /// Answers a call of [`NAME`] from the text that was kept.
    pub(super) fn read(&self, input: &ReadInput, text: &str) -> ToolOutcome {
        let matcher = match input.pattern.as_deref().map(|pattern| RegexMatcherBuilder::new().build(pattern)) {
            Some(Err(error)) => return wrong(&format!("the pattern is no regular expression: {error}")),
            Some(Ok(matcher)) => Some(matcher),
            None => None,
        };
        let first = input.offset.unwrap_or(1).max(1);
        let most = usize::try_from(input.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(self.max_lines);
        let mut shown = String::new();
        let (mut number, mut lines, mut next) = (0, 0, None);
        for range in Lines::of(text) {
            number += 1;
            let line = &text[range];
            let matches = || matcher.as_ref().is_none_or(|matcher| matcher.is_match(line.as_bytes()).unwrap_or(false));
            if number < first || next.is_some() || !matches() {
                continue;
            }
            // At least one line is shown, so that the model always gets further.
            let is_full = lines == most || (lines > 0 && shown.len() + line.len() + 8 > self.max_bytes);
            if is_full {
                next = Some(number);
                continue;
            }
            lines += 1;
            // Writing into a String cannot fail.
            let _written = writeln!(shown, "{number:>6}\t{line}");
        }
        if first > number.max(1) {
            let message = format!("The offset {first} is behind the end of the result, which has {number} lines.");
            return ToolOutcome::error("offset_too_large", message);
        }
        if lines == 0 {
            return ToolOutcome::text(format!("No line from {first} to {number} matches."));
        }
        let more = next.map_or(String::new(), |next| format!(" Use offset={next} to continue."));
        ToolOutcome::text(format!("{shown}\n[The result has {number} lines.{more}]"))
    }
}

/// Reads the arguments of a call of [`NAME`].
pub(super) fn parse(arguments: &Value) -> Result<ReadInput, ToolOutcome> {
    serde_json::from_value(arguments.clone()).map_err(|error| wrong(&error.to_string()))
}

/// The outcome of a call of [`NAME`] for a result that was not kept.
pub(super) fn not_kept(call_id: &str) -> ToolOutcome {
    ToolOutcome::error(
        "unknown_result",
        format!(
            "No result is kept for the call_id {call_id:?}. Only results whose note names their call_id can be read."
        ),
    )
}

fn wrong(why: &str) -> ToolOutcome {
    ToolOutcome::error("invalid_arguments", format!("The arguments of {NAME} are wrong: {why}."))
}

impl LongResult {
    /// The outcome for the model: the first and the last lines. `id` is the id of the call if the rest can be read.
    pub(super) fn shown(self, limits: &ResultLimits, id: Option<&str>) -> ToolOutcome {
        let Self { text, kept_bytes, media, is_error, mut details, .. } = self;
        let cut = Cut::of(&text, limits);
        let head = &text[..cut.head];
        let tail = &text[cut.tail..];
        let mut note = format!(
            "[The result is too long: {} in {} lines. {} are left out here.",
            excerpt::size(text.len() as u64),
            cut.lines,
            match cut.left_out.is_empty() {
                true => "Parts of lines".to_owned(),
                false => format!("Lines {} to {}", cut.left_out.start, cut.left_out.end - 1),
            },
        );
        if let Some(id) = id {
            let offset = cut.left_out.start;
            // Writing into a String cannot fail.
            let _written = write!(note, " Read them with {NAME}: call_id={id:?}, offset={offset}.");
            if kept_bytes < text.len() {
                let _written = write!(note, " Only the first {} were kept.", excerpt::size(kept_bytes as u64));
            }
        }
        note.push(']');
        let break_after = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
        let mut content = vec![Part::text(format!("{head}{break_after}\n{note}\n\n{tail}"))];
        content.extend(media);
        if !details.is_object() {
            details = json!({});
        }
        details["result"] = json!({ "bytes": text.len(), "lines": cut.lines, "kept": id.is_some() });
        ToolOutcome { content, is_error, details }
    }
}

/// The text as a payload, and how many of its bytes that is.
fn keep(text: &str) -> Result<(Payload, usize)> {
    // Its JSON is never shorter than the text.
    let mut kept = excerpt::prefix(text, usize::try_from(MOST_KEPT).unwrap_or(usize::MAX));
    loop {
        let payload = Payload::of(kept)?;
        if payload.size() <= MOST_KEPT {
            return Ok((payload, kept.len()));
        }
        // As much as fits if the rest is like what was measured, and a little less, so that it ends soon.
        let part = MOST_KEPT as f64 / payload.size() as f64 * 0.95;
        kept = excerpt::prefix(kept, (kept.len() as f64 * part) as usize);
    }
}

/// Details without fields that are too large for an entry that every reader loads.
fn short_details(mut details: Value) -> Value {
    let size = |value: &Value| serde_json::to_vec(value).map_or(usize::MAX, |text| text.len());
    if size(&details) <= MOST_DETAIL {
        return details;
    }
    match &mut details {
        Value::Object(fields) => {
            fields.retain(|_, value| size(value) <= MOST_DETAIL / 16);
            if fields.len() <= 1_000 { details } else { Value::Null }
        }
        _ => Value::Null,
    }
}

fn left_out(media: usize) -> Option<Part> {
    let more = media.checked_sub(MOST_MEDIA).filter(|more| *more > 0)?;
    Some(Part::text(format!("[{more} more images or documents are left out: a result has at most {MOST_MEDIA}.]")))
}

/// The lines of a text, without their ends. A long line comes in pieces.
struct Lines<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let near = &rest.as_bytes()[..rest.len().min(LINE_BYTES + 1)];
        let (length, ended) = match near.iter().position(|&byte| byte == b'\n') {
            Some(length) => (length, 1),
            None => (excerpt::prefix(rest, LINE_BYTES).len(), 0),
        };
        let begin = self.at;
        self.at += length + ended;
        Some(begin..begin + length)
    }
}

/// Where a long text is cut.
struct Cut {
    /// The end of what is shown of its beginning.
    head: usize,
    /// The beginning of what is shown of its end.
    tail: usize,
    /// How many lines it has.
    lines: u64,
    /// The numbers of the lines that are left out.
    left_out: Range<u64>,
}

impl Cut {
    /// A fifth of what is shown is the beginning: the end of an output says more often what went wrong.
    fn of(text: &str, limits: &ResultLimits) -> Self {
        let (head_lines, head_bytes) = (limits.max_lines / 5, limits.max_bytes / 5);
        let (tail_lines, tail_bytes) = (limits.max_lines - head_lines, limits.max_bytes - head_bytes);
        let mut head = 0;
        let mut first_left_out = None;
        let mut last = VecDeque::with_capacity(tail_lines.min(4_096) + 1);
        let mut lines = 0;
        for range in Lines::of(text) {
            lines += 1;
            if first_left_out.is_none() {
                if lines as usize <= head_lines && range.end <= head_bytes {
                    head = range.end;
                    continue;
                }
                first_left_out = Some(lines);
            }
            last.push_back((lines, range.start));
            if last.len() > tail_lines {
                last.pop_front();
            }
        }
        while last.front().is_some_and(|(_, start)| text.len() - start > tail_bytes) {
            last.pop_front();
        }
        let (first_of_tail, tail) = last.front().copied().unwrap_or((lines + 1, text.len()));
        Self { head, tail, lines, left_out: first_left_out.unwrap_or(first_of_tail)..first_of_tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_bytes: usize, max_lines: usize) -> ResultLimits {
        ResultLimits { max_bytes, max_lines }
    }

    fn shown(text: &str, limits: &ResultLimits) -> String {
        match limits.check(ToolOutcome::text(text)).expect("JSON") {
            Checked::Short(outcome) => outcome.plain_text(),
            Checked::Long(long) => long.shown(limits, Some("c1")).plain_text(),
        }
    }

    fn read(limits: &ResultLimits, arguments: Value, text: &str) -> ToolOutcome {
        parse(&arguments).map_or_else(|wrong| wrong, |input| limits.read(&input, text))
    }

    #[test]
    fn the_first_and_the_last_lines_are_shown_and_the_middle_is_named() {
        let text: String = (1..=100).map(|line| format!("line {line}\n")).collect();
        assert_eq!(shown(&text, &limits(10_000, 100)), text, "all of it fits");
        assert_eq!(
            shown(&text, &limits(10_000, 10)),
            "line 1\nline 2\n\n[The result is too long: 792 bytes in 100 lines. Lines 3 to 92 are left out here. Read \
             them with read_result: call_id=\"c1\", offset=3.]\n\nline 93\nline 94\nline 95\nline 96\nline 97\nline \
             98\nline 99\nline 100\n"
        );
        let bytes = shown(&text, &limits(100, 1_000));
        assert!(bytes.starts_with("line 1\nline 2\nline 3\n\n[") && bytes.ends_with("line 99\nline 100\n"), "{bytes}");
    }

    #[test]
    fn no_text_is_shown_beyond_the_limits_and_every_line_can_be_read() {
        for text in ["🦦".repeat(40_000), "\n".repeat(90_000), format!("{}\n{}", "é".repeat(3_000), "x".repeat(90_000))]
        {
            let limits = limits(8_000, 100);
            let first = shown(&text, &limits);
            assert!(first.len() < 8_400, "{} bytes", first.len());
            let (mut offset, mut found) = (1, String::new());
            loop {
                let page = read(&limits, json!({"call_id": "c1", "offset": offset}), &text).plain_text();
                assert!(page.len() < 9_000, "{} bytes", page.len());
                let (lines, note) = page.rsplit_once("\n[").expect("a note");
                found.extend(lines.lines().map(|line| line.split_once('\t').expect("a number").1));
                let Some(next) = note.split("offset=").nth(1).and_then(|next| next.split(' ').next()) else { break };
                offset = next.parse().expect("a number");
            }
            assert_eq!(found, text.replace('\n', ""));
        }
    }

    #[test]
    fn lines_can_be_picked_by_a_pattern() {
        let text: String = (1..=5_000).map(|line| format!("line {line}\n")).collect();
        let limits = limits(10_000, 100);
        let read = |arguments: Value| super::tests::read(&limits, arguments, &text);
        assert_eq!(
            read(json!({"call_id": "c", "pattern": "4[27]42"})).plain_text(),
            "  4242\tline 4242\n  4742\tline 4742\n\n[The result has 5000 lines.]"
        );
        assert_eq!(read(json!({"call_id": "c", "pattern": "otter"})).plain_text(), "No line from 1 to 5000 matches.");
        for wrong in [json!({"call_id": "c", "pattern": "("}), json!({"call_id": 5}), json!({"call_id": "c", "x": 1})] {
            assert_eq!(read(wrong).error_code(), Some("invalid_arguments"));
        }
        assert_eq!(read(json!({"call_id": "c", "offset": 5_001})).error_code(), Some("offset_too_large"));
    }

    #[test]
    fn of_a_huge_text_as_much_is_kept_as_may_be() {
        let most = MOST_KEPT as usize;
        for (line, least) in [("otters\n", most * 3 / 4), ("\u{1}", most / 8), ("🦦", most * 3 / 4)] {
            let text = line.repeat(most * 5 / 4 / line.len());
            let (payload, kept) = keep(&text).expect("JSON");
            assert!(payload.size() <= MOST_KEPT && kept >= least && text.is_char_boundary(kept), "{line:?}: {kept}");
        }
    }

    #[test]
    fn details_and_images_are_bounded_too() {
        let mut outcome = ToolOutcome::text("a").with_details(json!({"small": 1, "large": "x".repeat(MOST_DETAIL)}));
        outcome.content.extend((0..12).map(|_| Part::media("image/png", "AAAA")));
        let Checked::Short(outcome) = limits(100, 100).check(outcome).expect("JSON") else { panic!("it is short") };
        assert_eq!(outcome.details, json!({"small": 1}));
        assert_eq!((outcome.content.len(), outcome.plain_text().contains("2 more images")), (12, true));
    }
}
