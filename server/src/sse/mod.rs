//! A run's events over `text/event-stream`: resumed after any id, cut where the reader does not read.
//!
//! Names and bodies are core's (`client::server_sent`). A subscriber holds a position, the events it has not sent, and at
//! most [`BLOCKS`] blocks that the network has not taken; what a run streams is held once for all of them.

mod answers;
mod projection;
mod sent;
mod turn_request;
mod turn_routes;
mod turns;

use self::answers::AnsweredTurn;
use self::projection::Projection;
use self::turns::Format;
use crate::rest::{Caller, Problem, QueryParams};
use crate::service::Service;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flovyn_core::client::{FamilyWatching, Following, is_of_task, server_sent, server_sent_of_family};
use futures::future::select;
use futures::{FutureExt, stream};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The heartbeat of a quiet stream, and its interval. It has no id.
const HEARTBEAT: &[u8] = b":\n\n";
const QUIET: Duration = Duration::from_secs(15);
/// A reader that takes nothing for so long is cut; it comes back with the last id it got.
const STALLED: Duration = Duration::from_secs(15);
/// Blocks that wait for a slow reader, beside the events they are cut from.
const BLOCKS: usize = 2;
/// Events that are there together go in blocks of so many bytes at most.
const BLOCK: usize = 16 << 10;
/// Entries with larger content are sent by reference.
const CONTENT: u64 = 256 << 10;

/// Stands for all that has happened so far, in place of an event's id.
const LATEST: &str = "latest";

/// The streams of a run.
pub(crate) fn of_run() -> OpenApiRouter<Service> {
    OpenApiRouter::default()
        .routes(routes!(agent))
        .routes(routes!(consolidated))
        .routes(routes!(turn_routes::turn))
        .routes(routes!(turn_routes::stream_turn))
        .routes(routes!(turn_routes::turn_of_id))
        .routes(routes!(turns::ai_sdk))
        .routes(routes!(turns::ag_ui))
        .routes(routes!(turns::ai_sdk_of_definition))
        .routes(routes!(turns::ag_ui_of_definition))
}

/// The events of the agent itself: its life, its entries, and what it streams. Once it has handed off, those of its successor
/// come, and so on, before its own end.
///
/// Each has an `id`; `Last-Event-ID`, or `after`, resumes behind one: of what is durable nothing is missing and nothing comes
/// twice; what is being made comes again from its start. Behind `latest` comes what happens from now on; an id comes at once, without
/// an event, to resume after. The stream ends after the terminal event; a request at or behind it is answered with 204.
///
/// With a `format` it is the turn that is under way, in the protocol of a front end: from its message on, or behind an id that such a
/// stream has given. Where nothing is under way `ai-sdk` is answered with 204, and `ag-ui` with the conversation.
#[utoipa::path(
    operation_id = "stream",
    get, path = "/agent-executions/{id}/stream", tag = "streams",
    params(
        ("after" = Option<String>, Query, description = "The id of an event, or `latest`"),
        ("Last-Event-ID" = Option<String>, Header, description = "As `after`, and stronger"),
        ("format" = Option<String>, Query, description = "`ai-sdk` or `ag-ui`"),
        ("resets" = Option<bool>, Query, description = "With `ai-sdk`: `true` for `ai` 7 and later, which knows `reset-step`"),
    ),
    responses(
        (status = 200, content_type = "text/event-stream", body = String),
        (status = 204, description = "The run has ended, and nothing comes behind the id"),
    )
)]
async fn agent(caller: Caller, mut query: QueryParams, headers: HeaderMap) -> Result<Response, Problem> {
    if let Some(format) = query.get("format")? {
        let (format, resets) = (format.parse::<Format>()?, turns::resets(&mut query)?);
        return turns::current(caller, format, position(query, &headers)?, resets).await;
    }
    let after = position(query, &headers)?;
    let run = caller.run().await?.new.id;
    let now = match after == LATEST {
        true => Some(Following::latest(&*caller.service.storage, caller.org(), run).await?),
        false => None,
    };
    let watching = caller.service.follow(caller.org(), run, now.as_ref().unwrap_or(&after)).with_content_up_to(CONTENT);
    stream(caller, Reader::Agent(Box::new(watching)), now).await
}

