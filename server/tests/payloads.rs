//! Results that are large together, and payloads on their own.

mod house;

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, OrgId, RequestId, WorkerId};
use flovyn_core::model::{NewExecution, TaskOptions};
use flovyn_core::payload::MAX_PAYLOAD;
use flovyn_core::storage::{ClaimRequest, Only};
use flovyn_core::wire::v2::agents_client::AgentsClient;
use flovyn_core::wire::v2::payload_part::Part;
use flovyn_core::wire::v2::worker_client::WorkerClient;
use flovyn_core::wire::{CHUNK, attach, raw, v2};
use flovyn_core::worker::WorkerOptions;
use futures::future::try_join_all;
use futures::{StreamExt, stream};
use house::{House, TOKEN, agent, job};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tonic::Request;
use tonic::transport::Channel;

/// Steps that end at the same moment are stored, however large they are together.
#[tokio::test(flavor = "multi_thread")]
async fn many_large_results_come_at_once() {
    const STEPS: usize = 180;
    const SIZE: usize = 900_000;
    let house = House::open().await;
    let gatherer = agent("gatherer", |ctx, _| {
        Box::pin(async move {
            let steps = (0..STEPS).map(|step| ctx.schedule::<Value>("large", &step)).collect::<Result<Vec<_>, _>>()?;
            let all = try_join_all(steps).await?;
            Ok(json!(all.iter().map(|one| one["text"].as_str().map_or(0, str::len)).sum::<usize>()))
        })
    });
    let all = Arc::new(Barrier::new(STEPS));
    let large = job("large", TaskOptions::default(), move |_, step| {
        let all = all.clone();
        Box::pin(async move {
            // Two of them never wait for each other in vain: all have begun before one ends.
            tokio::time::timeout(Duration::from_secs(20), all.wait())
                .await
                .map_err(|_| Error::new(Code::TaskFailed, "not all began"))?;
            Ok(json!({ "step": step, "text": "x".repeat(SIZE) }))
        })
    });
    let host = NativeHost::default().agent(gatherer).unwrap().task(large).unwrap();
    let (runtime, _worker) = house.worker(host).await;
    let run = runtime.client().start("gatherer", Payload::null(), StartOptions::default()).await.unwrap();
    let output = run.result(Some(Duration::from_secs(120))).await.unwrap();
    assert_eq!(output.parse::<usize>().unwrap(), STEPS * SIZE);
}

