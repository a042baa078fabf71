//! Events as server-sent events: the one place of their names and bodies, for the server and for `handle.sse()`.

use super::{FamilyEvent, StreamEvent};
use crate::id::ExecutionId;
use crate::model::{Chunk, ChunkKind, Event, EventId, EventKind, Status};
use crate::view::camel;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// One event as it goes over a `text/event-stream`, with the id to resume after. Each says execution, op, epoch, attempt and
/// seq: null where it is about no op or no attempt, or where the epoch does not matter to it.
pub fn server_sent(event: &FamilyEvent) -> Vec<u8> {
    frame(&event.cursor, event.execution, None, &event.event)
}

/// One event of a run or of one below it, with the cursor to resume after. It says as much as [`server_sent`], and the
/// `depth` of its run.
pub fn server_sent_of_family(event: &FamilyEvent) -> Vec<u8> {
    frame(&event.cursor, event.execution, Some(event.depth), &event.event)
}

fn frame(id: &str, execution: ExecutionId, depth: Option<u32>, event: &StreamEvent) -> Vec<u8> {
    let with_depth = |mut body: Map<String, Value>| {
        body.extend(depth.map(|depth| ("depth".to_owned(), depth.into())));
        json_of(&body)
    };
    let (name, body) = match event {
        StreamEvent::Durable(event) => (name(event.kind), with_depth(durable(event))),
        StreamEvent::Chunk(_, chunk) => (chunk_name(chunk.kind), json_of(&PreviewBody::of(chunk, depth))),
        StreamEvent::Retract { id, op: (segment, sequence) } => {
            let mut body = at(execution, *id);
            body.insert("op".into(), format!("{segment}-{sequence}").into());
            ("retract", with_depth(body))
        }
        StreamEvent::Gap(position) => {
            let mut body = at(execution, *position);
            body.insert("position".into(), id.into());
            ("gap", with_depth(body))
        }
    };
    format!("id: {id}\nevent: {name}\ndata: {body}\n\n").into_bytes()
}

/// The name of a durable event and what it says, as [`server_sent`] has both.
pub fn durable_event(event: &Event) -> (&'static str, Map<String, Value>) {
    (name(event.kind), durable(event))
}

/// The kind of the durable events that have this name.
pub fn event_kind(word: &str) -> Option<EventKind> {
    EventKind::ALL.into_iter().find(|kind| name(*kind) == word)
}

/// Whether an event is about a task of the run rather than the run itself.
pub fn is_of_task(event: &StreamEvent) -> bool {
    match event {
        StreamEvent::Durable(event) => name(event.kind).starts_with("task."),
        StreamEvent::Chunk(_, chunk) => chunk.attempt > 0,
        // They name no attempt: whoever showed the previews knows whose they were.
        StreamEvent::Retract { .. } | StreamEvent::Gap(_) => false,
    }
}

fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Created => "agent.started",
        EventKind::Resumed => "agent.resumed",
        EventKind::Waiting => "agent.waiting",
        EventKind::Woken => "agent.woken",
        EventKind::Paused => "agent.paused",
        EventKind::Cancelling => "agent.cancelling",
        EventKind::Completed => "agent.completed",
        EventKind::Failed => "agent.failed",
        EventKind::Cancelled => "agent.cancelled",
        EventKind::Checkpoint => "agent.checkpoint",
        EventKind::Entry => "entry",
        EventKind::TaskScheduled => "task.scheduled",
        EventKind::TaskStarted => "task.started",
        EventKind::TaskCompleted => "task.completed",
        EventKind::TaskFailed => "task.failed",
        EventKind::TaskCancelled => "task.cancelled",
        EventKind::TaskRetry => "task.retry",
        EventKind::TaskInDoubt => "task.in_doubt",
        EventKind::TaskQuarantined => "task.quarantined",
        EventKind::Signal => "agent.signal",
        EventKind::Timer => "agent.timer",
        EventKind::Usage => "usage",
        EventKind::Warning => "agent.warning",
        EventKind::Retract => "agent.retract",
        EventKind::LeaseLost => "agent.lease_lost",
        EventKind::Forked => "agent.forked",
        EventKind::Continued => "agent.continued",
        EventKind::NoWorker => "agent.no_worker",
        EventKind::Progress => "agent.progress",
        EventKind::HandedOff => "agent.handed_off",
    }
}

