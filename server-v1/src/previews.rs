//! Previews of runs and attempts for their readers. A lost preview does no harm, so errors here do not fail a worker.

use super::{Adapter, Caller};
use flovyn_core::error::Kind;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Chunk, ChunkKind, Task};
use flovyn_core::sync::Mutex;
use flovyn_proto::v1;
use flovyn_server::protocol::to_status;
use serde_json::{Value, json};
use std::collections::HashMap;
use tonic::Status;

/// Runs that are cached at a time.
const MAX_CACHED: usize = 10_000;

/// The position of a run's previews.
struct PreviewPosition {
    epoch: u64,
    /// The last op that the agent called.
    op: (u32, u32),
    /// The last event.
    after: u64,
}

/// The last events of runs, as of their last preview: saves reading facts again.
#[derive(Default)]
pub(super) struct PreviewPositions(Mutex<HashMap<(OrgId, ExecutionId), u64>>);

impl Adapter {
    /// Publishes a preview of an agent; returns whether there is such a run.
    pub(super) async fn publish_agent_preview(
        &self,
        caller: &Caller,
        wire: v1::StreamAgentDataRequest,
    ) -> Result<bool, Status> {
        use v1::AgentStreamEventType::{
            AgentData, AgentError, AgentProgress, AgentToken, AgentToolEnd, AgentToolStart,
        };
        let Ok(execution) = wire.agent_execution_id.parse() else { return Ok(false) };
        let Some(position) = self.preview_position(caller, execution).await? else { return Ok(false) };
        let payload = &wire.payload;
        let (kind, data) = match wire.event_type() {
            AgentToken => token(payload),
            AgentProgress => (ChunkKind::Progress, parse_json(payload).to_string()),
            AgentError => (ChunkKind::Error, parse_json(payload).to_string()),
            AgentData => data(payload),
            AgentToolStart => (ChunkKind::Data, tagged(payload, "tool_call_start")),
            AgentToolEnd => (ChunkKind::Data, tagged(payload, "tool_call_end")),
            v1::AgentStreamEventType::Unspecified => (ChunkKind::Data, parse_json(payload).to_string()),
        };
        let (op, epoch, seq) = (position.op, position.epoch, preview_seq(wire.sequence));
        self.publish(
            caller.org,
            position.after,
            Chunk { execution, segment: op.0, sequence: op.1, epoch, attempt: 0, seq, kind, data: data.into() },
        );
        Ok(true)
    }

    /// Publishes a preview of an attempt of a task.
    pub(super) async fn publish_task_preview(
        &self,
        caller: &Caller,
        task: &Task,
        seq: i32,
        (kind, data): (ChunkKind, String),
    ) -> Result<(), Status> {
        let Some(position) = self.preview_position(caller, task.execution).await? else { return Ok(()) };
        self.publish(
            caller.org,
            position.after,
            Chunk {
                execution: task.execution,
                segment: task.slot.segment,
                sequence: task.slot.sequence,
                epoch: Chunk::OF_A_QUEUE,
                attempt: task.attempt,
                seq: preview_seq(seq),
                kind,
                data: data.into(),
            },
        );
        Ok(())
    }

    fn publish(&self, org: OrgId, after: u64, chunk: Chunk) {
        self.service().publish(after, org, chunk);
    }

    /// The position for the next preview of a run; none where there is no such run. It is read for each preview: one that is
    /// placed before an event that its readers have seen would never be shown.
    async fn preview_position(&self, caller: &Caller, id: ExecutionId) -> Result<Option<PreviewPosition>, Status> {
        let key = (caller.org, id);
        let run = match self.storage().execution(caller.org, id).await {
            Ok(run) => run,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(to_status(error)),
        };
        caller.check_may_serve(&run.new.queue)?;
        self.renew_for_call_about(&run).await?;
        let journal = self.positions.of(&run).filter(|journal| journal.epoch == run.epoch);
        let last_event = self.preview_positions.0.lock().get(&key).copied();
        let known = last_event.unwrap_or(0).max(journal.map_or(0, |journal| journal.known));
        let (_, after, _) = self.storage().facts_after(caller.org, id, known).await.map_err(to_status)?;
        let last = journal.filter(|journal| journal.segment == run.segment).and_then(|journal| journal.next);
        let op = (run.segment, last.unwrap_or(0).saturating_sub(1));
        let mut preview_positions = self.preview_positions.0.lock();
        if preview_positions.len() >= MAX_CACHED {
            preview_positions.clear();
        }
        preview_positions.insert(key, after);
        Ok(Some(PreviewPosition { epoch: run.epoch, op, after }))
    }
}

/// The kind and data of a preview of an attempt.
pub(super) fn task_preview(kind: v1::StreamEventType, payload: &str) -> (ChunkKind, String) {
    match kind {
        v1::StreamEventType::Token => token(payload),
        v1::StreamEventType::Progress => (ChunkKind::Progress, parse_json(payload).to_string()),
        v1::StreamEventType::Error => (ChunkKind::Error, parse_json(payload).to_string()),
        v1::StreamEventType::Data => data(payload),
        v1::StreamEventType::Unspecified => (ChunkKind::Data, parse_json(payload).to_string()),
    }
}

/// The sequence of a preview, from 1: workers count from 0.
fn preview_seq(sequence: i32) -> u64 {
    u64::try_from(sequence).unwrap_or(0) + 1
}

/// The JSON of a payload; a payload that is no JSON becomes a string.
fn parse_json(payload: &str) -> Value {
    serde_json::from_str(payload).unwrap_or_else(|_| payload.into())
}

fn token(payload: &str) -> (ChunkKind, String) {
    let text = parse_json(payload).get("text").and_then(Value::as_str).map(str::to_owned);
    (ChunkKind::Token, text.unwrap_or_else(|| payload.to_owned()))
}

fn data(payload: &str) -> (ChunkKind, String) {
    let value = parse_json(payload);
    (ChunkKind::Data, value.get("data").unwrap_or(&value).to_string())
}

/// A payload as an object with a type.
fn tagged(payload: &str, tag: &str) -> String {
    match parse_json(payload) {
        Value::Object(mut fields) => {
            fields.entry("type").or_insert_with(|| tag.into());
            Value::Object(fields).to_string()
        }
        value => json!({ "type": tag, "data": value }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_become_previews() {
        assert_eq!(token(r#"{"text":"a\nb"}"#), (ChunkKind::Token, "a\nb".into()));
        assert_eq!(token("plain"), (ChunkKind::Token, "plain".into()));
        assert_eq!(data(r#"{"data":{"a":1}}"#), (ChunkKind::Data, r#"{"a":1}"#.into()));
        assert_eq!(data("plain"), (ChunkKind::Data, r#""plain""#.into()));
        assert_eq!(tagged(r#"{"id":1}"#, "tool_call_start"), r#"{"id":1,"type":"tool_call_start"}"#);
        assert_eq!(
            task_preview(v1::StreamEventType::Token, r#"{"type":"token","text":"t"}"#),
            (ChunkKind::Token, "t".into())
        );
        assert_eq!((preview_seq(0), preview_seq(7), preview_seq(-1)), (1, 8, 1));
    }
}
