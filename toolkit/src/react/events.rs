//! The events that the agent streams beside its tokens. They are previews, and their JSON is in snake_case.

use super::{AgentSpawn, InputRefused, InputRequest};
use crate::tools::approval::ApprovalRequest;
use flovyn_core::context::AgentContext;
use flovyn_core::model::ChunkKind;
use flovyn_core::task::TaskContext;
use serde::Serialize;
use serde_json::Value;

/// An event of the stream. Text is streamed as tokens instead, and the output of a command as `terminal` events of its
/// tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent<'a> {
    /// More of the model's thinking.
    ThinkingDelta {
        /// The text.
        delta: &'a str,
    },
    /// More of the arguments of a call that the model is writing. It may still be retracted.
    ToolCallDelta {
        /// The number of the part in the message.
        part: usize,
        /// The text. It is JSON only when it is complete.
        delta: &'a str,
    },
    /// No model has answered, and the agent waits before it asks again.
    Retrying {
        /// The number of the next round of requests, from 2.
        attempt: u32,
        /// How long the wait is.
        delay_ms: u64,
        /// When it ends, in RFC 3339.
        until: &'a str,
        /// Why the last request has failed.
        reason: &'a str,
    },
    /// A tool call is about to run.
    ToolCallStart {
        /// The call.
        tool_call: ToolCallStart<'a>,
    },
    /// A tool call has its result.
    ToolCallEnd {
        /// The call.
        tool_call: ToolCallRef<'a>,
        /// The result that the model gets.
        result: ToolCallEnd<'a>,
    },
    /// A file was written.
    Artifact {
        /// Its path in the working directory.
        path: &'a str,
        /// The tool: `write` or `edit`.
        action: &'a str,
        /// `code`, `document`, `image` or `data`, depending on the ending of the path.
        artifact_type: &'a str,
    },
    /// A run of another agent was started for a call.
    AgentSpawn {
        /// The call and the run.
        spawn: &'a AgentSpawn,
    },
    /// A person is asked to approve a call.
    ApprovalRequest {
        /// The request.
        request: &'a ApprovalRequest,
    },
    /// A person is asked the questions of an MCP server.
    InputRequest {
        /// The request.
        request: &'a InputRequest,
    },
    /// An answer did not fit the questions of a server. They are still open.
    InputRefused {
        /// The refusal, with the reason.
        refused: &'a InputRefused,
    },
    /// What the agent does has changed.
    Status {
        /// `running`, `waiting_for_input`, `waiting_for_approval`, `waiting_for_answer`, `compacting`.
        status: &'a str,
        /// How many model calls were made so far.
        turn: u32,
        /// The reason, if there is one to show.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    /// Little is left of the budget.
    BudgetLow {
        /// How many tokens were used.
        tokens: u64,
        /// How many millionths of a US dollar were used.
        cost_micros: u64,
        /// How many model calls were made.
        calls: u64,
    },
}

/// A call as it starts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallStart<'a> {
    /// Its id.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// The arguments.
    pub arguments: &'a Value,
    /// Whether an external agent runs it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub external: bool,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallRef<'a> {
    /// Its id.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Whether an external agent has run it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub external: bool,
}

/// The result of a call, in the form in which it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallEnd<'a> {
    /// The text that the model sees.
    pub content: &'a str,
    /// Whether the tool failed.
    pub is_error: bool,
}

impl AgentEvent<'_> {
    /// Streams the event as a preview of a run.
    pub(crate) fn emit(&self, ctx: &dyn AgentContext) {
        if let Ok(json) = serde_json::to_string(self) {
            ctx.stream(ChunkKind::Data, &json);
        }
    }

    /// Streams the event as a preview of a task.
    pub(crate) fn emit_from_task(&self, ctx: &TaskContext) {
        if let Ok(json) = serde_json::to_string(self) {
            ctx.stream(ChunkKind::Data, &json);
        }
    }
}

/// The type of artifact that a file is, by the ending of its path.
pub(super) fn artifact_type(path: &str) -> &'static str {
    let ending = path.rsplit('/').next().unwrap_or(path).rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "md" | "txt" | "rst" | "adoc" | "html" | "pdf" | "tex" | "doc" | "docx" => "document",
        "png" | "jpg" | "jpeg" | "gif" | "svg" | "webp" => "image",
        "json" | "csv" | "tsv" | "yaml" | "yml" | "toml" | "xml" | "sql" | "parquet" => "data",
        _ => "code",
    }
}
