//! How long one step's commit takes on SQLite: `cargo test --release --test sqlite_speed -- --ignored --nocapture`.

use flovyn_core::Payload;
use flovyn_core::id::{ExecutionId, OpId, OrgId, RequestId, Slot, TaskId, WorkerId};
use flovyn_core::model::{
    AttemptReport, AttemptResult, Batch, BatchEnd, Claim, CommitRequest, Label, LabelKey, NewExecution, NewOp, NewTask,
    OpBody, OpKind, Placement, TaskOptions,
};
use flovyn_core::payload::Digest;
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::storage::{AgentStorage, ClaimRequest, Storage, WorkSource};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn folder() -> PathBuf {
    let root = std::env::var_os("FLOVYN_SPEED_DIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let folder = root.join(format!("flovyn-speed-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn claimed(storage: &SqliteStorage, n: usize) -> Vec<Claim> {
    let worker = WorkerId::fresh();
    for _ in 0..n {
        let new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::of("go").unwrap()).unwrap();
        storage.create_execution(new).await.unwrap();
    }
    let kinds: Arc<[String]> = Arc::from(vec!["agent".to_owned()]);
    let ttl = Duration::from_secs(3600);
    let claim = ClaimRequest { org: OrgId::DEFAULT, worker, queue: "default".into(), kinds, limit: n, ttl, only: None };
    storage.claim_agents(claim).await.unwrap()
}

fn step(claim: &Claim, sequence: u32, base: u64, known: u64, output: &Payload) -> CommitRequest {
    let execution = claim.execution.new.id;
    let id = OpId { execution, slot: Slot { segment: 0, sequence }, once: None }.uuid();
    let input = Payload::json(&br#"{"n": 17}"#[..]);
    let task = NewTask {
        id: TaskId(id),
        kind: "step".into(),
        queue: "default".into(),
        input,
        options: TaskOptions::default(),
        placement: Placement::Inline,
        entry: None,
    };
    let op = NewOp {
        sequence,
        once: None,
        label: Label { kind: OpKind::Task, name: "step".into(), key: LabelKey::Digest(Digest([7; 16])) },
        seen: Vec::new(),
        body: OpBody::Task(task),
    };
    let end = AttemptReport {
        sequence,
        attempt: 1,
        result: AttemptResult::Completed(output.clone()),
        duration: Duration::from_micros(3),
        ended_at: None,
    };
    CommitRequest {
        org: OrgId::DEFAULT,
        execution,
        lease: claim.lease,
        request_id: RequestId::fresh(),
        digest: Digest([1; 16]),
        base,
        known,
        batch: Batch { attempts: vec![end], ..Batch::new(0, vec![op], BatchEnd::Continue) },
        refused: Vec::new(),
        local: None,
    }
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let _ = stat;
    let mut total = 0u64;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        total += text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Duration::from_nanos(total)
}

fn named(name: &str) -> Duration {
    let mut total = 0u64;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() == name {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            total += text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Duration::from_nanos(total)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a measurement: make test-long"]
async fn one_step() {
    let folder = folder();
    let storage = SqliteStorage::open(folder.join("speed.db"), SqliteOptions::default()).unwrap();
    let claim = claimed(&storage, 1).await.remove(0);
    let output = Payload::json(format!(r#"{{"ok":true,"text":"{}"}}"#, "x".repeat(170)));
    let (mut known, steps) = (claim.high, 20_000u32);
    let mut seen = Vec::with_capacity(steps as usize);
    let (start, before, writer) = (Instant::now(), cpu(), named("flovyn-sqlite"));
    for n in 0..steps {
        let at = Instant::now();
        let answer = storage.commit(step(&claim, n, u64::from(n), known, &output)).await.unwrap();
        seen.push(at.elapsed());
        known = answer.high;
    }
    let (wall, spent, writer) = (start.elapsed(), cpu() - before, named("flovyn-sqlite") - writer);
    seen.sort_unstable();
    println!(
        "one agent: {:.1} µs a step (p50 {:?}, p99 {:?}); CPU {:.1} µs, of it writer {:.1} µs",
        wall.as_secs_f64() * 1e6 / f64::from(steps),
        seen[seen.len() / 2],
        seen[seen.len() * 99 / 100],
        spent.as_secs_f64() * 1e6 / f64::from(steps),
        writer.as_secs_f64() * 1e6 / f64::from(steps),
    );
    storage.close();
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make test-long"]
async fn many_agents() {
    let folder = folder();
    let storage = SqliteStorage::open(folder.join("speed.db"), SqliteOptions::default()).unwrap();
    let claims = claimed(&storage, 64).await;
    let output = Payload::json(format!(r#"{{"ok":true,"text":"{}"}}"#, "x".repeat(170)));
    let (each, start, before) = (500u32, Instant::now(), cpu());
    let agents: Vec<_> = claims
        .into_iter()
        .map(|claim| {
            let (storage, output) = (storage.clone(), output.clone());
            tokio::spawn(async move {
                let mut known = claim.high;
                for n in 0..each {
                    known = storage.commit(step(&claim, n, u64::from(n), known, &output)).await.unwrap().high;
                }
            })
        })
        .collect();
    for agent in agents {
        agent.await.unwrap();
    }
    let (wall, spent, total) = (start.elapsed(), cpu() - before, f64::from(each) * 64.0);
    println!(
        "64 agents: {:.0} steps/s, CPU {:.1} µs a step",
        total / wall.as_secs_f64(),
        spent.as_secs_f64() * 1e6 / total
    );
    storage.close();
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make test-long"]
async fn a_large_payload() {
    let folder = folder();
    let storage = SqliteStorage::open(folder.join("speed.db"), SqliteOptions::default()).unwrap();
    let mut state = 88_172_645_463_325_252u64;
    for round in 0..3 {
        let mut bytes = vec![0u8; 32 << 20];
        for word in bytes.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let new = NewExecution {
            input_digest: Digest([round; 16]),
            ..NewExecution::new(ExecutionId::fresh(), "agent", Payload::null()).unwrap()
        };
        let new = NewExecution { input: Payload::raw(bytes), ..new };
        let at = Instant::now();
        let made = storage.create_execution(new).await.unwrap();
        let wrote = at.elapsed();
        let at = Instant::now();
        let read = storage.read_payload(OrgId::DEFAULT, &made.execution.new.input).await.unwrap();
        println!("32 MiB incompressible: written in {wrote:?}, read in {:?} ({} bytes)", at.elapsed(), read.len());
    }
    storage.close();
    std::fs::remove_dir_all(folder).unwrap();
}
