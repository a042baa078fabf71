//! A process that dies at a commit: a backend as one process sees it.
//!
//! Wrap the backend anew for every process. Once the point is reached nothing of that process reaches the backend any more:
//! its calls wait until [`Process::release_calls`] and then fail as those of a cut connection do.

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, RequestId};
use crate::model::{AttemptResult, BatchEnd, CommitAnswer, CommitRequest};
use crate::storage::Storage;
use crate::storage::guarded::{Call, Gate, Guarded};
use crate::sync::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::watch;

/// Where a process dies. Commits are counted from 1, by process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// With the commit of this number on its lips: nothing of it is durable, though inline steps beside it have begun.
    Before(u64),
    /// The commit is durable and the process never learns it.
    After(u64),
    /// No death: the commit is durable, its answer is lost, and the same request is sent again.
    AnswerLost(u64),
    /// As `After`, at the first commit that ends a segment.
    Checkpoint,
}

/// What a run's processes have made durable together.
#[derive(Debug, Default)]
pub struct Ledger {
    done: HashSet<(ExecutionId, u32, u32)>,
    repeated: Vec<String>,
}

impl Ledger {
    /// Steps that ended although their result was durable already.
    pub fn repeated(&self) -> &[String] {
        &self.repeated
    }
}

/// A backend as one process sees it, with the point where that process dies.
pub type CrashPoints = Guarded<Process>;

/// A process: what it has sent, and whether it lives.
pub struct Process {
    point: Option<CrashPoint>,
    /// How many commits it has sent, and which: a repeated one may come after those of other runs.
    commits: Mutex<HashSet<RequestId>>,
    ledger: Arc<Mutex<Ledger>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    Dead,
    Buried,
}

impl CrashPoints {
    /// A process that dies at a point; one that lives on without a point.
    pub fn new(inner: Arc<dyn Storage>, point: Option<CrashPoint>) -> Self {
        Self::with_ledger(inner, point, Arc::default())
    }

    /// As [`new`](Self::new), with a ledger that all processes of a run share.
    pub fn with_ledger(inner: Arc<dyn Storage>, point: Option<CrashPoint>, ledger: Arc<Mutex<Ledger>>) -> Self {
        let state = watch::Sender::new(State::Alive);
        Self::over(inner, Process { point, commits: Mutex::default(), ledger, state })
    }
}

impl Process {
    /// Commits that this process sent, each counted once however often it was repeated.
    pub fn commits(&self) -> u64 {
        self.commits.lock().len() as u64
    }

    /// Whether the point was reached.
    pub fn is_dead(&self) -> bool {
        *self.state.borrow() != State::Alive
    }

    /// Ends when the point is reached.
    pub async fn died(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state != State::Alive).await;
    }

    /// Dies now, whatever is going on.
    pub fn die(&self) {
        self.state.send_if_modified(|state| {
            let alive = *state == State::Alive;
            if alive {
                *state = State::Dead;
            }
            alive
        });
    }

    /// Lets go of the dead process's calls.
    pub fn release_calls(&self) {
        self.state.send_replace(State::Buried);
    }

    async fn gone<T>(&self) -> Result<T> {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state == State::Buried).await;
        Err(Error::new(Code::StorageUnavailable, "this process was killed on purpose"))
    }
}

impl Gate for Process {
    async fn pass<T: Send>(&self, _call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if self.is_dead() {
            return self.gone().await;
        }
        body.await
    }

    async fn commit(&self, inner: &dyn Storage, request: CommitRequest) -> Result<CommitAnswer> {
        if self.is_dead() {
            return self.gone().await;
        }
        let number = {
            let mut commits = self.commits.lock();
            commits.insert(request.request_id).then(|| commits.len() as u64)
        };
        let Some(number) = number else { return inner.commit(request).await };
        if self.point == Some(CrashPoint::Before(number)) {
            self.die();
            return self.gone().await;
        }
        let ends_segment = matches!(request.batch.end, BatchEnd::Checkpoint(_));
        let execution = request.execution;
        let segment = request.batch.segment;
        let ended: Vec<u32> = request
            .batch
            .attempts
            .iter()
            .filter(|report| matches!(report.result, AttemptResult::Completed(_)))
            .map(|report| report.sequence)
            .collect();
        let answer = inner.commit(request).await;
        if answer.is_ok() {
            let mut ledger = self.ledger.lock();
            for sequence in ended {
                if !ledger.done.insert((execution, segment, sequence)) {
                    ledger.repeated.push(format!("{execution}-{segment}-{sequence}"));
                }
            }
        }
        let dies = match self.point {
            Some(CrashPoint::After(at)) => at == number,
            Some(CrashPoint::Checkpoint) => ends_segment,
            _ => false,
        };
        if dies {
            self.die();
            return self.gone().await;
        }
        if self.point == Some(CrashPoint::AnswerLost(number)) {
            return Err(Error::new(Code::StorageUnavailable, "the answer was lost on purpose"));
        }
        answer
    }

    /// The backend outlives the process.
    fn close(&self, _inner: &dyn Storage) {}
}
