//! How PostgreSQL finds rows among many: the plans of the statements that really run, over tables that are full.
//!
//! A few runs of each sort are made by the engine and copied thousands of times by SQL. Then `auto_explain` writes down what
//! the server does for every statement of a day's work, and no step of a plan may read more than a page's worth of rows.
//! `SCALE=n` makes the tables n times as large: 50 is a million runs.

#[path = "plans/beside.rs"]
mod beside;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, Handle, Outcome, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{CancelMode, Cursor, Delivery, EventId, ExecutionFilter, ForkFrom, Page, PageRequest, Status};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::Storage;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::{Worker, WorkerOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Fewer statements than this were not all.
const FLOOR: usize = 175;
/// Copies of each sort of run at scale 1.
const SORTS: [(&str, u64); 5] =
    [("done", 8_000), ("parked", 3_000), ("nobody", 3_000), ("caller", 3_000), ("later", 3_000)];
/// The most rows that one step of a plan may read at once: a longest page with one more, from two tables.
const MOST: f64 = 2_000.0;
/// And in all, where it is done for each of some rows: all rows of as many runs as retention takes at once.
const MOST_IN_ALL: f64 = 10.0 * MOST;
/// Statements that look at all rows of a table: a part of each, the table, and the reason.
const WHOLE: [(&str, &str, &str); 7] = [
    ("DELETE FROM payload ", "payload", "once an hour, payloads that nobody has touched for a day are looked at"),
    ("queue, count(*) FROM", "agent_execution", "who asks how much waits is told a number"),
    ("queue, count(*) FROM", "task_execution", "who asks how much waits is told a number"),
    ("queue, sum(pending)", "agent_execution", "who asks how much waits is told a number"),
    ("queue, sum(pending)", "task_execution", "who asks how much waits is told a number"),
    ("FROM watch w JOIN", "watch", "all who read at this moment are what is asked for"),
    ("DELETE FROM preview AS p", "preview", "when a reader has gone, what is made at this moment is looked at"),
];
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Tiny;

#[async_trait]
impl TaskDefinition for Tiny {
    type Input = u64;
    type Output = String;

    fn kind(&self) -> &str {
        "tiny"
    }

    async fn execute(&self, _: &TaskContext, input: u64) -> Result<String> {
        // Too large for its row.
        Ok(format!("{input} ").repeat(20_000))
    }
}

/// A task that another worker claims from the queue.
struct Fetched;

#[async_trait]
impl TaskDefinition for Fetched {
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "fetched"
    }

    async fn execute(&self, _: &TaskContext, input: u64) -> Result<u64> {
        Ok(input)
    }
}

#[derive(Default, Serialize, Deserialize, flovyn_core::agent::AgentState)]
struct Turns {
    done: u32,
}