/// Not `error`: a browser's `EventSource` has an event of its own by that name.
fn chunk_name(kind: ChunkKind) -> &'static str {
    match kind {
        ChunkKind::Token => "token",
        ChunkKind::Data => "data",
        ChunkKind::Error => "stream_error",
        ChunkKind::Progress => "progress",
        // Readers are told of it as a retraction.
        ChunkKind::Void => "retract",
    }
}

/// The status a run has after an event of its life.
fn status(kind: EventKind) -> Option<Status> {
    Some(match kind {
        EventKind::Created | EventKind::Woken | EventKind::Continued => Status::Pending,
        EventKind::Resumed => Status::Running,
        EventKind::Waiting | EventKind::HandedOff => Status::Waiting,
        EventKind::Paused => Status::Paused,
        EventKind::Cancelling => Status::Cancelling,
        EventKind::Completed => Status::Completed,
        EventKind::Failed => Status::Failed,
        EventKind::Cancelled => Status::Cancelled,
        _ => return None,
    })
}

/// What every event says, of one about no op and no attempt: `seq` is the durable event that the reader has.
fn at(execution: ExecutionId, id: EventId) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("agentExecutionId".into(), json!(execution));
    body.insert("seq".into(), id.number.into());
    for name in ["op", "epoch", "attempt"] {
        body.insert(name.into(), Value::Null);
    }
    body
}

fn durable(event: &Event) -> Map<String, Value> {
    let mut body = at(event.execution, EventId { number: event.number });
    body.insert("at".into(), event.at.to_string().into());
    body.insert("op".into(), event.sequence.map(|sequence| format!("{}-{sequence}", event.segment)).into());
    if let Some(status) = status(event.kind) {
        body.insert("status".into(), status.as_str().into());
    }
    if let Value::Object(data) = &event.data {
        body.extend(data.iter().map(|(name, value)| renamed(name, value)));
    }
    body
}

/// A field by its name on the wire; what an author gave stays as it is.
fn renamed(name: &str, value: &Value) -> (String, Value) {
    let renamed = match name {
        "content" | "metadata" => return (name.into(), value.clone()),
        "task" => "taskExecutionId".into(),
        "entry" => "entryId".into(),
        "worker" => "workerId".into(),
        "parent" => "parentId".into(),
        "error_type" => "type".into(),
        _ => camel(name),
    };
    let value = match value {
        Value::Object(fields) => Value::Object(fields.iter().map(|(name, value)| self::renamed(name, value)).collect()),
        plain => plain.clone(),
    };
    (renamed, value)
}

