//! An elicitation: an MCP server asks the user for input during a call, who answers line by line until the reply is complete.
//! Pure: lines go in, a reply comes out.

use super::field::Field;
use flovyn_toolkit::mcp::{InputAnswer, InputQuestion, InputResponse};
use flovyn_toolkit::react::{InputRefused, InputReply, InputRequest};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Elicitation {
    request: InputRequest,
    questions: Vec<Question>,
    /// The indices of the current question and of its current field.
    at: (usize, usize),
    responses: BTreeMap<String, InputResponse>,
    fault: Option<String>,
}

/// One question of a server.
#[derive(Debug)]
pub(super) struct Question {
    /// Its purpose, as the server words it.
    pub message: String,
    /// What the user is to do.
    pub kind: QuestionKind,
    key: String,
    /// The values of the form so far.
    draft: BTreeMap<String, Value>,
}

/// The kind of a question.
#[derive(Debug)]
pub(super) enum QuestionKind {
    /// A form; one without fields is answered with yes or no.
    Form(Vec<Field>),
    /// A URL that the user has to visit.
    Url(String),
}

impl Elicitation {
    /// Begins to answer a request.
    pub(super) fn new(request: InputRequest) -> Self {
        let question = |(key, question): (&String, &InputQuestion)| Question {
            message: question.message().to_owned(),
            kind: match question {
                InputQuestion::Form { schema, .. } => QuestionKind::Form(Field::all_of(schema)),
                InputQuestion::Url { url, .. } => QuestionKind::Url(url.clone()),
            },
            key: key.clone(),
            draft: BTreeMap::new(),
        };
        let questions = request.questions.iter().map(question).collect();
        Self { request, questions, at: (0, 0), responses: BTreeMap::new(), fault: None }
    }

    /// The request that is being answered.
    pub(super) fn request(&self) -> &InputRequest {
        &self.request
    }

    /// The current question.
    pub(super) fn question(&self) -> Option<&Question> {
        self.questions.get(self.at.0)
    }

    /// The current field; none for a yes or no, or a URL.
    pub(super) fn field(&self) -> Option<&Field> {
        self.question()?.fields().get(self.at.1)
    }

    /// Whether there is something to go back to.
    pub(super) fn has_begun(&self) -> bool {
        self.at != (0, 0)
    }

    /// The number of the current question, from 1, and the number of questions.
    pub(super) fn progress(&self) -> (usize, usize) {
        (self.at.0 + 1, self.questions.len())
    }

    /// The error of the last answer.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Takes a line; returns the reply when it is complete.
    pub(super) fn submit_line(&mut self, line: &str) -> Option<InputReply> {
        self.fault = None;
        let (number, place) = self.at;
        let question = self.questions.get_mut(number)?;
        let Some(field) = question.fields().get(place) else { return self.confirm(line) };
        match (field.name.clone(), field.parse(line)) {
            (_, Err(fault)) => {
                self.fault = Some(fault);
                return None;
            }
            (name, Ok(Some(value))) => drop(question.draft.insert(name, value)),
            (name, Ok(None)) => drop(question.draft.remove(&name)),
        }
        if place + 1 < question.fields().len() {
            self.at.1 += 1;
            return None;
        }
        let content: Map<String, Value> = question.draft.clone().into_iter().collect();
        self.respond(InputResponse::Accept { content: Some(Value::Object(content)) })
    }

    /// Takes a yes or no: to a form without fields, or to a visited URL.
    fn confirm(&mut self, line: &str) -> Option<InputReply> {
        let content = match self.question()?.kind {
            QuestionKind::Form(_) => Some(Value::Object(Map::new())),
            QuestionKind::Url(_) => None,
        };
        match line.to_lowercase().as_str() {
            "y" | "yes" => self.respond(InputResponse::Accept { content }),
            "n" | "no" => self.respond(InputResponse::Decline),
            _ => {
                self.fault = Some("write y or n".to_owned());
                None
            }
        }
    }

    /// Declines the current question; returns the reply when it is complete.
    pub(super) fn decline(&mut self) -> Option<InputReply> {
        self.respond(InputResponse::Decline)
    }

    /// Cancels all questions that are not answered yet.
    pub(super) fn cancel(&mut self) -> Option<InputReply> {
        while self.at.0 + 1 < self.questions.len() {
            self.respond(InputResponse::Cancel);
        }
        self.respond(InputResponse::Cancel)
    }

    /// Goes back to the previous field or question.
    pub(super) fn back(&mut self) {
        self.fault = None;
        self.at = match self.at {
            (0, 0) => (0, 0),
            (number, 0) => (number - 1, self.questions[number - 1].fields().len().saturating_sub(1)),
            (number, place) => (number, place - 1),
        };
        self.propose();
    }

    /// Starts again after a refused reply, with the values so far as defaults.
    pub(super) fn restart(&mut self) {
        self.at = (0, 0);
        self.propose();
    }

    /// Sets the error of a refused reply.
    pub(super) fn set_fault(&mut self, refused: &InputRefused) {
        self.fault = Some(refused.message.clone());
    }

    /// Makes the values so far the defaults of their fields.
    fn propose(&mut self) {
        for Question { kind, draft, .. } in &mut self.questions {
            let QuestionKind::Form(fields) = kind else { continue };
            for field in fields {
                if let Some(value) = draft.get(&field.name) {
                    field.default = Some(value.clone());
                }
            }
        }
    }

    fn respond(&mut self, response: InputResponse) -> Option<InputReply> {
        let key = self.question()?.key.clone();
        self.responses.insert(key, response);
        self.at = (self.at.0 + 1, 0);
        if self.at.0 < self.questions.len() {
            return None;
        }
        self.at = (0, 0);
        let InputRequest { id, hash, .. } = &self.request;
        let answer = InputAnswer { hash: hash.clone(), responses: self.responses.clone() };
        Some(InputReply { id: id.clone(), answer })
    }