/// One agent under the names of all sorts.
struct Sort(&'static str);

#[async_trait]
impl AgentDefinition for Sort {
    type State = Turns;
    type Input = u64;
    type Output = Value;

    fn kind(&self) -> &str {
        self.0
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, input: u64) -> Result<Value> {
        match self.0 {
            "done" | "later" => {
                ctx.append_entry("user", &input)?;
                let said: String = ctx.schedule_task(&Tiny, &input)?.await?;
                ctx.append_entry("assistant", &said.len())?;
                ctx.sleep(Duration::from_millis(2))?.await?;
                ctx.checkpoint(&Turns { done: 1 })?.await?;
                let said: Value = ctx.wait_for_signal("go")?.await?;
                ctx.append_entry("assistant", &said)?;
                Ok(said)
            }
            "parked" => {
                ctx.append_entry("user", &input)?;
                let said: Value = ctx.wait_for_signal_within("go", Duration::from_secs(10 * 24 * 3_600))?.await?;
                ctx.stream_token("going ");
                ctx.append_entry("assistant", &said)?;
                Ok(said)
            }
            "asker" => ctx.schedule("fetched", &input)?.await,
            // Nobody serves this one.
            _ => ctx.schedule("queued", &input)?.await,
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn open(url: &str) -> Runtime {
    Runtime::open(url).await.unwrap()
}

async fn worker(runtime: &Runtime) -> Worker {
    let host = NativeHost::default().task(Tiny).unwrap();
    let host = ["done", "parked", "caller", "later", "asker"]
        .into_iter()
        .fold(host, |host, kind| host.agent(Sort(kind)).unwrap());
    runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap()
}

async fn start(runtime: &Runtime, kind: &str, id: &str) -> Handle {
    let delay = (kind == "later").then_some(Duration::from_secs(24 * 3_600));
    let options = StartOptions { delay, ..StartOptions::with_id(id) };
    runtime.client().start(kind, Payload::of(&7).unwrap(), options).await.unwrap()
}

async fn start_of(client: &Client, kind: &str, queue: &str, id: &str) {
    let options = StartOptions { queue: Some(queue.into()), ..StartOptions::with_id(id) };
    client.start(kind, Payload::of(&7).unwrap(), options).await.unwrap();
}

async fn until_ended(run: &Handle) {
    run.outcome(Some(PATIENCE)).await.unwrap();
}

async fn go(run: &Handle) {
    run.signal("go", Payload::of(&"go").unwrap(), Delivery::default(), Some("once".into())).await.unwrap();
}

async fn until(run: &Handle, wanted: Status) {
    let waiting = async {
        while run.status().await.unwrap() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the run gets there");
}

/// One run of each sort, as far as it comes.
async fn templates(runtime: &Runtime) {
    let worker = worker(runtime).await;
    for (sort, _) in SORTS {
        let run = start(runtime, sort, &format!("first {sort}")).await;
        match sort {
            "done" => {
                go(&run).await;
                run.result(Some(PATIENCE)).await.unwrap();
            }
            "parked" | "caller" => until(&run, Status::Waiting).await,
            _ => {}
        }
    }
    beside::templates(&**runtime.storage()).await;
    worker.close(Duration::ZERO).await.unwrap();
}

/// What of a table's rows differs between a run and its copy number `n`.
const TABLES: [(&str, &str); 8] = [
    (
        "agent_execution",
        "'id', twin(n, x.id), 'root_id', twin(n, x.root_id), 'leaf', twin(n, x.leaf), 'key', x.kind || n, \
         'created_at', x.created_at - n * 1000, 'ended_at', x.ended_at - n * 1000",
    ),
    ("agent_entry", "'id', twin(n, x.id), 'parent_id', twin(n, x.parent_id)"),
    ("task_execution", "'id', twin(n, x.id), 'entry_id', twin(n, x.entry_id)"),
    ("agent_signal", "'id', twin(n, x.id)"),
    ("agent_op", "'segment', x.segment"),
    ("agent_checkpoint", "'sequence', x.sequence"),
    ("event", "'number', x.number"),
    ("payload_reference", "'org_id', x.org_id"),
];

/// How many rows of other tables there are at scale 1, and what differs between one and its copy number `n`. What an org has few
/// of is many orgs'.
const OTHERS: [(&str, u64, &str); 7] = [
    ("agent_definition", 3_000, "'id', twin(n, x.id), 'slug', x.slug || n"),
    ("schedule", 3_000, "'id', x.id || n, 'next_at', x.next_at + 1000000000000000"),
    (
        "api_key",
        3_000,
        "'org_id', twin(n / 3, x.org_id), 'id', twin(n, x.id), 'hash', '\\x' || encode(sha256(n::text::bytea), 'hex')",
    ),
    ("queue_limit", 3_000, "'org_id', twin(n / 3, x.org_id), 'queue', x.queue || n"),
    ("audit", 20_000, "'id', 1000 + n"),
    ("worker", 3_000, "'id', twin(n, x.id), 'alive_until', x.alive_until - 100000000"),
    ("enrolled_worker", 3_000, "'id', twin(n, x.id)"),
];

/// Runs that are read elsewhere at this moment, and what is made of them; and a family: each hundred of those that nobody serves
/// are children of one run.
const MOMENT: &str = "\
    INSERT INTO watch SELECT org_id, twin(n, id), id, TRUE, created_at + 1000000000000000 \
        FROM agent_execution, generate_series(1::bigint, 300) n WHERE key = 'first done'; \
    INSERT INTO preview SELECT org_id, twin(n, id), 0, c % 2, 0, 1, c, 'a word ' \
        FROM agent_execution, generate_series(1::bigint, 300) n, generate_series(1, 10) c WHERE key = 'first done'; \
    SET enable_nestloop = off; \
    UPDATE agent_execution c SET parent_id = p.id, root_id = p.id FROM agent_execution p \
        WHERE p.kind = 'parked' AND c.kind = 'nobody' AND c.run <> p.run AND p.run % 100000000 = c.run % 100000000 / 100 + 1; \
    SELECT setval(pg_get_serial_sequence('audit', 'id'), max(id)) FROM audit; ";

/// Copies every run so many times. The copies are as the engine leaves runs, but for their names and ages.
fn fill(cluster: &Cluster, schema: &str, scale: u64) {
    let mut sql = format!(
        "SET search_path = {schema}; SET session_replication_role = replica; \
         CREATE FUNCTION twin(n bigint, id uuid) RETURNS uuid LANGUAGE sql IMMUTABLE AS \
         $$ SELECT md5(n::text || id::text)::uuid $$; \
         CREATE TEMP TABLE templates AS SELECT run, kind FROM agent_execution; "
    );
    for (place, (sort, copies)) in (1..).zip(SORTS) {
        for (table, changed) in TABLES {
            sql += &format!(
                "INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT y.* FROM {table} x \
                 JOIN templates t ON t.run = x.run AND t.kind = '{sort}' \
                 CROSS JOIN generate_series(1::bigint, {copies}) n CROSS JOIN LATERAL \
                 jsonb_populate_record(x, jsonb_build_object('run', {place}00000000 + n, {changed})) y; ",
                copies = copies * scale
            );
        }
    }
    sql += &format!(
        "INSERT INTO payload SELECT y.* FROM payload x CROSS JOIN generate_series(1::bigint, {}) n CROSS JOIN LATERAL \
         jsonb_populate_record(x, jsonb_build_object('hash', '\\x' || encode(sha256(n::text::bytea), 'hex'))) y; ",
        3_000 * scale
    );
    for (table, rows, changed) in OTHERS {
        sql += &format!(
            "INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT y.* FROM {table} x \
             CROSS JOIN generate_series(1::bigint, {}) n CROSS JOIN LATERAL \
             jsonb_populate_record(x, jsonb_build_object({changed})) y \
             WHERE x.ctid = (SELECT min(ctid) FROM {table}); ",
            rows * scale
        );
    }
    sql += MOMENT;
    cluster.sql("postgres", &sql).unwrap();
}

/// Everything that is asked of a store about runs in a day.
async fn day(url: &str, storage: &Arc<dyn Storage>) {
    let runtime = Runtime::over(storage.clone());
    let client = runtime.client();
    let _worker = worker(&runtime).await;
    let other = open(url).await;
    let fetching = NativeHost::default().task(Fetched).unwrap();
    let fetching = other.worker(Arc::new(fetching), WorkerOptions::default()).await.unwrap();
    // Runs from start to end, with tasks in the queue, timers, checkpoints and large results.
    for (sort, n) in [("done", 0), ("done", 1), ("parked", 0), ("asker", 0)] {
        let run = start(&runtime, sort, &format!("second {sort} {n}")).await;
        if sort != "asker" {
            go(&run).await;
        }
        run.result(Some(PATIENCE)).await.unwrap();
    }
    // One of many that wait goes on; another is cancelled; two are forked.
    go(&client.handle("first parked").await.unwrap()).await;
    client.handle("first parked").await.unwrap().result(Some(PATIENCE)).await.unwrap();
    let parked = copy(&client.runs(of_kind("parked"), page(20, None)).await.unwrap());
    let parked = client.handle(&parked.to_string()).await.unwrap();
    parked.cancel(CancelMode::Hard, Duration::ZERO).await.unwrap();
    assert!(matches!(parked.outcome(Some(PATIENCE)).await.unwrap(), Outcome::Cancelled { .. }));
    let done = client.handle("first done").await.unwrap();
    for from in [ForkFrom::Checkpoint(1), ForkFrom::Latest] {
        let fork = done.fork(from, None, None, None).await.unwrap();
        // It may have ended by itself.
        let _ = fork.cancel(CancelMode::Hard, Duration::ZERO).await;
        fork.outcome(Some(PATIENCE)).await.unwrap();
    }
    // The worker of the other process goes.
    drop(fetching);
    storage.cut_leases(OrgId::DEFAULT, WorkerId::fresh(), Duration::ZERO).await.unwrap();
    other.close().await.unwrap();

    // What people look at.
    let filters = [
        ExecutionFilter::default(),
        of_kind("parked"),
        of_kind("unheard of"),
        ExecutionFilter { statuses: vec![Status::Failed], ..ExecutionFilter::default() },
        ExecutionFilter { statuses: vec![Status::Running, Status::Paused], ..of_kind("done") },
        ExecutionFilter { statuses: vec![Status::Completed, Status::Failed], ..of_kind("done") },
        ExecutionFilter { created_from: Some(flovyn_core::clock::Timestamp(0)), ..of_kind("done") },
    ];
    for filter in filters {
        let first = client.runs(filter.clone(), page(100, None)).await.unwrap();
        if first.next.is_some() {
            client.runs(filter, page(1_000, first.next)).await.unwrap();
        }
    }
    storage.unserved(OrgId::DEFAULT).await.unwrap();
    let shown = copy(&client.runs(of_kind("done"), page(20, None)).await.unwrap());
    let shown = client.handle(&shown.to_string()).await.unwrap();
    let (id, all) = (shown.id(), page(1_000, None));
    assert_eq!(shown.messages().await.unwrap().len(), 3);
    shown.entries(all.clone()).await.unwrap();
    shown.tasks(all.clone()).await.unwrap();
    shown.checkpoints(all.clone()).await.unwrap();
    storage.signals(OrgId::DEFAULT, id, all).await.unwrap();
    storage.journal(OrgId::DEFAULT, id, 0).await.unwrap();
    let mut watching = shown.stream(Some(EventId::default()));
    while watching.next().await.unwrap().is_some() {}

    // What time brings.
    storage.pass().await.unwrap();
    storage.load().await.unwrap();
    assert!(storage.remove_ended(Duration::ZERO).await.unwrap() > 100);
    runtime.close().await.unwrap();
}

fn of_kind(kind: &str) -> ExecutionFilter {
    ExecutionFilter { kind: Some(kind.into()), ..ExecutionFilter::default() }
}

fn page(limit: usize, after: Option<Cursor>) -> PageRequest {
    PageRequest { limit, after }
}

fn copy(listed: &Page<flovyn_core::model::Execution>) -> ExecutionId {
    listed.items.last().expect("there are copies").new.id
}

/// One statement's plan.
struct Plan {
    query: String,
    root: Value,
}

/// The plans in a server's log, in JSON.
fn plans(log: &str) -> Vec<Plan> {
    let mut found = Vec::new();
    for text in log.split("plan:\n\t{").skip(1) {
        let body: String =
            text.lines().map(|line| line.strip_prefix('\t').unwrap_or(line)).take_while(|line| *line != "}").collect();
        let mut plan: Value =
            serde_json::from_str(&format!("{{{body}}}")).unwrap_or_else(|error| panic!("{error}: {body}"));
        let query = plan["Query Text"].as_str().unwrap_or_default().to_owned();
        found.push(Plan { query, root: plan["Plan"].take() });
    }
    found
}

/// What a step of a plan and those below it do that no step may.
fn faults(step: &Value, told: &mut BTreeSet<String>) {
    let kind = step["Node Type"].as_str().unwrap_or_default();
    let relation = step["Relation Name"].as_str().unwrap_or_default();
    let amount = |name: &str| step[name].as_f64().unwrap_or_default();
    let loops = amount("Actual Loops");
    let removed = amount("Rows Removed by Filter") + amount("Rows Removed by Join Filter");
    let read = amount("Actual Rows") + removed + amount("Rows Removed by Index Recheck");
    // Reading a listing of one's own making costs no look at a table.
    let whole = kind == "Seq Scan" && loops > 0.0 && read > 100.0;
    if !relation.is_empty() && (read > MOST || read * loops > MOST_IN_ALL || whole) {
        let index = step["Index Name"].as_str().unwrap_or("no index");
        told.insert(format!("{kind} of {relation} by {index} reads {read} rows, {loops} times"));
    }
    for below in step["Plans"].as_array().into_iter().flatten() {
        faults(below, told);
    }
}

/// What is done is written down with its plan.
const EXPLAINED: &str = "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 \
    -c auto_explain.log_analyze=on -c auto_explain.log_timing=off -c auto_explain.log_nested_statements=on \
    -c auto_explain.log_format=json";

/// Goes through a day, and looks at every plan of it.
async fn explained(cluster: &Cluster, url: &str, runtime: Runtime) {
    let before = cluster.log().unwrap().len();
    let storage = runtime.storage().clone();
    beside::day(&storage, &runtime.client()).await;
    day(url, &storage).await;
    drop(runtime);

    let plans = plans(&cluster.log().unwrap()[before..]);
    let mut wrong: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for plan in &plans {
        let mut told = BTreeSet::new();
        faults(&plan.root, &mut told);
        for (part, table, _) in WHOLE {
            told.retain(|fault| !(plan.query.contains(part) && fault.contains(&format!(" of {table} by "))));
        }
        if !told.is_empty() {
            wrong.entry(plan.query.clone()).or_default().extend(told);
        }
    }
    let queries: BTreeSet<_> = plans.iter().map(|plan| &plan.query).collect();
    println!("{} plans of {} statements", plans.len(), queries.len());
    assert!(queries.len() > FLOOR, "only {} statements were seen", queries.len());
    let others = OTHERS.iter().map(|(table, ..)| table);
    for table in TABLES.iter().map(|(table, _)| table).chain(others).chain(&["payload", "watch", "preview"]) {
        assert!(queries.iter().any(|query| query.contains(table)), "no statement about {table} was seen");
    }
    assert!(wrong.is_empty(), "{} statements read too much: {wrong:#?}", wrong.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reads_a_table_to_find_a_few_rows() {
    let cluster = Cluster::start(EXPLAINED).unwrap();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap().to_owned();
    let runtime = open(&url).await;
    templates(&runtime).await;
    runtime.close().await.unwrap();
    fill(&cluster, &schema, number("SCALE").unwrap_or(1));
    cluster.sql("postgres", &format!("SET search_path = {schema}; ANALYZE")).unwrap();
    let runtime = open(&url).await;
    explained(&cluster, &url, runtime).await;
}

/// Plans are made once, and nobody looks at the tables as they fill: what was planned on an empty database is as good on a
/// full one.
#[tokio::test(flavor = "multi_thread")]
async fn plans_of_an_empty_database_are_good_when_it_is_full() {
    let cluster = Cluster::start(&format!("-c autovacuum=off {EXPLAINED}")).unwrap();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap().to_owned();
    let runtime = open(&url).await;
    templates(&runtime).await;
    fill(&cluster, &schema, 1);
    explained(&cluster, &url, runtime).await;
}
