//! How the ports run commands in a dialect's transactions. With it the ports are written once for all SQL backends.

use super::payloads::large;
use super::previews::PreviewRows;
use super::quarantine::{Counted, is_of_a_row};
use super::{Kinship, Listings, Tables, Workers};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{CommitAnswer, CommitRequest, NewSignal, SignalStored};
use crate::payload::{Body, Content, ContentHash, Payload};
use crate::streaming::Chunks;

/// A store that runs commands and reads as closures over a transaction. A command that was answered is durable.
pub(in crate::storage) trait Backend: Send + Sync {
    type Fault: From<Error>;
    type Tx<'t>: Tables<Fault = Self::Fault> + Listings + Kinship + Workers + PreviewRows;

    /// Runs a command about a run. It may share the transaction with other commands that wait.
    fn write<T, F>(
        &self,
        asked: &'static str,
        org: OrgId,
        run: ExecutionId,
        command: F,
    ) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// As [`write`](Self::write), for a command that may write to rows of runs above it: a transaction locks a family from
    /// the root downwards.
    fn write_family<T, F>(
        &self,
        asked: &'static str,
        org: OrgId,
        run: ExecutionId,
        command: F,
    ) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static,
    {
        self.write(asked, org, run, command)
    }

    /// Runs a command that makes a new run. There is no row yet that could be locked.
    fn write_new<T, F>(
        &self,
        asked: &'static str,
        run: ExecutionId,
        command: F,
    ) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Runs a command over rows of many runs, such as a claim. If a broken row makes it fail, broken rows are set aside
    /// and the command is run once more, so that one run's damage does not stop all others.
    fn write_work<T, F>(&self, asked: &'static str, command: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Clone + Send + 'static,
    {
        async move {
            let done = self.write_alone(asked, command.clone()).await;
            if !done.as_ref().is_err_and(is_of_a_row) {
                return done;
            }
            let aside = self.write_alone("set aside rows that cannot be used", |tx| tx.set_aside()).await?;
            match self.aside().note(&aside) {
                true => self.write_alone(asked, command).await,
                false => done,
            }
        }
    }

    /// Counts the rows that were set aside.
    fn aside(&self) -> &Counted;

    /// Runs a command that finds and locks its rows itself, in a transaction of its own if the backend can.
    fn write_alone<T, F>(&self, asked: &'static str, command: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Runs a command about a run beside what else is written of it. Losing it costs nothing, so nobody waits for the disk.
    fn write_later<T, F>(
        &self,
        asked: &'static str,
        run: ExecutionId,
        command: F,
    ) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Reads in one snapshot of the database. The read sees at least the rows of the org; other rows may be hidden from
    /// it.
    fn read<T, F>(&self, asked: &'static str, org: OrgId, read: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Fn(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Reads in one snapshot of the database, the rows of all orgs.
    fn read_all<T, F>(&self, asked: &'static str, read: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Fn(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Commits a batch without large values. If another process reads the run, the previews made before the batch are
    /// written with it.
    fn commit_batch(&self, request: CommitRequest) -> impl Future<Output = Result<CommitAnswer>> + Send;

    /// Stores a signal without a large value.
    fn store(&self, signal: NewSignal) -> impl Future<Output = Result<SignalStored>> + Send;

    /// Makes a value fit into a row: uploads a large one, which is then only named, and reads a small streamed one into
    /// memory.
    fn settle(&self, org: OrgId, payload: &mut Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            self.settle_and_keep(org, payload).await?;
            payload.let_go();
            Ok(())
        }
    }

    /// As [`settle`](Self::settle), but an uploaded value also stays in memory.
    fn settle_and_keep(&self, org: OrgId, payload: &mut Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            payload.check_size(self.max_payload())?;
            if let Some(content) = large(payload)? {
                // Boxed: few values are large, and this future would be part of every call that takes a value.
                payload.body = Body::Kept { hash: Box::pin(self.upload(org, content.clone())).await?, content };
            }
            Ok(())
        }
    }

    /// Stores a large value in the payload table, unless it is there already, and returns its hash.
    fn upload(&self, org: OrgId, content: Content) -> impl Future<Output = Result<ContentHash>> + Send;

    /// The previews of this process.
    fn chunks(&self) -> &Chunks;

    /// The ceiling of one payload in bytes.
    fn max_payload(&self) -> u64;

    /// The store's time.
    fn now(&self) -> Timestamp;
}