    /// A reply in lines for people, with a heading for each question.
    pub(super) fn summary(&self, reply: &InputReply) -> Vec<(String, Vec<String>)> {
        self.questions
            .iter()
            .map(|question| {
                let lines = match reply.answer.responses.get(&question.key) {
                    Some(InputResponse::Accept { content }) => question.answer_lines(content.as_ref()),
                    Some(InputResponse::Decline) => vec!["declined".to_owned()],
                    Some(InputResponse::Cancel) | None => vec!["closed without an answer".to_owned()],
                };
                (question.message.clone(), lines)
            })
            .collect()
    }
}

impl Question {
    /// Its fields; a URL has none.
    pub(super) fn fields(&self) -> &[Field] {
        match &self.kind {
            QuestionKind::Form(fields) => fields,
            QuestionKind::Url(_) => &[],
        }
    }

    /// The value of a field so far.
    pub(super) fn draft(&self, field: &Field) -> Option<String> {
        self.draft.get(&field.name).map(|value| field.display(value))
    }

    fn answer_lines(&self, content: Option<&Value>) -> Vec<String> {
        let line = |field: &Field| {
            let value = content?.get(&field.name)?;
            Some(format!("{}: {}", field.title, field.display(value)))
        };
        match self.fields() {
            [] => vec!["yes".to_owned()],
            fields => fields.iter().filter_map(line).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_toolkit::tools::approval::CallHash;
    use serde_json::json;

    fn request(questions: &[(&str, InputQuestion)]) -> Elicitation {
        let questions = questions.iter().map(|(key, question)| ((*key).to_owned(), question.clone())).collect();
        let hash = CallHash::of("mcp__lake__open", &json!({})).expect("a hash");
        Elicitation::new(InputRequest {
            id: "1".into(),
            name: "mcp__lake__open".into(),
            server: "lake".into(),
            questions,
            hash,
        })
    }

    fn form() -> InputQuestion {
        let schema = json!({ "type": "object", "required": ["name", "count"], "properties": {
            "count": { "type": "integer", "maximum": 5 }, "name": { "type": "string" }, "note": { "type": "string" } } });
        InputQuestion::Form { message: "What lake?".into(), schema }
    }

    fn visit() -> InputQuestion {
        InputQuestion::Url { message: "Log in.".into(), url: "https://lake.example/".into() }
    }

    #[test]
    fn a_form_is_answered_field_by_field() {
        let mut elicitation = request(&[("a", form()), ("b", visit())]);
        assert!(elicitation.submit_line("Loch").is_none());
        assert_eq!(elicitation.field().map(|field| field.name.as_str()), Some("count"));
        assert!(elicitation.submit_line("9").is_none());
        assert_eq!(elicitation.fault(), Some("9 is greater than the maximum of 5"));
        assert!(elicitation.submit_line("3").is_none() && elicitation.fault().is_none());
        elicitation.back();
        assert_eq!(
            elicitation.field().and_then(|field| field.default.clone()),
            Some(json!(3)),
            "what was written is proposed"
        );
        assert!(elicitation.submit_line("").is_none() && elicitation.submit_line("").is_none());
        assert!(matches!(elicitation.question().map(|question| &question.kind), Some(QuestionKind::Url(_))));
        assert!(elicitation.submit_line("later").is_none() && elicitation.fault().is_some());
        let reply = elicitation.submit_line("y").expect("it is whole");
        let expected = json!({ "id": "1", "hash": elicitation.request().hash, "responses": {
            "a": { "action": "accept", "content": { "name": "Loch", "count": 3 } }, "b": { "action": "accept" } } });
        assert_eq!(serde_json::to_value(&reply).expect("JSON"), expected);
        let expected = vec![
            ("What lake?".to_owned(), vec!["name: Loch".to_owned(), "count: 3".to_owned()]),
            ("Log in.".to_owned(), vec!["yes".to_owned()]),
        ];
        assert_eq!(elicitation.summary(&reply), expected);
    }

    #[test]
    fn questions_are_declined_one_by_one_and_closed_together() {
        let mut elicitation = request(&[("a", form()), ("b", visit())]);
        assert!(elicitation.decline().is_none());
        let reply = elicitation.cancel().expect("it is whole");
        let responses = &reply.answer.responses;
        assert_eq!((&responses["a"], &responses["b"]), (&InputResponse::Decline, &InputResponse::Cancel));
        let mut elicitation = request(&[("a", form()), ("b", visit())]);
        let reply = elicitation.cancel().expect("it is whole");
        assert!(reply.answer.responses.values().all(|response| *response == InputResponse::Cancel));
    }

    #[test]
    fn a_refused_answer_is_asked_for_again_with_what_was_written() {
        let mut elicitation = request(&[("a", form())]);
        ["Loch", "3"].iter().for_each(|line| assert!(elicitation.submit_line(line).is_none()));
        let reply = elicitation.submit_line("deep").expect("it is whole");
        let hash = reply.answer.hash.clone();
        elicitation.restart();
        elicitation.set_fault(&InputRefused { id: "1".into(), hash, message: "there is no such lake".into() });
        assert_eq!(elicitation.fault(), Some("there is no such lake"));
        assert!(elicitation.submit_line("Ness").is_none() && elicitation.submit_line("").is_none());
        let reply = elicitation.submit_line("").expect("it is whole");
        let content = json!({ "name": "Ness", "count": 3, "note": "deep" });
        assert_eq!(reply.answer.responses["a"], InputResponse::Accept { content: Some(content) });
    }
}