/// The events of the agent and of its tasks, and those of all runs below it, what they stream included. Each names its run
/// and the `depth` of that. Runs that are born meanwhile join. Behind `latest` comes what happens to the run itself from now on, and all
/// of the runs below it. The stream ends when the run has ended and all is told of those
/// below it that have ended too.
#[utoipa::path(
    operation_id = "stream_consolidated",
    get, path = "/agent-executions/{id}/stream/consolidated", tag = "streams",
    params(
        ("after" = Option<String>, Query, description = "The id of an event, or `latest`"),
        ("Last-Event-ID" = Option<String>, Header, description = "As `after`, and stronger"),
    ),
    responses(
        (status = 200, content_type = "text/event-stream", body = String),
        (status = 204, description = "The run has ended, and nothing comes behind the id"),
    )
)]
async fn consolidated(caller: Caller, query: QueryParams, headers: HeaderMap) -> Result<Response, Problem> {
    let after = position(query, &headers)?;
    let run = caller.run().await?.new.id;
    let now = match after == LATEST {
        true => Some(caller.service.storage.last_event(caller.org(), run).await?.to_string()),
        false => None,
    };
    let after = now.as_ref().unwrap_or(&after);
    let watching = caller.service.watch_family(caller.org(), run, after).with_content_up_to(CONTENT);
    stream(caller, Reader::Family(Box::new(watching)), now).await
}

/// What a stream is resumed after; empty for its start.
fn position(mut query: QueryParams, headers: &HeaderMap) -> Result<String, Problem> {
    let after = query.get("after")?;
    query.reject_unknown()?;
    let last = headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    Ok(last.or(after).unwrap_or_default())
}

/// What a stream is made of.
enum Reader {
    /// The events of an agent itself, and of whoever it hands off to.
    Agent(Box<Following>),
    /// Those of its tasks too, and of all runs below it.
    Family(Box<FamilyWatching>),
    /// A turn, in a protocol of others.
    Turn(Box<Projection>),
    /// A turn with its answer behind it.
    Answered(Box<AnsweredTurn>),
}

impl Reader {
    async fn begin(&mut self) -> flovyn_core::Result<bool> {
        match self {
            Self::Agent(watching) => watching.begin().await,
            Self::Family(watching) => watching.begin().await,
            Self::Turn(turn) => turn.begin().await,
            Self::Answered(turn) => turn.begin().await,
        }
    }

    /// Whether its readers take the end of the stream for that of the answer, so that a stream which is cut has to break.
    fn breaks(&self) -> bool {
        matches!(self, Self::Turn(_) | Self::Answered(_))
    }

    /// The next event as it is sent; none after the last one.
    async fn next(&mut self) -> flovyn_core::Result<Option<Vec<u8>>> {
        match self {
            Self::Agent(watching) => loop {
                match watching.next().await? {
                    Some(event) if is_of_task(&event.event) => {}
                    other => return Ok(other.as_ref().map(server_sent)),
                }
            },
            Self::Family(watching) => Ok(watching.next().await?.as_ref().map(server_sent_of_family)),
            Self::Turn(turn) => turn.next().await,
            Self::Answered(turn) => turn.next().await,
        }
    }
}

