//! The events that the agent streams beside its tokens, in snake_case as clients read them. They are previews.

use super::{InputRefused, InputRequest};
use crate::tools::approval::ApprovalRequest;
use flovyn_core::context::AgentContext;
use flovyn_core::model::ChunkKind;
use flovyn_core::task::TaskContext;
use serde::Serialize;
use serde_json::Value;

/// A structured event of the stream. Text comes as tokens; a command's output comes as `terminal` from its tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent<'a> {
    /// More of what the model thinks.
    ThinkingDelta {
        /// The text.
        delta: &'a str,
    },
    /// More of the arguments of a call that the model is writing; it may yet be retracted.
    ToolCallDelta {
        /// The part of the message.
        part: usize,
        /// The text, JSON only when complete.
        delta: &'a str,
    },
    /// An attempt, or the agent between two of them, waits to ask the provider again.
    Retrying {
        /// The request that comes, from 2.
        attempt: u32,
        /// How long until then.
        delay_ms: u64,
        /// Why.
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
        /// What the model is told.
        result: ToolCallEnd<'a>,
    },
    /// A file was written.
    Artifact {
        /// Its path in the working directory.
        path: &'a str,
        /// The tool: `write` or `edit`.
        action: &'a str,
        /// `code`, `document`, `image` or `data`, by the path's ending.
        artifact_type: &'a str,
    },
    /// A person is asked about a call.
    ApprovalRequest {
        /// What is asked.
        request: &'a ApprovalRequest,
    },
    /// A person is asked what an MCP server wants to know.
    InputRequest {
        /// What is asked.
        request: &'a InputRequest,
    },
    /// An answer did not fit what the server asks, which is still open.
    InputRefused {
        /// Why.
        refused: &'a InputRefused,
    },
    /// What the agent does has changed.
    Status {
        /// `running`, `waiting_for_input`, `waiting_for_approval`, `waiting_for_answer`, `compacting`.
        status: &'a str,
        /// Model calls so far.
        turn: u32,
        /// Why, where there is something to say.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    /// Little is left of the budget.
    BudgetLow {
        /// Tokens used.
        tokens: u64,
        /// Millionths of a US dollar used.
        cost_micros: u64,
        /// Model calls made.
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
}

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallRef<'a> {
    /// Its id.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
}

/// A result as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallEnd<'a> {
    /// The text that the model sees.
    pub content: &'a str,
    /// Whether the tool failed.
    pub is_error: bool,
}

impl AgentEvent<'_> {
    /// Streams the event as a preview of a run.
    pub(super) fn emit(&self, ctx: &dyn AgentContext) {
        if let Ok(json) = serde_json::to_string(self) {
            ctx.stream(ChunkKind::Data, &json);
        }
    }

    /// Streams the event as a preview of a task.
    pub(super) fn emit_from_task(&self, ctx: &TaskContext) {
        if let Ok(json) = serde_json::to_string(self) {
            ctx.stream(ChunkKind::Data, &json);
        }
    }
}

/// What sort of artifact a file is, by its ending.
pub(super) fn artifact_type(path: &str) -> &'static str {
    let ending = path.rsplit('/').next().unwrap_or(path).rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "md" | "txt" | "rst" | "adoc" | "html" | "pdf" | "tex" | "doc" | "docx" => "document",
        "png" | "jpg" | "jpeg" | "gif" | "svg" | "webp" => "image",
        "json" | "csv" | "tsv" | "yaml" | "yml" | "toml" | "xml" | "sql" | "parquet" => "data",
        _ => "code",
    }
}
