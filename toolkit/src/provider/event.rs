//! The events of a streamed answer.

use serde::{Deserialize, Serialize};

/// Something that happened while a model answered. It is for showing: what counts is the message at the end.
///
/// `part` numbers the parts of the message to come, from 0, in the order in which they began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StreamEvent {
    /// The provider has begun to answer.
    Started {
        /// The model that says it answers.
        model: String,
    },
    /// More text.
    TextDelta {
        /// The part it belongs to.
        part: usize,
        /// The text.
        delta: String,
    },
    /// More of what the model thinks.
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
    /// All that was streamed since the start is void; the call is made again.
    Retracted {
        /// Why.
        reason: String,
    },
    /// The call failed and is made again after a while.
    Retrying {
        /// The attempt that comes, from 2.
        attempt: u32,
        /// How long until then.
        delay_ms: u64,
        /// Why.
        reason: String,
    },
    /// The call goes to another model, because the ones before it failed.
    FellBack {
        /// `provider/model`.
        model: String,
        /// Why.
        reason: String,
    },
}

impl StreamEvent {
    /// Whether it shows something of the message, which a later failure makes void.
    pub fn is_content(&self) -> bool {
        matches!(
            self,
            Self::TextDelta { .. }
                | Self::ThinkingDelta { .. }
                | Self::ToolCallStart { .. }
                | Self::ToolCallDelta { .. }
        )
    }
}
