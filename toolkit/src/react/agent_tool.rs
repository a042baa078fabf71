//! The tools that the agent can offer to a model: host tools of a toolbox, tasks that are declared as tools, and other
//! agents.

use super::delegate::{Delegate, Giving};
use super::questions::{ESCALATE, escalate_spec};
use crate::mcp::InputRequired;
use crate::message::shapes::{self, parts_of_value};
use crate::message::{Content, Part};
use crate::provider::ToolSpec;
use crate::tools::{Effect, FilesSeen, Tool, ToolCallInput, ToolOutcome, ToolTask, image};
use flovyn_core::Payload;
use flovyn_core::context::TaskCall;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{Failure, TaskOptions};
use flovyn_core::payload::{Body, Content as PayloadContent, Encoding};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// A tool that the agent can offer to a model. Each call is a durable task, or starts a run of another agent.
#[derive(Clone)]
pub struct AgentTool {
    /// The tool as the model sees it.
    pub spec: ToolSpec,
    /// What a call does to the world. Approvals depend on it.
    pub effect: Effect,
    kind: String,
    options: Option<TaskOptions>,
    queue: Option<String>,
    task_arguments: TaskArguments,
    arguments: Arc<Validator>,
    /// The tool, if its effect may depend on the arguments of a call.
    tool: Option<Arc<dyn Tool>>,
    /// The agent that a call gives work to.
    pub(super) delegate: Option<(Giving, Arc<Delegate>)>,
    /// Whether a call asks whoever has given the run its work.
    pub(super) escalates: bool,
    /// Whether models are not offered it. It is there for calls that were made before.
    pub(super) is_hidden: bool,
}

/// The input and the output of the task.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TaskArguments {
    /// The task takes a [`ToolCallInput`] and returns a [`ToolOutcome`].
    Call,
    /// The task takes the model's arguments as they are, and returns any JSON.
    Arguments,
    /// The task takes the value of this argument, or this default, and returns any JSON.
    Argument(String, Value),
}

/// The data that a call needs beside its arguments.
pub(super) struct CallContext<'a> {
    pub working_directory: Option<&'a str>,
    pub session: String,
    pub seen: &'a FilesSeen,
}

/// How many errors in the arguments of one call are reported to the model.
const MOST_FAULTS: usize = 5;
/// Longer bytes of a task are not looked at as a whole.
const MOST_BYTES: u64 = 64 << 20;
/// How many of the first bytes tell what longer ones are.
const SAMPLE: usize = 512;