/// A commit of a run that a worker has, or of one that is not there.
async fn commit_of(house: &House, there: bool) -> v2::CommitRequest {
    let storage = house.runtime.storage();
    let (mut execution, worker) = (ExecutionId::fresh(), WorkerId::fresh());
    if there {
        let new = NewExecution::new(execution, "large", Payload::null()).unwrap();
        execution = storage.create_execution(new).await.unwrap().execution.new.id;
        let (queue, kinds, ttl) = ("default".to_owned(), ["large".to_owned()].into(), Duration::from_secs(600));
        let claim =
            ClaimRequest { org: OrgId::DEFAULT, worker, queue, kinds, limit: 1, ttl, only: Some(Only::Run(execution)) };
        assert_eq!(storage.claim_agents(claim).await.unwrap().len(), 1);
    }
    v2::CommitRequest {
        execution: raw(execution.0),
        lease: Some(v2::Lease { worker: raw(worker.0), epoch: 1 }),
        request_id: raw(RequestId::fresh().0),
        batch: Some(v2::Batch {
            ops: vec![v2::NewOp { seen: vec![7; 1 << 20], ..Default::default() }],
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn workers(house: &House) -> WorkerClient<Channel> {
    WorkerClient::new(Channel::from_shared(house.serving.url()).unwrap().connect().await.unwrap())
}

/// A commit whose parts never end is refused before it fills the server; that of a run which is not there, at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_commit_is_refused() {
    let house = House::open().await;
    let mut client = workers(&house).await;
    for (there, told) in [(true, "commit more often"), (false, "run")] {
        let part = attach::commit_parts(commit_of(&house, there).await).remove(0);
        let asked = asking(stream::repeat(part));
        let refused = tokio::time::timeout(Duration::from_secs(60), client.commit(asked)).await.expect("it is refused");
        let refused = refused.unwrap_err();
        assert!(refused.message().contains(told), "{refused:?}");
        assert!(there || refused.code() == tonic::Code::NotFound, "{refused:?}");
    }
}

/// However many commits are on their way, the server holds only so much of them; small ones find room beside them.
#[tokio::test(flavor = "multi_thread")]
async fn commits_on_their_way_share_the_room_there_is() {
    let house = House::open().await;
    let refused = futures::future::select_all((0..6).map(|_| {
        let house = &house;
        Box::pin(async move {
            let mut request = commit_of(house, true).await;
            request.batch.as_mut().unwrap().ops.clear();
            let large = v2::PayloadHeader { size: 60 << 20, hash: vec![7; 32].into(), ..Default::default() };
            let parts = [v2::commit_part::Part::Request(request), v2::commit_part::Part::Payload(large)];
            let parts = stream::iter(parts.map(|part| v2::CommitPart { part: Some(part) }));
            let answer = workers(house).await.commit(asking(parts.chain(stream::pending()))).await;
            answer.unwrap_err()
        })
    }));
    let (refused, ..) = tokio::time::timeout(Duration::from_secs(20), refused).await.expect("one is refused");
    assert!(refused.code() == tonic::Code::Unavailable && refused.message().contains("later"), "{refused:?}");
    let small = agent("small", |ctx, _| {
        Box::pin(async move {
            ctx.append_entry("user", &1)?;
            Ok(Value::Null)
        })
    });
    let (runtime, _worker) = house.worker(NativeHost::default().agent(small).unwrap()).await;
    let run = runtime.client().start("small", Payload::null(), StartOptions::default()).await.unwrap();
    run.result(Some(Duration::from_secs(20))).await.unwrap();
}

/// The ceiling of payloads is the database's: the server and whoever connects to it go by that.
#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_of_payloads_is_set_by_the_url() {
    const CEILING: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?max_payload=1MiB", folder.path().join("runs.db").display());
    let house = House::over(&url, folder).await;
    let remote = house.remote().await;
    assert_eq!((house.runtime.storage().max_payload(), remote.storage().max_payload()), (CEILING, CEILING));
    let writer = agent("writer", |ctx, _| {
        Box::pin(async move {
            ctx.append_entry("user", &"x".repeat(CEILING as usize - 2))?;
            let refused = ctx.append_entry("user", &"x".repeat(CEILING as usize)).unwrap_err();
            Ok(json!([refused.code().as_str(), refused.message()]))
        })
    });
    let host = NativeHost::default().agent(writer).unwrap();
    let worker = remote.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let handle = remote.client().start("writer", Payload::null(), StartOptions::default()).await.unwrap();
    let told: Value = handle.result(Some(Duration::from_secs(20))).await.unwrap().parse().unwrap();
    assert_eq!(told[0], "PayloadTooLarge");
    assert!(told[1].as_str().unwrap().contains("1048576"), "{told}");
    worker.close(Duration::ZERO).await.unwrap();
    for runtime in [&house.runtime, &remote] {
        let large = Payload::raw(vec![1; CEILING as usize + 1]);
        let refused = runtime.storage().store_payload(OrgId::DEFAULT, large).await.unwrap_err();
        assert_eq!(refused.code(), Code::PayloadTooLarge);
        let fits = Payload::raw(vec![1; CEILING as usize]);
        runtime.storage().store_payload(OrgId::DEFAULT, fits).await.unwrap();
    }
    let body = "1".repeat(CEILING as usize + 1);
    let json = [("content-type", "application/json")];
    assert_eq!(house.ask("PUT", "/api/orgs/default/payloads", &json, &body).await.0, 413);
    assert_eq!(house.ask("PUT", "/api/orgs/default/payloads", &json, &body[1..]).await.0, 201);
    // Another client than ours.
    let text = vec![1; CEILING as usize + 1];
    let parts = [vec![header(text.len(), &text)], chunks(&text, CHUNK)].concat();
    let parts = parts.into_iter().map(|part| v2::PayloadPart { part: Some(part) });
    let refused = agents(&house).await.put_payload(asking(stream::iter(parts))).await.unwrap_err();
    assert!(refused.message().contains("1048576"), "{refused}");
}

const SIZE: usize = 100_000;

fn header(size: usize, of: &[u8]) -> Part {
    let hash = blake3::hash(of).as_bytes().to_vec().into();
    Part::Header(v2::PayloadHeader { encoding: v2::Encoding::Raw.into(), size: size as u64, hash })
}

fn chunks(bytes: &[u8], length: usize) -> Vec<Part> {
    bytes.chunks(length).map(|chunk| Part::Chunk(chunk.to_vec().into())).collect()
}

fn asking<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
}

async fn agents(house: &House) -> AgentsClient<Channel> {
    AgentsClient::new(Channel::from_shared(house.serving.url()).unwrap().connect().await.unwrap())
}

/// What is declared of a payload holds, or nothing of it is kept.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_what_it_declares() {
    let house = House::open().await;
    let mut client = agents(&house).await;
    let text: Vec<u8> = (0..SIZE).map(|n| (n * n % 251) as u8).collect();
    let right = || chunks(&text, CHUNK);
    let with = |first: Part, rest: Vec<Part>| [vec![first], rest].concat();
    let other = header(SIZE, b"something else");
    let cases = [
        ("nothing", vec![], "starts with a header"),
        ("no header", right(), "starts with a header"),
        ("two headers", with(header(SIZE, &text), with(header(SIZE, &text), right())), "one header"),
        ("a header at the end", [with(header(SIZE, &text), right()), vec![header(SIZE, &text)]].concat(), "one header"),
        ("another hash", with(other, right()), "another hash"),
        (
            "a hash that is none",
            {
                let none = v2::PayloadHeader { size: SIZE as u64, hash: vec![1, 2, 3].into(), ..Default::default() };
                with(Part::Header(none), right())
            },
            "another hash",
        ),
        ("a byte more", with(header(SIZE - 1, &text), right()), "that were declared"),
        ("a byte fewer", with(header(SIZE + 1, &text), right()), "are not the 100001 declared"),
        ("no byte", vec![header(SIZE, &text)], "the 0 bytes that came"),
        ("a long chunk", with(header(SIZE, &text), chunks(&text, CHUNK + 1)), "exceeds the 65536 of a chunk"),
        ("too large", vec![header(MAX_PAYLOAD as usize + 1, &text)], "bytes"),
        ("small", with(header(10, &text[..10]), chunks(&text[..10], CHUNK)), "send it in place"),
    ];
    for (name, parts, why) in cases {
        let parts = parts.into_iter().map(|part| v2::PayloadPart { part: Some(part) });
        let refused = client.put_payload(asking(stream::iter(parts.collect::<Vec<_>>()))).await;
        let told = refused.expect_err(name);
        let code = if name == "too large" { tonic::Code::ResourceExhausted } else { tonic::Code::InvalidArgument };
        assert_eq!((told.code(), told.message().contains(why)), (code, true), "{name}: {told:?}");
    }
    let stored = v2::Stored { hash: blake3::hash(&text).as_bytes().to_vec().into(), size: SIZE as u64 };
    let wanted = || asking(v2::GetPayloadRequest { payload: Some(stored.clone()), offset: 0, length: None });
    let missing = match client.get_payload(wanted()).await {
        Ok(answer) => answer.into_inner().collect::<Vec<_>>().await.into_iter().find_map(Result::err),
        Err(status) => Some(status),
    };
    assert_eq!(missing.expect("nothing was kept").code(), tonic::Code::InvalidArgument);

    // As it is declared it is kept, however it is cut.
    for length in [CHUNK, 1_000] {
        let parts = with(header(SIZE, &text), chunks(&text, length)).into_iter();
        let parts = parts.map(|part| v2::PayloadPart { part: Some(part) }).collect::<Vec<_>>();
        assert_eq!(client.put_payload(asking(stream::iter(parts))).await.unwrap().into_inner(), stored);
    }
    let mut read = Vec::new();
    let mut answer = client.get_payload(wanted()).await.unwrap().into_inner();
    while let Some(part) = answer.message().await.unwrap() {
        if let Some(Part::Chunk(chunk)) = part.part {
            read.extend(chunk);
        }
    }
    assert!(read == text);
}

/// Who begins an upload and sends nothing more is cut after half a minute.
#[tokio::test]
async fn an_upload_that_sends_nothing_is_cut() {
    let house = House::open().await;
    let mut client = agents(&house).await;
    let began = [header(SIZE, b"whatever"), Part::Chunk(vec![7; 100].into())];
    let parts = stream::iter(began.map(|part| v2::PayloadPart { part: Some(part) })).chain(stream::pending());
    // Time passes at once whenever nothing is left to do.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let cut = client.put_payload(asking(parts)).await.unwrap_err();
    assert_eq!(cut.code(), tonic::Code::DeadlineExceeded, "{cut:?}");
    assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
    tokio::time::resume();
}
