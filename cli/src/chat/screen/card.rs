//! Cards of tool calls: the call, its output, and its duration.

use super::diff::{changes, counted, written_changes};
use super::printable::folded;
use super::style::{Row, Span, Style, span, wrap};
use crate::chat::feed::text_of;
use crate::chat::tools::ToolName;
use crate::print::{plain, short, took};
use flovyn_toolkit::message::ToolResult;
use flovyn_toolkit::tools::Todo;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

pub(crate) use super::diff::files;

/// The most rows of a result that are shown in the conversation.
const RESULT_ROWS: usize = 8;
/// The most rows of a running call's output that are shown.
const OUTPUT_ROWS: usize = 5;
/// The most rows of what a call is about that are shown in the conversation.
const HEAD_ROWS: usize = 6;
/// How long a call takes without anybody minding.
const UNNOTICED: Duration = Duration::from_secs(1);
/// The arguments that the head of a card shows.
const IN_HEAD: [&str; 3] = ["command", "pattern", "path"];
/// The arguments whose change a card shows as a diff.
const IN_DIFF: [&str; 4] = ["old_string", "new_string", "content", "edits"];
/// The arguments by which a command asks to leave the sandbox.
const IN_ESCALATION: [&str; 2] = ["outsideSandbox", "reason"];

/// How much of a call is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What fits into the conversation.
    Brief,
    /// All of it.
    Whole,
}

/// What a call would change, computed before it runs; or why it would fail.
pub(crate) type Preview = Result<String, String>;

/// A call that runs or waits to run.
pub(crate) fn open(name: &str, arguments: &Value, output: &str, since: Option<Duration>, width: usize) -> Vec<Row> {
    let state = since.map(|since| span(format!("  {}s", since.as_secs()), Style::DIM));
    let mut rows = head(name, arguments, Style::YELLOW, state, Extent::Brief, width);
    rows.extend(last(self::output(output, width), OUTPUT_ROWS));
    rows
}

/// The output of a running call so far.
pub(crate) fn output(text: &str, width: usize) -> Vec<Row> {
    body(&folded(text), Style::DIM, width)
}

/// A call that has ended.
pub(crate) fn ended(
    name: &str,
    arguments: &Value,
    result: &ToolResult,
    time: Option<Duration>,
    extent: Extent,
    width: usize,
) -> Vec<Row> {
    let details = |field: &str| result.details.as_ref().map_or(&Value::Null, |details| &details[field]);
    let exit = details("exitCode").as_i64();
    let mark = if result.is_error { Style::RED } else { Style::GREEN };
    let diff = details("diff").as_str().filter(|_| !result.is_error);
    let mut state: Vec<Span> = diff.into_iter().flat_map(counted).collect();
    let time = time.filter(|time| *time >= UNNOTICED);
    state.extend(time.map(|time| span(format!("  {}", took(time)), Style::DIM)));
    state.extend(exit.filter(|code| *code != 0).map(|code| span(format!("  exit {code}"), Style::RED)));
    let mut rows = head(name, arguments, mark, state, extent, width);
    if extent == Extent::Whole {
        rows.extend(fields(arguments, &[&IN_HEAD[..], &IN_DIFF].concat(), width));
    }
    let text = folded(&text_of(result));
    match (name, diff) {
        (_, Some(diff)) => rows.extend(first(changes(diff, width), extent)),
        // The content of a file is long and can be looked up. Only its length is shown.
        ("read", None) if !result.is_error && extent == Extent::Brief => {
            rows.extend(body(&format!("{} lines", text.lines().count()), Style::DIM, width));
        }
        // What a command said last is what matters: the sums, the error.
        _ if exit.is_some() => {
            let said = exit.and_then(|code| text.trim_end().strip_suffix(&format!("Command exited with code {code}.")));
            rows.extend(both_ends(body(said.unwrap_or(&text), Style::DIM, width), extent));
        }
        _ => rows.extend(first(body(&text, if result.is_error { Style::RED } else { Style::DIM }, width), extent)),
    }
    rows
}