impl AgentTool {
    /// Offers a host tool; a worker has to serve its [`ToolTask`].
    pub fn host(tool: &dyn Tool) -> Result<Self> {
        let spec = ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            parameters: tool.input_schema(),
        };
        // A message of the user that must not wait ends the tool, as it ends a model call.
        let options = TaskOptions { interruptible: true, ..ToolTask::options_of(tool) };
        Self::new(spec, tool.effect(), ToolTask::kind_of(tool.name()), Some(options), TaskArguments::Call)
    }

    /// As [`host`](Self::host), for a tool whose effect depends on the arguments of a call.
    pub fn shared(tool: &Arc<dyn Tool>) -> Result<Self> {
        Ok(Self { tool: Some(tool.clone()), ..Self::host(&**tool)? })
    }

    /// Offers an agent, whose answer is the result of a call. A worker has to serve it.
    pub fn delegate(delegate: Delegate) -> Result<Self> {
        Self::giving(delegate, Giving::Delegates)
    }

    /// Offers an agent that goes on with the conversation: the run is handed off to it. A worker has to serve it.
    pub fn handoff(delegate: Delegate) -> Result<Self> {
        Self::giving(delegate, Giving::HandsOff)
    }

    /// Offers to ask whoever has given the run its work: the run that has started it, else a person.
    pub fn escalate() -> Result<Self> {
        let tool = Self::new(escalate_spec(), Effect::Read, ESCALATE.to_owned(), None, TaskArguments::Arguments)?;
        Ok(Self { escalates: true, ..tool })
    }

    fn giving(delegate: Delegate, giving: Giving) -> Result<Self> {
        let delegate = delegate.checked(giving)?;
        let (effect, kind) = (delegate.effect, delegate.kind.clone());
        let (name, parameters) = (delegate.tool_name(giving), delegate.parameters(giving));
        let spec = ToolSpec { name, description: delegate.description.clone(), parameters };
        let tool = Self::new(spec, effect, kind, None, TaskArguments::Arguments)?;
        Ok(Self { delegate: Some((giving, Arc::new(delegate))), ..tool })
    }

    /// The agent that a call gives work to in this way.
    pub(super) fn gives(&self, giving: Giving) -> Option<&Arc<Delegate>> {
        self.delegate.as_ref().filter(|(given, _)| *given == giving).map(|(_, delegate)| delegate)
    }

    /// Hides it from models.
    pub(crate) fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }

    /// What a call does to the world.
    pub(super) fn effect_of(&self, arguments: &Value) -> Effect {
        self.tool.as_ref().map_or(self.effect, |tool| tool.effect_of(arguments))
    }

    /// Offers a task of any kind. It gets the model's arguments. The model is shown what it returns: a text as it is,
    /// and anything else as JSON. The task runs with the options that it is registered with, unless
    /// [`with_options`](Self::with_options) gives others.
    pub fn task(spec: ToolSpec, kind: impl Into<String>, effect: Effect) -> Result<Self> {
        Self::new(spec, effect, kind.into(), None, TaskArguments::Arguments)
    }

    /// Runs the task with these options in place of its own.
    #[must_use]
    pub fn with_options(mut self, options: TaskOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Gives the task only the value of this argument, which suits functions with one parameter. If the model leaves
    /// the argument out, the task gets the `default` of its schema.
    #[must_use]
    pub fn with_argument(mut self, name: impl Into<String>) -> Self {
        self.task_arguments = TaskArguments::argument(&name.into(), &self.spec.parameters);
        self
    }

    /// Has the task run by the workers of this queue, instead of those of the run's queue.
    #[must_use]
    pub fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    fn new(
        spec: ToolSpec,
        effect: Effect,
        kind: String,
        options: Option<TaskOptions>,
        task_arguments: TaskArguments,
    ) -> Result<Self> {
        let arguments = jsonschema::validator_for(&spec.parameters).map_err(|error| {
            let message = format!("the parameters of the tool {:?} are no JSON Schema: {error}", spec.name);
            Error::new(Code::InvalidArgument, message)
        })?;
        Ok(Self {
            spec,
            effect,
            kind,
            options,
            queue: None,
            task_arguments,
            arguments: Arc::new(arguments),
            tool: None,
            delegate: None,
            escalates: false,
            is_hidden: false,
        })
    }

    /// What is wrong with the arguments of a call, in words for the model; none if they are right.
    pub(super) fn faults(&self, arguments: &Value) -> Option<String> {
        let faults: Vec<_> = self
            .arguments
            .iter_errors(arguments)
            .take(MOST_FAULTS)
            .map(|error| format!("- {}: {error}", error.instance_path()))
            .collect();
        let name = &self.spec.name;
        (!faults.is_empty()).then(|| format!("The arguments of {name} are wrong:\n{}", faults.join("\n")))
    }

    /// The task of a call.
    pub(super) fn call(&self, id: &str, arguments: &Value, context: &CallContext<'_>) -> Result<TaskCall> {
        let input = match &self.task_arguments {
            TaskArguments::Arguments | TaskArguments::Argument(..) => self.task_arguments.payload(arguments)?,
            TaskArguments::Call => Payload::of(&ToolCallInput {
                arguments: arguments.clone(),
                working_directory: context.working_directory.map(PathBuf::from),
                session: Some(context.session.clone()),
                seen: context.seen.of_call(arguments).map(str::to_owned),
            })?,
        };
        let (options, queue) = (self.options.clone(), self.queue.clone());
        Ok(TaskCall { kind: self.kind.clone(), input, options, queue, key: Some(id.to_owned()) })
    }

    /// The input that an MCP server asks a person for, if the outcome of a call says so. Tasks that are not host tools
    /// cannot ask.
    pub(super) fn asks(&self, outcome: &ToolOutcome) -> Option<InputRequired> {
        InputRequired::of(outcome).filter(|_| self.task_arguments == TaskArguments::Call)
    }

    /// The outcome of a finished task.
    pub(super) fn outcome(&self, output: &Payload) -> Result<ToolOutcome> {
        if self.task_arguments != TaskArguments::Call || output.encoding != Encoding::Json {
            return outcome_of(output);
        }
        Ok(match output.parse()? {
            // A text as output means that the engine has interrupted the task: it is the text that the task had
            // streamed.
            Value::String(_) => interrupted(),
            value => serde_json::from_value(value).map_err(|error| {
                let message = format!("the task {:?} gave no outcome of a tool: {error}", self.kind);
                Error::new(Code::NotSerializable, message)
            })?,
        })
    }
}

