//! Structured output: an answer that has to be a value of a JSON Schema.
//!
//! A model whose provider can force answers into a form ([`ModelInfo::structured`]) is sent the schema. Any other model,
//! and one whose provider cannot enforce this schema, is offered the tool `final_answer`, whose arguments are the
//! answer. The answer is checked against the schema itself where it arrives. What is wrong with it is told to the model,
//! which is asked again: that is the next model call of the run, so each is recorded and paid once.

use crate::message::{Message, Part, Role, Stop, ToolCall, ToolResult};
use crate::provider::{ModelInfo, OutputFormat, ToolSpec, enforceable, without_nulls};
use flovyn_core::error::{Code, Error, Result};
use jsonschema::Validator;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The name of the tool by which models answer that cannot be forced into a form.
pub(super) const FINAL_ANSWER: &str = "final_answer";
/// The property that holds an answer that is no object: providers take objects only.
const WRAPPER: &str = "value";
/// How many errors of one answer are reported to the model.
const MOST_FAULTS: usize = 8;
const DESCRIPTION: &str = "Gives your final answer. Call it once, alone, when everything else is done: its arguments are \
the answer, and text beside it is not read.";

/// The form that an answer has to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputSpec {
    /// The JSON Schema of the answer.
    pub schema: Value,
    /// A name for the form, which some models are told: letters, digits, `_` and `-`.
    #[serde(default = "usual_name")]
    pub name: String,
    /// How often the model is asked again where its answer does not fit.
    #[serde(default = "usual_retries")]
    pub retries: u32,
}

fn usual_name() -> String {
    "answer".to_owned()
}

fn usual_retries() -> u32 {
    2
}

/// An answer that was checked against its schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckedOutput {
    /// It fits.
    Value(Value),
    /// It does not.
    Fault {
        /// What is wrong, in words for the model.
        message: String,
        /// What to say after the answer to ask for another.
        again: Vec<Message>,
    },
}

impl OutputSpec {
    /// An answer of this JSON Schema.
    pub fn new(schema: Value) -> Self {
        Self { schema, name: usual_name(), retries: usual_retries() }
    }

    /// An answer that is a value of a Rust type.
    pub fn of<T: JsonSchema>() -> Self {
        let name: String = T::schema_name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        Self { name: name.chars().take(64).collect(), ..Self::new(schemars::schema_for!(T).to_value()) }
    }

    /// Checks that answers can be asked for and checked in this form.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the schema is no JSON Schema, or the name is not one.
    pub fn check(&self) -> Result<()> {
        self.compile().map(drop)
    }

    /// The check of answers.
    ///
    /// # Errors
    ///
    /// The schema is no JSON Schema, or the name is not one.
    pub(super) fn compile(&self) -> Result<Output> {
        let invalid = |message: String| Error::new(Code::InvalidArgument, message);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(is_plain) {
            let name = &self.name;
            return Err(invalid(format!("the output is named {name:?}; use 1 to 64 letters, digits, _ and -")));
        }
        let validator = jsonschema::validator_for(&self.schema)
            .map_err(|error| invalid(format!("the output's schema is no JSON Schema: {error}")))?;
        Ok(Output { spec: self.clone(), validator })
    }
}

/// How a model is asked for an answer of a form.
pub(super) enum OutputForm {
    /// Its provider forces the answer's text into it.
    Native(OutputFormat),
    /// It calls this tool.
    Tool(ToolSpec),
}

/// A form that answers can be checked against.
pub(super) struct Output {
    spec: OutputSpec,
    validator: Validator,
}

impl Output {
    /// How to ask this model. A conversation in which the tool was called goes on with the tool.
    pub(super) fn form(&self, info: &ModelInfo, messages: &[Message]) -> OutputForm {
        let schema = self.of_object();
        let has_called = messages.iter().any(|message| final_call(message).is_some());
        let native = if info.structured && !has_called { enforceable(&schema) } else { None };
        match native {
            Some(schema) => OutputForm::Native(OutputFormat { name: self.spec.name.clone(), schema }),
            None => {
                let (name, description) = (FINAL_ANSWER.to_owned(), DESCRIPTION.to_owned());
                OutputForm::Tool(ToolSpec { name, description, parameters: schema })
            }
        }
    }

    /// Refuses a tool of the caller's that has the name of the call with the answer.
    pub(super) fn refuse_name<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<()> {
        if !names.any(|name| name == FINAL_ANSWER) {
            return Ok(());
        }
        let message =
            format!("a tool is named {FINAL_ANSWER:?}, the name by which models give a structured output; rename it");
        Err(Error::new(Code::InvalidArgument, message))
    }

    /// Checks an answer. None if it is none yet: the model calls other tools, has refused, or was interrupted.
    pub(super) fn check(&self, message: &Message) -> Option<CheckedOutput> {
        let call = final_call(message);
        let has_others = call.is_none() && message.tool_calls().next().is_some();
        let fault = match message.stop() {
            _ if has_others => return None,
            Stop::Refusal | Stop::Aborted | Stop::Error | Stop::Deferred => return None,
            Stop::Length if call.is_none() => {
                "The answer was cut off, because it was longer than it may be. Answer with less.".to_owned()
            }
            _ => {
                let found = match call {
                    Some(call) => call.fault().map_or_else(|| Ok(call.arguments.clone()), Err),
                    None => json_of(&message.text()),
                };
                match found.and_then(|value| self.fit(value)) {
                    Ok(value) => return Some(CheckedOutput::Value(value)),
                    Err(fault) => fault,
                }
            }
        };
        let again = match call {
            Some(call) => Message::tool([result(call, &fault, true)]),
            None => Message { role: Role::User, parts: vec![Part::text(&fault)], assistant: None },
        };
        Some(CheckedOutput::Fault { message: fault, again: vec![again] })
    }

