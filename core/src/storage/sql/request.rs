//! The record of a commit: enough to answer a retry of the same request.
//!
//! It is kept in columns of the commit's last event, which saves a row for each step. If a commit adds no event, its
//! record goes on the run's last event, and the record that was there moves to the table `commit_request`. Records on
//! events before the last claim belong to lower epochs and are not looked at.

use super::run::Run;
use super::{Events, Statements};
use crate::clock::Timestamp;
use crate::id::RequestId;
use crate::model::{CommitAnswer, Committed, Status, WaitReason};
use crate::payload::Digest;

/// A commit of the current epoch.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Request {
    pub number: u64,
    pub id: RequestId,
    pub digest: Digest,
    /// The next free sequence of the segment.
    pub top: u32,
    /// The highest fact number that the sender knew.
    pub known: u64,
    /// The number of the last event after the commit.
    pub high: u64,
    /// The number of the latest fact after the commit.
    pub fact_high: u64,
    pub committed: Committed,
    pub paused: Option<WaitReason>,
    pub at: Timestamp,
}

/// The reasons for which a commit can pause, in the order of their numbers from 1.
const PAUSES: [WaitReason; 3] = [WaitReason::StepLimit, WaitReason::TailLimit, WaitReason::Quarantined];

impl Request {
    /// The value of its outcome column.
    pub(crate) fn outcome(&self) -> u8 {
        let committed = match self.committed {
            Committed::Continue => 0,
            Committed::Suspended => 1,
            Committed::Finished(status) => status as u8 + 2,
        };
        let pause = self.paused.and_then(|paused| PAUSES.iter().position(|reason| *reason == paused));
        committed + 16 * pause.map_or(0, |place| place as u8 + 1)
    }

    /// Reads the outcome column: how the commit ended, and for what it paused.
    pub(crate) fn ended(outcome: u8) -> (Committed, Option<WaitReason>) {
        let committed = match outcome % 16 {
            0 => Committed::Continue,
            1 => Committed::Suspended,
            status => Committed::Finished(Status::ALL.get(usize::from(status) - 2).copied().unwrap_or(Status::Paused)),
        };
        (committed, usize::from(outcome / 16).checked_sub(1).and_then(|place| PAUSES.get(place).copied()))
    }

    /// The answer that the commit had. Its facts are read again.
    pub(crate) fn answer<T: Events>(&self, tx: &T, run: &Run<T::Home>) -> Result<CommitAnswer, T::Fault> {
        Ok(CommitAnswer {
            number: self.number,
            committed: self.committed,
            facts: tx.facts(run, self.known, self.high, None)?,
            high: self.high,
            now: self.at,
            cancel: run.stop.filter(|stop| (1..=self.high).contains(&stop.number)).map(|stop| stop.cancellation),
            paused: self.paused,
            purse: None,
        })
    }
}

/// Ends an epoch: copies what its last commit recorded into the run's row, and deletes the records in `commit_request`.
/// Returns the number of the last event as of that commit.
pub(in crate::storage) fn forget_requests<T: Statements>(
    tx: &T,
    run: &mut Run<T::Home>,
) -> Result<Option<u64>, T::Fault> {
    let (_, last) = tx.last_request(run)?;
    let Some(last) = last else { return Ok(None) };
    run.base = run.base.max(last.number);
    run.top = run.top.max(last.top);
    run.fact_high = run.fact_high.max(last.fact_high);
    tx.forget_aside(run)?;
    Ok(Some(last.high))
}

/// The next free sequence of the run's segment, and the number of its last commit.
pub(in crate::storage) fn position<T: Statements>(tx: &T, run: &Run<T::Home>) -> Result<(u32, u64), T::Fault> {
    let (_, last) = tx.last_request(run)?;
    Ok(last.map_or((run.top, run.base), |last| (run.top.max(last.top), run.base.max(last.number))))
}