/// A preview.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PreviewBody<'a> {
    agent_execution_id: ExecutionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    op: String,
    epoch: u64,
    attempt: u32,
    seq: u64,
    data: PreviewData<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PreviewData<'a> {
    Text(&'a str),
    Json(&'a RawValue),
    Value(Value),
}

impl<'a> PreviewBody<'a> {
    fn of(chunk: &'a Chunk, depth: Option<u32>) -> Self {
        let data = match chunk.kind {
            ChunkKind::Token => PreviewData::Text(&chunk.data),
            // A line break would end the field.
            _ if chunk.data.contains(['\r', '\n']) => {
                serde_json::from_str(&chunk.data).map_or(PreviewData::Text(&chunk.data), PreviewData::Value)
            }
            _ => serde_json::from_str(&chunk.data).map_or(PreviewData::Text(&chunk.data), PreviewData::Json),
        };
        Self {
            agent_execution_id: chunk.execution,
            depth,
            op: format!("{}-{}", chunk.segment, chunk.sequence),
            epoch: chunk.epoch,
            attempt: chunk.attempt,
            seq: chunk.seq,
            data,
        }
    }
}

fn json_of(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_else(|_| "null".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::model::EventId;

    fn sent(event: &StreamEvent) -> String {
        let (cursor, execution) = (event.id().to_string().into(), ExecutionId::default());
        String::from_utf8(server_sent(&FamilyEvent { cursor, execution, depth: 0, event: event.clone() })).unwrap()
    }

    fn durable_of(kind: EventKind, data: Value) -> StreamEvent {
        let (execution, at) = (ExecutionId::default(), Timestamp(1_700_000_000_000_000));
        StreamEvent::Durable(Event { execution, number: 7, at, kind, segment: 1, sequence: Some(3), data })
    }

    #[test]
    fn names_are_one_to_one_and_in_the_style_of_the_wire() {
        let names: std::collections::HashSet<_> = EventKind::ALL.into_iter().map(name).collect();
        assert_eq!(names.len(), EventKind::ALL.len());
        for (told, wire) in [("entry_type", "entryType"), ("cache_read_tokens", "cacheReadTokens"), ("kind", "kind")] {
            assert_eq!(camel(told), wire);
        }
    }

    #[test]
    fn every_event_says_where_it_belongs() {
        let body = |event: &StreamEvent| -> Value {
            let text = sent(event);
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            serde_json::from_str(data).unwrap()
        };
        let chunk = Chunk {
            execution: ExecutionId::default(),
            segment: 1,
            sequence: 3,
            epoch: 2,
            attempt: 4,
            seq: 9,
            kind: ChunkKind::Token,
            data: "a".into(),
        };
        let id = EventId { number: 7 };
        for (event, told) in [
            (durable_of(EventKind::Resumed, json!({ "epoch": 5 })), json!(["1-3", 5, null, 7])),
            (durable_of(EventKind::TaskStarted, json!({ "task": "t", "attempt": 2 })), json!(["1-3", null, 2, 7])),
            (StreamEvent::Chunk(id, chunk.into()), json!(["1-3", 2, 4, 9])),
            (StreamEvent::Retract { id, op: (1, 3) }, json!(["1-3", null, null, 7])),
            (StreamEvent::Gap(id), json!([null, null, null, 7])),
        ] {
            let body = body(&event);
            assert_eq!(body["agentExecutionId"], json!(ExecutionId::default()), "{body}");
            let fields = ["op", "epoch", "attempt", "seq"].map(|name| body.get(name).expect(name));
            assert_eq!(json!(fields), told, "{body}");
        }
        assert_eq!(body(&StreamEvent::Gap(id))["position"], "7");
    }

    #[test]
    fn an_event_of_a_family_has_its_cursor_and_its_depth() {
        let sent = |event: StreamEvent| {
            let (cursor, execution) = ("17~40_38.3".into(), ExecutionId::default());
            String::from_utf8(server_sent_of_family(&FamilyEvent { cursor, execution, depth: 2, event })).unwrap()
        };
        let id = EventId { number: 3 };
        for (event, seq) in [
            (durable_of(EventKind::Resumed, json!({ "epoch": 5 })), 7),
            (StreamEvent::Retract { id, op: (1, 3) }, 3),
            (StreamEvent::Gap(id), 3),
        ] {
            let text = sent(event);
            assert!(text.starts_with("id: 17~40_38.3\nevent: "), "{text}");
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let body: Value = serde_json::from_str(data).unwrap();
            assert_eq!((&body["depth"], &body["seq"]), (&json!(2), &json!(seq)), "{text}");
        }
        assert!(sent(StreamEvent::Gap(id)).contains(r#""position":"17~40_38.3""#));
    }

    #[test]
    fn what_an_author_gave_stays_as_it_is() {
        let data = json!({ "entry": "e", "entry_type": "message", "content": { "my_key": 1 }, "turn_id": null });
        let line = sent(&durable_of(EventKind::Entry, data));
        assert!(line.starts_with("id: 7\nevent: entry\ndata: {"), "{line}");
        for part in [r#""entryId":"e""#, r#""entryType":"message""#, r#""content":{"my_key":1}"#, r#""op":"1-3""#] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let failed = sent(&durable_of(EventKind::Failed, json!({ "error": { "error_type": "E" } })));
        assert!(failed.contains(r#""error":{"type":"E"}"#) && failed.contains(r#""status":"FAILED""#), "{failed}");
    }

    #[test]
    fn a_line_break_ends_no_field() {
        let chunk = |kind, data: &str| {
            let place = Chunk {
                execution: ExecutionId::default(),
                segment: 0,
                sequence: 1,
                epoch: 2,
                attempt: 1,
                seq: 4,
                kind,
                data: data.into(),
            };
            sent(&StreamEvent::Chunk(EventId { number: 7 }, place.into()))
        };
        for (kind, data, told) in [
            (ChunkKind::Token, "a\r\n\ndata: b", r#""data":"a\r\n\ndata: b"}"#),
            (ChunkKind::Data, "{\n \"n\": [1, 2.5]\n}", r#""data":{"n":[1,2.5]}}"#),
            (ChunkKind::Data, r#"{"n":12345678901234567890.5}"#, r#""data":{"n":12345678901234567890.5}}"#),
            (ChunkKind::Data, "no json\n", r#""data":"no json\n"}"#),
        ] {
            let line = chunk(kind, data);
            assert_eq!(line.matches(['\n', '\r']).count(), 4, "{line:?}");
            assert!(line.contains(told), "{told} in {line}");
        }
    }
}