    /// The value as the caller wants it, or what is wrong with it.
    fn fit(&self, value: Value) -> Result<Value, String> {
        let mut value = match value {
            Value::Object(mut fields) if self.is_wrapped() && fields.len() == 1 && fields.contains_key(WRAPPER) => {
                fields.remove(WRAPPER).unwrap_or_default()
            }
            value => value,
        };
        without_nulls(&mut value, &self.spec.schema);
        let faults = self.validator.iter_errors(&value).take(MOST_FAULTS);
        let faults: Vec<_> =
            faults.map(|error| format!("- {}: {error}", place(error.instance_path().as_str()))).collect();
        if faults.is_empty() {
            return Ok(value);
        }
        Err(format!(
            "The answer does not have the form that was asked for:\n{}\nAnswer again, in that form.",
            faults.join("\n")
        ))
    }

    /// The schema of an object, as providers want it.
    fn of_object(&self) -> Value {
        if !self.is_wrapped() {
            return self.spec.schema.clone();
        }
        let mut inner = self.spec.schema.clone();
        let mut whole = Map::new();
        for key in ["$defs", "definitions"] {
            // References begin at the root, so what they refer to stays there.
            if let Some(definitions) = inner.as_object_mut().and_then(|schema| schema.remove(key)) {
                whole.insert(key.to_owned(), definitions);
            }
        }
        whole.insert("type".to_owned(), json!("object"));
        whole.insert("properties".to_owned(), json!({WRAPPER: inner}));
        whole.insert("required".to_owned(), json!([WRAPPER]));
        whole.insert("additionalProperties".to_owned(), json!(false));
        Value::Object(whole)
    }

    fn is_wrapped(&self) -> bool {
        let schema = &self.spec.schema;
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit_once('/')).map(|(_, name)| name);
        let root = name.map_or(schema, |name| match schema["$defs"].get(name) {
            Some(definition) => definition,
            None => &schema["definitions"][name],
        });
        root["type"] != "object"
    }
}

/// The call by which a model gives its answer.
pub(super) fn final_call(message: &Message) -> Option<&ToolCall> {
    message.tool_calls().find(|call| call.name == FINAL_ANSWER)
}

/// The result of a call that needs none of a tool.
pub(super) fn result(call: &ToolCall, text: &str, is_error: bool) -> ToolResult {
    let outcome = match is_error {
        true => crate::tools::ToolOutcome::error("invalid_output", text),
        false => crate::tools::ToolOutcome::text(text),
    };
    outcome.into_result(&call.id, &call.name)
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the whole" } else { pointer }
}

/// The JSON of a text: all of it, what a fence encloses, or what stands between the first and the last bracket.
fn json_of(text: &str) -> Result<Value, String> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let fenced = text.split("```").nth(1).map(|block| block.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
    let bracketed = text.find(['{', '[']).zip(text.rfind(['}', ']'])).filter(|(from, to)| from < to);
    let bracketed = bracketed.map(|(from, to)| &text[from..=to]);
    let found = [fenced, bracketed].into_iter().flatten().find_map(|part| serde_json::from_str(part.trim()).ok());
    found.ok_or_else(|| match text.is_empty() {
        true => "There was no answer. Give it in the form that was asked for.".to_owned(),
        false => "The answer is not JSON. Give it in the form that was asked for, and nothing else.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(schema: Value) -> Output {
        OutputSpec::new(schema).compile().expect("a schema")
    }

    fn says(text: &str) -> Message {
        Message { role: Role::Assistant, parts: vec![Part::text(text)], assistant: None }
    }

    #[test]
    fn an_answer_is_read_from_what_models_write_around_it() {
        let number = output(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}));
        for text in
            ["{\"n\": 1}", "Here it is:\n```json\n{\"n\": 1}\n```\nDone.", "Sure: {\"n\": 1}.", " \n{\"n\":1}\n"]
        {
            assert_eq!(number.check(&says(text)), Some(CheckedOutput::Value(json!({"n": 1}))), "{text}");
        }
        for text in ["", "one", "{\"n\": \"1\"}", "[1]", "{\"n\": 1"] {
            let Some(CheckedOutput::Fault { again, .. }) = number.check(&says(text)) else { panic!("{text} fits") };
            assert_eq!(again[0].role, Role::User);
        }
    }

    #[test]
    fn an_answer_that_is_no_object_is_wrapped_for_providers() {
        let list =
            output(json!({"type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "integer"}}}));
        let info = ModelInfo { structured: true, ..ModelInfo::default() };
        let OutputForm::Native(format) = list.form(&info, &[]) else { panic!("a provider can enforce it") };
        assert_eq!(format.schema["properties"]["value"], json!({"type": "array", "items": {"type": "integer"}}));
        assert_eq!(list.check(&says("{\"value\": [1, 2]}")), Some(CheckedOutput::Value(json!([1, 2]))));
        assert_eq!(list.check(&says("[1, 2]")), Some(CheckedOutput::Value(json!([1, 2]))));
        let OutputForm::Tool(tool) = list.form(&ModelInfo::default(), &[]) else { panic!("no provider enforces it") };
        assert_eq!((tool.name.as_str(), &tool.parameters["$defs"]["N"]), (FINAL_ANSWER, &json!({"type": "integer"})));
    }
}
