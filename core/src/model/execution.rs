//! One durable run of an agent, and the requests that change it.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, RequestId, Slot, WorkerId};
use crate::model::child::{ANY_CHILD, CHILD_SIGNALS};
use crate::model::{Fact, Failure, NewExecution, Purse, Spent, UsageTotals};
use crate::payload::Payload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Where a run is in its life (rule 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// May be claimed.
    Pending,
    /// A worker advances it.
    Running,
    /// It waits for a fact.
    Waiting,
    /// A limit was reached or a person must decide.
    Paused,
    /// It was asked to stop and may still tidy up.
    Cancelling,
    /// It has an output.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// Every status, in the order of a life.
    pub const ALL: [Status; 8] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::Paused,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether nothing more will happen to it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Waiting => "WAITING",
            Self::Paused => "PAUSED",
            Self::Cancelling => "CANCELLING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The status of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(word))
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a run does not advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// It awaits signals.
    Signal,
    /// It awaits tasks.
    Task,
    /// It awaits children.
    Child,
    /// It sleeps.
    Timer,
    /// A task may or may not have taken effect.
    InDoubt,
    /// `max_steps` was reached.
    StepLimit,
    /// `max_tail` was reached.
    TailLimit,
    /// A budget is used up.
    Budget,
    /// The code no longer matches and a person must decide.
    Divergence,
    /// It or one of its tasks failed in a way that repeats.
    Quarantined,
    /// An error left the agent's code, and it does not fail the run.
    Error,
    /// Another run has its work now, and its end will be this run's end.
    HandedOff,
}

/// Children whose ends a wait names one by one. Few in the tests of the journal, whose agents have few.
const MAX_NAMED_CHILDREN: usize = if cfg!(test) { 1 } else { 32 };

/// What a waiting run waits for. Each of these makes it runnable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// Signal names that are awaited.
    pub signals: Vec<String>,
    /// Whether the end of a task counts.
    pub tasks: bool,
    /// Whether a timer is armed.
    pub timers: bool,
    /// Whether something of the host's own, such as a timer of its event loop, may end the wait. That exists only in a
    /// process that holds the run, so the run is handed out again when its last holder is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_timer: bool,
    /// The ends that are awaited by name. Where they are given, no other end of a task makes the run runnable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<Ends>,
    /// Whether the worker that suspends the run keeps its copy. If so, it alone may claim the run for a moment after
    /// the wait has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// The reason that people are shown.
    pub reason: Option<WaitReason>,
}

/// Ends that a wait names: those of tasks by the tasks' ids, those of children by the names of the signals that report
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Those that are still to come.
    pub open: BTreeSet<String>,
    /// Which of them end the wait.
    pub until: Until,
}

/// Which of several ends a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The last of them.
    All,
    /// The first of them.
    First,
    /// The first success, or the last of them.
    Success,
}

impl Ends {
    /// Takes an end off the list, and tells whether the wait is over.
    pub(crate) fn take(&mut self, name: &str, success: bool) -> bool {
        self.open.remove(name)
            && match self.until {
                Until::All => self.open.is_empty(),
                Until::First => true,
                Until::Success => success || self.open.is_empty(),
            }
    }
}

impl Wait {
    /// The signals that somebody outside has to send. The others are those of its family.
    pub fn from_outside(&self) -> Vec<&str> {
        self.signals.iter().map(String::as_str).filter(|name| !super::is_own_signal(name)).collect()
    }

    /// Names any child instead of each where there are many: a wait is written whenever the run suspends, and a parent of
    /// thousands does so again and again. The end of a child that it does not wait for wakes it too, which only costs a
    /// claim.
    pub(crate) fn shorten(&mut self) {
        if self.signals.iter().filter(|name| name.starts_with(CHILD_SIGNALS)).count() > MAX_NAMED_CHILDREN {
            self.signals.retain(|name| !name.starts_with(CHILD_SIGNALS));
            self.signals.push(ANY_CHILD.to_owned());
            self.signals.sort_unstable();
        }
    }

    /// Whether it is for an answer of the run's parent.
    pub fn is_for_parent(&self) -> bool {
        self.signals.iter().any(|name| name.starts_with(super::ANSWER_SIGNALS))
    }

    /// Whether news of a child end it.
    pub(crate) fn is_for_child(&self) -> bool {
        self.signals.iter().any(|name| super::tells_of_child(name))
    }

    /// Whether the end of a task ends the wait. Where the task is awaited by name, it is taken off the list.
    pub(crate) fn take_task(&mut self, task: &str, success: bool) -> bool {
        self.tasks && self.ends.as_mut().is_none_or(|ends| ends.take(task, success))
    }

