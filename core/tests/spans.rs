//! The spans of a run: their names, their parents, and that each is closed.

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, AgentState};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::runtime::{AgentBuilder, ChannelSignals};
use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Default)]
struct Spans {
    /// Name, parent and references of every span.
    all: Vec<(&'static str, Option<u64>, i64)>,
    /// The spans each thread is in.
    inside: HashMap<std::thread::ThreadId, Vec<u64>>,
    /// Name of the span each event came from.
    events: Vec<(String, Option<&'static str>)>,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Spans>>);

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?}"));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("flovyn_core") || metadata.target().starts_with("spans")
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut spans = self.0.lock().unwrap();
        spans.all.push((attributes.metadata().name(), attributes.parent().map(Id::into_u64), 1));
        Id::from_u64(spans.all.len() as u64)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut spans = self.0.lock().unwrap();
        let inside = spans.inside.get(&std::thread::current().id()).and_then(|stack| stack.last().copied());
        let name = inside.map(|span| spans.all[span as usize - 1].0);
        spans.events.push((text.0, name));
    }
    fn enter(&self, span: &Id) {
        let mut spans = self.0.lock().unwrap();
        spans.inside.entry(std::thread::current().id()).or_default().push(span.into_u64());
    }
    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().inside.entry(std::thread::current().id()).or_default().pop();
    }
    fn clone_span(&self, id: &Id) -> Id {
        self.0.lock().unwrap().all[id.into_u64() as usize - 1].2 += 1;
        id.clone()
    }
    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.0.lock().unwrap();
        let references = &mut spans.all[id.into_u64() as usize - 1].2;
        *references -= 1;
        *references == 0
    }
}

struct Shout;

#[async_trait]
impl TaskDefinition for Shout {
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        "shout"
    }
    async fn execute(&self, _: &TaskContext, text: String) -> Result<String> {
        tracing::info!("in the task");
        Ok(text.to_uppercase())
    }
}

#[derive(Default, serde::Serialize, serde::Deserialize, AgentState)]
struct Turn {
    turn: u32,
}

struct Echo;

#[async_trait]
impl AgentDefinition for Echo {
    type State = Turn;
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        "echo"
    }
    async fn execute(&self, ctx: &dyn AgentContext, text: String) -> Result<String> {
        if ctx.state::<Turn>()?.turn == 0 {
            tracing::info!("in the agent");
            ctx.schedule_task(&Shout, &text)?.await?;
            ctx.checkpoint(&Turn { turn: 1 })?.await?;
        }
        ctx.wait_for_signal("more")?.await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_have_stable_names_and_all_are_closed() {
    let recorder = Recorder::default();
    tracing::subscriber::set_global_default(recorder.clone()).unwrap();
    let (signals, source) = ChannelSignals::new();
    let tasks = LocalTaskExecutor::new().register(Shout).unwrap();
    let agents = AgentBuilder::new().storage("memory:").task_executor(tasks).signals(source).build().await.unwrap();
    let running = tokio::spawn({
        let agents = agents.clone();
        async move { agents.execute(Echo, "hello".to_owned()).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    signals.send("more", "and more").unwrap();
    assert_eq!(running.await.unwrap().unwrap(), "and more");
    agents.close().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;

    let spans = recorder.0.lock().unwrap();
    let named = |id: u64| spans.all[id as usize - 1].0;
    for (child, parent) in
        [("flovyn.segment", "flovyn.execution"), ("flovyn.op", "flovyn.segment"), ("flovyn.task", "flovyn.segment")]
    {
        let mut found = spans.all.iter().filter(|(name, ..)| *name == child).peekable();
        assert!(found.peek().is_some(), "no {child}: {:?}", spans.all);
        assert!(found.all(|(_, above, _)| above.map(named) == Some(parent)), "{child}: {:?}", spans.all);
    }
    let count = |wanted: &str| spans.all.iter().filter(|(name, ..)| *name == wanted).count();
    assert_eq!((count("flovyn.task"), count("flovyn.execution")), (1, 2), "the second after the wait");
    let open: Vec<_> = spans.all.iter().filter(|(.., references)| *references != 0).collect();
    assert!(open.is_empty(), "left open: {open:?}");
    let from = |text: &str| spans.events.iter().find(|(event, _)| event == text).and_then(|(_, span)| *span);
    assert_eq!(from("in the task"), Some("flovyn.task"));
    assert_eq!(from("in the agent"), Some("flovyn.segment"));
}
