//! What a run is told of the runs that it has started.
//!
//! The end of a child is stored as a signal of its parent, in the transaction that ends the child. So there is no
//! moment at which a child has ended and its parent could not know of it.

use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, OrgId, SignalId, Slot};
use crate::model::{ChildEvent, Delivery, Execution, Failure, NewSignal, Overrun, SharedContext, Signal, Status};
use crate::payload::{Body, ContentHash, Encoding, Payload};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The name of the signal that tells a run of the end of a run it has started.
pub fn child_signal(child: ExecutionId) -> String {
    format!("{CHILD_SIGNALS}{child}")
}

/// The prefix of the names of such signals.
pub const CHILD_SIGNALS: &str = "flovyn.child.";

/// In a wait: the end of any child.
pub(crate) const ANY_CHILD: &str = "flovyn.child.*";

/// The child that a signal tells of. With a slot it tells only the op there that its child was not started.
pub(crate) fn told_of(signal: &str) -> Option<(ExecutionId, Option<Slot>)> {
    let mut words = signal.strip_prefix(CHILD_SIGNALS)?.split('.');
    let child = ExecutionId(words.next()?.parse().ok()?);
    let Some(segment) = words.next() else { return Some((child, None)) };
    let slot = Slot { segment: segment.parse().ok()?, sequence: words.next()?.parse().ok()? };
    Some((child, Some(slot)))
}

/// A consumed signal, for a tail of which only some ops are kept: that of a kept op as it is, and the end of a child as
/// consumed by a kept op of the same child.
pub(crate) fn kept_signal(
    signal: Signal,
    is_kept: impl Fn(&Slot) -> bool,
    children: &BTreeMap<ExecutionId, Slot>,
) -> Option<Signal> {
    if is_kept(&signal.consumed_by?) {
        return Some(signal);
    }
    let (child, None) = told_of(&signal.name)? else { return None };
    Some(Signal { consumed_by: Some(*children.get(&child)?), ..signal })
}

/// What a run that has completed warns of: children that still ran.
pub(crate) fn left_running(children: impl Iterator<Item = ExecutionId>) -> serde_json::Value {
    let mut ids: Vec<_> = children.collect();
    ids.sort_unstable();
    serde_json::json!({
        "warning": "children_left",
        "count": ids.len(),
        "children": &ids[..ids.len().min(16)],
        "advice": "await every child, or start it with on_parent_end \"detach\""
    })
}

/// The output of a run that is COMPLETED by its handoff.
pub(crate) fn handed_off(to: ExecutionId) -> Payload {
    Payload::json(serde_json::json!({ "handedTo": to }).to_string())
}

/// A signal that a run has not read, for the run that it hands off to. None for what only the run itself can be told.
pub(crate) fn handed_signal(org: OrgId, unread: &Signal, to: ExecutionId) -> Option<NewSignal> {
    let Signal { id, name, payload, delivery, .. } = unread;
    let id = SignalId(uuid::Uuid::new_v5(&id.0, to.0.as_bytes()));
    let (name, payload, delivery) = (name.clone(), payload.clone(), *delivery);
    let signal = NewSignal { org, execution: to, id, name, payload, delivery, idempotency_key: None };
    (!super::is_own_signal(&signal.name)).then_some(signal)
}

/// How a child ended, as its parent's signal has it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChildEnd {
    child: ExecutionId,
    /// None for a child that was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    /// How its budget stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overrun: Option<Overrun>,
    /// Where its conversation stands, if its parent sees that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaf: Option<EntryId>,
}

/// The output of a child: in the signal where it is small, else the name of the stored bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Output {
    Json(Box<RawValue>),
    Bytes { encoding: Encoding, bytes: Vec<u8> },
    Stored { encoding: Encoding, hash: [u8; 32], size: u64 },
}

impl Output {
    pub(super) fn of(payload: &Payload) -> Option<Self> {
        let encoding = payload.encoding;
        if let Some((ContentHash(hash), size)) = payload.stored() {
            return Some(Self::Stored { encoding, hash, size });
        }
        let bytes = payload.bytes().ok()?.to_vec();
        let json = || RawValue::from_string(String::from_utf8(bytes.clone()).ok()?).ok();
        let json = (encoding == Encoding::Json).then(json).flatten();
        Some(json.map_or(Self::Bytes { encoding, bytes }, Self::Json))
    }

