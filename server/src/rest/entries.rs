//! The conversation of a run: every entry it appended, or the branch it stands on.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use super::value::{IN_PLACE, IN_ROW, PayloadRef, to_value};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{EntryId, ExecutionId};
use flovyn_core::model::{Entry, MAX_PAGE};
use flovyn_core::view;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// A node of the conversation: the view that all show, its content, and an older name that goes on to be shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Entry)]
pub(super) struct EntryView {
    #[serde(flatten)]
    shown: view::Entry,
    /// An older name of `execution`.
    agent_execution_id: Uuid,
    /// The op of that run that appended it: what was streamed for it is replaced by this.
    #[schema(example = "0-3")]
    op: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    content: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_ref: Option<PayloadRef>,
    /// The step of its run in which it was appended, from 1; null where the agent counts no steps.
    step_number: Option<u32>,
}

async fn view(caller: &Caller, entry: &Entry, step: u32, fetch: u64) -> Result<EntryView, Problem> {
    let (content, content_ref) = to_value(caller, &entry.new.content, fetch).await?;
    Ok(EntryView {
        shown: view::Entry::of(entry),
        agent_execution_id: entry.execution.0,
        op: entry.slot.to_string(),
        content,
        content_ref,
        step_number: (step > 0).then_some(step),
    })
}

async fn listed(
    caller: &Caller,
    entries: &[Entry],
    next: Option<String>,
) -> Result<axum::Json<Items<EntryView>>, Problem> {
    let mut items = Vec::with_capacity(entries.len());
    for (entry, step) in entries.iter().zip(steps(caller, entries).await?) {
        items.push(view(caller, entry, step, IN_ROW).await?);
    }
    Ok(axum::Json(Items { items, next_cursor: next }))
}

/// The steps in which entries were appended, each of its own run: a fork's branch has those of another, too.
async fn steps(caller: &Caller, entries: &[Entry]) -> Result<Vec<u32>, Problem> {
    let mut of_runs: BTreeMap<ExecutionId, Vec<usize>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        of_runs.entry(entry.execution).or_default().push(place);
    }
    let mut steps = vec![0; entries.len()];
    for (run, places) in of_runs {
        let slots: Vec<_> = places.iter().map(|place| entries[*place].slot).collect();
        let counted = caller.service.steps.at(&*caller.service.storage, caller.org(), run, &slots).await?;
        places.into_iter().zip(counted).for_each(|(place, step)| steps[place] = step);
    }
    Ok(steps)
}

/// Lists the entries a run appended, in order or with `order=desc` from the last one back, on whatever branch.
#[utoipa::path(
    get, path = "/agent-executions/{id}/entries", tag = "conversation",
    params(
        ("limit" = Option<u32>, Query),
        ("cursor" = Option<String>, Query),
        ("order" = Option<String>, Query, description = "`asc`, which is the default, or `desc`")
    ),
    responses((status = 200, body = Items<EntryView>))
)]
pub(super) async fn entries(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<EntryView>>, Problem> {
    let page = query.page()?;
    let order = query.get("order")?;
    query.reject_unknown()?;
    let run = caller.run().await?;
    run.check_kept()?;
    let (org, id, storage) = (caller.org(), run.new.id, &caller.service.storage);
    let page = match order.as_deref() {
        None | Some("asc") => storage.entries(org, id, page).await?,
        Some("desc") => storage.latest_entries(org, id, page).await?,
        Some(other) => return Err(Problem::invalid(format!("the order {other:?} is none; give `asc` or `desc`"))),
    };
    listed(&caller, &page.items, page.next.map(|cursor| cursor.0)).await
}

/// Lists the entries of the branch the run stands on, from the root.
#[utoipa::path(
    get, path = "/agent-executions/{id}/messages", tag = "conversation",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Items<EntryView>))
)]
pub(super) async fn messages(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<EntryView>>, Problem> {
    let page = query.page()?;
    query.reject_unknown()?;
    if !(1..=MAX_PAGE).contains(&page.limit) {
        return Err(Problem::invalid(format!("limit is {}; give 1 to {MAX_PAGE}", page.limit)));
    }
    let after = page.after.map(|cursor| cursor.0.parse::<EntryId>()).transpose();
    let after = after.map_err(|_| Problem::invalid("the cursor is none of this listing; pass a nextCursor"))?;
    caller.run().await?.check_kept()?;
    let branch = branch(&caller).await?;
    let start = match after {
        None => 0,
        Some(after) => match branch.iter().position(|entry| entry.new.id == after) {
            Some(place) => place + 1,
            // The run has gone on on another branch since.
            None => return Err(Problem::invalid("the cursor is no longer on the branch; list it from its start")),
        },
    };
    let page = &branch[start..branch.len().min(start + page.limit)];
    let more = start + page.len() < branch.len();
    let next = page.last().filter(|_| more).map(|entry| entry.new.id.to_string());
    listed(&caller, page, next).await
}

/// The conversation from its root, as the entries are listed, up to a number; and where more follows.
pub(super) async fn conversation(caller: &Caller) -> Result<(Box<RawValue>, Option<String>), Problem> {
    let branch = branch(caller).await?;
    let page = &branch[..branch.len().min(MAX_PAGE)];
    let next = page.last().filter(|_| page.len() < branch.len()).map(|entry| entry.new.id.to_string());
    let axum::Json(listed) = listed(caller, page, next).await?;
    let value = serde_json::value::to_raw_value(&listed.items);
    Ok((value.map_err(|error| Error::new(Code::Internal, error.to_string()))?, listed.next_cursor))
}

async fn branch(caller: &Caller) -> Result<Vec<Entry>, Problem> {
    let Some(leaf) = caller.run().await?.leaf else { return Ok(Vec::new()) };
    Ok(caller.service.storage.branch(caller.org(), leaf, None).await?)
}

/// One entry of a run or of the branch it stands on.
#[utoipa::path(
    get, path = "/agent-executions/{id}/messages/{entryId}", tag = "conversation",
    responses((status = 200, body = EntryView))
)]
pub(super) async fn message(caller: Caller) -> Result<axum::Json<EntryView>, Problem> {
    let id: EntryId = caller.parsed("entryId", "entry")?;
    let run = caller.run().await?;
    run.check_kept()?;
    let run = run.new.id;
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
    let step = steps(&caller, std::slice::from_ref(&entry)).await?.into_iter().sum();
    Ok(axum::Json(view(&caller, &entry, step, IN_PLACE).await?))
}
