//! What runs of a family tell each other: messages up and down, requests that wait for one answer, and what a parent
//! hears of a child.
//!
//! All of it is stored as signals of whoever it is for. A message to a child is a signal like one from outside. What a
//! child tells its parent has a name that only this child has, so a parent can wait for one of its children.

use super::child::{ChildEnd, Output, child_signal, told_of};
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, SignalId, Slot};
use crate::model::{
    Budget, CHILD_SIGNALS, Cancellation, Delivery, Failure, NewSignal, Spent, Status, Wait, check_name,
};
use crate::payload::Payload;
use serde::{Deserialize, Serialize};

/// The prefix of the names of signals by which a run hears what a child tells it.
pub const EVENT_SIGNALS: &str = "flovyn.event.";
/// The prefix of the names of signals that answer a request.
pub const ANSWER_SIGNALS: &str = "flovyn.answer.";
/// The prefix of the names of signals that tell an op that its message was not delivered.
pub const REFUSAL_SIGNALS: &str = "flovyn.refused.";

/// The name of the signals by which a run hears what a child tells it.
pub fn event_signal(child: ExecutionId) -> String {
    format!("{EVENT_SIGNALS}{child}")
}

/// The name of the signal that answers a request.
pub(crate) fn answer_signal(request: SignalId) -> String {
    format!("{ANSWER_SIGNALS}{request}")
}

/// Whether only the engine sends signals of a name.
pub fn is_own_signal(name: &str) -> bool {
    [CHILD_SIGNALS, EVENT_SIGNALS, ANSWER_SIGNALS, REFUSAL_SIGNALS].iter().any(|prefix| name.starts_with(prefix))
}

/// Refuses names of signals that no backend takes, and those of the engine's own signals.
pub(crate) fn check_signal(name: &str) -> Result<()> {
    check_name("the signal", name)?;
    if is_own_signal(name) {
        let message = format!(
            "the signal {name:?} was not sent: names that begin like that are the engine's own; choose another"
        );
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(())
}

/// Whether signals of a name tell of a child.
pub fn tells_of_child(name: &str) -> bool {
    [CHILD_SIGNALS, EVENT_SIGNALS].iter().any(|prefix| name.starts_with(prefix))
}

/// The child whose news come as signals of a name.
pub(crate) fn child_of_events(name: &str) -> Option<ExecutionId> {
    Some(ExecutionId(name.strip_prefix(EVENT_SIGNALS)?.parse().ok()?))
}

/// Whether a signal of a name answers a request.
pub(crate) fn is_answer(name: &str) -> bool {
    name.starts_with(ANSWER_SIGNALS)
}

/// The answers to the requests that a run waits for, where its parent has ended with `status`.
pub(crate) fn unanswered(
    org: OrgId,
    child: ExecutionId,
    wait: &Wait,
    parent: ExecutionId,
    status: Status,
) -> Vec<NewSignal> {
    let requests = wait.signals.iter().filter_map(|name| name.strip_prefix(ANSWER_SIGNALS)?.parse().ok());
    let message = format!("the request has no answer: the parent {parent} {}", is_gone(status));
    let failure = Failure::new(Code::ParentGone, Code::ParentGone.as_str(), message);
    let payload = written(&Answer { value: None, failure: Some(failure) });
    let answer = |request: uuid::Uuid| {
        let request = SignalId(request);
        let (id, name) = (Answer::id(request), answer_signal(request));
        let (payload, delivery) = (payload.clone(), Delivery::NextStep);
        NewSignal { org, execution: child, id, name, payload, delivery, idempotency_key: None }
    };
    requests.map(answer).collect()
}

/// Why a parent of this status answers nothing more.
fn is_gone(status: Status) -> String {
    if status.is_terminal() { format!("is {status}") } else { "has handed off".to_owned() }
}

/// The op of which a signal tells that its message was refused.
pub(crate) fn refused_op(name: &str) -> Option<Slot> {
    let (segment, sequence) = name.strip_prefix(REFUSAL_SIGNALS)?.split_once('.')?;
    Some(Slot { segment: segment.parse().ok()?, sequence: sequence.parse().ok()? })
}

/// A message as the op of its sender has it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// Its id, which follows from the op: it is delivered once.
    pub id: SignalId,
    /// What it says, and to whom.
    pub body: MessageBody,
}