/// A call that a person is asked to approve, with all that it is given and all that it would do.
pub(crate) fn approval(name: &str, arguments: &Value, preview: Option<&Preview>, width: usize) -> Vec<Row> {
    if ToolName::of(name).server.is_some() {
        // Nobody knows which arguments matter to a tool of an MCP server, so all of them are shown.
        let mut rows = head(name, &Value::Null, Style::YELLOW, [], Extent::Whole, width);
        rows.extend(fields(arguments, &[], width));
        return rows;
    }
    let state = preview.and_then(|preview| preview.as_ref().ok()).into_iter().flat_map(|diff| counted(diff));
    let mut rows = head(name, arguments, Style::YELLOW, state, Extent::Whole, width);
    rows.extend(escalation(arguments, width));
    let shown = if arguments["outsideSandbox"] == true { &IN_ESCALATION[..] } else { &[] };
    rows.extend(fields(arguments, &[&IN_HEAD[..], &IN_DIFF, shown].concat(), width));
    match preview {
        Some(Ok(diff)) => rows.extend(changes(diff, width)),
        Some(Err(why)) => {
            rows.extend(body(&format!("It would fail: {why}"), Style::RED, width));
            rows.extend(written_changes(arguments, width));
        }
        None => rows.extend(written_changes(arguments, width)),
    }
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

/// The arguments that are shown nowhere else, each with its name.
fn fields(arguments: &Value, elsewhere: &[&str], width: usize) -> Vec<Row> {
    let fields = arguments.as_object().into_iter().flatten().filter(|(name, _)| !elsewhere.contains(&name.as_str()));
    fields.flat_map(|(name, value)| body(&format!("{name}: {}", plain(value)), Style::PLAIN, width)).collect()
}

/// What a call is about, and behind it how it stands.
fn head(
    name: &str,
    arguments: &Value,
    mark: Style,
    state: impl IntoIterator<Item = Span>,
    extent: Extent,
    width: usize,
) -> Vec<Row> {
    let ToolName { server, tool } = ToolName::of(name);
    let mut line: Vec<_> = server.iter().map(|server| span(format!("{server}: "), Style::PLAIN)).collect();
    line.push(span(tool, Style::BOLD));
    // The list of steps is all that comes out of it.
    let about = if name == Todo::NAME { String::new() } else { summary(arguments) };
    if !about.is_empty() {
        line.push(span(format!(" {about}"), Style::PLAIN));
    }
    line.extend(state);
    let mut rows = wrap(&line, width, &[span("● ", mark)], &[span("  ", Style::PLAIN)]);
    if extent == Extent::Brief && rows.len() > HEAD_ROWS + 1 {
        // The state stands behind the last row.
        let hidden = rows.len() - HEAD_ROWS - 1;
        rows.splice(HEAD_ROWS - 1..HEAD_ROWS + hidden, [note(hidden + 1)]);
    }
    rows
}

/// The arguments of a call as they are shown: a path in this directory is shown from there on. Models like to give all of it.
pub(crate) fn near<'a>(arguments: &'a Value, directory: &Path) -> Cow<'a, Value> {
    let path = arguments["path"].as_str().map(Path::new).filter(|_| directory.is_absolute());
    let Some(near) = path.and_then(|path| path.strip_prefix(directory).ok()) else { return Cow::Borrowed(arguments) };
    let near = if near.as_os_str().is_empty() { Path::new(".") } else { near };
    let mut shown = arguments.clone();
    shown["path"] = near.to_string_lossy().into();
    Cow::Owned(shown)
}

