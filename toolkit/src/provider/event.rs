//! The events of a streamed answer.

use serde::{Deserialize, Serialize};

/// Something that happened while a model answered. Events are for showing progress; only the message at the end counts.
///
/// `part` is the number of a part of the later message, from 0, in the order in which the parts began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StreamEvent {
    /// The provider has begun to answer.
    Started {
        /// The model that answers, as the provider says.
        model: String,
    },
    /// More text.
    TextDelta {
        /// The part it belongs to.
        part: usize,
        /// The text.
        delta: String,
    },
    /// More of the model's thinking.
    ThinkingDelta {
        /// The part it belongs to.
        part: usize,
        /// The text.
        delta: String,
    },
    /// A tool call begins. It does not exist yet: it may be cut off or retracted.
    ToolCallStart {
        /// The part it belongs to.
        part: usize,
        /// The id it will have.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of the arguments of a tool call, as text that is JSON only when complete.
    ToolCallDelta {
        /// The part it belongs to.
        part: usize,
        /// The text.
        delta: String,
    },
    /// All that was streamed since the start is void, and the call is made again.
    Retracted {
        /// Why it is void.
        reason: String,
    },
    /// The call has failed and is made again after a pause.
    Retrying {
        /// The number of the next attempt, from 2.
        attempt: u32,
        /// How long the pause is.
        delay_ms: u64,
        /// Why the call has failed.
        reason: String,
    },
    /// The next model is asked, because the one before it has failed.
    FellBack {
        /// The next model, as `provider/model`.
        model: String,
        /// Why the one before it has failed.
        reason: String,
    },
}

impl StreamEvent {
    /// Whether it shows a piece of the message. Such a piece is void if the call fails later.
    pub fn is_content(&self) -> bool {
        matches!(
            self,
            Self::TextDelta { .. }
                | Self::ThinkingDelta { .. }
                | Self::ToolCallStart { .. }
                | Self::ToolCallDelta { .. }
        )
    }

    /// How many bytes of the message it shows.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::TextDelta { delta, .. } | Self::ThinkingDelta { delta, .. } | Self::ToolCallDelta { delta, .. } => {
                delta.len()
            }
            _ => 0,
        }
    }
}
