//! Draws an elicitation: its message, the values so far, and the current field.

use super::style::{Row, Span, Style, span, wrap};
use crate::chat::elicitation::{Elicitation, Question, QuestionKind};
use crate::chat::field::{Choice, Field};
use crate::chat::tools::ToolName;
use flovyn_toolkit::react::InputReply;

/// Choices that are shown.
const CHOICES: usize = 20;
/// Columns of the names of fields.
const NAMES: usize = 20;

/// A request that is being answered.
pub(crate) fn pending(elicitation: &Elicitation, width: usize) -> Vec<Row> {
    let Some(question) = elicitation.question() else { return Vec::new() };
    let mut rows = head(elicitation, width);
    rows.extend(indented(&[span(&question.message, Style::PLAIN)], width));
    let how = match &question.kind {
        QuestionKind::Url(url) => {
            rows.push(Row::new());
            rows.extend(indented(&address(url), width));
            "y when you are done there".to_owned()
        }
        QuestionKind::Form(fields) if fields.is_empty() => "y or n".to_owned(),
        QuestionKind::Form(fields) => {
            rows.push(Row::new());
            rows.extend(form(question, fields, elicitation.field(), width));
            elicitation.field().map(how).unwrap_or_default()
        }
    };
    if let Some(fault) = elicitation.fault() {
        rows.extend(wrap(
            &[span(fault, Style::RED)],
            width,
            &[span("  ! ", Style::RED)],
            &[span("    ", Style::PLAIN)],
        ));
    }
    let back = if elicitation.has_begun() { " · /back" } else { "" };
    let words = format!("{how}{back} · /decline says no · /cancel closes it");
    rows.extend(wrap(&[span(words, Style::BOLD)], width, &[], &[]));
    rows
}

/// A request whose answer has been taken.
pub(crate) fn answered(elicitation: &Elicitation, reply: &InputReply, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (message, lines) in elicitation.summary(reply) {
        let question = [span(asking(elicitation), Style::BOLD), span(format!(": {message}"), Style::PLAIN)];
        rows.extend(wrap(&question, width, &[span("? ", Style::CYAN)], &[span("  ", Style::PLAIN)]));
        let margin = [span("  │ ", Style::DIM)];
        rows.extend(lines.iter().flat_map(|line| wrap(&[span(line, Style::DIM)], width, &margin, &margin)));
    }
    rows
}

/// Who asks.
fn asking(elicitation: &Elicitation) -> &str {
    match elicitation.request().server.as_str() {
        "" => "the agent",
        server => server,
    }
}

fn head(elicitation: &Elicitation, width: usize) -> Vec<Row> {
    let request = elicitation.request();
    let ToolName { server, tool } = ToolName::of(&request.name);
    let mut line = match server {
        Some(_) => vec![
            span(&request.server, Style::BOLD),
            span(" asks before ", Style::PLAIN),
            span(tool, Style::BOLD),
            span(" goes on", Style::PLAIN),
        ],
        // A question of an agent.
        None => vec![span(asking(elicitation), Style::BOLD), span(" asks", Style::PLAIN)],
    };
    if let (place, all @ 2..) = elicitation.progress() {
        line.push(span(format!("  {place} of {all}"), Style::DIM));
    }
    wrap(&line, width, &[span("? ", Style::YELLOW)], &[span("  ", Style::PLAIN)])
}

/// The fields: those that were written in, the one that is answered now with all about it, those to come.
fn form(question: &Question, fields: &[Field], now: Option<&Field>, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let longest = fields.iter().map(|field| field.title.chars().count()).max().unwrap_or(0).min(NAMES);
    for field in fields {
        let is_now = now.is_some_and(|now| std::ptr::eq(now, field));
        let draft = question.draft(field);
        let (mark, style) = match (is_now, &draft) {
            (true, _) => ("▸ ", Style::CYAN),
            (false, Some(_)) => ("✓ ", Style::GREEN),
            (false, None) => ("· ", Style::DIM),
        };
        let name = span(format!("{:<longest$}  ", field.title), if is_now { Style::BOLD } else { Style::DIM });
        let value = match (is_now, draft) {
            (true, _) => format!("{}{}", field.constraint(), if field.is_required { "" } else { " (may be left out)" }),
            (false, draft) => draft.unwrap_or_default(),
        };
        let margin = [span(" ".repeat(longest + 6), Style::PLAIN)];
        let first = [span("  ", Style::PLAIN), span(mark, style), name];
        rows.extend(wrap(&[span(value, Style::DIM)], width, &first, &margin));
        if is_now {
            rows.extend(about(field, width, &margin));
        }
    }
    rows
}

