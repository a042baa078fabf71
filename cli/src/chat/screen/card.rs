//! Cards of tool calls: the call, its output, and its duration.

use super::style::{Row, Style, span, wrap};
use crate::chat::feed::text_of;
use crate::chat::tools::ToolName;
use crate::print::{plain, short, took};
use flovyn_toolkit::message::ToolResult;
use serde_json::Value;
use std::time::Duration;

/// The most rows of a result that are shown.
const RESULT_ROWS: usize = 8;
/// The most rows of a running call's output that are shown.
const OUTPUT_ROWS: usize = 5;
/// The most rows of a call that a person is asked to approve.
const APPROVAL_ROWS: usize = 16;

/// A call that runs or waits to run.
pub(crate) fn open(name: &str, arguments: &Value, output: &str, since: Option<Duration>, width: usize) -> Vec<Row> {
    let state = since.map(|since| format!("  {}s", since.as_secs()));
    let mut rows = head(name, arguments, Style::YELLOW, state, width);
    rows.extend(last(&body(output, Style::DIM, width), OUTPUT_ROWS));
    rows
}

/// A call that has ended.
pub(crate) fn ended(
    name: &str,
    arguments: &Value,
    result: &ToolResult,
    time: Option<Duration>,
    width: usize,
) -> Vec<Row> {
    let mark = if result.is_error { Style::RED } else { Style::GREEN };
    let mut rows = head(name, arguments, mark, time.map(|time| format!("  {}", took(time))), width);
    let diff = result.details.as_ref().and_then(|details| details["diff"].as_str()).filter(|_| !result.is_error);
    let content = match (name, diff) {
        (_, Some(diff)) => changes(diff, width),
        // The content of a file is long and can be looked up. Only its length is shown.
        ("read", None) if !result.is_error => {
            let lines = text_of(result).lines().count();
            body(&format!("{lines} lines"), Style::DIM, width)
        }
        _ => body(&text_of(result), if result.is_error { Style::RED } else { Style::DIM }, width),
    };
    rows.extend(first(content, RESULT_ROWS));
    rows
}

/// A call that a person is asked to approve, with all that it would do.
pub(crate) fn approval(name: &str, arguments: &Value, width: usize) -> Vec<Row> {
    if ToolName::of(name).server.is_some() {
        // Nobody knows which arguments matter to a tool of an MCP server, so all of them are shown.
        let mut rows = head(name, &Value::Null, Style::YELLOW, None, width);
        let fields = arguments.as_object().into_iter().flatten();
        let lines = fields.flat_map(|(name, value)| body(&format!("{name}: {}", plain(value)), Style::PLAIN, width));
        rows.extend(first(lines.collect(), APPROVAL_ROWS));
        return rows;
    }
    let mut rows = head(name, arguments, Style::YELLOW, None, width);
    rows.extend(escalation(arguments, width));
    let text = |name: &str| arguments[name].as_str();
    let change: Vec<_> = [
        (text("old_string"), '-', Style::RED),
        (text("new_string"), '+', Style::GREEN),
        (text("content"), '+', Style::GREEN),
    ]
    .into_iter()
    .filter_map(|(text, sign, style)| Some((text?, sign, style)))
    .flat_map(|(text, sign, style)| text.lines().map(move |line| (format!("{sign} {line}"), style)))
    .flat_map(|(line, style)| body(&line, style, width))
    .collect();
    rows.extend(first(change, APPROVAL_ROWS));
    rows
}

/// That a command is to run outside of the sandbox, and why.
fn escalation(arguments: &Value, width: usize) -> Vec<Row> {
    if arguments["outsideSandbox"] != true {
        return Vec::new();
    }
    let reason = arguments["reason"].as_str().unwrap_or("no reason is given");
    body(&format!("outside the sandbox, once: {reason}"), Style::RED, width)
}

fn head(name: &str, arguments: &Value, mark: Style, state: Option<String>, width: usize) -> Vec<Row> {
    let ToolName { server, tool } = ToolName::of(name);
    let mut line: Vec<_> = server.iter().map(|server| span(format!("{server}: "), Style::PLAIN)).collect();
    line.push(span(tool, Style::BOLD));
    let about = summary(arguments);
    if !about.is_empty() {
        line.push(span(format!(" {about}"), Style::PLAIN));
    }
    line.extend(state.map(|state| span(state, Style::DIM)));
    wrap(&line, width, &[span("● ", mark)], &[span("  ", Style::PLAIN)])
}