/// Sends what a reader reads. `position`, if there is one, goes before it as an id without an event.
async fn stream(caller: Caller, mut reader: Reader, position: Option<String>) -> Result<Response, Problem> {
    let open = caller.open_stream().await?;
    if !reader.begin().await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (sender, receiver) = mpsc::channel(BLOCKS);
    let subscribed = caller.service.metrics.subscribed();
    let breaks = reader.breaks();
    let (stopped, lapsed) = (caller.service.stopped(), caller.service.access.until_revoked(open.who()));
    if let Some(position) = position {
        // Nobody waits for it: there is room for it.
        let _ = sender.try_send(format!("id: {position}\n\n").into());
    }
    let pumping = tokio::spawn(async move {
        let counted = move || subscribed.gets_one();
        let is_complete = pump(reader, counted, sender, select(pin!(stopped), pin!(lapsed)).map(drop)).await;
        drop(open);
        is_complete
    });
    let blocks = stream::unfold((receiver, Some(pumping)), move |(mut blocks, mut pumping)| async move {
        if let Some(block) = blocks.recv().await {
            return Some((Ok(block), (blocks, pumping)));
        }
        // The end of a stream that was cut is no end for those who know no other.
        let is_complete = pumping.take()?.await.unwrap_or(false);
        (breaks && !is_complete).then(|| (Err(std::io::Error::other("the stream was cut")), (blocks, None)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        // Tells proxies not to buffer the answer.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(blocks)).into_response())
}

/// Sends events until the last one, until nobody reads them or until they are to stop: the server ends, or the
/// reader's key does. Returns whether the last one was sent.
async fn pump(
    mut reader: Reader,
    counted: impl Fn(),
    sender: mpsc::Sender<Bytes>,
    stopped: impl Future<Output = ()>,
) -> bool {
    let mut stopped = pin!(stopped);
    let mut quiet = tokio::time::interval(QUIET);
    quiet.reset();
    loop {
        let mut next = tokio::select! {
            next = reader.next() => next,
            _ = quiet.tick() => {
                if !send(&sender, Bytes::from_static(HEARTBEAT)).await {
                    return false;
                }
                continue;
            }
            () = &mut stopped => return false,
            () = sender.closed() => return false,
        };
        let mut block = Vec::new();
        let mut is_cut = false;
        let ended = loop {
            match next {
                Ok(Some(event)) => {
                    counted();
                    block.extend(event);
                }
                Ok(None) => break true,
                Err(error) => {
                    tracing::warn!(%error, "a stream of events was cut");
                    is_cut = true;
                    break true;
                }
            }
            if block.len() >= BLOCK {
                break false;
            }
            match reader.next().now_or_never() {
                Some(more) => next = more,
                None => break false,
            }
        };
        if !block.is_empty() {
            if !send(&sender, block.into()).await {
                return false;
            }
            quiet.reset();
        }
        if ended {
            return !is_cut;
        }
    }
}

/// Sends events to the network in blocks; false where the reader is gone or too slow.
async fn send(sender: &mpsc::Sender<Bytes>, mut events: Bytes) -> bool {
    while !events.is_empty() {
        // No block ends within a character.
        let fits = BLOCK.min(events.len());
        let starts = |at: &usize| events.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
        let end = (1..=fits).rev().find(starts).unwrap_or(fits);
        let block = events.split_to(end);
        if !matches!(tokio::time::timeout(STALLED, sender.send(block)).await, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::Payload;
    use flovyn_core::client::{Client, StartOptions};
    use flovyn_core::clock::SystemClock;
    use flovyn_core::id::OrgId;
    use flovyn_core::storage::memory::MemoryStorage;
    use flovyn_core::streaming::Chunks;
    use std::future::pending;
    use std::sync::Arc;

    /// The events of a run without a worker.
    async fn quiet() -> Reader {
        let storage = Arc::new(MemoryStorage::new(Arc::new(SystemClock::default())));
        let client = Client::new(storage, Chunks::default(), OrgId::DEFAULT);
        let run = client.start("nobody", Payload::null(), StartOptions::default()).await.unwrap().id();
        Reader::Agent(Box::new(client.follow(run, "")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_says_that_it_lives() {
        let reader = quiet().await;
        let (sender, mut blocks) = mpsc::channel(BLOCKS);
        let pumping = tokio::spawn(pump(reader, || (), sender, pending()));
        assert!(blocks.recv().await.unwrap().starts_with(b"id: 1\nevent: agent.started\n"));
        for _ in 0..3 {
            assert_eq!(&blocks.recv().await.unwrap()[..], HEARTBEAT);
        }
        drop(blocks);
        pumping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_is_cut() {
        let reader = quiet().await;
        let (sender, mut blocks) = mpsc::channel(1);
        pump(reader, || (), sender, pending()).await;
        assert!(blocks.recv().await.unwrap().starts_with(b"id: 1\n"));
        assert_eq!(blocks.recv().await, None, "it has what was sent before the cut, and its id");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_ends_its_streams() {
        let reader = quiet().await;
        let (sender, mut blocks) = mpsc::channel(BLOCKS);
        pump(reader, || (), sender, tokio::time::sleep(QUIET / 2)).await;
        assert!(blocks.recv().await.is_some());
        assert_eq!(blocks.recv().await, None);
    }
}
