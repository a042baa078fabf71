//! The conversation of a run: every entry it appended, or the branch it stands on.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Asked, Caller};
use super::value::{IN_PLACE, IN_ROW, PayloadRef, told};
use flovyn_core::id::EntryId;
use flovyn_core::model::{Entry, MAX_PAGE};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

/// A node of the conversation.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Entry)]
pub(super) struct EntryView {
    id: Uuid,
    parent_id: Option<Uuid>,
    /// The run that appended it: of a fork's branch, also the run it was forked from.
    agent_execution_id: Uuid,
    /// The op that appended it: what was streamed for it is replaced by this.
    #[schema(example = "0-3")]
    op: String,
    /// Empty for the main one.
    thread: String,
    #[schema(example = "assistant")]
    role: String,
    #[schema(example = "message")]
    entry_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    content: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_ref: Option<PayloadRef>,
    turn_id: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    metadata: Option<Box<RawValue>>,
    /// Distance from the root.
    depth: u32,
    created_at: String,
}

async fn view(caller: &Caller, entry: &Entry, fetch: u64) -> Result<EntryView, Problem> {
    let (content, content_ref) = told(caller, &entry.new.content, fetch).await?;
    Ok(EntryView {
        id: entry.new.id.0,
        parent_id: entry.new.parent.map(|parent| parent.0),
        agent_execution_id: entry.execution.0,
        op: entry.slot.to_string(),
        thread: entry.new.thread.clone(),
        role: entry.new.role.clone(),
        entry_type: entry.new.entry_type.clone(),
        content,
        content_ref,
        turn_id: entry.new.turn_id.clone(),
        metadata: entry.new.metadata.clone().and_then(|metadata| RawValue::from_string(metadata).ok()),
        depth: entry.depth,
        created_at: entry.created_at.to_string(),
    })
}

async fn listed(
    caller: &Caller,
    entries: &[Entry],
    next: Option<String>,
) -> Result<axum::Json<Items<EntryView>>, Problem> {
    let mut items = Vec::with_capacity(entries.len());
    for entry in entries {
        items.push(view(caller, entry, IN_ROW).await?);
    }
    Ok(axum::Json(Items { items, next_cursor: next }))
}

/// Lists the entries a run appended, in order, on whatever branch.
#[utoipa::path(
    get, path = "/agent-executions/{id}/entries", tag = "conversation",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Items<EntryView>))
)]
pub(super) async fn entries(caller: Caller, mut asked: Asked) -> Result<axum::Json<Items<EntryView>>, Problem> {
    let page = asked.page()?;
    asked.nothing_else()?;
    let id = caller.run().await?.id();
    let page = caller.service.storage.entries(caller.org(), id, page).await?;
    listed(&caller, &page.items, page.next.map(|cursor| cursor.0)).await
}

/// Lists the entries of the branch the run stands on, from the root.
#[utoipa::path(
    get, path = "/agent-executions/{id}/messages", tag = "conversation",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Items<EntryView>))
)]
pub(super) async fn messages(caller: Caller, mut asked: Asked) -> Result<axum::Json<Items<EntryView>>, Problem> {
    let page = asked.page()?;
    asked.nothing_else()?;
    if !(1..=MAX_PAGE).contains(&page.limit) {
        return Err(Problem::invalid(format!("limit is {}; give 1 to {MAX_PAGE}", page.limit)));
    }
    let after = page.after.map(|cursor| cursor.0.parse::<EntryId>()).transpose();
    let after = after.map_err(|_| Problem::invalid("the cursor is none of this listing; pass a nextCursor"))?;
    let branch = branch(&caller).await?;
    let start = match after {
        None => 0,
        Some(after) => match branch.iter().position(|entry| entry.new.id == after) {
            Some(place) => place + 1,
            // The run has gone on on another branch since.
            None => return Err(Problem::invalid("the cursor is no longer on the branch; list it from its start")),
        },
    };
    let shown = &branch[start..branch.len().min(start + page.limit)];
    let more = start + shown.len() < branch.len();
    let next = shown.last().filter(|_| more).map(|entry| entry.new.id.to_string());
    listed(&caller, shown, next).await
}

async fn branch(caller: &Caller) -> Result<Vec<Entry>, Problem> {
    let Some(leaf) = caller.run().await?.describe().await?.leaf else { return Ok(Vec::new()) };
    Ok(caller.service.storage.branch(caller.org(), leaf, None).await?)
}

/// One entry of a run or of the branch it stands on.
#[utoipa::path(
    get, path = "/agent-executions/{id}/messages/{entryId}", tag = "conversation",
    responses((status = 200, body = EntryView))
)]
pub(super) async fn message(caller: Caller) -> Result<axum::Json<EntryView>, Problem> {
    let id: EntryId = caller.parsed("entryId", "entry")?;
    let run = caller.run().await?.id();
    let missing = || Problem::not_found(format!("the run has no entry {id}; GET …/entries lists them"));
    let entry = caller.service.storage.entry(caller.org(), id).await;
    let entry = entry.map_err(|error| match error.kind() {
        flovyn_core::error::Kind::NotFound => missing(),
        _ => error.into(),
    })?;
    // A fork has the entries of the run it was forked from on its branch.
    if entry.execution != run && !branch(&caller).await?.iter().any(|on_branch| on_branch.new.id == id) {
        return Err(missing());
    }
    Ok(axum::Json(view(&caller, &entry, IN_PLACE).await?))
}