fn about(field: &Field, width: usize, margin: &[Span]) -> Vec<Row> {
    let mut rows: Vec<Row> =
        field.description.iter().flat_map(|text| wrap(&[span(text, Style::DIM)], width, margin, margin)).collect();
    for (place, Choice { value, title }) in field.choices().iter().enumerate().take(CHOICES) {
        let mut line = vec![span(format!("{:>2} ", place + 1), Style::CYAN)];
        match title {
            Some(title) => line.extend([span(title, Style::PLAIN), span(format!("  {value}"), Style::DIM)]),
            None => line.push(span(value, Style::PLAIN)),
        }
        rows.extend(wrap(&line, width, margin, margin));
    }
    let more = field.choices().len().saturating_sub(CHOICES);
    if more > 0 {
        rows.extend(wrap(&[span(format!("… {more} more, by name"), Style::DIM)], width, margin, margin));
    }
    rows
}

/// What Enter does.
fn how(field: &Field) -> String {
    match (&field.default, field.is_required) {
        (Some(default), _) => format!("Enter takes {}", crate::print::short(&field.display(default), 40)),
        (None, true) => "Type your answer".to_owned(),
        (None, false) => "Enter leaves it out".to_owned(),
    }
}

/// An address with its host, by which people know whose it is, standing out.
fn address(url: &str) -> Vec<Span> {
    let start = url.find("://").map_or(0, |place| place + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |place| start + place);
    // What stands before an @ is no host, whatever it looks like.
    let start = url[start..end].rfind('@').map_or(start, |place| start + place + 1);
    vec![
        span(&url[..start], Style::DIM),
        span(&url[start..end], Style { underline: true, ..Style::BOLD }),
        span(&url[end..], Style::PLAIN),
    ]
}

fn indented(spans: &[Span], width: usize) -> Vec<Row> {
    let margin = [span("  ", Style::PLAIN)];
    wrap(spans, width, &margin, &margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;
    use flovyn_toolkit::react::InputRequest;
    use serde_json::json;

    fn elicitation() -> Elicitation {
        let request: InputRequest = serde_json::from_value(json!({
            "id": "1", "name": "mcp__lake__open", "server": "lake", "hash": "h", "questions": {
                "a": { "mode": "form", "message": "What lake?", "schema": { "required": ["name", "size"], "properties": {
                    "name": { "type": "string" },
                    "size": { "type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"], "description": "How big it is." },
                } } },
                "b": { "mode": "url", "message": "Log in.", "url": "https://good.example@lake.example/in?a=1" },
            },
        }))
        .expect("a request");
        Elicitation::new(request)
    }

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| painted(row, false)).collect()
    }

    #[test]
    fn a_form_shows_what_was_written_and_what_may_be() {
        let mut form = elicitation();
        assert!(form.submit_line("Loch").is_none() && form.submit_line("deep").is_none());
        let expected = [
            "? lake asks before open goes on  1 of 2",
            "  What lake?",
            "",
            "  ✓ name  Loch",
            "  ▸ size  one of these, by number or name",
            "          How big it is.",
            "           1 Small  s",
            "           2 Large  l",
            "  ! \"deep\" is none of these; write a number from 1 to 2, or a name",
            "Type your answer · /back · /decline says no · /cancel closes it",
        ];
        assert_eq!(texts(&pending(&form, 80)), expected);
        assert!(form.submit_line("large").is_none());
        let rows = pending(&form, 80);
        assert_eq!(texts(&rows)[3], "  https://good.example@lake.example/in?a=1");
        let host = rows[3].iter().find(|span| span.style.underline).expect("the host stands out");
        assert_eq!(host.text, "lake.example");
        let reply = form.submit_line("n").expect("it is whole");
        let expected = ["? lake: What lake?", "  │ name: Loch", "  │ size: Large", "? lake: Log in.", "  │ declined"];
        assert_eq!(texts(&answered(&form, &reply, 80)), expected);
    }
}
