//! Workers of the first protocol on this server, written from the facts of the wire: one test for each fact, and whole lives.
#![allow(missing_docs)]

#[path = "v1/facts.rs"]
mod facts;
#[path = "v1/families.rs"]
mod families;
#[path = "v1/guards.rs"]
mod guards;
#[path = "../../server/tests/house/mod.rs"]
mod house;
#[path = "v1/lives.rs"]
mod lives;
#[path = "v1/returns.rs"]
mod returns;
#[path = "v1/worker.rs"]
mod worker;

use flovyn_core::id::OrgId;
use flovyn_core::runtime::Runtime;
use flovyn_server::{Access, Extensions, Identity, ServeOptions, ServerConfig, Serving, serve_with};
use flovyn_server_v1::FirstProtocol;
use house::{BASE, House, TOKEN};
use serde_json::{Value, json};
use std::sync::Arc;
use worker::Worker;

/// A server over a fresh backend, with a worker of the agent `chat` and the task `double`.
pub struct Rig {
    pub(crate) house: House,
    pub(crate) worker: Worker,
}

impl Rig {
    async fn open(backend: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = match backend {
            "sqlite" => format!("sqlite:{}", folder.path().join("runs.db").display()),
            other => other.to_owned(),
        };
        let house = house_over(Runtime::open(&url).await.unwrap(), folder).await;
        let worker = Worker::start(&house.serving.url(), TOKEN, &["chat"], &["double"]).await;
        Self { house, worker }
    }

    /// Starts a run as an existing client does; its id.
    async fn start(&self, kind: &str, input: Value) -> String {
        let body = json!({ "kind": kind, "input": input, "queue": "default" });
        let run = self.house.post(BASE, body).await;
        assert_eq!((&run["status"], &run["currentCheckpointSeq"]), (&json!("PENDING"), &json!(-1)));
        run["id"].as_str().unwrap().to_owned()
    }

    async fn status(&self, id: &str) -> String {
        self.house.get(&format!("{BASE}/{id}")).await["status"].as_str().unwrap().to_owned()
    }

    /// Sends a signal as an existing client does; whether it made the run go on.
    async fn signal(&self, id: &str, name: &str, value: Value) -> bool {
        let body = json!({ "signalName": name, "signalValue": value });
        let answer = self.house.post(&format!("{BASE}/{id}/signal"), body).await;
        assert_eq!(answer["signaled"], true);
        answer["agentResumed"].as_bool().unwrap()
    }

    /// The tasks of a run as an existing client reads them.
    async fn tasks(&self, id: &str) -> Vec<Value> {
        self.house.get(&format!("{BASE}/{id}/tasks")).await["tasks"].as_array().unwrap().clone()
    }

    async fn close(self) {
        self.house.serving.stop().await.unwrap();
        self.house.runtime.close().await.unwrap();
    }
}

/// A server of one org over a backend.
async fn house_over(runtime: Runtime, folder: tempfile::TempDir) -> House {
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve_first(&runtime, config).await;
    House { runtime, serving, folder }
}

/// Serves a backend to workers of the first protocol.
async fn serve_first(runtime: &Runtime, config: ServerConfig) -> Serving {
    let extensions = Extensions { protocols: vec![Arc::new(FirstProtocol)], ..Extensions::default() };
    let options = ServeOptions { extensions, ..ServeOptions::default() };
    serve_with(runtime.storage().clone(), runtime.chunks().clone(), config, options).await.unwrap()
}

/// Runs a test on every backend that needs no server of its own.
async fn on_each(test: impl AsyncFn(&mut Rig)) {
    for backend in ["sqlite", "memory:"] {
        let mut rig = Rig::open(backend).await;
        test(&mut rig).await;
        rig.close().await;
    }
}
