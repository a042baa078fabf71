//! The events of a run, or of a run and all below it, on their way to JavaScript.

use crate::error::thrown;
use crate::hub::{Abort, Hub, Reply};
use flovyn_core::client::{Handle, StreamEvent};
use flovyn_core::host::stream::{Read, Stream};
use flovyn_core::model::ChunkKind;
use flovyn_core::view::{Event, Show, Style};
use napi::Env;
use napi::bindgen_prelude::Array;
use napi_derive::napi;
use std::sync::Arc;

/// A reader of events.
#[napi]
pub struct Watching {
    reader: Arc<tokio::sync::Mutex<Stream>>,
    threads: tokio::runtime::Handle,
}

impl Watching {
    pub(crate) fn of(
        run: &Handle,
        after: Option<&str>,
        children: bool,
        threads: tokio::runtime::Handle,
    ) -> napi::Result<Self> {
        let _inside = threads.enter();
        let reader = Stream::of(run, after, children).map_err(thrown)?;
        Ok(Self { reader: Arc::new(tokio::sync::Mutex::new(reader)), threads: threads.clone() })
    }
}

#[napi]
impl Watching {
    /// Ends with a list of events; an empty one after the last event.
    #[napi]
    pub fn next(&self, hub: &Hub, token: u32) -> Abort {
        let reader = self.reader.clone();
        hub.inbox.spawn(
            &self.threads,
            token,
            async move { Ok(Reply::Events(Events(reader.lock().await.next().await?))) },
        )
    }

    /// Ends with the bytes of some server-sent events; with none after the last event.
    #[napi]
    pub fn next_sent(&self, hub: &Hub, token: u32) -> Abort {
        let reader = self.reader.clone();
        hub.inbox.spawn(&self.threads, token, async move { Ok(Reply::Bytes(reader.lock().await.next_sent().await?)) })
    }
}

/// Events on their way to JavaScript.
pub(crate) struct Events(Vec<Read>);

impl Events {
    /// Arrays `[what, id, run, depth, …]`; data is JSON text, tokens are text.
    pub(crate) fn listed<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let mut list = env.create_array(0)?;
        for Read { id, execution, depth, event } in &self.0 {
            let what = match event {
                StreamEvent::Durable(_) => "durable",
                StreamEvent::Chunk(_, chunk) => match chunk.kind {
                    ChunkKind::Token => "token",
                    ChunkKind::Data => "data",
                    ChunkKind::Error => "error",
                    ChunkKind::Progress => "progress",
                    // Readers get a retraction in its place.
                    ChunkKind::Void => continue,
                },
                StreamEvent::Retract { .. } => "retract",
                StreamEvent::Gap(_) => "gap",
            };
            let mut parts = env.create_array(0)?;
            parts.insert(what)?;
            parts.insert(id.as_str())?;
            parts.insert(execution.to_string())?;
            parts.insert(*depth)?;
            match event {
                StreamEvent::Durable(event) => parts.insert(Event::of(event).show(Style::TypeScript).to_string())?,
                StreamEvent::Chunk(_, chunk) => {
                    parts.insert(&*chunk.data)?;
                    parts.insert(format!("{}-{}-{}", chunk.execution, chunk.segment, chunk.sequence))?;
                    parts.insert(chunk.attempt)?;
                }
                StreamEvent::Retract { op: (segment, sequence), .. } => {
                    parts.insert(format!("{execution}-{segment}-{sequence}"))?;
                }
                StreamEvent::Gap(_) => {}
            }
            list.insert(parts)?;
        }
        Ok(list)
    }
}
