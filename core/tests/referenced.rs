//! A task reads the conversation that a context reference stands for, wherever its attempt runs.

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt, ContextRef};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{RetryPolicy, TaskOptions};
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition};
use std::time::Duration;

/// Reads the conversation on its second attempt, which comes from the queue, or on its first.
struct Reads {
    kind: &'static str,
    fails: u32,
}

#[async_trait]
impl TaskDefinition for Reads {
    type Input = ContextRef;
    type Output = (u32, Vec<String>);

    fn kind(&self) -> &str {
        self.kind
    }

    fn options(&self) -> TaskOptions {
        let retry = RetryPolicy { retries: 1, initial: Duration::from_millis(1), ..RetryPolicy::default() };
        TaskOptions { retry, ..TaskOptions::default() }
    }

    async fn execute(&self, ctx: &TaskContext, at: ContextRef) -> Result<(u32, Vec<String>)> {
        if ctx.attempt() <= self.fails {
            return Err(Error::new(Code::TaskFailed, "not yet"));
        }
        let entries = ctx.messages(&at).await?;
        let said = entries.iter().map(|entry| entry.new.content.parse()).collect::<Result<_>>()?;
        Ok((ctx.attempt(), said))
    }
}

struct Talker;

#[async_trait]
impl AgentDefinition for Talker {
    type State = ();
    type Input = ();
    type Output = Vec<(u32, Vec<String>)>;

    fn kind(&self) -> &str {
        "talker"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<Self::Output> {
        let start = ctx.context_ref();
        ctx.append_entry("user", "one")?;
        ctx.flush()?.await?;
        ctx.append_entry("user", &"x".repeat(100_000))?;
        let both = ctx.context_ref();
        // Not durable when the attempt begins: it starts beside its commit.
        let here = ctx.schedule("here", &both)?;
        ctx.append_entry("user", "three")?;
        Ok(vec![here.await?, ctx.schedule("again", &both)?.await?, ctx.schedule("here", &start)?.await?])
    }
}

#[tokio::test]
async fn a_task_reads_what_its_context_reference_stands_for() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite:{}", folder.path().join("agents.db").display());
    for url in ["memory:", &sqlite] {
        let executor = LocalTaskExecutor::new().register(Reads { kind: "here", fails: 0 })?;
        let executor = executor.register(Reads { kind: "again", fails: 1 })?;
        let agents = AgentBuilder::new().storage(url).task_executor(executor).build().await?;
        let read = agents.execute(Talker, ()).await?;
        let both = vec!["one".to_owned(), "x".repeat(100_000)];
        assert_eq!(read, [(1, both.clone()), (2, both), (1, Vec::new())]);
        agents.close().await?;
    }
    Ok(())
}
