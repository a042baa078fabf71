//! Nodes of the conversation tree.

use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, Slot};
use crate::payload::Payload;

/// Who speaks. Free text on the wire; these are the usual ones.
pub type Role = String;

/// An entry as the op that appends it describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry {
    /// UUIDv5 of the op id.
    pub id: EntryId,
    /// The entry it follows; none for the first of a tree.
    pub parent: Option<EntryId>,
    /// The thread whose last entry it becomes; empty for the main one.
    pub thread: String,
    /// `system`, `user`, `assistant`, `tool_result`, or the author's own word.
    pub role: Role,
    /// `message` unless the author says otherwise.
    pub entry_type: String,
    /// The content, JSON by convention.
    pub content: Payload,
    /// Groups the entries of one turn.
    pub turn_id: Option<String>,
    /// Small JSON object of the author's.
    pub metadata: Option<String>,
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// As asked for.
    pub new: NewEntry,
    /// The run that appended it.
    pub execution: ExecutionId,
    /// The op that appended it.
    pub slot: Slot,
    /// Distance from the root of the tree.
    pub depth: u32,
    /// When it became durable.
    pub created_at: Timestamp,
}
