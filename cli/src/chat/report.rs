//! What an answer without a conversation writes: the text, one JSON object at its end, or one for each event. Everything else
//! goes to standard error, and standard output never gets the control characters of a terminal.

use super::cost::Tally;
use super::exit::Ending;
use super::feed::text_of;
use super::options::OutputFormat;
use super::screen::style::clean;
use super::stream_json as stream;
use super::tools::ToolName;
use crate::print::{Output, short, took};
use crate::{Failed, Result};
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::message::{Message, Role, ToolResult};
use flovyn_toolkit::react::{AnswerEnd, StopReason};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// An answer that is being written.
pub(super) struct Report<'a> {
    out: &'a mut Output,
    format: OutputFormat,
    /// Whether the answer has a form: a text is written when it is whole.
    has_form: bool,
    since: Instant,
    session: Option<String>,
    tally: Tally,
    /// How many answers of the model there were.
    turns: u32,
    /// The text of the answer that was printed.
    printed: String,
    /// The last complete answer.
    last: Option<Message>,
    /// The last answer that the session had before this process.
    before: Option<Message>,
    end: Option<AnswerEnd>,
    /// The calls that were refused.
    denied: Vec<Value>,
}

/// Writes a line for people to standard error. Nobody may read it, so that it cannot be written is no failure.
pub(super) fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", clean(line));
}

impl<'a> Report<'a> {
    /// A report of nothing yet.
    pub(super) fn new(out: &'a mut Output, format: OutputFormat, has_form: bool) -> Self {
        Self {
            out,
            format,
            has_form,
            since: Instant::now(),
            session: None,
            tally: Tally::default(),
            turns: 0,
            printed: String::new(),
            last: None,
            before: None,
            end: None,
            denied: Vec::new(),
        }
    }

