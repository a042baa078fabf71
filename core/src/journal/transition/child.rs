//! Another run, started as a child of this one. The op ends with the child's end, which comes as a signal of a name
//! that only this child has.

use super::Rewording;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, Slot};
use crate::journal::call::{ChildCall, ChildOptions, Completion};
use crate::journal::effect::Outcome;
use crate::journal::machine::Machine;
use crate::journal::op::{Detail, Op};
use crate::model::{
    Budget, ChildEnd, Consumed, Label, LabelKey, NewExecution, OnParentEnd, OpBody, OpKind, Signal, Wait, check_kind,
    check_name, child_of_events, child_signal, is_answer, told_of,
};
use crate::payload::{Digest, Payload};
use std::sync::Arc;

impl Tie {
    /// Whether an op of the segment waits for the child.
    pub(super) fn has_op(&self) -> bool {
        !self.ops.is_empty()
    }
}

pub(super) const REWORDING: Rewording = Rewording::OnceQuiet;

/// The ops of a segment that wait for one child.
#[derive(Debug, Default)]
pub(in crate::journal) struct Tie {
    ops: Vec<usize>,
    /// The child's end, with its place among the facts, once it is out of the mailbox. Later ops for the same child end
    /// with it too.
    end: Option<Box<(u64, Payload)>>,
    /// Why there is no child, with the place of that among the facts.
    refusal: Option<Box<(u64, Payload)>>,
}

pub(super) fn check(call: &ChildCall) -> Result<()> {
    check_kind("the agent's kind", &call.kind)?;
    let ChildOptions { id, key, queue, .. } = &call.options;
    for (what, name) in [("the id", id.as_deref()), ("the key", key.as_deref()), ("the queue", queue.as_deref())] {
        name.map_or(Ok(()), |name| check_name(what, name))?;
    }
    call.options.limits.budget.as_deref().map_or(Ok(()), |budget| Budget::parse(budget).map(drop))
}

/// Refuses to start a child, and to hand off, inside of a `once`: its calls are not made again after its end, so a later
/// life could neither wait for the child nor tell that the run was given away.
pub(super) fn check_outside_once(call: &ChildCall, once: Option<&Arc<str>>) -> Result<()> {
    let (Some(once), kind) = (once, &call.kind) else { return Ok(()) };
    let message = match call.hand_off {
        None => format!(
            "the child {kind:?} was not started: it was called inside of once({once:?}), whose calls are not made again after its \
             end, so that nothing could wait for the child; start it before the once or after it"
        ),
        Some(_) => format!(
            "the run was not handed off to {kind:?}: that was called inside of once({once:?}), which would never end; hand off \
             after the once"
        ),
    };
    Err(Error::new(Code::InvalidArgument, message))
}

/// Refuses to hand off a run whose code was told to stop.
pub(super) fn check_hand_off(machine: &Machine, call: &ChildCall) -> Result<()> {
    if call.hand_off.is_some() && machine.run.stop.is_delivered() {
        let message = format!("the run was asked to stop, and is not handed off to {:?}", call.kind);
        return Err(Error::new(Code::Cancelled, message));
    }
    Ok(())
}

pub(super) fn label(call: &ChildCall) -> Result<Label> {
    let key = match call.options.key.as_ref().or(call.options.id.as_ref()) {
        Some(key) => LabelKey::Key(key.clone()),
        None => LabelKey::Digest(call.input.digest()?),
    };
    Ok(Label { kind: OpKind::Child, name: call.kind.clone(), key })
}

pub(super) fn record(machine: &mut Machine, index: usize, id: ExecutionId, call: ChildCall) -> OpBody {
    let ChildCall { kind, input, options, hand_off } = call;
    let ChildOptions {
        id: name, queue, limits, priority, metadata, on_parent_end, shared_context, persistence, ..
    } = options;
    machine.tie(index, id, name.is_some());
    machine.segment.hand_off = hand_off.map(|completion| (index, completion)).or(machine.segment.hand_off);
    let shared_context = shared_context.map(|shared| shared.from(|thread| machine.leaf(thread)));
    OpBody::Child(Box::new(NewExecution {
        // The store knows the org of the batch.
        org: OrgId::DEFAULT,
        id,
        key: None,
        kind: kind.to_string(),
        queue: queue.unwrap_or_else(|| machine.run.queue.clone()),
        input_digest: input.digest().unwrap_or(Digest::default()),
        input,
        limits,
        metadata,
        priority,
        concurrency_key: None,
        concurrency_limit: None,
        delay: None,
        traceparent: None,
        on_parent_end: if hand_off == Some(Completion::Immediate) { OnParentEnd::Detach } else { on_parent_end },
        shared_context,
        persistence,
    }))
}

