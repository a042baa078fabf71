//! What a child is given of the conversation of the run that starts it.

use crate::error::{Code, Error, Result};
use crate::id::EntryId;
use serde::{Deserialize, Serialize};

/// The longest value of the author's, in bytes of JSON.
const MOST: usize = 64 << 10;

/// What a child is given of the conversation of the run that starts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum SharedContext {
    /// Its own conversation goes on from where its parent's stood, by reference: nothing is copied, and its parent does not
    /// see what it appends.
    ReadOnly(Shared),
    /// The same, and its parent sees it: at its end, the parent's thread of its id stands where its conversation does.
    Conversation(Shared),
    /// A value of the author's.
    Custom {
        /// JSON.
        value: String,
    },
}

/// The place in the conversation of its parent from which a child's goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The thread of the parent; its main one is "".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// The last entry there. The engine sets it when the child takes its place in the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<EntryId>,
}

impl SharedContext {
    /// Lets the child's conversation go on from where its parent's stands.
    pub fn read_only() -> Self {
        Self::ReadOnly(Shared::default())
    }

    /// The same, and its parent sees what it appends.
    pub fn conversation() -> Self {
        Self::Conversation(Shared::default())
    }

    /// What the JSON of a language says: `"read_only"`, `"conversation"`, or an object of the author's. `thread` is the
    /// thread of the parent from which the child's conversation goes on.
    ///
    /// Errors: `InvalidArgument`.
    pub fn given(json: &str, thread: &str) -> Result<Self> {
        let word = match json {
            "\"read_only\"" => Self::read_only(),
            "\"conversation\"" => Self::conversation(),
            _ if json.starts_with('{') => return Self::custom(json.to_owned()),
            _ => {
                let message =
                    format!("shared_context is {json}; give \"read_only\", \"conversation\" or an object of your own");
                return Err(Error::new(Code::InvalidArgument, message));
            }
        };
        Ok(word.in_thread(thread))
    }

    /// The same as JSON: a word, or the object of the author's.
    pub fn json(&self) -> &str {
        match self {
            Self::ReadOnly(_) => "\"read_only\"",
            Self::Conversation(_) => "\"conversation\"",
            Self::Custom { value } => value,
        }
    }

    /// A value of the author's, as JSON.
    ///
    /// Errors: `InvalidArgument` for one of more than 64 KiB.
    pub fn custom(value: String) -> Result<Self> {
        if value.len() <= MOST {
            return Ok(Self::Custom { value });
        }
        let message = format!(
            "shared_context has {} bytes of JSON, and {MOST} are the most; pass a large value as the input",
            value.len()
        );
        Err(Error::new(Code::InvalidArgument, message))
    }

    /// The place in the parent's conversation, if it has one.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        match self {
            Self::ReadOnly(shared) | Self::Conversation(shared) => Some(shared),
            Self::Custom { .. } => None,
        }
    }

    /// The entry from which the child's conversation goes on.
    pub(crate) fn leaf(&self) -> Option<EntryId> {
        self.shared()?.leaf
    }

    /// Whether the parent sees what the child appends.
    pub(crate) fn is_seen(&self) -> bool {
        matches!(self, Self::Conversation(_))
    }

    /// The same, of a thread of the parent.
    pub(crate) fn in_thread(mut self, thread: &str) -> Self {
        if let Self::ReadOnly(shared) | Self::Conversation(shared) = &mut self {
            shared.thread = thread.to_owned();
        }
        self
    }

    /// The same, from where a thread of the parent stands now.
    pub(crate) fn from(mut self, leaf_of: impl FnOnce(&str) -> Option<EntryId>) -> Self {
        if let Self::ReadOnly(shared) | Self::Conversation(shared) = &mut self {
            shared.leaf = leaf_of(&shared.thread);
        }
        self
    }
}
