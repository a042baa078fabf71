//! `flovyn runs watch`: the events of a run, and of whoever has its work, as they happen.

use crate::args::Watch;
use crate::event::describe;
use crate::print::{Output, moment, short, word};
use crate::target::Target;
use crate::{Failed, Result, view};
use flovyn_core::client::StreamEvent;
use flovyn_core::error::Code;
use flovyn_core::model::{ChunkKind, FamilyEvent};
use serde_json::json;

pub(super) async fn watch(args: Watch, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["ID"])?;
    let run = target.run().await?;
    let mut stream = run.handle.follow(args.after.as_deref());
    if let Err(error) = stream.begin().await {
        let is_usage = error.code() == Code::InvalidArgument;
        return Err(if is_usage { Failed::Usage(error.message().to_owned()) } else { error.into() });
    }
    let mut in_tokens = false;
    while let Some(FamilyEvent { cursor, execution, event, .. }) = stream.next().await? {
        if out.is_json() {
            let mut shown = to_json(&event);
            shown["id"] = (*cursor).into();
            if execution != run.handle.id() {
                shown["execution"] = execution.to_string().into();
            }
            out.value(&shown)?;
            continue;
        }
        let token = matches!(&event, StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token);
        if in_tokens && !token {
            out.line("")?;
        }
        in_tokens = token;
        match event {
            StreamEvent::Chunk(_, chunk) if token => out.part(&chunk.data)?,
            StreamEvent::Chunk(_, chunk) => out.line(&format!("{} {}", word(&chunk.kind), short(&chunk.data, 400)))?,
            StreamEvent::Retract { op: (segment, sequence), .. } => {
                out.line(&format!("what op {segment}-{sequence} streamed is void"))?;
            }
            StreamEvent::Gap(_) => out.line("previews are missing; what is still being made comes again")?,
            StreamEvent::Durable(event) => {
                let op = event.sequence.map(|sequence| format!(" {}-{sequence}", event.segment)).unwrap_or_default();
                let at = out.dim(&format!("{cursor:>5} {}", moment(event.at)));
                out.line(&format!("{at} {}{op} {}", word(&event.kind), describe(&event, 200)))?;
            }
        }
    }
    Ok(())
}

fn to_json(event: &StreamEvent) -> serde_json::Value {
    match event {
        StreamEvent::Durable(event) => view::event(event),
        StreamEvent::Chunk(id, chunk) => json!({
            "id": id.to_string(),
            "type": chunk.kind,
            "segment": chunk.segment,
            "sequence": chunk.sequence,
            "attempt": chunk.attempt,
            "data": match chunk.kind {
                ChunkKind::Token => json!(chunk.data),
                _ => serde_json::from_str(&chunk.data).unwrap_or_else(|_| json!(chunk.data)),
            },
        }),
        StreamEvent::Retract { id, op: (segment, sequence) } => {
            json!({ "id": id.to_string(), "type": "retract", "segment": segment, "sequence": sequence })
        }
        StreamEvent::Gap(id) => json!({ "id": id.to_string(), "type": "gap" }),
    }
}
