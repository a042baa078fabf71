//! Plain data of the engine: what a run, an entry, a task, a signal, an event are. No behaviour, no I/O.

mod access;
mod audit;
mod batch;
mod budget;
mod checkpoint;
mod definition;
mod entry;
mod event;
mod execution;
mod op;
mod operators;
mod page;
mod queue;
mod schedule;
mod signal;
mod task;
mod text;
mod usage;

pub use access::{ApiKey, NewKey, OrgLimits, Organization, Scope, Scopes, TokenHash, fresh_token, is_token};
pub use audit::{AuditRow, Seal};
pub use batch::{AttemptReport, AttemptResult, Batch, BatchEnd, CommitAnswer, CommitRequest, Committed, Consumed};
pub use budget::{Allowance, Budget, Spent};
pub use checkpoint::{Checkpoint, NewCheckpoint};
pub use definition::{Definition, DefinitionSpec};
pub use entry::{Entry, NewEntry, Role};
pub use event::{Chunk, ChunkKind, Event, EventId, EventKind, NewEvent, StreamEvent};
pub use execution::{
    CancelMode, Cancellation, Claim, Created, Divergence, Ends, Execution, ForkFrom, ForkPoint, ForkRequest, Lease,
    NewExecution, ResumeRequest, StartLimits, Status, Until, Wait, WaitReason,
};
pub(crate) use execution::{check_concurrency, runners};
pub(crate) use op::UNDONE;
pub use op::{
    Fact, FactKind, Label, LabelKey, NewOp, OnceResult, OpBody, OpKind, RecordedBody, RecordedOp, Seen, Segment,
};
pub use operators::{KnownWorker, QueueLoad};
pub use page::{Cursor, ExecutionFilter, MAX_PAGE, Page, PageRequest};
pub use queue::{QueueLimit, Rate};
pub use schedule::{Schedule, ScheduleSpec};
pub use signal::{CHILD_SIGNALS, Delivery, NewSignal, Signal, SignalStored, child_signal};
pub(crate) use task::Interruption;
pub use task::{
    ClaimedTask, Failure, NewTask, Placement, Resolution, RetryPolicy, SideEffects, Task, TaskOptions, TaskReport,
    TaskStatus,
};
pub use text::{MAX_ID, MAX_NAME};
pub(crate) use text::{check_id, check_name, check_text};
pub use usage::{Usage, UsageTotals};
