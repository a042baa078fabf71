//! The form of an answer that has to be JSON, and the subset of JSON Schema in which providers enforce it.
//!
//! Providers that can force an answer into a form take only a part of JSON Schema: each object lists all its properties
//! as required and takes no others, and bounds of numbers, texts and lists are unknown to them. So a schema is rewritten
//! for them: what is optional may be null, and bounds become words of the description. Whoever checks the answer against
//! the schema itself has to take those nulls for absent values ([`without_nulls`]).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The form that an answer has to have. It is sent to a provider that can enforce it
/// ([`ModelInfo::structured`](super::ModelInfo::structured)); others are asked for the call of a tool instead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputFormat {
    /// A name for it: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// The JSON Schema, in the subset that [`enforceable`] makes.
    pub schema: Value,
}

/// The bounds that providers do not know. They are told to the model in words.
const BOUNDS: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contentEncoding",
    "contentMediaType",
];
/// What only describes, and is left out.
const NOTES: &[&str] =
    &["$schema", "$id", "$comment", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"];
/// What the subset has.
const KNOWN: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "$ref",
    "$defs",
    "definitions",
    "description",
];

/// Rewrites a schema of an object into the subset that providers enforce. None if it says something that the subset
/// cannot, such as objects with any keys, or a type that contains itself.
pub fn enforceable(schema: &Value) -> Option<Value> {
    let definitions = [&schema["$defs"], &schema["definitions"]];
    let resolved = match schema["$ref"].as_str() {
        Some(reference) => definition(reference, &definitions)?,
        None => schema,
    };
    let is_object = resolved["type"] == "object" && resolved.get("anyOf").is_none() && resolved.get("oneOf").is_none();
    let rewriter = Rewriter { definitions };
    is_object.then(|| rewriter.rewrite(resolved, &mut Vec::new())).flatten()
}

fn definition<'a>(reference: &str, definitions: &[&'a Value; 2]) -> Option<&'a Value> {
    let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"))?;
    let name = name.replace("~1", "/").replace("~0", "~");
    definitions.iter().find_map(|all| all.get(&name))
}

struct Rewriter<'a> {
    definitions: [&'a Value; 2],
}

impl Rewriter<'_> {
    /// Rewrites one schema. References are replaced by what they refer to; `open` are those that are being replaced.
    fn rewrite(&self, schema: &Value, open: &mut Vec<String>) -> Option<Value> {
        let given = schema.as_object()?;
        if let Some(reference) = given.get("$ref").and_then(Value::as_str) {
            if open.iter().any(|name| name == reference) {
                return None;
            }
            open.push(reference.to_owned());
            let rewritten = self.rewrite(definition(reference, &self.definitions)?, open);
            open.pop();
            let mut rewritten = rewritten?;
            if let Some(description) = given.get("description") {
                rewritten["description"] = description.clone();
            }
            return Some(rewritten);
        }
        if given.keys().any(|key| ![KNOWN, BOUNDS, NOTES].iter().any(|words| words.contains(&key.as_str()))) {
            return None;
        }
        let mut made = Map::new();
        for key in ["type", "enum", "const"] {
            if let Some(value) = given.get(key) {
                made.insert(key.to_owned(), value.clone());
            }
        }
        if let Some(words) = description(given) {
            made.insert("description".to_owned(), json!(words));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(members) = given.get(key) {
                let members = members.as_array()?.iter().map(|member| self.rewrite(member, open));
                made.insert("anyOf".to_owned(), Value::Array(members.collect::<Option<_>>()?));
            }
        }
        if has_type(given, "array") {
            made.insert("items".to_owned(), self.rewrite(given.get("items")?, open)?);
        }
        if has_type(given, "object") {
            self.rewrite_object(given, &mut made, open)?;
        }
        // A schema that takes anything is not in the subset.
        let says = |key: &str| made.contains_key(key);
        (says("type") || says("enum") || says("const") || says("anyOf")).then_some(Value::Object(made))
    }

    fn rewrite_object(
        &self,
        given: &Map<String, Value>,
        made: &mut Map<String, Value>,
        open: &mut Vec<String>,
    ) -> Option<()> {
        let takes_others = given.get("additionalProperties").is_some_and(|others| *others != json!(false));
        let properties = given.get("properties").and_then(Value::as_object);
        let properties = properties.filter(|properties| !takes_others && !properties.is_empty())?;
        let required: Vec<_> = given.get("required").and_then(Value::as_array).into_iter().flatten().collect();
        let mut rewritten = Map::new();
        for (name, schema) in properties {
            let mut schema = self.rewrite(schema, open)?;
            if !required.iter().any(|word| *word == name) {
                schema = json!({"anyOf": [schema, {"type": "null"}]});
            }
            rewritten.insert(name.clone(), schema);
        }
        made.insert("required".to_owned(), rewritten.keys().cloned().map(Value::String).collect());
        made.insert("properties".to_owned(), Value::Object(rewritten));
        made.insert("additionalProperties".to_owned(), json!(false));
        Some(())
    }
}

