//! What has happened to a run, as a list: the durable events that its stream has.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use flovyn_core::client::{durable_event, event_kind};
use flovyn_core::model::{Event, EventKind, MAX_PAGE};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// How many events one page looks at for those of some names: what it has found by then is answered, with where to go on.
const LOOKED_AT: usize = 10_000;

/// A durable event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Event)]
pub(super) struct EventView {
    /// Its number in the run, and its id in the stream.
    id: u64,
    /// Its name, such as `agent.waiting`.
    event: &'static str,
    /// What it says, as in the stream.
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

fn view(event: &Event) -> EventView {
    let (name, data) = durable_event(event);
    EventView { id: event.number, event: name, data }
}

/// Lists the durable events of a run, oldest first, as a stream has them, or those of some names. An entry is named by its id;
/// `/messages/{entryId}` has its content.
#[utoipa::path(
    operation_id = "list_events",
    get, path = "/agent-executions/{id}/events", tag = "streams",
    params(
        ("event" = Option<String>, Query, description = "Names, separated by commas: `agent.resumed,agent.lease_lost`"),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query, description = "A `nextCursor`, or the id of an event"),
    ),
    responses((status = 200, body = Items<EventView>))
)]
pub(super) async fn list(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<EventView>>, Problem> {
    let page = query.page()?;
    let names = query.get_all("event");
    query.reject_unknown()?;
    if !(1..=MAX_PAGE).contains(&page.limit) {
        return Err(Problem::invalid(format!("limit is {}; give 1 to {MAX_PAGE}", page.limit)));
    }
    let mut after: u64 = match &page.after {
        None => 0,
        Some(cursor) => {
            let none =
                |_| Problem::invalid(format!("the cursor {:?} is none of this listing; pass a nextCursor", cursor.0));
            cursor.0.parse().map_err(none)?
        }
    };
    let kinds = names.iter().flat_map(|names| names.split(',')).map(kind).collect::<Result<Vec<_>, _>>()?;
    let run = caller.run().await?.new.id;
    let (mut items, mut looked) = (Vec::new(), 0);
    loop {
        // One more than is asked for says whether there is more.
        let share = if kinds.is_empty() { page.limit + 1 - items.len() } else { MAX_PAGE };
        let events = caller.service.storage.events(caller.org(), run, after, share).await?;
        let is_last = events.len() < share;
        looked += events.len();
        for event in &events {
            if items.len() == page.limit {
                return Ok(axum::Json(Items { items, next_cursor: Some(after.to_string()) }));
            }
            after = event.number;
            if kinds.is_empty() || kinds.contains(&event.kind) {
                items.push(view(event));
            }
        }
        if is_last {
            return Ok(axum::Json(Items { items, next_cursor: None }));
        }
        if looked >= LOOKED_AT {
            return Ok(axum::Json(Items { items, next_cursor: Some(after.to_string()) }));
        }
    }
}

fn kind(name: &str) -> Result<EventKind, Problem> {
    let unknown = || Problem::invalid(format!("{name:?} is the name of no durable event; docs/rest.md lists them"));
    event_kind(name).ok_or_else(unknown)
}
