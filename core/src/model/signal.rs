//! Messages from outside to a run.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, SignalId, Slot};
use crate::payload::{Body, Encoding, Payload};
use serde::{Deserialize, Serialize};

/// When a signal may be seen (rule 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Visible to every drain and wait.
    #[default]
    NextStep,
    /// Visible only to `wait_for_signal` and to a drain that asks for turns.
    NextTurn,
    /// Visible as with `NextStep`; it also interrupts the model call that is running.
    Now,
}

/// A signal as its sender gives it.
#[derive(Debug, Clone)]
pub struct NewSignal {
    /// Tenant.
    pub org: OrgId,
    /// The run it is for.
    pub execution: ExecutionId,
    /// The id it will have if it is stored now.
    pub id: SignalId,
    /// Its name, by which the run waits for it or drains it.
    pub name: String,
    /// The value.
    pub payload: Payload,
    /// When it may be seen.
    pub delivery: Delivery,
    /// Two sends with the same key are one signal, so that a send can be repeated.
    pub idempotency_key: Option<String>,
}

impl NewSignal {
    /// The signal as it is stored under a fact's number.
    pub(crate) fn stored(self, number: u64, at: Timestamp) -> Signal {
        let Self { id, name, payload, delivery, .. } = self;
        Signal { id, name, payload, delivery, number, consumed_by: None, created_at: at }
    }

    /// Checks that this send repeats the signal which is stored under its idempotency key or its id.
    ///
    /// Errors: `AlreadyExists` if the stored signal has another name or value. Without the error the new one would be
    /// lost and its sender would not know.
    pub(crate) fn repeats(&self, name: &str, payload: &Payload) -> Result<()> {
        let same =
            || self.payload == *payload || matches!((json(&self.payload), json(payload)), (Some(a), Some(b)) if a == b);
        if self.name == name && same() {
            return Ok(());
        }
        let what = match &self.idempotency_key {
            Some(key) => format!("the idempotency key {key:?}"),
            None => format!("the id {}", self.id),
        };
        let message = format!(
            "the signal {:?} has {what}, under which the run got a signal {name:?} of another value; give each signal a key of \
             its own",
            self.name
        );
        Err(Error::new(Code::AlreadyExists, message))
    }
}

/// The JSON value of a payload that is in memory.
fn json(payload: &Payload) -> Option<serde_json::Value> {
    match (&payload.body, payload.encoding) {
        (Body::Inline(bytes), Encoding::Json) => serde_json::from_slice(bytes).ok(),
        _ => None,
    }
}

/// The answer to a send. The signal is durable when it is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalStored {
    /// The signal's id. For a repeated key it is the id of the first send.
    pub id: SignalId,
    /// Whether an earlier send with the same key has stored it.
    pub repeated: bool,
    /// Whether it made a waiting run runnable.
    pub resumed: bool,
}

/// A stored signal.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// Its id.
    pub id: SignalId,
    /// Its name.
    pub name: String,
    /// The value.
    pub payload: Payload,
    /// When it may be seen.
    pub delivery: Delivery,
    /// Its fact number: the order of the mailbox.
    pub number: u64,
    /// The op that has taken it out of the mailbox.
    pub consumed_by: Option<Slot>,
    /// When it became durable.
    pub created_at: Timestamp,
}

impl Signal {
    /// Whether an op of a segment took it that comes after this one.
    pub(crate) fn was_taken_after(&self, segment: u32, sequence: Option<u32>) -> bool {
        let at = sequence.map(|sequence| Slot { segment, sequence });
        matches!((self.consumed_by, at), (Some(by), Some(at)) if by.segment == at.segment && by > at)
    }
}
