//! The tools of an agent that may change while its runs go on: those of MCP servers, which tell when they have others.
//!
//! A run looks at them at the start of each turn, in a recorded step. A tool that is there no more stays among them, hidden from
//! models: a run that is replayed after a crash makes the call of it again that it made before.

use super::AgentTool;
use flovyn_core::sync::RwLock;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tools that may change. Clones share them.
#[derive(Clone)]
pub(crate) struct LiveTools {
    now: Arc<RwLock<Arc<ToolsNow>>>,
    settled: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

/// The tools at one moment.
#[derive(Default)]
pub(crate) struct ToolsNow {
    pub tools: BTreeMap<String, AgentTool>,
    /// What MCP servers say about the use of their tools, by the servers' names.
    pub instructions: BTreeMap<String, String>,
}

impl LiveTools {
    /// `settled` resolves when no change of the tools is on its way, or after a while.
    pub(crate) fn new(settled: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self { now: Arc::default(), settled: Arc::new(settled) }
    }

    /// Replaces them.
    pub(crate) fn set(&self, now: ToolsNow) {
        *self.now.write() = Arc::new(now);
    }

    pub(super) fn now(&self) -> Arc<ToolsNow> {
        self.now.read().clone()
    }

    pub(super) async fn settled(&self) {
        (self.settled)().await;
    }
}
