//! What an MCP server asks in the middle of a call, in the hands of who answers it: line after line until the answer is whole.
//! No terminal, no waiting: lines in, an answer out.

use super::field::Field;
use flovyn_toolkit::mcp::{InputAnswer, InputQuestion, InputResponse};
use flovyn_toolkit::react::{InputRefused, InputReply, InputRequest};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A request that is being answered.
#[derive(Debug)]
pub struct Inquiry {
    request: InputRequest,
    questions: Vec<Question>,
    /// The question, and its field, that is answered now.
    at: (usize, usize),
    responses: BTreeMap<String, InputResponse>,
    fault: Option<String>,
}

/// One question of a server.
#[derive(Debug)]
pub struct Question {
    /// What it is for.
    pub message: String,
    /// What is asked.
    pub asked: Asked,
    key: String,
    /// What was written in the form so far.
    given: BTreeMap<String, Value>,
}

/// What a question asks.
#[derive(Debug)]
pub enum Asked {
    /// Fields; without any, yes or no.
    Form(Vec<Field>),
    /// A visit to an address.
    Visit(String),
}

impl Inquiry {
    /// Begins to answer a request.
    pub fn new(request: InputRequest) -> Self {
        let question = |(key, asked): (&String, &InputQuestion)| Question {
            message: asked.message().to_owned(),
            asked: match asked {
                InputQuestion::Form { schema, .. } => Asked::Form(Field::all_of(schema)),
                InputQuestion::Url { url, .. } => Asked::Visit(url.clone()),
            },
            key: key.clone(),
            given: BTreeMap::new(),
        };
        let questions = request.questions.iter().map(question).collect();
        Self { request, questions, at: (0, 0), responses: BTreeMap::new(), fault: None }
    }

    /// What is answered.
    pub fn request(&self) -> &InputRequest {
        &self.request
    }

    /// The question that is answered now.
    pub fn question(&self) -> Option<&Question> {
        self.questions.get(self.at.0)
    }

    /// The field that is answered now; none where it is yes or no, or an address.
    pub fn field(&self) -> Option<&Field> {
        self.question()?.fields().get(self.at.1)
    }

    /// Whether something was answered before what is answered now.
    pub fn has_begun(&self) -> bool {
        self.at != (0, 0)
    }

    /// Which of how many questions is answered now, both from 1.
    pub fn place(&self) -> (usize, usize) {
        (self.at.0 + 1, self.questions.len())
    }

    /// What is wrong with what was answered last.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Takes a line; the answer when it is whole.
    pub fn line(&mut self, line: &str) -> Option<InputReply> {
        self.fault = None;
        let (number, place) = self.at;
        let question = self.questions.get_mut(number)?;
        let Some(field) = question.fields().get(place) else { return self.confirm(line) };
        match (field.name.clone(), field.read(line)) {
            (_, Err(fault)) => {
                self.fault = Some(fault);
                return None;
            }
            (name, Ok(Some(value))) => drop(question.given.insert(name, value)),
            (name, Ok(None)) => drop(question.given.remove(&name)),
        }
        if place + 1 < question.fields().len() {
            self.at.1 += 1;
            return None;
        }
        let content: Map<String, Value> = question.given.clone().into_iter().collect();
        self.respond(InputResponse::Accept { content: Some(Value::Object(content)) })
    }