pub(super) fn repeat(machine: &mut Machine, index: usize, call: &ChildCall) -> Option<ExecutionId> {
    if let Detail::Child { named, .. } = &mut machine.segment.ops[index].detail {
        *named = call.options.id.is_some();
    }
    machine.segment.hand_off = call.hand_off.map(|completion| (index, completion)).or(machine.segment.hand_off);
    machine.segment.ops[index].child()
}

pub(super) fn recover(machine: &mut Machine, index: usize, op: &mut Op, id: ExecutionId) {
    op.detail = Detail::Child { id, named: false, ended: None, refused: false };
    machine.segment.by_child.entry(id).or_default().ops.push(index);
}

pub(super) fn wait(op: &Op, wait: &mut Wait) {
    wait.signals.extend(op.child().map(child_signal));
}

/// The place among the facts of the child's end, or of what tells why there is no child: the store says so in the commit
/// that makes the op durable.
pub(super) fn available(machine: &Machine, op: &Op) -> Option<u64> {
    let Detail::Child { id, ended, refused, .. } = op.detail else { return None };
    if !op.is_durable() {
        return None;
    }
    let end = || machine.segment.by_child.get(&id).and_then(|tie| tie.end.as_deref()).map(|(order, _)| *order);
    ended.or_else(|| if refused { None } else { end() })
}

/// That outcome. It is taken out of the mailbox, if no other op for the child has been handed it before.
pub(super) fn end(machine: &mut Machine, index: usize, order: u64) -> Option<Outcome> {
    let op = &machine.segment.ops[index];
    let Ok(at) = machine.run.mailbox.binary_search_by_key(&order, |(place, _)| *place) else {
        let (_, end) = machine.segment.by_child.get(&op.child()?)?.end.as_deref()?;
        return Some(outcome(op, end));
    };
    let by = op.slot();
    let (_, signal) = machine.run.mailbox.remove(at)?;
    machine.draft.consumed.push(Consumed { signal: signal.id, by });
    machine.share_child(order, &signal);
    machine.segment.ops[index].outcome.take().map(|ended| ended.1)
}

/// What the await of a child ends with.
fn outcome(op: &Op, end: &Payload) -> Outcome {
    ChildEnd::result(end, &op.label.name).map_or_else(Outcome::Failed, Outcome::Value)
}

/// Whether a signal tells one op that its child was not started.
fn is_refusal(signal: &Signal) -> bool {
    matches!(told_of(&signal.name), Some((_, Some(_))))
}

impl Machine {
    /// The id of the child that a new op starts: of the op, or of the id that the code gives it.
    pub(super) fn child_id(&self, index: usize, id: Option<&str>) -> ExecutionId {
        id.map_or_else(|| ExecutionId(self.id_of(index).uuid()), |id| self.run.execution.child(id))
    }

    /// Ties a new op to its child. The end of a child that another op has started may be known already.
    fn tie(&mut self, index: usize, id: ExecutionId, named: bool) {
        let tie = self.segment.by_child.entry(id).or_default();
        tie.ops.push(index);
        let op = &mut self.segment.ops[index];
        let name = (named && tie.end.is_none()).then(|| child_signal(id));
        let ended = name.and_then(|name| self.run.mailbox.iter().find(|(_, signal)| signal.name == name));
        op.detail = Detail::Child { id, named, ended: ended.map(|(order, _)| *order), refused: false };
    }

    /// Whether the code, which no longer makes this call, still waits for the same child by another one.
    pub(in crate::journal) fn has_twin_child(&self, index: usize) -> bool {
        let tie = self.segment.ops[index].child().and_then(|child| self.segment.by_child.get(&child));
        tie.is_some_and(|tie| tie.ops.iter().any(|other| !self.segment.ops[*other].is_unclaimed()))
    }

    /// The ops that a signal tells of their child.
    fn told(&self, signal: &Signal) -> Vec<usize> {
        let Some((child, only)) = told_of(&signal.name) else { return Vec::new() };
        let Some(tie) = self.segment.by_child.get(&child) else { return Vec::new() };
        let meant = |index: &usize| only.is_none_or(|slot| self.segment.ops[*index].slot() == slot);
        tie.ops.iter().copied().filter(meant).collect()
    }

