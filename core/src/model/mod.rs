//! Plain data of the engine: what a run, an entry, a task, a signal, an event are. No behaviour, no I/O.

mod access;
mod audit;
mod batch;
mod budget;
mod checkpoint;
mod child;
mod definition;
mod entry;
mod event;
mod execution;
mod kin;
pub(crate) mod machine;
mod message;
mod op;
mod operators;
mod page;
mod queue;
mod schedule;
mod shared_context;
mod signal;
mod start;
mod task;
mod text;
mod usage;

// What users of a backend see.
pub use budget::{Budget, Overrun, Spent};
pub use checkpoint::Checkpoint;
pub use child::{CHILD_SIGNALS, child_signal};
pub use entry::{Entry, Role};
pub use event::{Chunk, ChunkKind, Event, EventId, EventKind, StreamEvent};
pub use execution::{
    CancelMode, Cancellation, Divergence, Execution, ForkFrom, ForkPoint, ResumeRequest, Status, Wait, WaitReason,
};
pub use kin::{FamilyEvent, RollUp};
pub use message::{
    ANSWER_SIGNALS, ChildEvent, ChildRequest, EVENT_SIGNALS, REFUSAL_SIGNALS, event_signal, is_own_signal,
    tells_of_child,
};
pub use operators::{KnownWorker, QueueLoad};
pub use page::{Cursor, ExecutionFilter, MAX_PAGE, Page, PageRequest};
pub use queue::{QueueLimit, Rate};
pub use schedule::{Schedule, ScheduleSpec};
pub use shared_context::SharedContext;
pub use signal::{Delivery, Signal};
#[doc(hidden)]
pub use start::Rows;
pub use start::{OnParentEnd, Persistence, StartLimits};
pub use task::{Failure, PARENT_QUEUE, Placement, Resolution, RetryPolicy, SideEffects, Task, TaskOptions, TaskStatus};
pub use text::{MAX_ID, MAX_NAME};
pub use usage::{Usage, UsageTotals};

// What a worker and its backend exchange, and what a server keeps: for the crates of this repository.
#[doc(hidden)]
pub use access::{
    ApiKey, NewKey, OrgLimits, Organization, Scope, Scopes, TokenHash, USER, fresh_token, is_token, is_user,
};
#[doc(hidden)]
pub use audit::{AuditRow, Seal};
#[doc(hidden)]
pub use batch::{
    AttemptReport, AttemptResult, Batch, BatchEnd, CommitAnswer, CommitRequest, Committed, Consumed, LocalRun,
};
#[doc(hidden)]
pub use budget::{Allowance, Purse};
#[doc(hidden)]
pub use checkpoint::NewCheckpoint;
#[doc(hidden)]
pub use definition::{Definition, DefinitionSpec};
#[doc(hidden)]
pub use entry::NewEntry;
#[doc(hidden)]
pub use event::NewEvent;
#[doc(hidden)]
pub use execution::{Claim, Created, Ends, ForkRequest, Lease, Until};
#[doc(hidden)]
pub use kin::Relative;
#[doc(hidden)]
pub use machine::{
    Approval, Approved, MACHINE_QUEUES, MAX_OFFERS, Machine, PAIRING_TIME, Paired, Pairing, check_task, choose,
    machine_of, machine_queue,
};
#[doc(hidden)]
pub use message::{MessageBody, NewMessage, SentMessage};
#[doc(hidden)]
pub use op::{
    Fact, FactKind, Label, LabelKey, NewOp, OnceResult, OpBody, OpKind, RecordedBody, RecordedOp, Seen, Segment,
};
#[doc(hidden)]
pub use shared_context::Shared;
#[doc(hidden)]
pub use signal::{NewSignal, SignalStored};
#[doc(hidden)]
pub use start::NewExecution;
#[doc(hidden)]
pub use task::{ClaimedTask, NewTask, TaskReport};

pub(crate) use budget::Dimension;
pub(crate) use child::{ChildEnd, Ended, handed_off, handed_signal, kept_signal, left_running, told_of};
pub(crate) use message::{
    answer_of, answer_signal, check_signal, child_of_events, ends_wait, is_answer, refused_op, unanswered,
};
pub(crate) use op::UNDONE;
pub(crate) use start::{check_concurrency, runners};
pub(crate) use task::Interruption;
pub(crate) use text::{check_id, check_kind, check_name, check_text};