/// What is kept of a message that was sent, for a run that is loaded or forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentMessage {
    /// Its id.
    pub id: SignalId,
    /// The child that it was for; none for the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ExecutionId>,
    /// Whether its sender waits for an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_request: bool,
}

/// What a run says to its parent, or to one of its children.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageBody {
    /// Tells the parent something.
    ToParent {
        /// The author's name for it.
        name: String,
        /// The value.
        payload: Payload,
        /// Whether the sender waits for an answer.
        is_request: bool,
    },
    /// Sends a child a signal.
    ToChild {
        /// The child.
        child: ExecutionId,
        /// The signal's name.
        name: String,
        /// The value.
        payload: Payload,
        /// When it may be seen.
        delivery: Delivery,
    },
    /// Answers a request of a child.
    Answer {
        /// The child.
        child: ExecutionId,
        /// The id of its request.
        request: SignalId,
        /// The answer.
        payload: Payload,
    },
    /// Asks a child to stop.
    Stop {
        /// The child.
        child: ExecutionId,
        /// How.
        how: Cancellation,
    },
}

impl MessageBody {
    /// The child that it is for. None if it is for the parent.
    pub fn child(&self) -> Option<ExecutionId> {
        match self {
            Self::ToParent { .. } => None,
            Self::ToChild { child, .. } | Self::Answer { child, .. } | Self::Stop { child, .. } => Some(*child),
        }
    }

    /// Its name, for labels and people.
    pub fn name(&self) -> &str {
        match self {
            Self::ToParent { name, .. } | Self::ToChild { name, .. } => name,
            Self::Answer { .. } => "answer",
            Self::Stop { .. } => "cancel",
        }
    }

    /// Its value, if it has one.
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::ToParent { payload, .. } | Self::ToChild { payload, .. } | Self::Answer { payload, .. } => {
                Some(payload)
            }
            Self::Stop { .. } => None,
        }
    }

    /// As [`payload`](Self::payload), mutable.
    pub fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::ToParent { payload, .. } | Self::ToChild { payload, .. } | Self::Answer { payload, .. } => {
                Some(payload)
            }
            Self::Stop { .. } => None,
        }
    }
}

impl NewMessage {
    /// What is kept of it.
    pub(crate) fn sent(&self) -> SentMessage {
        let is_request = matches!(self.body, MessageBody::ToParent { is_request: true, .. });
        SentMessage { id: self.id, child: self.body.child(), is_request }
    }

    /// The signal by which it is delivered. None for a request to stop, which is no signal.
    pub(crate) fn signal(&self, org: OrgId, from: ExecutionId, to: ExecutionId) -> Option<NewSignal> {
        let (id, name, payload, delivery) = match &self.body {
            MessageBody::ToParent { name, payload, is_request } => {
                let news =
                    News { name: name.clone(), request: is_request.then_some(self.id), value: Output::of(payload) };
                (self.id, event_signal(from), written(&news), Delivery::NextStep)
            }
            MessageBody::ToChild { name, payload, delivery, .. } => (self.id, name.clone(), payload.clone(), *delivery),
            MessageBody::Answer { request, payload, .. } => {
                let answer = Answer { value: Output::of(payload), failure: None };
                (Answer::id(*request), answer_signal(*request), written(&answer), Delivery::NextStep)
            }
            MessageBody::Stop { .. } => return None,
        };
        Some(NewSignal { org, execution: to, id, name, payload, delivery, idempotency_key: None })
    }

