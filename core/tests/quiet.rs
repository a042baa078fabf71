//! A host that says that its code is quiet while an outcome is on its way to it (rule 5), or whose code calls while its copy is put
//! away.

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::journal::{Call, MachineConfig, OpRef, Outside};
use flovyn_core::model::{ClaimedTask, Delivery, Status};
use flovyn_core::payload::Digest;
use flovyn_core::runtime::Runtime;
use flovyn_core::session::{HostEffect, Port, Session};
use flovyn_core::worker::{Host, Ticket, Worker, WorkerOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Hands the copies of its runs to the test, which is their code.
struct Handed(UnboundedSender<Arc<Session>>);

impl Host for Handed {
    fn agent_kinds(&self) -> Arc<[String]> {
        Arc::new(["handed".to_owned()])
    }
    fn task_kinds(&self) -> Arc<[String]> {
        Arc::new([])
    }
    fn agent_config(&self, _: &str) -> Option<MachineConfig> {
        Some(MachineConfig { code: Some("1".into()), ..MachineConfig::default() })
    }
    fn start_agent(&self, session: Arc<Session>) {
        let _ = self.0.send(session);
    }
    fn start_task(&self, _: ClaimedTask, _: Ticket) {}
}

struct Rings(UnboundedSender<()>);

impl Port for Rings {
    fn ready(&self, _: &Arc<Session>) {
        let _ = self.0.send(());
    }
}

/// The copy of a run, and the worker that has it.
async fn handed(runtime: &Runtime) -> (Worker, Arc<Session>) {
    let (tell, mut told) = unbounded_channel();
    let options = WorkerOptions { max_parked: 0, ..WorkerOptions::default() };
    let worker = runtime.worker(Arc::new(Handed(tell)), options).await.unwrap();
    runtime.client().start("handed", Payload::null(), StartOptions::default()).await.unwrap();
    (worker, told.recv().await.unwrap())
}

/// A run whose code awaits two signals, with what rings when something is there for it.
async fn awaits_two(runtime: &Runtime) -> (Arc<Session>, [OpRef; 2], UnboundedReceiver<()>) {
    let (_, session) = handed(runtime).await;
    let (ring, rings) = unbounded_channel();
    session.connect(Arc::new(Rings(ring)));
    let ops = ["a", "b"].map(|name| {
        let op = session.call(Call::Signal { name: name.into(), timeout: None }, None).unwrap().op;
        session.await_op(op).unwrap();
        op
    });
    // A branch waits for something else too, so the copy stays.
    session.settle(true, Some(Outside::Something));
    (session, ops, rings)
}

fn delivered(session: &Session) -> Vec<OpRef> {
    let ops = |effect| match effect {
        HostEffect::Deliver(handed) => handed.into_iter().map(|one| one.op).collect(),
        _ => Vec::new(),
    };
    session.take_effects().into_iter().flat_map(ops).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_05_code_is_not_quiet_while_an_outcome_is_on_its_way() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:quiet".to_owned(), format!("sqlite:{}", folder.path().join("runs.db").display())] {
        let runtime = Runtime::open(&url).await.unwrap();
        let (session, [a, b], mut rings) = awaits_two(&runtime).await;
        let handle = runtime.client().handle(&session.execution().new.id.to_string()).await.unwrap();
        while handle.status().await.unwrap() != Status::Waiting {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for name in ["a", "b"] {
            handle.signal(name, Payload::null(), Delivery::NextStep, None).await.unwrap();
        }
        rings.recv().await.unwrap();
        // The host has looked at its code a moment ago, and says so now.
        for _ in 0..20 {
            session.settle(true, Some(Outside::Nothing));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(delivered(&session), [a], "one at a time ({url})");
        assert_ne!(handle.status().await.unwrap(), Status::Waiting, "it has something to do");
        session.settle(true, Some(Outside::Nothing));
        assert_eq!(delivered(&session), [b]);
    }
}

/// However a call falls beside the end of its copy, it is told that the copy was put away: a run that goes on has not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_beside_the_end_of_its_copy_is_suspended() {
    for round in 0..40 {
        let runtime = Runtime::open(&format!("memory:beside-{round}")).await.unwrap();
        let (worker, session) = handed(&runtime).await;
        let callers = [(); 4].map(|()| {
            let session = session.clone();
            std::thread::spawn(move || {
                let name: Arc<str> = "once".into();
                loop {
                    // It is one op, however often it is begun.
                    if let Err(error) = session.once_begin(&name, Digest::default()) {
                        return error;
                    }
                }
            })
        });
        worker.close(Duration::ZERO).await.unwrap();
        for caller in callers {
            let error = caller.join().unwrap();
            assert_eq!(error.code(), Code::Suspended, "round {round}: {error}");
        }
    }
}
