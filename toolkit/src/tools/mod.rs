//! Host tools: read, write, edit, bash (also in the background), grep, find, run-sandbox, todo and fetch, each a function for
//! models and a durable task.
//!
//! The [`Tool`] trait and the built-in tools are here. A [`Toolbox`] holds tools by name, with the JSON Schemas of
//! their inputs. A [`ToolTask`] makes a tool a task of the engine, so that nothing is repeated or forgotten when a
//! worker dies in the middle of a call. [`approval`] decides which calls need a person. File tools stay inside a
//! [`WorkingDirectory`], and commands run confined (`Sandbox`). All of it needs a Unix system.

pub mod approval;
mod background;
mod bash;
mod diff;
mod directory;
mod edit;
mod environment;
pub mod excerpt;
pub(crate) mod fault;
mod fetch;
mod find;
mod grep;
mod guarded;
pub(crate) mod image;
mod outcome;
mod preview;
pub(crate) mod process;
mod read;
mod record;
mod run_sandbox;
mod search;
mod seen;
mod task;
mod todo;
mod toolbox;
mod undo;
mod write;

pub use background::{BashOutput, BashStop};
pub use bash::Bash;
pub use directory::WorkingDirectory;
pub use edit::Edit;
pub use environment::{Limits, Sandbox, StopSignal, Stream, TerminalEvent, TerminalSink, ToolEnvironment};
pub use fetch::Fetch;
pub use find::Find;
pub use grep::Grep;
pub use image::checked as checked_media;
pub use outcome::ToolOutcome;
pub use preview::preview;
pub use process::Availability;
pub use read::Read;
pub use record::CallRecords;
pub use run_sandbox::RunSandbox;
pub use seen::FilesSeen;
pub use task::{ToolCallInput, ToolHost, ToolTask};
pub use todo::{Todo, TodoList, TodoStatus, TodoStep};
pub use toolbox::{ToolDefinition, Toolbox};
pub use undo::{NotPutBack, put_back};
pub use write::Write;

use async_trait::async_trait;
use fault::Fault;
use flovyn_core::error::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The effect of a tool's calls on the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// They only look.
    Read,
    /// They change files or data.
    Write,
    /// They run code or commands of the model.
    Exec,
}

/// What the next attempt of a call does if the worker died during the attempt before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// It runs the call again.
    Again,
    /// It compares the file with the hashes that were recorded before the file was replaced.
    Compare,
    /// It runs nothing, and tells the model that the outcome is unknown.
    Report,
}

/// A tool that a model may call.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The name that models use: at most 64 letters, digits, `_` and `-`.
    fn name(&self) -> &str;

    /// What it does, written for the model.
    fn description(&self) -> &str;

    /// The JSON Schema of its arguments: an object.
    fn input_schema(&self) -> Value;

    /// The JSON Schema of the outcome's `details`, if they have one.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// What a call does to the world.
    fn effect(&self) -> Effect;

    /// What a call with these arguments does to the world: what approvals go by.
    fn effect_of(&self, _arguments: &Value) -> Effect {
        self.effect()
    }

    /// What the next attempt does if the worker died. Unless the tool says otherwise, a call that only looks is run
    /// again, and any other is reported.
    fn recovery(&self) -> Recovery {
        match self.effect() {
            Effect::Read => Recovery::Again,
            Effect::Write | Effect::Exec => Recovery::Report,
        }
    }

    /// Runs a call. A failure that the model can do something about is an outcome. An error means that the call was
    /// stopped, or that the machine failed.
    async fn call(&self, arguments: Value, environment: &ToolEnvironment) -> Result<ToolOutcome>;
}

/// Reads the arguments of a tool. If they came through a [`Toolbox`], they were already checked against the schema.
fn parse<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, Fault> {
    serde_json::from_value(arguments)
        .map_err(|error| Fault::for_model("invalid_arguments", format!("The arguments of {tool} are wrong: {error}.")))
}
