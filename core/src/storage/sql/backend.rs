//! How the ports reach a dialect's transactions, so that they are written once for every SQL backend.

use super::payloads::large;
use super::previews::PreviewRows;
use super::quarantine::{Counted, is_of_a_row};
use super::{Listings, Tables, Workers};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{CommitAnswer, CommitRequest, NewSignal, SignalStored};
use crate::payload::{Body, Content, ContentHash, Payload};
use crate::streaming::Chunks;

/// A store whose commands and reads are closures over a transaction.
pub(in crate::storage) trait Backend: Send + Sync {
    type Fault: From<Error>;
    type Tx<'t>: Tables<Fault = Self::Fault> + Listings + Workers + PreviewRows;

    /// Runs a command about a run, together with what else waits; the answer is durable.
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

    /// Runs a command that makes a run, of which nothing is there; the answer is durable.
    fn write_new<T, F>(
        &self,
        asked: &'static str,
        run: ExecutionId,
        command: F,
    ) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: FnMut(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Runs a command over the work of many. Where a row makes it fail, such rows are set aside and it is run once more.
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

    /// How much was set aside so far.
    fn aside(&self) -> &Counted;

    /// Runs a command that finds its rows itself, where it can in a transaction of its own; the answer is durable.
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

    /// Reads on one snapshot of the database, in which there need be nothing but the rows of an org.
    fn read<T, F>(&self, asked: &'static str, org: OrgId, read: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Fn(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Reads on one snapshot of the database, whosever the rows are.
    fn read_all<T, F>(&self, asked: &'static str, read: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Fn(&Self::Tx<'_>) -> Result<T, Self::Fault> + Send + 'static;

    /// Makes a batch durable whose values rows can hold, with the previews that were made before it where somebody elsewhere
    /// reads its run.
    fn commit_batch(&self, request: CommitRequest) -> impl Future<Output = Result<CommitAnswer>> + Send;

    /// Stores a signal whose value a row can hold.
    fn store(&self, signal: NewSignal) -> impl Future<Output = Result<SignalStored>> + Send;

    /// Puts a value where a row can hold it: a large one into the payload table, a small streamed one into memory.
    fn settle(&self, org: OrgId, payload: &mut Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            self.settle_and_keep(org, payload).await?;
            payload.let_go();
            Ok(())
        }
    }

    /// Like [`settle`](Self::settle); what went into the payload table is kept at hand for who gave it.
    fn settle_and_keep(&self, org: OrgId, payload: &mut Payload) -> impl Future<Output = Result<()>> + Send {
        async move {
            payload.check_size(self.max_payload())?;
            if let Some(content) = large(payload)? {
                // On the heap: few values are large, and every call that takes one waits here.
                payload.body = Body::Kept { hash: Box::pin(self.upload(org, content.clone())).await?, content };
            }
            Ok(())
        }
    }

    /// Puts a large value into the payload table, unless it is there; tells its hash.
    fn upload(&self, org: OrgId, content: Content) -> impl Future<Output = Result<ContentHash>> + Send;

    /// The previews of this process.
    fn chunks(&self) -> &Chunks;

    /// The ceiling of one payload in bytes.
    fn max_payload(&self) -> u64;

    /// The store's time.
    fn now(&self) -> Timestamp;
}
