//! Several hosts behind one worker: a binding's own agents and tasks beside native ones.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt, TaskCall};
use flovyn_core::error::{Code, Result};
use flovyn_core::host::{Activation, Activations, CompositeHost, Wake};
use flovyn_core::journal::MachineConfig;
use flovyn_core::model::AttemptResult;
use flovyn_core::runtime::Runtime;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::{Host, WorkerOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Asks for a task by its kind alone: whoever has it runs it.
struct Caller {
    kind: &'static str,
    calls: &'static str,
}

#[async_trait]
impl AgentDefinition for Caller {
    type State = ();
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        self.kind
    }
    async fn execute(&self, ctx: &dyn AgentContext, name: String) -> Result<String> {
        let (kind, input) = (self.calls.to_owned(), Payload::of(&name)?);
        let step = ctx.schedule_raw(TaskCall { kind, input, options: None, queue: None, key: None })?;
        let greeting: String = step.await?.payload().expect("it completes").parse()?;
        let more: String = ctx.wait_for_signal("more")?.await?;
        Ok(format!("{greeting} {more}"))
    }
}

struct Greet(&'static str);

#[async_trait]
impl TaskDefinition for Greet {
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        self.0
    }
    async fn execute(&self, _: &TaskContext, name: String) -> Result<String> {
        Ok(format!("{} {name}", self.0))
    }
}

/// The loop of a binding, which answers every task with its input in capitals.
#[derive(Default)]
struct Bell(Arc<Notify>);

impl Wake for Bell {
    fn ready(&self) {
        self.0.notify_one();
    }
}

fn shouting(kinds: &[&str]) -> Arc<Activations> {
    let rung = Arc::new(Notify::new());
    let host = Activations::new(Arc::new(Bell(rung.clone())));
    for kind in kinds {
        assert!(host.serve_task(kind));
    }
    let polled = host.clone();
    tokio::spawn(async move {
        loop {
            rung.notified().await;
            for activation in polled.poll() {
                if let Activation::Task(id, claimed) = activation {
                    let input: String = claimed.task.new.input.parse().expect("a text");
                    let output = Payload::of(&input.to_uppercase()).expect("a text");
                    polled.task_ended(id, AttemptResult::Completed(output));
                }
            }
        }
    });
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_one_host_gets_the_tasks_of_the_other() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let native = NativeHost::default()
        .agent(Caller { kind: "outward", calls: "shout" })
        .and_then(|host| host.agent(Caller { kind: "inward", calls: "greet" }))
        .and_then(|host| host.task(Greet("hello")))
        .unwrap();
    let other = NativeHost::default().task(Greet("greet")).unwrap();
    let own = shouting(&["whisper"]);
    let hosts: [Arc<dyn Host>; 3] = [own.clone(), Arc::new(native), Arc::new(other)];
    let host = Arc::new(CompositeHost::new(hosts).unwrap());
    assert_eq!(*host.agent_kinds(), ["inward", "outward"]);
    assert_eq!(*host.task_kinds(), ["greet", "hello", "whisper"]);
    // A binding meets its tasks while its agents run.
    own.serve_task("shout");
    let worker = runtime.worker(host, WorkerOptions::default()).await.unwrap();
    for (kind, expected) in [("outward", "OTTER and more"), ("inward", "greet otter and more")] {
        let input = Payload::of(&"otter").unwrap();
        let run = runtime.client().start(kind, input, StartOptions::with_id(kind)).await.unwrap();
        run.signal("more", Payload::of(&"and more").unwrap(), Default::default(), None).await.unwrap();
        let output: String = run.result(Some(Duration::from_secs(10))).await.unwrap().parse().unwrap();
        assert_eq!(output, expected);
    }
    worker.close(Duration::from_secs(1)).await.unwrap();
    runtime.close().await.unwrap();
}

#[tokio::test]
async fn what_two_hosts_declare_is_refused_and_named() {
    let own = shouting(&["greet"]);
    own.serve_agent("outward", MachineConfig::default());
    let with_task: [Arc<dyn Host>; 2] = [own.clone(), Arc::new(NativeHost::default().task(Greet("greet")).unwrap())];
    let agent = NativeHost::default().agent(Caller { kind: "outward", calls: "shout" }).unwrap();
    let with_agent: [Arc<dyn Host>; 2] = [own, Arc::new(agent)];
    for (hosts, named) in [(with_task, "two tasks of kind \"greet\""), (with_agent, "two agents of kind \"outward\"")] {
        let error = CompositeHost::new(hosts).err().expect("it is refused");
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(named), "{error}");
    }
}
