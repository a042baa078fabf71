//! How the ports reach a dialect's transactions, so that they are written once for every SQL backend.

use super::{Listings, Tables};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ExecutionId, OrgId};

/// A store whose commands and reads are closures over a transaction.
pub(in crate::storage) trait Backend: Send + Sync {
    type Fault: From<Error>;
    type Tx<'t>: Tables<Fault = Self::Fault> + Listings;

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

    /// Runs a command that finds its rows itself, where it can in a transaction of its own; the answer is durable.
    fn write_alone<T, F>(&self, asked: &'static str, command: F) -> impl Future<Output = Result<T>> + Send
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

    /// The store's time.
    fn now(&self) -> Timestamp;
}
