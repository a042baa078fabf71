//! Views of what a run leaves behind: the entries of its conversation, its checkpoints, its events.

use super::run::Usage;
use super::show::{Moment, Opaque, Word, view};
use crate::model::EventKind;
use std::collections::BTreeMap;
use uuid::Uuid;

view! {
    /// A node of the conversation, without its content.
    #[cfg_attr(feature = "openapi", schema(as = EntryView))]
    pub struct Entry {
        /// Its UUID.
        pub id: Uuid,
        /// The entry before it.
        pub parent_id: Option<Uuid>,
        /// The run that appended it: of a fork's branch, also the run it was forked from.
        pub execution: Uuid,
        /// Empty for the main thread.
        pub thread: String,
        /// Who says it.
        #[cfg_attr(feature = "openapi", schema(example = "assistant"))]
        pub role: String,
        /// What it is.
        #[cfg_attr(feature = "openapi", schema(example = "message"))]
        pub entry_type: String,
        /// The turn it belongs to.
        pub turn_id: Option<String>,
        /// What its author said about it.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
        pub metadata: Option<Opaque>,
        /// Distance from the root.
        pub depth: u32,
        /// When it was appended.
        pub created_at: Moment,
    }
}

view! {
    /// A place where a run starts again, without its state.
    #[cfg_attr(feature = "openapi", schema(as = CheckpointView))]
    pub struct Checkpoint {
        /// From 1.
        pub sequence: u32,
        /// The entry at which the conversation stood.
        pub leaf: Option<Uuid>,
        /// Bytes of the state.
        pub state_size: u64,
        /// What its author said about it, such as its `reason`.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
        pub metadata: Opaque,
        /// What the run's model calls had cost by then, by model.
        pub usage: BTreeMap<String, Usage>,
        /// When it was saved.
        pub created_at: Moment,
    }
}

view! {
    /// Something that happened to a run.
    pub struct Event {
        /// What to resume a stream after.
        pub id: String,
        /// The run.
        pub execution: Uuid,
        /// What happened: `created`, `task_started`, `entry`, …
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub kind: Word<EventKind>,
        /// When.
        pub at: Moment,
        /// The segment it happened in.
        pub segment: u32,
        /// The call it is about, within the segment; null where it is about none.
        pub sequence: Option<u32>,
        /// The op it is about; null where it is about none.
        pub op: Option<String>,
        /// What else there is to say, which depends on the kind.
        #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
        pub data: Opaque,
    }
}

impl Entry {
    /// What is shown of an entry.
    pub fn of(entry: &crate::model::Entry) -> Self {
        Self {
            id: entry.new.id.0,
            parent_id: entry.new.parent.map(|parent| parent.0),
            execution: entry.execution.0,
            thread: entry.new.thread.clone(),
            role: entry.new.role.clone(),
            entry_type: entry.new.entry_type.clone(),
            turn_id: entry.new.turn_id.clone(),
            metadata: entry.new.metadata.as_deref().map(Opaque::parsed),
            depth: entry.depth,
            created_at: Moment(entry.created_at),
        }
    }
}

impl Checkpoint {
    /// What is shown of a checkpoint.
    pub fn of(checkpoint: &crate::model::Checkpoint) -> Self {
        Self {
            sequence: checkpoint.sequence,
            leaf: checkpoint.saved.leaves.get("").map(|leaf| leaf.0),
            state_size: checkpoint.saved.state.size(),
            metadata: Opaque::parsed(&checkpoint.saved.metadata),
            usage: Usage::by_model(&checkpoint.usage),
            created_at: Moment(checkpoint.created_at),
        }
    }
}

impl Event {
    /// What is shown of a durable event.
    pub fn of(event: &crate::model::Event) -> Self {
        Self {
            id: event.number.to_string(),
            execution: event.execution.0,
            kind: Word(event.kind),
            at: Moment(event.at),
            segment: event.segment,
            sequence: event.sequence,
            op: event.sequence.map(|sequence| format!("{}-{}-{sequence}", event.execution, event.segment)),
            data: Opaque(event.data.clone()),
        }
    }
}