    fn note_refusal(&mut self, order: u64, signal: &Signal) {
        if let Some((child, Some(_))) = told_of(&signal.name)
            && let Some(tie) = self.segment.by_child.get_mut(&child)
        {
            tie.refusal.get_or_insert_with(|| Box::new((order, signal.payload.clone())));
        }
    }

    /// Notes that a signal in the mailbox tells of a child of this segment.
    pub(super) fn note_child(&mut self, order: u64, signal: &Signal) {
        self.note_refusal(order, signal);
        for index in self.told(signal) {
            let op = &mut self.segment.ops[index];
            let Detail::Child { ended, refused, .. } = &mut op.detail else { continue };
            if is_refusal(signal) {
                (*ended, *refused, op.outcome) = (Some(order), true, None);
            } else if !*refused {
                ended.get_or_insert(order);
            }
        }
    }

    /// Gives what a signal tells, which is no longer in the mailbox, to the ops that it is told. An op that is not
    /// durable waits: the store may refuse it.
    pub(super) fn share_child(&mut self, order: u64, signal: &Signal) {
        self.note_refusal(order, signal);
        for index in self.told(signal) {
            let op = &mut self.segment.ops[index];
            let outcome = outcome(op, &signal.payload);
            let is_durable = op.is_durable();
            let Detail::Child { ended, refused, .. } = &mut op.detail else { continue };
            if is_refusal(signal) {
                (*ended, *refused, op.outcome) = (None, true, Some(Box::new((order, outcome))));
            } else if !*refused {
                *ended = None;
                if is_durable && op.outcome.is_none() {
                    op.outcome = Some(Box::new((order, outcome)));
                }
            }
        }
        if let Some((child, None)) = told_of(&signal.name) {
            let tie = self.segment.by_child.entry(child).or_default();
            tie.end.get_or_insert_with(|| Box::new((order, signal.payload.clone())));
        }
    }

    /// Why nothing comes of a child: the store has started none for any op that waits for it.
    pub(super) fn known_refusal(&self, child: ExecutionId) -> Option<(u64, Outcome)> {
        let tie = self.segment.by_child.get(&child)?;
        let is_refused = |index: &usize| matches!(self.segment.ops[*index].detail, Detail::Child { refused: true, .. });
        let (order, refusal) = tie.refusal.as_deref().filter(|_| tie.ops.iter().all(is_refused))?;
        let index = tie.ops.first()?;
        Some((*order, outcome(&self.segment.ops[*index], refusal)))
    }

    /// The end of a child that is out of the mailbox, with its place among the facts.
    pub(super) fn known_end(&self, child: ExecutionId) -> Option<(u64, Payload)> {
        self.segment.by_child.get(&child)?.end.as_deref().cloned()
    }

    /// The code is told of the end of a child: if the child had the conversation of this run, the thread of its id stands
    /// from now on where the child's does.
    pub(in crate::journal) fn join_thread(&mut self, index: usize, order: u64) {
        let op = &self.segment.ops[index];
        let Some(child) = op.child().or_else(|| child_of_events(&op.label.name)) else { return };
        let end = self.known_end(child).filter(|(at, _)| *at == order);
        if let Some(leaf) = end.and_then(|(_, end)| ChildEnd::leaf(&end)) {
            self.segment.leaves.insert(child.to_string(), leaf);
        }
    }

    /// How the run hands off, if it does now: its successor is in a batch or stored, and nothing is told of it.
    pub(in crate::journal) fn hands_off(&self) -> Option<Completion> {
        let (index, completion) = self.segment.hand_off?;
        let op = &self.segment.ops[index];
        let is_told = self.run.stop.is_requested() || op.is_held() || self.available_at(index).is_some();
        (!is_told).then_some(completion)
    }

    /// At the end of a segment: takes ends of children out of the mailbox, and answers that came too late. A later
    /// segment that waits for a child is told anew, so that a run does not carry along the ends of all children that it
    /// ever had.
    pub(super) fn forget_children(&mut self) {
        let (segment, draft) = (&self.segment, &mut self.draft);
        self.run.mailbox.retain(|(_, signal)| {
            let child = told_of(&signal.name).map(|(child, _)| child);
            if child.is_none() && !is_answer(&signal.name) {
                return true;
            }
            let op = child.and_then(|child| segment.by_child.get(&child)?.ops.first());
            let by = op.map_or(Slot { segment: segment.number, sequence: 0 }, |index| segment.ops[*index].slot());
            draft.consumed.push(Consumed { signal: signal.id, by });
            false
        });
    }
}