    /// Whether a signal ends the wait. Where the signal reports an end that is awaited by name, that is taken off the
    /// list.
    pub(crate) fn take_signal(&mut self, name: &str) -> bool {
        let of_child = name.starts_with(CHILD_SIGNALS);
        self.signals.iter().any(|awaited| awaited == name || (of_child && awaited == ANY_CHILD))
            || self.ends.as_mut().is_some_and(|ends| ends.take(name, true))
    }
}

/// A worker's right to advance one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who holds it.
    pub worker: WorkerId,
    /// The fencing token. Every claim raises it.
    pub epoch: u64,
}

/// How a run is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// Awaits raise `Cancelled`; the run may tidy up until the grace ends.
    Graceful,
    /// It ends at once.
    Hard,
}

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// How.
    pub mode: CancelMode,
    /// How long a graceful stop may take.
    pub grace: Duration,
}

impl Cancellation {
    /// How long a run may tidy up where nothing else is said.
    pub const USUAL_GRACE: Duration = Duration::from_secs(30);
    /// How a run is stopped where nothing else is said.
    pub const USUAL: Self = Self { mode: CancelMode::Graceful, grace: Self::USUAL_GRACE };
}

/// The point a fork starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The parent: the fork shares its tree of entries.
    pub execution: ExecutionId,
    /// The segment of the parent that the fork begins with.
    pub segment: u32,
    /// The last op of that segment that the fork takes over; none for a fork at a checkpoint.
    pub sequence: Option<u32>,
}

/// The answer to a start. The run is durable when it is returned.
#[derive(Debug, Clone)]
pub struct Created {
    /// The run.
    pub execution: Execution,
    /// Whether it had been started before with the same input.
    pub existing: bool,
}

/// A stored run.
#[derive(Debug, Clone)]
pub struct Execution {
    /// As asked for.
    pub new: NewExecution,
    /// Where it is in its life.
    pub status: Status,
    /// What it waits for, when it waits.
    pub wait: Option<Wait>,
    /// The result, when completed; what was kept, when cancelled.
    pub output: Option<Payload>,
    /// The error, when failed or quarantined.
    pub failure: Option<Failure>,
    /// The current segment.
    pub segment: u32,
    /// Where the main thread of the conversation stands.
    pub leaf: Option<EntryId>,
    /// Identifies the code that recorded the current tail. It is `edited` after an edit. Where a person let changed
    /// code go on with the tail, it is `mixed:` and that code, or just `mixed` until that code has claimed the run.
    pub code: Option<String>,
    /// The fencing token of the last claim.
    pub epoch: u64,
    /// Who holds it.
    pub worker: Option<WorkerId>,
    /// When the holder's right ends.
    pub lease_expires: Option<Timestamp>,
    /// The number of the last commit.
    pub base: u64,
    /// A stop that was asked for, and when its grace ends.
    pub cancel: Option<(Cancellation, Timestamp)>,
    /// Steps taken in all.
    pub step_count: u32,
    /// The count of steps at which it pauses.
    pub step_limit: Option<u32>,
    /// The number of ops of a tail at which it pauses.
    pub tail_limit: u32,
    /// What its model calls have used, by model.
    pub usage: UsageTotals,
    /// What it has of the budgets of its family. None where there are none.
    #[doc(hidden)]
    pub purse: Option<Purse>,
    /// The run that spawned it.
    pub parent: Option<ExecutionId>,
    /// The run at the top of its family; itself if it has no parent.
    pub root: ExecutionId,
    /// How many runs are above it.
    pub depth: u32,
    /// The run that it has given its work to. What is sent to it goes there, and on to whoever that run has handed off to.
    pub handed_to: Option<ExecutionId>,
    /// Where it was forked from.
    pub forked_from: Option<ForkPoint>,
    /// How many claims in a row were lost without a commit.
    pub losses: u32,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A run handed to a worker, with its fence raised.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The run, RUNNING.
    pub execution: Execution,
    /// The right to advance it.
    pub lease: Lease,
    /// The highest fact number at the claim.
    pub high: u64,
    /// The facts up to `high` since the last commit, where the claiming worker still holds the copy of the run that
    /// made that commit. None for every other worker, which has to load the history.
    pub news: Option<Vec<Fact>>,
}

/// What a fork starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkFrom {
    /// A checkpoint of a run with state, named by the segment that it starts.
    Checkpoint(u32),
    /// An entry. The fork starts from the last checkpoint at or above it, or from the op that appended it.
    Entry(EntryId),
    /// An op of the current segment of a run without state.
    Op(Slot),
    /// The latest point that is possible.
    Latest,
}

/// A request to fork.
#[derive(Debug, Clone)]
pub struct ForkRequest {
    /// Tenant.
    pub org: OrgId,
    /// The run to fork.
    pub execution: ExecutionId,
    /// The id of the fork.
    pub id: ExecutionId,
    /// The key of the fork.
    pub key: Option<String>,
    /// The point to fork from.
    pub from: ForkFrom,
    /// Another state to start with.
    pub state: Option<Payload>,
    /// Another input.
    pub input: Option<Payload>,
}