    /// The signal by which its sender is told that it was not delivered.
    pub(crate) fn refusal(&self, org: OrgId, from: ExecutionId, slot: Slot, error: &Error) -> NewSignal {
        let message = match &self.body {
            MessageBody::Answer { request, child, .. } if error.code() == Code::AlreadyExists => {
                format!("the request {request} of the run {child} was answered before, with something else")
            }
            _ => error.message().to_owned(),
        };
        let failure = Failure::new(error.code(), error.code().as_str(), message);
        let (id, name) = match &self.body {
            // Who sends a request waits for its answer only.
            MessageBody::ToParent { is_request: true, .. } => (Answer::id(self.id), answer_signal(self.id)),
            _ => (
                SignalId(uuid::Uuid::new_v5(&self.id.0, b"refused")),
                format!("{REFUSAL_SIGNALS}{}.{}", slot.segment, slot.sequence),
            ),
        };
        let payload = written(&Answer { value: None, failure: Some(failure) });
        NewSignal { org, execution: from, id, name, payload, delivery: Delivery::NextStep, idempotency_key: None }
    }

    /// The error for a message to a run that is not in the sender's reach.
    pub(crate) fn out_of_reach(&self) -> Error {
        match self.body.child() {
            None => Error::new(
                Code::NoParent,
                format!("{:?} was not sent: this run was started by nobody and has no parent", self.body.name()),
            ),
            Some(child) => Error::new(
                Code::ExecutionNotFound,
                format!(
                    "{:?} was not sent: the run {child} is no child of this one; signal other runs through a client",
                    self.body.name()
                ),
            )
            .with("id", child),
        }
    }

    /// The error for a message to a run that has ended.
    pub(crate) fn is_late(&self, to: ExecutionId, status: Status) -> Error {
        let word = is_gone(status);
        match &self.body {
            MessageBody::ToParent { name, is_request: true, .. } => {
                let message = format!("the request {name:?} has no answer: the parent {to} {word}");
                Error::new(Code::ParentGone, message).with("id", to)
            }
            said => {
                let message = format!("{:?} was not sent: the run {to} {word} and takes no more signals", said.name());
                Error::new(Code::ExecutionClosed, message).with("id", to).with("status", status)
            }
        }
    }
}

fn written<T: Serialize>(value: &T) -> Payload {
    Payload::of(value).unwrap_or_else(|_| Payload::null())
}

/// What a child tells its parent, as the parent's signal has it.
#[derive(Debug, Serialize, Deserialize)]
struct News {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<SignalId>,
    value: Option<Output>,
}

/// The answer to a request, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

impl Answer {
    fn id(request: SignalId) -> SignalId {
        SignalId(uuid::Uuid::new_v5(&request.0, b"answer"))
    }
}

/// The value of an answer, or why there is none. Also why a message was refused.
pub(crate) fn answer_of(signal: &Payload) -> Result<Payload, Failure> {
    let answer: Answer = signal.parse().map_err(unreadable)?;
    match answer.failure {
        Some(failure) => Err(failure),
        None => Ok(answer.value.map_or_else(Payload::null, Output::payload)),
    }
}

fn unreadable(error: Error) -> Failure {
    Failure::new(error.code(), error.code().as_str(), error.message())
}

/// What a run hears of a child.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChildEvent {
    /// It has sent a signal.
    Signal {
        /// Its name.
        name: String,
        /// The value.
        payload: Payload,
    },
    /// It waits for an answer.
    Request {
        /// Its name.
        name: String,
        /// The value.
        payload: Payload,
        /// By which it is answered.
        request: ChildRequest,
    },
    /// It has returned.
    Completed {
        /// What it returned.
        output: Payload,
    },
    /// It has failed.
    Failed {
        /// Why.
        error: Failure,
    },
    /// It was cancelled.
    Cancelled {
        /// What it kept.
        output: Option<Payload>,
    },
    /// It was asked to stop because its budget had no room for what it wanted to do.
    BudgetExceeded {
        /// What it and all runs below it have used.
        used: Spent,
        /// The budget that had no room for more: its own, or the one that it drew from.
        limit: Budget,
        /// What it kept.
        output: Option<Payload>,
    },
}

/// A request of a child that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRequest {
    /// The child.
    pub child: ExecutionId,
    /// The id of the request.
    pub id: SignalId,
}

