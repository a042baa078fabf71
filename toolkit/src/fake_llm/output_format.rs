//! Refuses forms of answers that the real APIs refuse: they enforce only a part of JSON Schema.

use crate::provider::Api;
use serde_json::Value;

/// What OpenAI and Anthropic do not know in a schema that they enforce.
const UNKNOWN: &[&str] = &["default", "allOf", "not", "if", "patternProperties", "prefixItems", "oneOf", "uniqueItems"];
/// What Anthropic alone does not know.
const UNKNOWN_TO_ANTHROPIC: &[&str] = &["minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems"];

/// The form that a request asks for, whichever wire it is on.
fn format_of(api: Api, body: &Value) -> (&Value, &Value) {
    match api {
        Api::AnthropicMessages => (&body["output_config"]["format"], &body["output_config"]["format"]["schema"]),
        Api::OpenaiChat => (&body["response_format"], &body["response_format"]["json_schema"]["schema"]),
        Api::OpenaiResponses => (&body["text"]["format"], &body["text"]["format"]["schema"]),
    }
}

/// Says what is wrong with the form that a request asks for.
pub(super) fn check(api: Api, body: &Value) -> Result<(), String> {
    let (format, schema) = format_of(api, body);
    if format.is_null() {
        return Ok(());
    }
    if format["type"] != "json_schema" || schema["type"] != "object" {
        return Err(format!("the format of the answer must be a json_schema of an object, not {format}"));
    }
    check_schema(api, schema, "schema")
}

fn check_schema(api: Api, schema: &Value, here: &str) -> Result<(), String> {
    let Some(fields) = schema.as_object() else { return Err(format!("{here} is no schema")) };
    let unknown_here = if api == Api::AnthropicMessages { UNKNOWN_TO_ANTHROPIC } else { &[] };
    if let Some(key) = UNKNOWN.iter().chain(unknown_here).find(|key| fields.contains_key(**key)) {
        return Err(format!("Invalid schema for the output: in {here}, '{key}' is not permitted"));
    }
    if schema["type"] == "object" {
        if schema["additionalProperties"] != Value::Bool(false) {
            return Err(format!("In {here}, 'additionalProperties' is required to be supplied and to be false"));
        }
        let names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let missing = names.clone().find(|name| !required.contains(&name.as_str()));
        if let Some(name) = missing.filter(|_| api != Api::AnthropicMessages) {
            return Err(format!("In {here}, 'required' must include every key in properties. Missing '{name}'"));
        }
        for name in names {
            check_schema(api, &schema["properties"][name], &format!("{here}.{name}"))?;
        }
    }
    for member in schema["anyOf"].as_array().into_iter().flatten() {
        check_schema(api, member, here)?;
    }
    match schema.get("items") {
        Some(items) => check_schema(api, items, &format!("{here}.items")),
        None => Ok(()),
    }
}