/// What a call is about: its command, path or pattern, else its arguments.
fn summary(arguments: &Value) -> String {
    let words: Vec<_> = ["command", "pattern", "path"].iter().filter_map(|name| arguments[name].as_str()).collect();
    if !words.is_empty() {
        return short(&words.join("  "), 400);
    }
    let fields = arguments.as_object().into_iter().flatten().map(|(name, value)| format!("{name}: {}", plain(value)));
    short(&fields.collect::<Vec<_>>().join(" · "), 160)
}

fn body(text: &str, style: Style, width: usize) -> Vec<Row> {
    let text = text.trim_end();
    if text.is_empty() {
        return Vec::new();
    }
    let margin = [span("  │ ", Style::DIM)];
    wrap(&[span(text, style)], width, &margin, &margin)
}

fn changes(diff: &str, width: usize) -> Vec<Row> {
    let lines = diff.lines().filter(|line| !["---", "+++", "@@"].iter().any(|head| line.starts_with(head)));
    lines
        .flat_map(|line| {
            let style = match line.chars().next() {
                Some('+') => Style::GREEN,
                Some('-') => Style::RED,
                _ => Style::DIM,
            };
            body(line, style, width)
        })
        .collect()
}

fn first(mut rows: Vec<Row>, max: usize) -> Vec<Row> {
    let more = rows.len().saturating_sub(max);
    // If one row is left, it is shown: the note about it would take a row too.
    if more > 1 {
        rows.truncate(max);
        rows.push(vec![span(format!("  … {more} more lines"), Style::DIM)]);
    }
    rows
}

fn last(rows: &[Row], max: usize) -> Vec<Row> {
    rows[rows.len().saturating_sub(max)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;
    use serde_json::json;

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| painted(row, false)).collect()
    }

    #[test]
    fn a_command_outside_of_the_sandbox_is_shown_with_its_reason() {
        let arguments = json!({ "command": "git commit -m x", "outsideSandbox": true, "reason": "to commit" });
        let rows = texts(&approval("bash", &arguments, 60));
        assert!(rows[0].contains("bash git commit -m x"), "{rows:?}");
        assert!(rows[1].contains("outside the sandbox, once: to commit"), "{rows:?}");
        assert_eq!(texts(&approval("bash", &json!({ "command": "ls" }), 60)).len(), 1);
    }

    #[test]
    fn a_card_says_what_was_done_and_what_came_out() {
        let result = ToolResult::text("1", "bash", (1..=20).map(|line| format!("line {line}\n")).collect::<String>());
        let rows = texts(&ended("bash", &json!({"command": "make"}), &result, Some(Duration::from_millis(1_500)), 40));
        assert_eq!(rows[0], "● bash make  1.5s");
        assert_eq!((rows[1].as_str(), rows.len()), ("  │ line 1", RESULT_ROWS + 2));
        assert_eq!(rows[RESULT_ROWS + 1], "  … 12 more lines");
        let rows =
            texts(&open("bash", &json!({"command": "make"}), "a\nb\nc\nd\ne\nf\n", Some(Duration::from_secs(3)), 40));
        assert_eq!(rows, ["● bash make  3s", "  │ b", "  │ c", "  │ d", "  │ e", "  │ f"]);
    }

    #[test]
    fn a_person_sees_the_server_and_all_that_its_tool_is_given() {
        let arguments = json!({"count": 3, "path": "a", "text": "one\ntwo"});
        let rows = texts(&approval("mcp__lake__open", &arguments, 40));
        assert_eq!(rows, ["● lake: open", "  │ count: 3", "  │ path: a", "  │ text: one", "  │ two"]);
        let rows = texts(&open("mcp__lake__open", &json!({"count": 3, "name": "Ness"}), "", None, 60));
        assert_eq!(rows, ["● lake: open count: 3 · name: Ness"]);
    }

    #[test]
    fn a_person_sees_what_an_edit_would_change() {
        let arguments = json!({"path": "a.rs", "old_string": "one", "new_string": "two\nthree"});
        assert_eq!(texts(&approval("edit", &arguments, 40)), ["● edit a.rs", "  │ - one", "  │ + two", "  │ + three"]);
    }
}