    pub(super) fn payload(self) -> Payload {
        match self {
            Self::Json(json) => Payload::json(String::from(Box::<str>::from(json))),
            Self::Bytes { encoding, bytes } => Payload { encoding, body: Body::Inline(bytes.into()) },
            Self::Stored { encoding, hash, size } => {
                Payload { encoding, body: Body::Stored { hash: ContentHash(hash), size } }
            }
        }
    }
}

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    pub child: ExecutionId,
    pub status: Status,
    pub output: Option<&'a Payload>,
    pub failure: Option<&'a Failure>,
    /// How its budget stopped it.
    pub overrun: Option<Overrun>,
    /// Where its conversation stands, if its parent sees that.
    pub leaf: Option<EntryId>,
}

impl Ended<'_> {
    /// A child of which nothing is known but that it was stopped.
    pub(crate) fn cancelled(child: ExecutionId) -> Self {
        Self { child, status: Status::Cancelled, output: None, failure: None, overrun: None, leaf: None }
    }
}

impl ChildEnd {
    /// Where the conversation of a child stands, by the signal that tells of its end, if its parent sees that.
    pub(crate) fn leaf(signal: &Payload) -> Option<EntryId> {
        signal.parse::<Self>().ok()?.leaf
    }

    /// The signal that tells a parent of the end of a child.
    pub(crate) fn signal(org: OrgId, parent: ExecutionId, ended: Ended<'_>) -> NewSignal {
        let Ended { child, status, output, failure, overrun, leaf } = ended;
        let (output, failure) = (output.and_then(Output::of), failure.cloned());
        let end = Self { child, status: Some(status), output, failure, overrun, leaf };
        end.told(org, parent, Self::id(child), child_signal(child))
    }

    /// The signal that tells a parent of the end of a child that has ended.
    pub(crate) fn of(child: &Execution, parent: ExecutionId) -> NewSignal {
        let shared = child.new.shared_context.as_ref();
        let ended = Ended {
            child: child.new.id,
            status: child.status,
            output: child.end_output(),
            failure: child.failure.as_ref(),
            overrun: child.overrun(),
            leaf: child.leaf.filter(|_| shared.is_some_and(SharedContext::is_seen)),
        };
        Self::signal(child.new.org, parent, ended)
    }

    /// The id of the signal that tells of a child's end.
    pub(crate) fn id(child: ExecutionId) -> SignalId {
        SignalId(uuid::Uuid::new_v5(&child.0, b"ended"))
    }

    /// The id of the signal that tells of it once more, to a segment that begins to wait for the child again.
    pub(crate) fn id_again(child: ExecutionId, segment: u32) -> SignalId {
        SignalId(uuid::Uuid::new_v5(&child.0, format!("ended.{segment}").as_bytes()))
    }

    /// The signal that tells the op of a slot why its child was not started.
    pub(crate) fn refusal(org: OrgId, parent: ExecutionId, child: ExecutionId, slot: Slot, error: &Error) -> NewSignal {
        let failure = Failure::new(error.code(), error.code().as_str(), error.message());
        let end = Self { child, status: None, output: None, failure: Some(failure), overrun: None, leaf: None };
        let at = format!("{}.{}", slot.segment, slot.sequence);
        let id = SignalId(uuid::Uuid::new_v5(&child.0, format!("refused.{parent}.{at}").as_bytes()));
        end.told(org, parent, id, format!("{}.{at}", child_signal(child)))
    }

    fn told(&self, org: OrgId, parent: ExecutionId, id: SignalId, name: String) -> NewSignal {
        let payload = Payload::of(self).unwrap_or_else(|_| Payload::null());
        NewSignal { org, execution: parent, id, name, payload, delivery: Delivery::NextStep, idempotency_key: None }
    }

    /// What a run hears of the end of a child.
    pub(super) fn event(signal: &Payload) -> Result<ChildEvent, Failure> {
        let end: Self = signal.parse().map_err(|error| Failure::new(error.code(), "ChildFailed", error.message()))?;
        let output = end.output.map(Output::payload);
        Ok(match (end.status, end.failure) {
            (Some(Status::Completed), _) => ChildEvent::Completed { output: output.unwrap_or_else(Payload::null) },
            (Some(Status::Cancelled), _) => match end.overrun {
                Some(Overrun { used, limit }) => ChildEvent::BudgetExceeded { used, limit, output },
                None => ChildEvent::Cancelled { output },
            },
            (_, Some(error)) => ChildEvent::Failed { error: Failure { code: Code::ChildFailed, task: None, ..error } },
            (_, None) => {
                ChildEvent::Failed { error: Failure::new(Code::ChildFailed, "ChildFailed", "it left no error") }
            }
        })
    }