fn has_type(schema: &Map<String, Value>, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(word)) => word == wanted,
        Some(Value::Array(words)) => words.iter().any(|word| word == wanted),
        _ => false,
    }
}

/// The description of a schema, with its bounds in words.
fn description(given: &Map<String, Value>) -> Option<String> {
    let bounds = BOUNDS.iter().filter_map(|key| given.get(*key).map(|value| format!("{key}: {value}")));
    let said = given.get("description").and_then(Value::as_str).map(str::to_owned);
    let bounds = bounds.collect::<Vec<_>>().join(", ");
    match (said, bounds.is_empty()) {
        (said, true) => said,
        (None, false) => Some(bounds),
        (Some(said), false) => Some(format!("{said} ({bounds})")),
    }
}

/// Removes from objects the properties that are null and not required, as [`enforceable`] let them be. A property whose
/// own schema takes null keeps it.
pub fn without_nulls(value: &mut Value, schema: &Value) {
    let definitions = [&schema["$defs"], &schema["definitions"]];
    prune(value, schema, &definitions);
}

fn prune(value: &mut Value, schema: &Value, definitions: &[&Value; 2]) {
    let schema = schema["$ref"].as_str().and_then(|reference| definition(reference, definitions)).unwrap_or(schema);
    match value {
        Value::Object(fields) => {
            let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
            let is_absent = |name: &String, field: &Value| {
                field.is_null()
                    && !required.iter().any(|word| *word == name)
                    && !takes_null(&schema["properties"][name])
            };
            fields.retain(|name, field| !is_absent(name, field));
            for (name, field) in fields {
                prune(field, &schema["properties"][name], definitions);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, &schema["items"], definitions)),
        _ => {}
    }
    for member in ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten() {
        prune(value, member, definitions);
    }
}

fn takes_null(schema: &Value) -> bool {
    let members = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    let is_any = schema.as_object().is_none_or(|fields| {
        !["type", "$ref", "anyOf", "oneOf", "enum", "const", "allOf"].iter().any(|key| fields.contains_key(*key))
    });
    is_any
        || schema.as_object().is_some_and(|fields| has_type(fields, "null"))
        || schema["enum"].as_array().is_some_and(|values| values.contains(&Value::Null))
        || members.into_iter().any(takes_null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_rewritten_into_what_providers_enforce() {
        let given = json!({
            "$ref": "#/$defs/Order",
            "$defs": {
                "Order": {
                    "type": "object", "title": "Order", "required": ["id", "lines"], "description": "An order.",
                    "properties": {
                        "id": {"type": "integer", "minimum": 1, "description": "Its number."},
                        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "minItems": 1},
                        "note": {"type": "string", "default": ""},
                    },
                },
                "Line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}, "additionalProperties": false},
            },
        });
        let made = enforceable(&given).expect("the subset can say this");
        assert_eq!(
            made,
            json!({
                "type": "object", "description": "An order.", "required": ["id", "lines", "note"], "additionalProperties": false,
                "properties": {
                    "id": {"type": "integer", "description": "Its number. (minimum: 1)"},
                    "lines": {
                        "type": "array", "description": "minItems: 1",
                        "items": {"type": "object", "required": ["sku"], "additionalProperties": false, "properties": {"sku": {"type": "string"}}},
                    },
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            })
        );
        let mut answer = json!({"id": 1, "lines": [{"sku": "a"}], "note": null});
        without_nulls(&mut answer, &given);
        assert_eq!(answer, json!({"id": 1, "lines": [{"sku": "a"}]}));
    }

    #[test]
    fn what_the_subset_cannot_say_is_not_rewritten() {
        for given in [
            json!({"type": "string"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"any": {}}}),
            json!({"type": "object", "properties": {"map": {"type": "object", "additionalProperties": {"type": "string"}}}}),
            json!({"type": "object", "properties": {"pair": {"type": "array", "prefixItems": [{"type": "string"}]}}}),
            json!({"$ref": "#/$defs/Tree", "$defs": {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}}}),
            json!({"type": "object", "properties": {"lost": {"$ref": "#/$defs/Lost"}}}),
        ] {
            assert_eq!(enforceable(&given), None, "{given}");
        }
    }

    #[test]
    fn a_null_that_the_schema_takes_is_kept() {
        let schema = json!({"type": "object", "properties": {
            "either": {"type": ["string", "null"]}, "any": {}, "text": {"type": "string"}, "must": {"type": "string"},
        }, "required": ["must"]});
        let mut answer = json!({"either": null, "any": null, "text": null, "must": null});
        without_nulls(&mut answer, &schema);
        assert_eq!(answer, json!({"either": null, "any": null, "must": null}));
    }
}