impl ChildEvent {
    /// The news that a signal brings. None if it brings none of a child.
    pub(crate) fn of(name: &str, signal: &Payload) -> Option<Result<Self, Failure>> {
        if let Some((_, None)) = told_of(name) {
            return Some(ChildEnd::event(signal));
        }
        let child = child_of_events(name)?;
        Some(signal.parse().map_err(unreadable).map(|News { name, request, value }| {
            let payload = value.map_or_else(Payload::null, Output::payload);
            match request {
                Some(id) => Self::Request { name, payload, request: ChildRequest { child, id } },
                None => Self::Signal { name, payload },
            }
        }))
    }

    /// Its value, if it has one.
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Signal { payload, .. } | Self::Request { payload, .. } => Some(payload),
            Self::Completed { output } => Some(output),
            Self::Cancelled { output } | Self::BudgetExceeded { output, .. } => output.as_ref(),
            Self::Failed { .. } => None,
        }
    }

    /// As [`payload`](Self::payload), mutable.
    pub(crate) fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Signal { payload, .. } | Self::Request { payload, .. } => Some(payload),
            Self::Completed { output } => Some(output),
            Self::Cancelled { output } | Self::BudgetExceeded { output, .. } => output.as_mut(),
            Self::Failed { .. } => None,
        }
    }
}

/// The names of signals that end a wait for signals of a name: a wait for news of a child ends with its end too.
pub(crate) fn ends_wait(name: &str) -> impl Iterator<Item = String> {
    [Some(name.to_owned()), child_of_events(name).map(child_signal)].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: ExecutionId = ExecutionId(uuid::Uuid::from_u128(7));
    const PARENT: ExecutionId = ExecutionId(uuid::Uuid::from_u128(1));

    fn told(is_request: bool) -> (NewMessage, NewSignal) {
        let body = MessageBody::ToParent { name: "progress".into(), payload: Payload::json("[1]"), is_request };
        let message = NewMessage { id: SignalId(uuid::Uuid::from_u128(9)), body };
        let signal = message.signal(OrgId::DEFAULT, CHILD, PARENT).expect("a signal");
        (message, signal)
    }

    #[test]
    fn a_parent_hears_what_its_child_tells_it() {
        for is_request in [false, true] {
            let (message, signal) = told(is_request);
            assert_eq!((signal.id, signal.execution), (message.id, PARENT));
            let event = ChildEvent::of(&signal.name, &signal.payload).expect("news").expect("an event");
            let (name, payload) = ("progress".to_owned(), Payload::json("[1]"));
            let request = ChildRequest { child: CHILD, id: message.id };
            let expected = match is_request {
                true => ChildEvent::Request { name, payload, request },
                false => ChildEvent::Signal { name, payload },
            };
            assert_eq!(event, expected);
        }
    }

    #[test]
    fn a_request_has_one_answer() {
        let (request, _) = told(true);
        let body = MessageBody::Answer { child: CHILD, request: request.id, payload: Payload::raw(vec![255]) };
        let answer = NewMessage { id: SignalId::fresh(), body };
        let answered = answer.signal(OrgId::DEFAULT, PARENT, CHILD).expect("a signal");
        let slot = Slot { segment: 0, sequence: 3 };
        let refused = request.refusal(OrgId::DEFAULT, CHILD, slot, &request.is_late(PARENT, Status::Completed));
        assert_eq!((answered.id, &answered.name), (refused.id, &refused.name), "one of them is stored");
        assert_eq!(answer_of(&answered.payload), Ok(Payload::raw(vec![255])));
        assert_eq!(answer_of(&refused.payload).expect_err("a failure").code, Code::ParentGone);
    }

    #[test]
    fn a_refusal_is_for_one_op() {
        let (message, _) = told(false);
        let slot = Slot { segment: 2, sequence: 3 };
        let refused = message.refusal(OrgId::DEFAULT, CHILD, slot, &message.out_of_reach());
        assert_eq!(refused_op(&refused.name), Some(slot));
        assert!(is_own_signal(&refused.name) && !tells_of_child(&refused.name));
        for other in ["", "flovyn.refused.", "flovyn.refused.1", "flovyn.refused.a.b", "progress"] {
            assert_eq!(refused_op(other), None, "{other}");
        }
    }
}
