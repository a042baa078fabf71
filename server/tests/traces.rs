//! Traces: what a run did, sent once when it has ended, made of what was committed.

mod house;

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::context::AgentContextExt;
use flovyn_core::model::{Delivery, TaskOptions, Usage};
use flovyn_core::{Error, error::Code};
use house::{House, agent, job};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A collector that hands on what it takes.
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::unavailable("closed"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector(address: SocketAddr) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, taken) = mpsc::unbounded_channel();
    let service = TraceServiceServer::new(Collector(sender));
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
    (address, taken)
}

async fn next(taken: &mut mpsc::UnboundedReceiver<ExportTraceServiceRequest>) -> Vec<Span> {
    let request = tokio::time::timeout(Duration::from_secs(30), taken.recv()).await.expect("a trace").unwrap();
    let resource = read(&request.resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!(
        (&resource["service.name"], &resource["service.version"]),
        (&json!("flovyn"), &json!(env!("CARGO_PKG_VERSION")))
    );
    resource["service.instance.id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap();
    request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans).collect()
}

fn attributes(span: &Span) -> BTreeMap<String, Value> {
    read(&span.attributes)
}

fn read(attributes: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |any: &Any| match any {
        Any::StringValue(text) => json!(text),
        Any::IntValue(number) => json!(number),
        Any::DoubleValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    let read = |pair: &KeyValue| (pair.key.clone(), value(pair.value.as_ref().unwrap().value.as_ref().unwrap()));
    attributes.iter().map(read).collect()
}

fn thinker() -> NativeHost {
    let thinker = agent("thinker", |ctx, _| {
        Box::pin(async move {
            let found: Value = ctx.schedule("search", &"otters")?.await?;
            let usage =
                Usage { calls: 1, input_tokens: 20, cache_read_tokens: 5, output_tokens: 7, ..Usage::default() };
            ctx.record_usage("fake/model-1", Usage { cost_micros: Some(1_500), ..usage })?;
            ctx.record_usage("nameless", usage)?;
            ctx.append_entry("assistant", &found)?;
            ctx.wait_for_signal::<Value>("more")?.await?;
            let refused: Result<Value, Error> = ctx.schedule("refuse", &())?.await;
            Ok(json!(refused.is_err()))
        })
    });
    let search = job("search", TaskOptions::default(), |_, _| Box::pin(async { Ok(json!("found")) }));
    let options = TaskOptions {
        retry: flovyn_core::model::RetryPolicy { retries: 0, ..Default::default() },
        ..Default::default()
    };
    let refuse = job("refuse", options, |_, _| Box::pin(async { Err(Error::new(Code::TaskFailed, "no")) }));
    NativeHost::default().agent(thinker).unwrap().task(search).unwrap().task(refuse).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_one_trace_however_often_it_was_entered() {
    let (address, mut taken) = collector(([127, 0, 0, 1], 0).into()).await;
    let mut house = House::open().await;
    house.serving.trace_to(&format!("http://{address}")).unwrap();
    let above = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let options = StartOptions { traceparent: Some(above.into()), ..StartOptions::with_id("t") };
    let handle = house.runtime.client().start("thinker", Payload::null(), options).await.unwrap();
    let (first, worker) = house.worker(thinker()).await;
    house.until("t", "WAITING").await;
    worker.kill();
    drop(first);
    let (_second, _worker) = house.worker(thinker()).await;
    handle.signal("more", Payload::null(), Delivery::default(), None).await.unwrap();
    house.until("t", "COMPLETED").await;

    let spans = next(&mut taken).await;
    let named: BTreeMap<&str, &Span> = spans.iter().map(|span| (&span.name[..], span)).collect();
    let names: Vec<_> = named.keys().copied().collect();
    assert_eq!(
        names,
        ["chat fake/model-1", "chat nameless", "execute_tool refuse", "execute_tool search", "invoke_agent thinker"]
    );
    assert_eq!((spans.len(), spans.iter().map(|span| &span.span_id).collect::<HashSet<_>>().len()), (5, 5));
    let run = named["invoke_agent thinker"];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(spans.iter().all(|span| hex(&span.trace_id) == "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(hex(&run.parent_span_id), "00f067aa0ba902b7");
    for span in spans.iter().filter(|span| span.name != run.name) {
        assert_eq!(span.parent_span_id, run.span_id, "{}", span.name);
        assert!(span.start_time_unix_nano >= run.start_time_unix_nano, "{}", span.name);
        assert!(span.end_time_unix_nano <= run.end_time_unix_nano, "{}", span.name);
    }
    let of_run = attributes(run);
    assert_eq!(of_run["gen_ai.operation.name"], "invoke_agent");
    assert_eq!((&of_run["gen_ai.agent.name"], &of_run["gen_ai.conversation.id"]), (&json!("thinker"), &json!("t")));
    assert_eq!((&of_run["flovyn.status"], &of_run["gen_ai.usage.output_tokens"]), (&json!("COMPLETED"), &json!(14)));
    let chat = attributes(named["chat fake/model-1"]);
    assert_eq!(chat["gen_ai.operation.name"], "chat");
    assert_eq!(
        (&chat["gen_ai.request.model"], &chat["gen_ai.provider.name"]),
        (&json!("fake/model-1"), &json!("fake"))
    );
    assert_eq!(attributes(named["chat nameless"]).get("gen_ai.provider.name"), None, "nobody knows whose model it is");
    assert_eq!(chat["gen_ai.usage.input_tokens"], 25, "those from the cache are input too");
    assert_eq!(chat["flovyn.cost_usd"], 0.0015);
    let tool = attributes(named["execute_tool search"]);
    assert_eq!((&tool["gen_ai.operation.name"], &tool["gen_ai.tool.name"]), (&json!("execute_tool"), &json!("search")));
    assert_eq!(tool["flovyn.status"], "COMPLETED");
    let refused = named["execute_tool refuse"];
    assert_eq!(refused.status.as_ref().unwrap().code, 2, "an error");
    assert!(attributes(refused).contains_key("error.type"));

    // Nothing comes twice: the next trace is the next run's.
    house.runtime.client().start("thinker", Payload::null(), StartOptions::with_id("u")).await.unwrap();
    house.until("u", "WAITING").await;
    house.post(&format!("{}/u/cancel", house::BASE), json!({ "mode": "hard" })).await;
    let spans = next(&mut taken).await;
    let run = spans.iter().find(|span| span.name == "invoke_agent thinker").unwrap();
    assert_eq!((&attributes(run)["gen_ai.conversation.id"], &run.parent_span_id[..]), (&json!("u"), &[][..]));
}

/// The runs of a family are one trace, each below the one that has started it, whatever ended them.
#[tokio::test(flavor = "multi_thread")]
async fn a_family_is_one_trace() {
    let (address, mut taken) = collector(([127, 0, 0, 1], 0).into()).await;
    let mut house = House::open().await;
    house.serving.trace_to(&format!("http://{address}")).unwrap();
    let leaf = agent("leaf", |ctx, _| Box::pin(async move { Ok(json!(ctx.agent_execution_id().to_string())) }));
    let waits = agent("waits", |ctx, _| Box::pin(async move { ctx.wait_for_signal::<Value>("never")?.await }));
    let middle = agent("middle", |ctx, _| Box::pin(async move { ctx.spawn_agent::<Value>("leaf", &1)?.await }));
    let top = agent("top", |ctx, _| {
        Box::pin(async move {
            let left = ctx.spawn_agent::<Value>("waits", &())?;
            let found = ctx.spawn_agent::<Value>("middle", &())?.await?;
            drop(left);
            Ok(found)
        })
    });
    let host = [leaf, waits, middle, top].into_iter().fold(NativeHost::default(), |host, one| host.agent(one).unwrap());
    let above = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let options = StartOptions { traceparent: Some(above.into()), ..StartOptions::with_id("t") };
    house.runtime.client().start("top", Payload::null(), options).await.unwrap();
    let (_remote, _worker) = house.worker(host).await;
    house.until("t", "COMPLETED").await;
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    while spans.len() < 4 {
        spans.extend(next(&mut taken).await.into_iter().map(|span| (span.name.clone(), span)));
    }
    let of = |name: &str| &spans[&format!("invoke_agent {name}")];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(spans.values().all(|span| hex(&span.trace_id) == "4bf92f3577b34da6a3ce929d0e0e4736"));
    for (child, parent) in [("middle", "top"), ("leaf", "middle"), ("waits", "top")] {
        assert_eq!(of(child).parent_span_id, of(parent).span_id, "{child}");
        assert_eq!(attributes(of(child))["flovyn.parent.id"], attributes(of(parent))["flovyn.run.id"], "{child}");
    }
    assert_eq!(hex(&of("top").parent_span_id), "00f067aa0ba902b7");
    assert_eq!(attributes(of("waits"))["flovyn.status"], "CANCELLED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_no_run_anything() {
    // A port that nobody listens on stands for a collector that is away.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut house = House::open().await;
    house.serving.trace_to(&format!("http://{away}")).unwrap();
    assert!(house.serving.trace_to("no url at all").is_err());
    house.post(house::BASE, json!({ "kind": "thinker", "id": "t" })).await;
    let (_remote, _worker) = house.worker(thinker()).await;
    house.until("t", "WAITING").await;
    house.post(&format!("{}/t/signal", house::BASE), json!({ "signalName": "more" })).await;
    house.until("t", "COMPLETED").await;
    // It comes back, and gets what is sent again.
    let (_, mut taken) = collector(away).await;
    assert!(next(&mut taken).await.iter().any(|span| span.name == "invoke_agent thinker"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_sends_what_it_has() {
    // It comes too late for the first try.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut house = House::open().await;
    house.serving.trace_to(&format!("http://{address}")).unwrap();
    for number in 0..20 {
        let id = format!("t-{number}");
        house.post(house::BASE, json!({ "kind": "thinker", "id": id })).await;
        house.post(&format!("{}/{id}/cancel", house::BASE), json!({ "mode": "hard" })).await;
    }
    let House { serving, runtime: _runtime, folder: _folder } = house;
    let (stopped, (_, mut taken)) = tokio::join!(serving.stop(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        collector(address).await
    });
    stopped.unwrap();
    let mut told = HashSet::new();
    while let Ok(request) = taken.try_recv() {
        let spans =
            request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans);
        told.extend(spans.map(|span| attributes(&span)["gen_ai.conversation.id"].to_string()));
    }
    assert_eq!(told.len(), 20, "{told:?}");
}
