//! Previews: what runs and attempts are making, for whoever watches. Losing one harms nothing, so nothing here fails a worker.

use super::{Adapter, Caller};
use crate::grpc::told;
use flovyn_core::error::Kind;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Chunk, ChunkKind, Task};
use flovyn_proto::v1;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use tonic::Status;

/// Runs that are remembered at a time.
const REMEMBERED: usize = 10_000;

/// Where previews of a run stand.
struct View {
    epoch: u64,
    /// The last op that the agent called.
    op: (u32, u32),
    /// The last event.
    after: u64,
}

/// The last events of runs, as of their last preview: saves reading facts again.
#[derive(Default)]
pub(super) struct Views(Mutex<HashMap<(OrgId, ExecutionId), u64>>);

impl Adapter {
    /// Shows what an agent is making; tells whether there is such a run.
    pub(super) async fn show(&self, caller: &Caller, wire: v1::StreamAgentDataRequest) -> Result<bool, Status> {
        use v1::AgentStreamEventType::{
            AgentData, AgentError, AgentProgress, AgentToken, AgentToolEnd, AgentToolStart,
        };
        let Ok(execution) = wire.agent_execution_id.parse() else { return Ok(false) };
        let Some(view) = self.view(caller, execution).await? else { return Ok(false) };
        let payload = &wire.payload;
        let (kind, data) = match wire.event_type() {
            AgentToken => token(payload),
            AgentProgress => (ChunkKind::Progress, json_of(payload).to_string()),
            AgentError => (ChunkKind::Error, json_of(payload).to_string()),
            AgentData => data(payload),
            AgentToolStart => (ChunkKind::Data, tagged(payload, "tool_call_start")),
            AgentToolEnd => (ChunkKind::Data, tagged(payload, "tool_call_end")),
            v1::AgentStreamEventType::Unspecified => (ChunkKind::Data, json_of(payload).to_string()),
        };
        let (op, epoch, seq) = (view.op, view.epoch, place(wire.sequence));
        self.publish(
            caller.org,
            view.after,
            Chunk { execution, segment: op.0, sequence: op.1, epoch, attempt: 0, seq, kind, data: data.into() },
        );
        Ok(true)
    }

    /// Shows what an attempt of a task is making.
    pub(super) async fn show_task(
        &self,
        caller: &Caller,
        task: &Task,
        seq: i32,
        (kind, data): (ChunkKind, String),
    ) -> Result<(), Status> {
        let Some(view) = self.view(caller, task.execution).await? else { return Ok(()) };
        self.publish(
            caller.org,
            view.after,
            Chunk {
                execution: task.execution,
                segment: task.slot.segment,
                sequence: task.slot.sequence,
                epoch: Chunk::OF_A_QUEUE,
                attempt: task.attempt,
                seq: place(seq),
                kind,
                data: data.into(),
            },
        );
        Ok(())
    }

    fn publish(&self, org: OrgId, after: u64, chunk: Chunk) {
        self.service().chunks.publish(after, org, chunk);
    }

    /// Where the previews of a run stand; nothing for one that is not there. A preview that stood before an event that its
    /// readers have seen would never be read, so this is looked up for each.
    async fn view(&self, caller: &Caller, id: ExecutionId) -> Result<Option<View>, Status> {
        let key = (caller.org, id);
        let run = match self.storage().execution(caller.org, id).await {
            Ok(run) => run,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(told(error)),
        };
        caller.may_serve(&run.new.queue)?;
        self.was_called_about(&run).await?;
        let place = self.places.of(&run).filter(|place| place.epoch == run.epoch);
        let seen = self.views.0.lock().get(&key).copied();
        let known = seen.unwrap_or(0).max(place.map_or(0, |place| place.known));
        let (_, after) = self.storage().facts_after(caller.org, id, known).await.map_err(told)?;
        let last = place.filter(|place| place.segment == run.segment).and_then(|place| place.next);
        let op = (run.segment, last.unwrap_or(0).saturating_sub(1));
        let mut views = self.views.0.lock();
        if views.len() >= REMEMBERED {
            views.clear();
        }
        views.insert(key, after);
        Ok(Some(View { epoch: run.epoch, op, after }))
    }
}

/// A preview of an attempt, of its tagged form.
pub(super) fn of_task(kind: v1::StreamEventType, payload: &str) -> (ChunkKind, String) {
    match kind {
        v1::StreamEventType::Token => token(payload),
        v1::StreamEventType::Progress => (ChunkKind::Progress, json_of(payload).to_string()),
        v1::StreamEventType::Error => (ChunkKind::Error, json_of(payload).to_string()),
        v1::StreamEventType::Data => data(payload),
        v1::StreamEventType::Unspecified => (ChunkKind::Data, json_of(payload).to_string()),
    }
}

/// The place of a preview, from 1: workers count from 0.
fn place(sequence: i32) -> u64 {
    u64::try_from(sequence).unwrap_or(0) + 1
}

/// What a payload says; one that is no JSON says itself.
fn json_of(payload: &str) -> Value {
    serde_json::from_str(payload).unwrap_or_else(|_| payload.into())
}

fn token(payload: &str) -> (ChunkKind, String) {
    let text = json_of(payload).get("text").and_then(Value::as_str).map(str::to_owned);
    (ChunkKind::Token, text.unwrap_or_else(|| payload.to_owned()))
}

fn data(payload: &str) -> (ChunkKind, String) {
    let said = json_of(payload);
    (ChunkKind::Data, said.get("data").unwrap_or(&said).to_string())
}

/// A payload as structured data of a type.
fn tagged(payload: &str, tag: &str) -> String {
    match json_of(payload) {
        Value::Object(mut fields) => {
            fields.entry("type").or_insert_with(|| tag.into());
            Value::Object(fields).to_string()
        }
        said => json!({ "type": tag, "data": said }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_say_what_is_shown() {
        assert_eq!(token(r#"{"text":"a\nb"}"#), (ChunkKind::Token, "a\nb".into()));
        assert_eq!(token("plain"), (ChunkKind::Token, "plain".into()));
        assert_eq!(data(r#"{"data":{"a":1}}"#), (ChunkKind::Data, r#"{"a":1}"#.into()));
        assert_eq!(data("plain"), (ChunkKind::Data, r#""plain""#.into()));
        assert_eq!(tagged(r#"{"id":1}"#, "tool_call_start"), r#"{"id":1,"type":"tool_call_start"}"#);
        assert_eq!(
            of_task(v1::StreamEventType::Token, r#"{"type":"token","text":"t"}"#),
            (ChunkKind::Token, "t".into())
        );
        assert_eq!((place(0), place(7), place(-1)), (1, 8, 1));
    }
}