    /// The session has begun or goes on; `describe` says more of it to programs.
    pub(super) fn begin(&mut self, session: &str, describe: impl FnOnce() -> Value) -> Result {
        self.session = Some(session.to_owned());
        if self.format != OutputFormat::StreamJson {
            return Ok(());
        }
        let mut line = json!({ "type": "system", "subtype": "init", "session_id": session });
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), describe()) {
            line.extend(more);
        }
        self.out.value(&line)
    }

    /// More text of the answer.
    pub(super) fn text(&mut self, text: &str) -> Result {
        if self.has_form {
            return Ok(());
        }
        self.printed.push_str(text);
        if self.format == OutputFormat::Text { self.out.part(&clean(text)) } else { Ok(()) }
    }

    /// What was printed of the answer does not count.
    pub(super) fn discard(&mut self) -> Result {
        if !self.printed.is_empty() {
            self.end_line()?;
            note("(the answer was cut off and is given again)");
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result {
        let open = !self.printed.is_empty() && !self.printed.ends_with('\n');
        self.printed.clear();
        if open && self.format == OutputFormat::Text { self.out.line("") } else { Ok(()) }
    }

    /// The model has answered.
    pub(super) fn answered(&mut self, message: Message) -> Result {
        let text = message.text();
        match text.strip_prefix(&self.printed) {
            Some(rest) => self.text(rest)?,
            None => {
                self.discard()?;
                self.text(&text)?;
            }
        }
        self.end_line()?;
        self.turns += 1;
        self.stream(|session| stream::assistant(&message, session))?;
        self.last = Some(message);
        Ok(())
    }

    /// A message of the user was read that this process has not sent.
    pub(super) fn user_message(&mut self, message: &Message) -> Result {
        self.stream(|session| stream::user(message, session))
    }

    /// A tool has a result.
    pub(super) fn tool(&mut self, result: &ToolResult, duration: Option<Duration>) -> Result {
        let mark = if result.is_error { "✗" } else { "✓" };
        let time = duration.map(|duration| format!(" ({})", took(duration))).unwrap_or_default();
        note(&format!("{mark} {}{time}: {}", ToolName::of(&result.name), short(&text_of(result), 100)));
        self.stream(|session| stream::tool_result(result, duration, session))
    }

    /// A call was refused, because nobody can be asked or because the rules say so.
    pub(super) fn denied(&mut self, request: &ApprovalRequest) {
        self.denied.push(stream::denial(request));
    }

    /// A model call was paid.
    pub(super) fn model_called(&mut self, usage: Option<&flovyn_toolkit::message::Usage>) {
        self.tally.add(usage);
    }

    /// A notice for people.
    pub(super) fn notice(&mut self, line: &str) -> Result {
        note(line);
        self.stream(|session| json!({ "type": "system", "subtype": "notice", "message": line, "session_id": session }))
    }

    /// Why the agent has stopped.
    pub(super) fn ended(&mut self, end: AnswerEnd) {
        self.end = Some(end);
    }

    fn stream(&mut self, line: impl FnOnce(&str) -> Value) -> Result {
        match (self.format, &self.session) {
            (OutputFormat::StreamJson, Some(session)) => {
                let line = line(session);
                self.out.value(&line)
            }
            _ => Ok(()),
        }
    }

    /// The turn that is resumed had these messages before. If the last answer was among them, none comes any more.
    pub(super) fn answered_before(&mut self, messages: Vec<Message>) {
        self.before = messages.into_iter().rfind(|message| message.role == Role::Assistant);
    }

    /// The turn was complete before: reports its answer as if it had come now.
    pub(super) fn ended_before(&mut self, messages: Vec<Message>, end: Option<AnswerEnd>) -> Result {
        self.end = end;
        self.answered_before(messages);
        if self.before.is_none() {
            return Err(Failed::Usage("there is no prompt; write one behind `flovyn chat`".into()));
        }
        self.finish()
    }

    /// The agent waits for the user again: writes the result.
    ///
    /// # Errors
    ///
    /// The exit code, unless the agent has finished.
    pub(super) fn finish(&mut self) -> Result {
        if let (None, Some(answer)) = (&self.last, self.before.take()) {
            self.answered(answer)?;
        }
        let failure = self.last.as_ref().and_then(|message| message.assistant.as_ref()?.error.as_ref());
        let failure = failure.map(|error| error.message.clone());
        let ending = match (&self.end, &failure) {
            // An answer that was interrupted has an error too.
            (Some(AnswerEnd { stop_reason: StopReason::Interrupted, .. }), _) => Ending::Interrupted,
            (_, Some(_)) => Ending::Failed,
            (Some(end), None) => Ending::of(end.stop_reason),
            (None, None) => Ending::Finished,
        };
        let failed = failure.filter(|_| ending == Ending::Failed);
        self.output()?;
        self.result(ending, failed.as_deref())?;
        match failed {
            Some(failed) => Err(Error::new(Code::AgentFailed, format!("the model gave no answer: {failed}")).into()),
            None => ending.done(),
        }
    }

    /// Prints an answer that has a form, unless its text was printed.
    fn output(&mut self) -> Result {
        let output = self.end.as_ref().and_then(|end| end.output.as_ref());
        let is_printed = || !self.has_form && self.last.as_ref().is_some_and(|message| !message.text().is_empty());
        match output {
            Some(output) if self.format == OutputFormat::Text && !is_printed() => {
                self.out.line(&clean(&output.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The run has ended, or nothing more of it can be known.
    pub(super) fn fail(&mut self, why: &str) -> Result {
        self.result(Ending::Failed, Some(why))
    }

    /// This process is asked to stop; the session stays as it is.
    pub(super) fn interrupted(&mut self, ending: Ending) -> Failed {
        if self.session.is_some() {
            // Whoever reads it may be gone.
            let _ = self.end_line();
            let _ = self.result(ending, None);
        }
        Failed::Exit(ending.code())
    }

    fn result(&mut self, ending: Ending, failure: Option<&str>) -> Result {
        let session = self.session.clone().unwrap_or_default();
        let text = self.last.as_ref().map(Message::text).unwrap_or_default();
        let turns = self.end.as_ref().map_or(self.turns, |end| end.turns);
        if self.format == OutputFormat::Text {
            if let Some(why) = ending.describe(turns) {
                note(&format!("{why}; flovyn chat -p … --resume {session} goes on"));
            }
            note(&format!("{} · session {session}", self.tally.line()));
            return Ok(());
        }
        let result = failure.map_or(text.as_str(), |failure| failure);
        let mut line = json!({
            "type": "result",
            "subtype": ending.subtype(),
            "is_error": ending != Ending::Finished,
            "session_id": session,
            "result": result,
            "stop_reason": ending.word(),
            "num_turns": turns,
            "duration_ms": u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            "total_cost_usd": self.tally.cost_micros().map(|micros| micros as f64 / 1e6),
            "usage": self.tally.usage(),
            "permission_denials": self.denied,
        });
        if let Some(output) = self.end.as_ref().and_then(|end| end.output.as_ref()) {
            line["structured_output"] = output.clone();
        }
        if self.format == OutputFormat::Json {
            // The names of the other commands' JSON.
            line["session"] = json!(session);
            line["text"] = json!(text);
            line["stopReason"] = json!(ending.word());
            if let (Some(usage), Value::Object(more)) = (line["usage"].as_object_mut(), self.tally.json()) {
                usage.extend(more);
            }
        }
        self.out.value(&line)
    }
}