impl ForkRequest {
    /// Moves the start of the fork before the op `told`, the first op that the parent's code called after it had got a
    /// request to stop. Nobody has asked the fork to stop, so its code would not make that call, and its journal would
    /// not match. Only a fork of the latest point is moved; a point that the request names is refused.
    pub(crate) fn before_stop(&self, at: ForkPoint, told: Option<u32>) -> Result<ForkPoint> {
        let Some(told) = told.filter(|told| at.sequence.is_some_and(|last| last >= *told)) else { return Ok(at) };
        let sequence = told.checked_sub(1);
        if self.from == ForkFrom::Latest {
            return Ok(ForkPoint { sequence, ..at });
        }
        let before = sequence.map_or_else(
            || "fork it without a place".to_owned(),
            |sequence| format!("fork it at {} or before, or without a place", Slot { segment: at.segment, sequence }),
        );
        Err(Error::new(
            Code::InvalidArgument,
            format!("the run {} had been told to stop by there, and its fork is not: {before}", self.execution),
        ))
    }
}

impl Execution {
    /// Its name for people: its key, or its id if it has no key.
    pub fn name(&self) -> String {
        self.new.key.clone().unwrap_or_else(|| self.new.id.to_string())
    }

    /// The budget it has after a resume: the one that the resume gives, or the same amount again if it was used up.
    pub(crate) fn budget_after(&self, request: &ResumeRequest, reason: Option<WaitReason>) -> Result<Option<String>> {
        if request.budget.is_some() && self.parent.is_some() && self.purse.is_some() {
            let message = format!(
                "the run {:?} has its budget from the runs above it, so it gets none of its own: resume the run {} with a \
                 budget, or this one without",
                self.name(),
                self.root
            );
            return Err(Error::new(Code::InvalidArgument, message).with("root", self.root));
        }
        let kept = self.new.limits.budget.as_deref();
        match request.budget.as_deref().or(kept.filter(|_| reason == Some(WaitReason::Budget))) {
            Some(budget) => {
                let used = Spent::of(&self.usage);
                let since = self.purse.as_ref().map_or(used, |purse| purse.with_others(used));
                super::Allowance::renewed(budget, since).map(Some)
            }
            None => Ok(kept.map(str::to_owned)),
        }
    }

    /// Whether a start asks for this run, once more: the same agent with the same input.
    pub(crate) fn is_of(&self, new: &NewExecution) -> bool {
        self.new.kind == new.kind && self.new.input_digest == new.input_digest
    }

    /// Whether it is the child that a run would start now.
    pub(crate) fn is_child_of(&self, parent: ExecutionId, new: &NewExecution) -> bool {
        self.parent == Some(parent) && self.is_of(new)
    }

    /// How its budget has stopped it, if it has.
    pub(crate) fn overrun(&self) -> Option<super::Overrun> {
        let own = self.new.limits.budget.as_deref().and_then(|text| super::Allowance::parse(text).ok());
        self.purse.as_ref()?.overrun(own.as_ref().map(|own| &own.budget), Spent::of(&self.usage))
    }

    /// The entry of its parent from which its conversation goes on.
    pub(crate) fn first_leaf(&self) -> Option<EntryId> {
        self.new.shared_context.as_ref().and_then(super::SharedContext::leaf)
    }

    /// Whether its conversation, its tasks and its checkpoints can be read.
    ///
    /// Errors: `NotPersisted`.
    #[doc(hidden)]
    pub fn check_kept(&self) -> Result<()> {
        if self.new.persistence.keeps_journal() {
            return Ok(());
        }
        let (id, word) = (self.new.id, self.new.persistence.as_str());
        let message = format!(
            "the run {id} was started with persistence {word:?}: its end, its usage and its signals are kept, and nothing else; start it \
             with \"full\", or let its code call enable_persistence()"
        );
        Err(Error::new(Code::NotPersisted, message).with("id", id))
    }

    /// What it has left for whoever waits for its end.
    pub(crate) fn end_output(&self) -> Option<&Payload> {
        self.output.as_ref().filter(|_| self.status != Status::Failed)
    }

    /// The error for a signal to a run that has ended.
    pub(crate) fn takes_no_signals(&self) -> Error {
        let message = format!("the run {:?} is {} and takes no more signals", self.name(), self.status);
        Error::new(Code::ExecutionClosed, message).with("id", self.new.id).with("status", self.status)
    }