    /// What the await of a child ends with: its output, or why there is none. `kind` is what the child is.
    pub(crate) fn result(signal: &Payload, kind: &str) -> Result<Payload, Failure> {
        let end: Self = signal.parse().map_err(|error| Failure::new(error.code(), "ChildFailed", error.message()))?;
        let failure = match (end.status, end.failure) {
            (Some(Status::Completed), _) => return Ok(end.output.map_or_else(Payload::null, Output::payload)),
            (Some(Status::Failed), Some(failure)) => Failure { code: Code::ChildFailed, task: None, ..failure },
            (None, Some(refused)) => return Err(refused),
            (Some(Status::Failed), None) => Failure::new(Code::ChildFailed, "ChildFailed", "it left no error"),
            _ if let Some(Overrun { used, limit }) = &end.overrun => {
                let json = |value: serde_json::Result<String>| value.unwrap_or_default();
                let (used, limit) = (json(serde_json::to_string(used)), json(serde_json::to_string(limit)));
                let message = format!(
                    "the child had used {used} of {limit}, and was asked to stop before a call that had no room"
                );
                Failure::new(Code::BudgetExceeded, "BudgetExceeded", message)
            }
            _ => Failure::new(Code::ChildCancelled, "ChildCancelled", "it was asked to stop"),
        };
        Err(Failure { kind: Some(kind.to_owned()), ..failure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: Status, output: Option<Payload>, failure: Option<Failure>) -> Result<Payload, Failure> {
        let child = ExecutionId(uuid::Uuid::from_u128(7));
        let (output, failure) = (output.as_ref(), failure.as_ref());
        let ended = Ended { child, status, output, failure, overrun: None, leaf: None };
        let signal = ChildEnd::signal(OrgId::DEFAULT, ExecutionId::default(), ended);
        assert_eq!(signal.name, "flovyn.child.00000000-0000-0000-0000-000000000007");
        ChildEnd::result(&signal.payload, "researcher")
    }

    #[test]
    fn a_parent_is_told_the_output_that_its_child_has() {
        let stored =
            Payload { encoding: Encoding::Raw, body: Body::Stored { hash: ContentHash([9; 32]), size: 90_000 } };
        for output in [
            Payload::json("{\"a\": [1, \"\\u0000\u{2028}\"]}"),
            Payload::raw(vec![0, 255, 10]),
            Payload::json(""),
            stored,
        ] {
            let told = told(Status::Completed, Some(output.clone()), None).expect("an output");
            assert_eq!(told, output);
            assert_eq!(told.encoding, output.encoding);
        }
        assert_eq!(told(Status::Completed, None, None), Ok(Payload::null()));
    }

    #[test]
    fn a_parent_is_told_why_its_child_has_no_output() {
        let failed = told(Status::Failed, None, Some(Failure::new(Code::AgentFailed, "ValueError", "no otters")));
        let failure = failed.expect_err("a failure");
        assert_eq!((failure.code, failure.error_type.as_str()), (Code::ChildFailed, "ValueError"));
        assert_eq!((failure.kind.as_deref(), failure.message.as_str()), (Some("researcher"), "no otters"));
        let failure = told(Status::Cancelled, Some(Payload::json("1")), None).expect_err("a failure");
        assert_eq!(failure.code, Code::ChildCancelled);
    }

    #[test]
    fn a_refusal_is_told_to_one_op() {
        let (child, slot) = (ExecutionId(uuid::Uuid::from_u128(7)), Slot { segment: 2, sequence: 30 });
        let error = Error::new(Code::LimitReached, "too many");
        let refusal = ChildEnd::refusal(OrgId::DEFAULT, ExecutionId::default(), child, slot, &error);
        assert_eq!(told_of(&refusal.name), Some((child, Some(slot))));
        assert_eq!(told_of(&child_signal(child)), Some((child, None)));
        let failure = ChildEnd::result(&refusal.payload, "researcher").expect_err("a failure");
        assert_eq!((failure.code, failure.message.as_str()), (Code::LimitReached, "too many"));
        for other in ["", "flovyn.child.", "flovyn.child.7", "flovyn.child.x.1.2", "progress"] {
            assert_eq!(told_of(other), None, "{other}");
        }
        assert_eq!(told_of(&format!("{}.1", child_signal(child))), None);
    }
}
