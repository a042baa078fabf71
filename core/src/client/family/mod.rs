//! The events of a run and of all runs below it, as one stream that is resumed after one cursor (rule 12 of families).

mod cursor;
mod members;

use self::members::Members;
use super::contents::Contents;
use super::watch::{PAUSE, SENT};
use crate::error::{Code, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{FamilyEvent, StreamEvent};
use crate::storage::{FamilyStream, Storage};
use crate::streaming::Chunks;
use futures::{FutureExt, StreamExt};
use std::sync::Arc;

/// A reader of the events of a run and of all below it. Ends when the run has ended and all was given of those below that
/// have ended too.
pub struct FamilyWatching {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    execution: ExecutionId,
    /// That of the last event which was given.
    cursor: Arc<str>,
    contents: Contents,
    /// To be given next; its entry may have no content yet.
    held: Option<FamilyEvent>,
    source: Source,
    over: bool,
}

/// Where the events come from.
enum Source {
    /// Nothing was looked at yet.
    Unknown,
    /// This process reads the runs.
    Here(Box<Members>),
    /// A server does.
    Server(FamilyStream),
    /// A server's stream broke, and was not opened again yet.
    Broken,
}

impl FamilyWatching {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        org: OrgId,
        execution: ExecutionId,
        after: &str,
    ) -> Self {
        let contents = Contents::of(storage.clone(), chunks.clone(), org);
        let (cursor, source) = (after.into(), Source::Unknown);
        Self { storage, chunks, org, execution, cursor, contents, held: None, source, over: false }
    }

    /// Leaves the content of larger entries in the store; their events then say `content_size` and `content_hash`.
    #[must_use]
    pub fn with_content_up_to(mut self, bytes: u64) -> Self {
        self.contents.limit = bytes;
        self
    }

    /// What to resume after.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Looks where to read from; false where nothing comes any more. Reading begins with it by itself.
    ///
    /// Errors: as of [`next`](Self::next).
    pub async fn begin(&mut self) -> Result<bool> {
        self.open().await?;
        // Of a run that has ended nothing is waited for.
        if let Source::Here(members) = &self.source
            && members.are_closing()
        {
            self.read().await?;
        }
        Ok(!self.over)
    }

    /// The next event; none after the last one. Whoever drops the future loses nothing.
    ///
    /// Errors: `ExecutionNotFound`, and `InvalidArgument` for a cursor that no stream of this run has given.
    pub async fn next(&mut self) -> Result<Option<FamilyEvent>> {
        self.read().await?;
        if let Some(FamilyEvent { event: StreamEvent::Durable(event), .. }) = &mut self.held
            && self.contents.are_lacking(event)
        {
            *event = self.contents.fill(event.clone()).await?.0;
        }
        let given = self.held.take();
        if let Some(given) = &given {
            self.cursor = given.cursor.clone();
        }
        Ok(given)
    }

    /// The next event with those that are there already, at most `limit`; none after the last one.
    ///
    /// Errors: as of [`next`](Self::next).
    pub async fn next_batch(&mut self, limit: usize) -> Result<Vec<FamilyEvent>> {
        let mut events: Vec<_> = self.next().await?.into_iter().collect();
        while !events.is_empty()
            && events.len() < limit
            && let Some(Ok(Some(event))) = self.next().now_or_never()
        {
            events.push(event);
        }
        Ok(events)
    }

    async fn open(&mut self) -> Result<()> {
        match self.source {
            // Fails here rather than trying again and again.
            Source::Unknown => drop(self.storage.execution(self.org, self.execution).await?),
            Source::Broken => tokio::time::sleep(PAUSE).await,
            Source::Here(_) | Source::Server(_) => return Ok(()),
        }
        let limit = self.contents.limit.min(SENT);
        self.source = match self.storage.family_stream(self.org, self.execution, &self.cursor, limit) {
            Some(events) => Source::Server(events),
            None => {
                let members = Members::new(self.storage.clone(), self.chunks.clone(), self.org, self.contents.limit)?;
                Source::Here(Box::new(members.restored(self.execution, &self.cursor).await?))
            }
        };
        Ok(())
    }

    /// Holds the next event, if there is one.
    async fn read(&mut self) -> Result<()> {
        while self.held.is_none() && !self.over {
            self.open().await?;
            let next = match &mut self.source {
                Source::Here(members) => members.next().await?,
                Source::Server(events) => match events.next().await {
                    Some(Ok(next)) => next,
                    Some(Err(error)) if error.code() != Code::StorageUnavailable => return Err(error),
                    // The server stopped, or the way to it is cut.
                    Some(Err(_)) | None => {
                        self.source = Source::Broken;
                        continue;
                    }
                },
                Source::Unknown | Source::Broken => continue,
            };
            self.over = next.is_none();
            self.held = next;
        }
        Ok(())
    }
}
