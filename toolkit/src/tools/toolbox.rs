//! Tools by name, with the JSON Schemas that their inputs and outputs have to match.

use super::fault::Fault;
use super::{
    Bash, BashOutput, BashStop, Edit, Effect, Fetch, Find, Grep, Read, RunSandbox, Todo, Tool, ToolEnvironment,
    ToolOutcome, Write,
};
use flovyn_core::error::{Code, Error, Result};
use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many errors in the arguments of one call are reported to the model.
const MOST_FAULTS: usize = 5;

/// Tools by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Toolbox(Arc<BTreeMap<String, RegisteredTool>>);

#[derive(Clone)]
struct RegisteredTool {
    tool: Arc<dyn Tool>,
    input: Arc<Validator>,
    output: Option<Arc<Validator>>,
}

/// The description of a tool, for models and for people who choose tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// What a call does to the world.
    pub effect: Effect,
}

impl Toolbox {
    /// A toolbox without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// A toolbox with the host tools: read, write, edit, bash, bash-output, bash-stop, grep, find, run-sandbox, todo, fetch.
    pub fn host() -> Result<Self> {
        Self::host_with(Fetch::default())
    }

    /// As [`host`](Self::host), with this `fetch`.
    pub fn host_with(fetch: Fetch) -> Result<Self> {
        Self::new()
            .with(Read)?
            .with(Write)?
            .with(Edit)?
            .with(Bash)?
            .with(BashOutput)?
            .with(BashStop)?
            .with(Grep)?
            .with(Find)?
            .with(RunSandbox)?
            .with(Todo)?
            .with(fetch)
    }

    /// Adds a tool. A name that is taken, a name that providers do not accept, and an invalid schema are errors.
    pub fn with(self, tool: impl Tool) -> Result<Self> {
        self.with_shared(Arc::new(tool))
    }

    /// Adds a tool that others hold too.
    pub fn with_shared(mut self, tool: Arc<dyn Tool>) -> Result<Self> {
        let name = tool.name().to_owned();
        let refuse = |message: String| Error::new(Code::InvalidArgument, message);
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(refuse(format!("a tool is named {name:?}; use 1 to 64 letters, digits, _ and -")));
        }
        if self.0.contains_key(&name) {
            return Err(refuse(format!("two tools are named {name:?}; rename one")));
        }
        let schema = |what: &str, schema: &Value| {
            jsonschema::validator_for(schema)
                .map(Arc::new)
                .map_err(|error| refuse(format!("the {what} schema of the tool {name:?} is no JSON Schema: {error}")))
        };
        let input = schema("input", &tool.input_schema())?;
        let output = tool.output_schema().map(|output| schema("output", &output)).transpose()?;
        Arc::make_mut(&mut self.0).insert(name, RegisteredTool { tool, input, output });
        Ok(self)
    }

    /// A toolbox with only the tools of these names. A name without a tool is an error.
    pub fn only<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Self> {
        let picked = names.into_iter().map(|name| match self.0.get(name) {
            Some(registered) => Ok((name.to_owned(), registered.clone())),
            None => Err(Error::new(Code::InvalidArgument, self.unknown(name))),
        });
        Ok(Self(Arc::new(picked.collect::<Result<_>>()?)))
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.0.get(name).map(|registered| &registered.tool)
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The descriptions of all tools, in the order of their names. The order is fixed so that the same tools always
    /// make the same prompt, which providers can cache.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        let define = |RegisteredTool { tool, .. }: &RegisteredTool| ToolDefinition {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.input_schema(),
            effect: tool.effect(),
        };
        self.0.values().map(define).collect()
    }

    /// Checks the name and the arguments of a call before it runs. The error is the outcome for the model.
    pub fn check(&self, name: &str, arguments: &Value) -> Result<(), Box<ToolOutcome>> {
        let refused = |code, message: String| Err(Box::new(ToolOutcome::error(code, message)));
        let Some(registered) = self.0.get(name) else { return refused("unknown_tool", self.unknown(name)) };
        match faults(&registered.input, arguments) {
            None => Ok(()),
            Some(faults) => refused("invalid_arguments", format!("The arguments of {name} are wrong:\n{faults}")),
        }
    }

    /// Checks and runs a call. Wrong arguments become an outcome for the model. So does an output that does not match
    /// the schema of the tool.
    pub async fn call(&self, name: &str, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome> {
        if let Err(refused) = self.check(name, &arguments) {
            return Ok(*refused);
        }
        let Some(registered) = self.0.get(name) else {
            return Fault::into_outcome(Err(Fault::for_model("unknown_tool", self.unknown(name))));
        };
        let outcome = registered.tool.call(arguments, environment).await?;
        let wrong = registered
            .output
            .as_ref()
            .filter(|_| !outcome.is_error)
            .and_then(|schema| faults(schema, &outcome.details));
        Ok(match wrong {
            None => outcome,
            Some(faults) => ToolOutcome::error(
                "invalid_output",
                format!("{name} ran, and its output is not as it declares:\n{faults}"),
            ),
        })
    }

    fn unknown(&self, name: &str) -> String {
        format!("There is no tool {name:?}. There are: {}.", self.names().collect::<Vec<_>>().join(", "))
    }
}

/// The errors of a value, one in each line.
fn faults(schema: &Validator, value: &Value) -> Option<String> {
    let lines: Vec<_> = schema
        .iter_errors(value)
        .take(MOST_FAULTS)
        .map(|error| {
            let place = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
            let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
            format!("- {place}{}", super::excerpt::line(&error.to_string(), 300))
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