    /// Yes or no: to a form without fields, or to having been somewhere.
    fn confirm(&mut self, line: &str) -> Option<InputReply> {
        let content = match self.question()?.asked {
            Asked::Form(_) => Some(Value::Object(Map::new())),
            Asked::Visit(_) => None,
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

    /// Says no to the question that is answered now; the answer when it is whole.
    pub fn decline(&mut self) -> Option<InputReply> {
        self.respond(InputResponse::Decline)
    }

    /// Closes all questions that are not answered yet.
    pub fn cancel(&mut self) -> Option<InputReply> {
        while self.at.0 + 1 < self.questions.len() {
            self.respond(InputResponse::Cancel);
        }
        self.respond(InputResponse::Cancel)
    }

    /// Goes back to the field before, or to the question before.
    pub fn back(&mut self) {
        self.fault = None;
        self.at = match self.at {
            (0, 0) => (0, 0),
            (number, 0) => (number - 1, self.questions[number - 1].fields().len().saturating_sub(1)),
            (number, place) => (number, place - 1),
        };
        self.propose();
    }

    /// Begins anew, for the answer did not do. What was written is proposed.
    pub fn again(&mut self) {
        self.at = (0, 0);
        self.propose();
    }

    /// Says what was wrong with an answer.
    pub fn refused(&mut self, refused: &InputRefused) {
        self.fault = Some(refused.message.clone());
    }

    /// Proposes what was written before.
    fn propose(&mut self) {
        for Question { asked, given, .. } in &mut self.questions {
            let Asked::Form(fields) = asked else { continue };
            for field in fields {
                if let Some(value) = given.get(&field.name) {
                    field.usual = Some(value.clone());
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

    /// An answer in lines for people, a heading for each question.
    pub fn told(&self, reply: &InputReply) -> Vec<(String, Vec<String>)> {
        self.questions
            .iter()
            .map(|question| {
                let lines = match reply.answer.responses.get(&question.key) {
                    Some(InputResponse::Accept { content }) => question.written(content.as_ref()),
                    Some(InputResponse::Decline) => vec!["declined".to_owned()],
                    Some(InputResponse::Cancel) | None => vec!["closed without an answer".to_owned()],
                };
                (question.message.clone(), lines)
            })
            .collect()
    }
}

impl Question {
    /// Its fields; an address has none.
    pub fn fields(&self) -> &[Field] {
        match &self.asked {
            Asked::Form(fields) => fields,
            Asked::Visit(_) => &[],
        }
    }

    /// What was written in a field so far.
    pub fn given(&self, field: &Field) -> Option<String> {
        self.given.get(&field.name).map(|value| field.shown(value))
    }

    fn written(&self, content: Option<&Value>) -> Vec<String> {
        let line = |field: &Field| {
            let value = content?.get(&field.name)?;
            Some(format!("{}: {}", field.title, field.shown(value)))
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

    fn inquiry(questions: &[(&str, InputQuestion)]) -> Inquiry {
        let questions = questions.iter().map(|(key, question)| ((*key).to_owned(), question.clone())).collect();
        let hash = CallHash::of("mcp__lake__open", &json!({})).expect("a hash");
        Inquiry::new(InputRequest {
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
        let mut asked = inquiry(&[("a", form()), ("b", visit())]);
        assert!(asked.line("Loch").is_none());
        assert_eq!(asked.field().map(|field| field.name.as_str()), Some("count"));
        assert!(asked.line("9").is_none());
        assert_eq!(asked.fault(), Some("9 is greater than the maximum of 5"));
        assert!(asked.line("3").is_none() && asked.fault().is_none());
        asked.back();
        assert_eq!(asked.field().and_then(|field| field.usual.clone()), Some(json!(3)), "what was written is proposed");
        assert!(asked.line("").is_none() && asked.line("").is_none());
        assert!(matches!(asked.question().map(|question| &question.asked), Some(Asked::Visit(_))));
        assert!(asked.line("later").is_none() && asked.fault().is_some());
        let reply = asked.line("y").expect("it is whole");
        let expected = json!({ "id": "1", "hash": asked.request().hash, "responses": {
            "a": { "action": "accept", "content": { "name": "Loch", "count": 3 } }, "b": { "action": "accept" } } });
        assert_eq!(serde_json::to_value(&reply).expect("JSON"), expected);
        let told = vec![
            ("What lake?".to_owned(), vec!["name: Loch".to_owned(), "count: 3".to_owned()]),
            ("Log in.".to_owned(), vec!["yes".to_owned()]),
        ];
        assert_eq!(asked.told(&reply), told);
    }

    #[test]
    fn questions_are_declined_one_by_one_and_closed_together() {
        let mut asked = inquiry(&[("a", form()), ("b", visit())]);
        assert!(asked.decline().is_none());
        let reply = asked.cancel().expect("it is whole");
        let responses = &reply.answer.responses;
        assert_eq!((&responses["a"], &responses["b"]), (&InputResponse::Decline, &InputResponse::Cancel));
        let mut asked = inquiry(&[("a", form()), ("b", visit())]);
        let reply = asked.cancel().expect("it is whole");
        assert!(reply.answer.responses.values().all(|response| *response == InputResponse::Cancel));
    }

    #[test]
    fn a_refused_answer_is_asked_for_again_with_what_was_written() {
        let mut asked = inquiry(&[("a", form())]);
        ["Loch", "3"].iter().for_each(|line| assert!(asked.line(line).is_none()));
        let reply = asked.line("deep").expect("it is whole");
        let hash = reply.answer.hash.clone();
        asked.again();
        asked.refused(&InputRefused { id: "1".into(), hash, message: "there is no such lake".into() });
        assert_eq!(asked.fault(), Some("there is no such lake"));
        assert!(asked.line("Ness").is_none() && asked.line("").is_none());
        let reply = asked.line("").expect("it is whole");
        let content = json!({ "name": "Ness", "count": 3, "note": "deep" });
        assert_eq!(reply.answer.responses["a"], InputResponse::Accept { content: Some(content) });
    }
}