    /// The error for a request that the run's status does not allow; `what` names the request.
    pub(crate) fn cannot(&self, what: &str) -> Error {
        let reason = self.wait.as_ref().and_then(|wait| wait.reason).map(|reason| format!(" ({reason:?})"));
        let (id, status, reason) = (self.new.id, self.status, reason.unwrap_or_default());
        let needed = if what == "retry" { "FAILED, and not asked to stop, or PAUSED" } else { "PAUSED" };
        let message = format!("cannot {what} the run {id}: it is {status}{reason}, and must be {needed} for that");
        Error::new(Code::InvalidTransition, message).with("from", status).with("to", Status::Pending)
    }

    /// The error for a request to go on with a run that has ended after it had handed off.
    pub(crate) fn was_handed_off(&self, to: ExecutionId) -> Error {
        let (id, status) = (self.new.id, self.status);
        let message = format!(
            "cannot go on with the run {id}: it is {status}, and had handed off to the run {to}; retry that one"
        );
        Error::new(Code::InvalidTransition, message).with("from", status).with("to", Status::Pending)
    }

    /// The error for a request to go on with a run whose end a fork has copied: the end must stay as the fork has read
    /// it.
    pub(crate) fn was_forked(&self, fork: ExecutionId) -> Error {
        let message = format!(
            "the run {:?} is {} and the run {fork} was forked from its end, which stays as it is; go on with the fork",
            self.name(),
            self.status
        );
        Error::new(Code::InvalidTransition, message).with("from", self.status).with("fork", fork)
    }

    /// The error for a start or a fork that asks for this run's id, but is not the request that made this run.
    pub(crate) fn is_in_the_way(&self) -> Error {
        let (id, named) = (self.new.id, self.name());
        Error::new(
            Code::ExecutionExists,
            format!("the id {named:?} is taken by a run of {:?} with another input; choose another id", self.new.kind),
        )
        .with("id", id)
        .with("kind", &self.new.kind)
    }
}

/// A request to continue a paused run, or with `retry` a failed one.
#[derive(Debug, Clone, Default)]
pub struct ResumeRequest {
    /// Whether a run that has failed goes on too. It goes on from its last commit.
    pub retry: bool,
    /// How many steps it may take from now on.
    pub max_steps: Option<u32>,
    /// A new limit of the tail.
    pub max_tail: Option<u32>,
    /// A budget from now on. Without one, a run that has used up its budget gets the same amount again.
    pub budget: Option<String>,
    /// An entry of the user to append first.
    pub message: Option<Payload>,
    /// Two requests with the same id are one resume, so that a request can be sent again.
    pub request_id: Option<RequestId>,
}

/// A person's answer to a divergence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Divergence {
    /// Go on with the new code.
    Continue,
    /// Go on in a fork; this run stays as it is.
    Fork,
    /// Leave the run paused for the old code.
    Stay,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_many_children_names_none_of_them() {
        let child = |number: u128| crate::model::child_signal(ExecutionId(uuid::Uuid::from_u128(number)));
        let few = Wait { signals: vec!["a".into(), child(1)], ..Wait::default() };
        let mut wait = few.clone();
        wait.shorten();
        assert_eq!(wait, few);
        wait.signals.extend((2..1_000).map(child));
        wait.shorten();
        assert_eq!(wait.signals, ["a", ANY_CHILD]);
        assert_eq!(wait.from_outside(), ["a"]);
        assert!(
            wait.is_for_child()
                && wait.take_signal("a")
                && wait.take_signal(&child(5))
                && wait.take_signal(&child(1_001))
        );
        assert!(!wait.take_signal("b") && !wait.is_for_parent());
    }

    #[test]
    fn ends_are_awaited_by_name() {
        let wait = |until| Wait {
            tasks: true,
            ends: Some(Ends { open: ["a", "b"].map(String::from).into(), until }),
            ..Wait::default()
        };
        let told = |until, ends: &[(&str, bool)]| {
            let mut wait = wait(until);
            ends.iter().map(|(task, success)| wait.take_task(task, *success)).collect::<Vec<_>>()
        };
        assert_eq!(
            told(Until::All, &[("c", true), ("a", true), ("a", true), ("b", false)]),
            [false, false, false, true]
        );
        assert_eq!(told(Until::First, &[("c", true), ("a", false)]), [false, true]);
        assert_eq!(told(Until::Success, &[("a", false), ("b", false)]), [false, true]);
        assert_eq!(told(Until::Success, &[("b", true)]), [true]);
        let any = Wait { tasks: true, ..Wait::default() };
        assert!(any.clone().take_task("whichever", false) && !any.clone().take_signal("go"));
        assert!(!Wait::default().take_task("a", true) && !Wait::default().take_signal("a"));
        let read: Wait = serde_json::from_str(&serde_json::to_string(&wait(Until::First)).unwrap()).unwrap();
        assert_eq!(read, wait(Until::First));
    }
}
