//! Entries: appended under the id that the worker gives, and read back in order.

use super::leased_run::{CommitPlan, MAX_CONFLICTS, too_many_conflicts};
use super::{Adapter, Caller, V1, convert};
use flovyn_core::error::{Code, Error, Kind};
use flovyn_core::id::EntryId;
use flovyn_core::model::{Cursor, Entry, Execution, NewEntry, OpBody, OpKind, PageRequest};
use flovyn_proto::v1;
use flovyn_server::protocol::{ResponseStream, to_status};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tonic::Status;
use uuid::Uuid;

/// Entries of one page.
const PAGE: usize = 100;

/// The metadata of an entry.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    token_usage: Tokens,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    input: i64,
    output: i64,
    cache_read: Option<i64>,
    cache_write: Option<i64>,
}

impl Adapter {
    /// Appends an entry; a repeated id changes nothing.
    pub(super) async fn append(
        &self,
        caller: &Caller,
        wire: v1::AppendEntryRequest,
    ) -> Result<v1::AppendEntryResponse, Status> {
        let named = wire.idempotency_key.as_deref().filter(|key| !key.is_empty());
        let parent = wire.parent_id.as_deref().filter(|id| !id.is_empty());
        let parent = parent.map(|id| convert::uuid(id, "parent_id").map(EntryId)).transpose()?;
        let content = convert::value(wire.content.clone());
        let metadata = wire.token_usage.as_ref().map(metadata).transpose()?;
        let fresh = EntryId::fresh();
        for _ in 0..MAX_CONFLICTS {
            let leased = self.leased_run(caller, &wire.agent_execution_id).await?;
            let id = named.map_or(fresh, |key| entry_id(&leased.run, key));
            if named.is_some() && self.has_entry(&leased.run, id).await? {
                return Ok(v1::AppendEntryResponse { entry_id: id.to_string(), already_existed: true });
            }
            let new = NewEntry {
                id,
                parent,
                thread: String::new(),
                role: wire.role.clone().unwrap_or_default(),
                entry_type: entry_type(&wire.entry_type),
                content: content.clone(),
                turn_id: wire.turn_id.clone(),
                metadata: metadata.clone(),
            };
            let plan = CommitPlan::op(OpKind::Entry, &new.role.clone(), &id.to_string(), OpBody::Entry(new));
            if self.commit(&leased, plan).await?.is_some() {
                return Ok(v1::AppendEntryResponse { entry_id: id.to_string(), already_existed: false });
            }
        }
        Err(too_many_conflicts(&wire.agent_execution_id))
    }

    /// Whether a run has an entry with this id.
    async fn has_entry(&self, run: &Execution, id: EntryId) -> Result<bool, Status> {
        match self.storage().entry(run.new.org, id).await {
            Ok(entry) if entry.execution == run.new.id => Ok(true),
            Ok(entry) => {
                let message = format!("the id {id} is that of an entry of the run {}; choose another", entry.execution);
                Err(to_status(Error::new(Code::InvalidArgument, message)))
            }
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(to_status(error)),
        }
    }

    async fn entry_chunk(&self, run: &Execution, entry: &Entry) -> Result<v1::AgentEntryChunk, Status> {
        let new = &entry.new;
        let metadata = new.metadata.as_deref().and_then(|text| serde_json::from_str::<Metadata>(text).ok());
        let entry = v1::AgentEntry {
            id: new.id.to_string(),
            parent_id: new.parent.map(|parent| parent.to_string()),
            entry_type: new.entry_type.to_uppercase(),
            role: Some(new.role.clone()).filter(|role| !role.is_empty()),
            content: self.bytes(run.new.org, &new.content).await?,
            turn_id: new.turn_id.clone(),
            token_usage: metadata.map(|metadata| metadata.token_usage.into()),
            created_at_ms: convert::millis(entry.created_at),
        };
        Ok(v1::AgentEntryChunk { entry: Some(entry) })
    }
}

impl V1 {
    /// The entries of a run in order, those of the run it was forked from first; or those after a given entry.
    pub(super) async fn entries(
        &self,
        caller: &Caller,
        wire: v1::GetEntriesRequest,
    ) -> Result<ResponseStream<v1::AgentEntryChunk>, Status> {
        let run = self.run(caller, &wire.agent_execution_id).await?;
        let after = wire.after_entry_id.as_deref().filter(|id| !id.is_empty());
        let after = match after {
            None => None,
            Some(id) => {
                let id = EntryId(convert::uuid(id, "after_entry_id")?);
                Some(self.storage().entry(run.new.org, id).await.map_err(to_status)?)
            }
        };
        let mut shared = Vec::new();
        if let (Some(_), Some(leaf)) = (run.forked_from, run.leaf) {
            shared = self.storage().branch(run.new.org, leaf, None).await.map_err(to_status)?;
            shared.retain(|entry| entry.execution != run.new.id);
        }
        if let Some(after) = &after {
            match shared.iter().position(|entry| entry.new.id == after.new.id) {
                Some(position) => drop(shared.drain(..=position)),
                None => shared.clear(),
            }
        }
        let own = after.filter(|after| after.execution == run.new.id).map(|after| after.slot);
        let first = stream::iter([Ok::<_, Status>(shared)]);
        let (this, id) = (self.clone(), (run.new.org, run.new.id));
        let rest = stream::try_unfold(Some(None::<Cursor>), move |cursor| {
            let this = this.clone();
            async move {
                let Some(after) = cursor else { return Ok(None) };
                let page = PageRequest { limit: PAGE, after };
                let page = this.storage().entries(id.0, id.1, page).await.map_err(to_status)?;
                Ok::<_, Status>(Some((page.items, page.next.map(Some))))
            }
        });
        let (this, run) = (self.clone(), Arc::new(run));
        let pages = first.chain(rest.map_ok(move |items: Vec<Entry>| {
            items.into_iter().filter(|entry| own.is_none_or(|own| entry.slot > own)).collect::<Vec<_>>()
        }));
        let entries =
            pages.map_ok(|items: Vec<Entry>| stream::iter(items.into_iter().map(Ok::<_, Status>))).try_flatten();
        Ok(Box::pin(entries.and_then(move |entry| {
            let (this, run) = (this.clone(), run.clone());
            async move { this.entry_chunk(&run, &entry).await }
        })))
    }
}

/// The id of an entry: its key where that is a UUID, else a UUID derived from it.
fn entry_id(run: &Execution, key: &str) -> EntryId {
    EntryId(Uuid::parse_str(key).unwrap_or_else(|_| Uuid::new_v5(&run.new.id.0, key.as_bytes())))
}

fn entry_type(word: &str) -> String {
    if word.is_empty() { "message".into() } else { word.to_lowercase() }
}

fn metadata(usage: &v1::TokenUsage) -> Result<String, Status> {
    let token_usage = Tokens {
        input: usage.input_tokens,
        output: usage.output_tokens,
        cache_read: usage.cache_read_tokens,
        cache_write: usage.cache_write_tokens,
    };
    serde_json::to_string(&Metadata { token_usage }).map_err(|error| Status::internal(error.to_string()))
}

impl From<Tokens> for v1::TokenUsage {
    fn from(tokens: Tokens) -> Self {
        Self {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
        }
    }
}
