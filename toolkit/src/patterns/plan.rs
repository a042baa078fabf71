//! A plan of a model: parts of a task, each for one agent, and which of them need the results of others.

use crate::react::Delegate;
use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The longest id of a part.
const LONGEST_ID: usize = 40;
/// How many faults of one plan a model is told.
const MOST_FAULTS: usize = 8;

/// A plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its parts.
    pub tasks: Vec<PlannedTask>,
}

/// A part of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedTask {
    /// Its name in the plan.
    pub id: String,
    /// The agent that does it.
    pub worker: String,
    /// What the agent is given. `{{ID}}` in a text stands for the result of another part.
    pub arguments: Value,
    /// The parts whose results it needs.
    #[serde(default)]
    pub depends_on: Vec<String>,
}

/// The agents that do the parts, by the names in plans, each with the check of what it is given.
pub(super) struct Workers(BTreeMap<String, (Delegate, Validator)>);

impl Workers {
    /// Errors: two of one name, or a schema that is none.
    pub(super) fn new(workers: &[Delegate]) -> Result<Self, String> {
        let mut known = BTreeMap::new();
        for worker in workers {
            let check = jsonschema::validator_for(&worker.takes_arguments())
                .map_err(|error| format!("what {:?} takes is no JSON Schema: {error}", worker.name))?;
            if known.insert(worker.name.clone(), (worker.clone(), check)).is_some() {
                return Err(format!("two workers are named {:?}; name one otherwise", worker.name));
            }
        }
        if known.is_empty() {
            return Err("a plan needs workers; give some".to_owned());
        }
        Ok(Self(known))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Delegate> {
        self.0.get(name).map(|(worker, _)| worker)
    }

    /// The workers in words for a model.
    pub(super) fn described(&self) -> String {
        let line = |(name, (worker, _)): (&String, &(Delegate, Validator))| {
            format!("- {name}: {} Its arguments: {}", worker.description, worker.takes_arguments())
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The form of a plan of at most so many parts.
    pub(super) fn schema(&self, most: usize) -> Value {
        json!({
            "type": "object",
            "properties": { "tasks": {
                "type": "array", "minItems": 1, "maxItems": most,
                "items": {
                    "type": "object",
                    "properties": {
                        "id": { "type": "string", "description": "A short name of its own, of letters, digits, _ and -." },
                        "worker": { "type": "string", "description": "The agent that does it." },
                        "arguments": { "type": "object", "description": "What the agent is given. {{ID}} in a text stands for the result of the task with that id." },
                        "dependsOn": { "type": "array", "items": { "type": "string" }, "description": "The ids of the tasks whose results it needs." }
                    },
                    "required": ["id", "worker", "arguments", "dependsOn"]
                }
            } },
            "required": ["tasks"]
        })
    }
}

impl Plan {
    /// What is wrong with it, in words for the model that has made it. `done` are parts that are done already.
    pub(super) fn faults(&self, workers: &Workers, done: &BTreeSet<String>) -> Vec<String> {
        let mut faults = Vec::new();
        let mut ids = BTreeSet::new();
        for PlannedTask { id, worker, arguments, .. } in &self.tasks {
            let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
            if id.is_empty() || id.len() > LONGEST_ID || !id.chars().all(fits) {
                faults.push(format!("the id {id:?} is not 1 to {LONGEST_ID} letters, digits, _ and -"));
            }
            if !ids.insert(id) {
                faults.push(format!("two tasks have the id {id:?}"));
            } else if done.contains(id) {
                faults.push(format!("the task {id:?} is done already; leave it out, or give the new one another id"));
            }
            match workers.0.get(worker) {
                None => {
                    let known = workers.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    faults.push(format!("the task {id:?} is for {worker:?}, which is no worker; there are {known}"));
                }
                Some((_, check)) => {
                    for error in check.iter_errors(arguments).take(2) {
                        faults.push(format!("the arguments of {id:?}: {}: {error}", error.instance_path()));
                    }
                }
            }
        }
        for PlannedTask { id, depends_on, .. } in &self.tasks {
            for other in depends_on.iter().filter(|other| !ids.contains(other) && !done.contains(*other)) {
                faults.push(format!("the task {id:?} depends on {other:?}, which is no task"));
            }
        }
        if faults.is_empty()
            && let Some(stuck) = self.cycle(done)
        {
            faults.push(format!("these tasks wait for each other: {}", stuck.join(", ")));
        }
        faults.truncate(MOST_FAULTS);
        faults
    }

    /// The parts that can never begin.
    fn cycle(&self, done: &BTreeSet<String>) -> Option<Vec<String>> {
        let mut left: Vec<_> = self.tasks.iter().collect();
        let mut over = done.clone();
        loop {
            let (ready, waiting): (Vec<_>, Vec<_>) = left.into_iter().partition(|task| task.is_ready(&over));
            if waiting.is_empty() {
                return None;
            }
            if ready.is_empty() {
                return Some(waiting.into_iter().map(|task| task.id.clone()).collect());
            }
            over.extend(ready.into_iter().map(|task| task.id.clone()));
            left = waiting;
        }
    }
}

impl PlannedTask {
    /// Whether what it needs is done.
    pub(super) fn is_ready(&self, done: &BTreeSet<String>) -> bool {
        self.depends_on.iter().all(|other| done.contains(other))
    }

    /// The arguments with the results of other parts in their places. Results that no place names are added to the text of an
    /// agent that takes one.
    pub(super) fn filled(&self, results: &BTreeMap<String, String>, text_field: Option<&str>) -> Value {
        let mut named = BTreeSet::new();
        let mut arguments = filled(&self.arguments, results, &mut named);
        if let Some(Value::String(text)) = text_field.and_then(|field| arguments.get_mut(field)) {
            for other in self.depends_on.iter().filter(|other| !named.contains(*other)) {
                if let Some(result) = results.get(other) {
                    text.push_str(&format!("\n\nThe result of {other}:\n{result}"));
                }
            }
        }
        arguments
    }
}

fn filled(value: &Value, results: &BTreeMap<String, String>, named: &mut BTreeSet<String>) -> Value {
    match value {
        Value::String(text) => Value::String(filled_text(text, results, named)),
        Value::Array(items) => items.iter().map(|item| filled(item, results, named)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), filled(value, results, named)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// The text with results in their places, in one pass: what a result says is not looked at.
fn filled_text(text: &str, results: &BTreeMap<String, String>, named: &mut BTreeSet<String>) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        shown.push_str(before);
        match after.split_once("}}").and_then(|(id, after)| Some((id, results.get(id.trim())?, after))) {
            Some((id, result, after)) => {
                named.insert(id.trim().to_owned());
                shown.push_str(result);
                rest = after;
            }
            None => {
                shown.push_str("{{");
                rest = after;
            }
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, depends_on: &[&str]) -> PlannedTask {
        let depends_on = depends_on.iter().map(|&id| id.to_owned()).collect();
        PlannedTask { id: id.into(), worker: "otter".into(), arguments: json!({ "task": "swim" }), depends_on }
    }

    fn faults(tasks: Vec<PlannedTask>) -> Vec<String> {
        let workers = Workers::new(&[Delegate::new("otter", "Swims.")]).expect("workers");
        Plan { tasks }.faults(&workers, &BTreeSet::from(["done".to_owned()]))
    }

    #[test]
    fn a_plan_that_cannot_be_done_is_told_in_words() {
        assert_eq!(faults(vec![task("b", &["a", "done"]), task("a", &[])]), Vec::<String>::new());
        let is_fault = |tasks, words: &str| {
            let faults = faults(tasks);
            assert!(faults.iter().any(|fault| fault.contains(words)), "{faults:?}");
        };
        is_fault(vec![task("a", &["b"]), task("b", &["a"]), task("c", &[])], "wait for each other: a, b");
        is_fault(vec![task("a", &["a"])], "wait for each other: a");
        is_fault(vec![task("a", &[]), task("a", &[])], "two tasks have the id \"a\"");
        is_fault(vec![task("a", &["x"])], "depends on \"x\", which is no task");
        is_fault(vec![task("done", &[])], "is done already");
        is_fault(vec![task("a b", &[])], "the id \"a b\"");
        is_fault(vec![PlannedTask { worker: "seal".into(), ..task("a", &[]) }], "which is no worker; there are otter");
        is_fault(vec![PlannedTask { arguments: json!({}), ..task("a", &[]) }], "\"task\" is a required property");
    }

    #[test]
    fn results_take_their_places_and_are_not_looked_at() {
        let results = BTreeMap::from([("a".to_owned(), "{{b}}".to_owned()), ("b".to_owned(), "B".to_owned())]);
        let mut one = task("c", &["a", "b"]);
        one.arguments = json!({ "task": "{{ a }}, {{x}} and {{", "more": ["{{b}}", 5] });
        assert_eq!(one.filled(&results, None), json!({ "task": "{{b}}, {{x}} and {{", "more": ["B", 5] }));
        one.arguments = json!({ "task": "Join." });
        assert_eq!(
            one.filled(&results, Some("task")),
            json!({ "task": "Join.\n\nThe result of a:\n{{b}}\n\nThe result of b:\nB" })
        );
    }
}