impl TaskArguments {
    /// The value of this argument, or the default of the schema.
    pub(super) fn argument(name: &str, parameters: &Value) -> Self {
        Self::Argument(name.to_owned(), parameters["properties"][name]["default"].clone())
    }

    /// The input that the arguments of a call stand for.
    pub(super) fn payload(&self, arguments: &Value) -> Result<Payload> {
        match self {
            Self::Argument(name, default) => Payload::of(arguments.get(name).unwrap_or(default)),
            Self::Call | Self::Arguments => Payload::of(arguments),
        }
    }
}

/// What a model is shown of any value.
pub(super) fn outcome_of(output: &Payload) -> Result<ToolOutcome> {
    if output.encoding != Encoding::Json {
        return of_bytes(output);
    }
    Ok(match output.parse()? {
        Value::String(text) => ToolOutcome::text(text),
        Value::Null => ToolOutcome::text("Done."),
        value => match parts_of_value(&value) {
            Some((parts, is_error)) => {
                let content = parts.into_iter().map(checked_part).collect();
                ToolOutcome { content, is_error, details: Value::Null }
            }
            None => ToolOutcome::text(value.to_string()).with_details(value),
        },
    })
}

/// Bytes that a task returned: an image if they are one, a text if they are one, and otherwise a line about them.
fn of_bytes(output: &Payload) -> Result<ToolOutcome> {
    let content = match &output.body {
        Body::Source(source) => PayloadContent::Source(source.clone()),
        // What was just stored may still be in this process.
        _ => match output.clone().let_go() {
            Some((_, content)) => content,
            None => PayloadContent::Memory(output.bytes()?.clone()),
        },
    };
    let size = content.size();
    let part = match size <= MOST_BYTES {
        true => image::part_of_bytes(&content.piece(0, size as usize)?),
        false => Part::text(image::about_bytes(&content.piece(0, SAMPLE)?, size)),
    };
    Ok(ToolOutcome { content: vec![part], is_error: false, details: json!({ "bytes": size }) })
}

/// Checks a part that a user or a tool has given. The error says in words what is wrong with it.
pub(super) fn accept_part(part: Part) -> Result<Part, String> {
    let part = shapes::read_part(&part)?;
    match part.content {
        Content::Media(media) => Ok(Part { content: Content::Media(image::checked(media)?), ..part }),
        _ => Ok(part),
    }
}

/// A part that a user or a tool has given. One that cannot be used becomes a text that says why.
pub(super) fn checked_part(part: Part) -> Part {
    accept_part(part).unwrap_or_else(|why| Part::text(format!("[An attachment was left out: {why}.]")))
}

/// The outcome of a call whose task failed.
pub(super) fn failed(failure: &Failure) -> ToolOutcome {
    ToolOutcome::error("task_failed", format!("{}: {}", failure.error_type, failure.message))
}

/// The outcome of a call that a message of the user interrupted.
pub(super) fn interrupted() -> ToolOutcome {
    ToolOutcome::error(
        "interrupted",
        "Interrupted: the user sent a message that was not to wait. What was begun may be half done.",
    )
}