/// What a call is about: its command, path or pattern, else its arguments.
fn summary(arguments: &Value) -> String {
    let words: Vec<_> = IN_HEAD.iter().filter_map(|name| arguments[name].as_str()).collect();
    if !words.is_empty() {
        return words.join("  ").trim_end().to_owned();
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

/// A command that the user ran.
pub(crate) fn command(command: &str, output: &str, code: Option<i32>, time: Duration, width: usize) -> Vec<Row> {
    let mut result = ToolResult::text("", "!", output);
    result.is_error = code != Some(0);
    result.details = Some(json!({ "exitCode": code.unwrap_or(-1) }));
    ended("!", &json!({ "command": command }), &result, Some(time), Extent::Brief, width)
}

fn note(hidden: usize) -> Row {
    vec![span(format!("  … {hidden} more lines · Ctrl-O shows all"), Style::DIM)]
}

fn first(mut rows: Vec<Row>, extent: Extent) -> Vec<Row> {
    let more = rows.len().saturating_sub(RESULT_ROWS);
    // If one row is left, it is shown: the note about it would take a row too.
    if more > 1 && extent == Extent::Brief {
        rows.truncate(RESULT_ROWS);
        rows.push(note(more));
    }
    rows
}

/// The first two rows and the last ones.
fn both_ends(mut rows: Vec<Row>, extent: Extent) -> Vec<Row> {
    let more = rows.len().saturating_sub(RESULT_ROWS);
    if more > 1 && extent == Extent::Brief {
        rows.splice(2..2 + more, [note(more)]);
    }
    rows
}

fn last(mut rows: Vec<Row>, max: usize) -> Vec<Row> {
    rows.split_off(rows.len().saturating_sub(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_the_directory_is_shown_from_there_on() {
        let shown =
            |path: &str| near(&json!({ "path": path, "limit": 3 }), Path::new("/home/ann/shop"))["path"].clone();
        assert_eq!(shown("/home/ann/shop/src/till.rs"), "src/till.rs");
        assert_eq!(shown("/home/ann/shop/"), ".");
        for elsewhere in ["src/till.rs", "/home/ann/shop-2/till.rs", "/home/ann/shop/../till.rs", "/etc/passwd"] {
            let expected = if elsewhere.contains("..") { "../till.rs" } else { elsewhere };
            assert_eq!(shown(elsewhere), expected);
        }
        let none = json!({ "path": 3 });
        assert!(matches!(near(&none, Path::new("/home")), Cow::Borrowed(_)));
        assert_eq!(near(&json!({ "path": "/a" }), Path::new(""))["path"], "/a");
    }
    use crate::chat::screen::style::painted;

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| painted(row, false)).collect()
    }

    #[test]
    fn a_command_outside_of_the_sandbox_is_shown_with_its_reason() {
        let arguments = json!({ "command": "git commit -m x", "outsideSandbox": true, "reason": "to commit" });
        let rows = texts(&approval("bash", &arguments, None, 60));
        assert!(rows[0].contains("bash git commit -m x"), "{rows:?}");
        assert!(rows[1].contains("outside the sandbox, once: to commit"), "{rows:?}");
        assert_eq!(texts(&approval("bash", &json!({ "command": "ls" }), None, 60)).len(), 1);
    }

    #[test]
    fn a_card_says_what_was_done_and_what_came_out() {
        let result = ToolResult::text("1", "bash", (1..=20).map(|line| format!("line {line}\n")).collect::<String>());
        let time = Some(Duration::from_millis(1_500));
        let card =
            |result: &ToolResult, extent| texts(&ended("bash", &json!({"command": "make"}), result, time, extent, 40));
        let rows = card(&result, Extent::Brief);
        assert_eq!(rows[0], "● bash make  1.5s");
        assert_eq!((rows[1].as_str(), rows.len()), ("  │ line 1", RESULT_ROWS + 2));
        assert_eq!(rows[RESULT_ROWS + 1], "  … 12 more lines · Ctrl-O shows all");
        let mut failed = result.clone();
        failed.content.push(flovyn_toolkit::message::Part::text("\nCommand exited with code 2."));
        failed.is_error = true;
        failed.details = Some(json!({"exitCode": 2}));
        let rows = card(&failed, Extent::Brief);
        let shown: Vec<_> = rows.iter().map(String::as_str).collect();
        let expected =
            ["● bash make  1.5s  exit 2", "  │ line 1", "  │ line 2", "  … 12 more lines · Ctrl-O shows all"];
        assert_eq!(shown[..4], expected, "the end of the output is shown");
        assert_eq!((shown.last(), shown.len()), (Some(&"  │ line 20"), RESULT_ROWS + 2));
        assert_eq!(card(&failed, Extent::Whole).len(), 21, "all of it");
        let rows =
            texts(&open("bash", &json!({"command": "make"}), "a\nb\nc\nd\ne\nf\n", Some(Duration::from_secs(3)), 40));
        assert_eq!(rows, ["● bash make  3s", "  │ b", "  │ c", "  │ d", "  │ e", "  │ f"]);
    }

    #[test]
    fn a_person_sees_the_server_and_all_that_its_tool_is_given() {
        let arguments = json!({"count": 3, "path": "a", "text": "one\ntwo"});
        let rows = texts(&approval("mcp__lake__open", &arguments, None, 40));
        assert_eq!(rows, ["● lake: open", "  │ count: 3", "  │ path: a", "  │ text: one", "  │ two"]);
        let rows = texts(&open("mcp__lake__open", &json!({"count": 3, "name": "Ness"}), "", None, 60));
        assert_eq!(rows, ["● lake: open count: 3 · name: Ness"]);
    }

    #[test]
    fn a_person_sees_all_that_would_run() {
        let command: String = (1..=40).map(|line| format!("echo {line}\n")).collect();
        let arguments = json!({"command": format!("{command}rm -rf x \u{1b}[8m; evil\r#"), "timeout": 5});
        let rows = texts(&approval("bash", &arguments, None, 60));
        assert_eq!(rows[..2], ["● bash echo 1", "  echo 2"]);
        assert_eq!(rows[40..], ["  rm -rf x ␛[8m; evil␍#", "  │ timeout: 5"], "what a terminal would hide is shown");
        let rows = texts(&open("bash", &arguments, "50%\r100%\n", None, 60));
        assert_eq!(rows[0], "● bash echo 1");
        assert_eq!(rows[5..], ["  … 35 more lines · Ctrl-O shows all", "  rm -rf x ␛[8m; evil␍#", "  │ 100%"]);
    }

    #[test]
    fn a_person_sees_what_an_edit_would_change() {
        let arguments = json!({"path": "a.rs", "old_string": "one", "new_string": "two\nthree"});
        let rows = texts(&approval("edit", &arguments, None, 40));
        assert_eq!(rows, ["● edit a.rs", "  │ - one", "  │ + two", "  │ + three"]);
        let diff =
            "--- a/a.rs\n+++ b/a.rs\n@@ -9,3 +9,4 @@\n before\n-one\n+two\n+three\n after\n@@ -90 +91 @@\n--- a\n+x\n";
        let rows = texts(&approval("edit", &arguments, Some(&Ok(diff.to_owned())), 40));
        let expected = [
            "● edit a.rs  +3 -2",
            "  │   9   before",
            "  │  10 - one",
            "  │  10 + two",
            "  │  11 + three",
            "  │  12   after",
            "  │   ⋮ ",
            "  │  90 - -- a",
            "  │  91 + x",
        ];
        assert_eq!(rows, expected);
        let many = json!({"path": "a.rs", "edits": [{"old_string": "a", "new_string": "b"}]});
        let rows = texts(&approval("edit", &many, Some(&Err("There is no file.".into())), 60));
        assert_eq!(rows, ["● edit a.rs", "  │ It would fail: There is no file.", "  │ - a", "  │ + b"]);
    }
}
