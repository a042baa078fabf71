//! Behind a real PgBouncer, in each of its modes: what works there, and what is refused in words.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::NewExecution;
use flovyn_core::payload::Payload;
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::storage::{AgentStorage, Catalog, ClaimRequest, Housekeeping, WorkSource};
use flovyn_core::testing::pgbouncer::PgBouncer;
use flovyn_core::testing::postgres::Cluster;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const ORG: OrgId = OrgId::DEFAULT;
/// Fewer sessions than one store has connections: each transaction is given whichever is free.
const FEW: usize = 3;
/// One for each connection of a store, or of several, and some more.
const ENOUGH: usize = 20;
const MANY: usize = 80;

async fn connect(url: String, options: PostgresOptions) -> flovyn_core::error::Result<PostgresStorage> {
    tokio::task::spawn_blocking(move || PostgresStorage::connect(&url, options)).await.expect("it does not panic")
}

/// Inverts the stored hash of a checkpoint.
fn corrupt(schema: &str, execution: ExecutionId, sequence: u32) -> bool {
    let statement = format!(
        "WITH changed AS (UPDATE {schema}.agent_checkpoint c SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) \
         FROM {schema}.agent_execution x WHERE x.org_id = c.org_id AND x.run = c.run AND x.id = '{execution}' \
         AND c.sequence = {sequence} RETURNING 1) SELECT count(*) FROM changed"
    );
    Cluster::shared().sql("postgres", &statement).unwrap() == "1"
}

/// Stores through a pooler, each in a schema of its own.
struct Through(&'static PgBouncer);

#[async_trait]
impl Factory for Through {
    async fn open(&self, clock: ManualClock) -> Subject {
        let user = Cluster::shared().fresh_user().unwrap();
        let options = PostgresOptions { clock: Some(Arc::new(clock)), ..PostgresOptions::default() };
        let storage = connect(self.0.url(&user), options).await.unwrap();
        let corrupt = move |_: OrgId, execution, sequence| corrupt(&user, execution, sequence);
        Subject { storage: Arc::new(storage), keeper: None, corrupt: Some(Box::new(corrupt)), keep: None }
    }
}

/// Makes a test of two cases of each part of the contract.
macro_rules! two_of_each {
    (($factory:expr) $($file:ident { $($case:ident)* })*) => {
        $(mod $file {
            use super::*;
            two_of!($factory, $file: $($case)*);
        })*
    };
}

macro_rules! two_of {
    ($factory:expr, $file:ident: $first:ident) => {
        #[tokio::test]
        async fn $first() {
            flovyn_core::storage::conformance::$file::$first(&$factory).await;
        }
    };
    ($factory:expr, $file:ident: $first:ident $second:ident $($more:ident)*) => {
        two_of!($factory, $file: $first);
        two_of!($factory, $file: $second);
    };
}

/// The contract, where each transaction has another session: two cases of each part.
mod transactions {
    use super::*;

    static POOLER: LazyLock<PgBouncer> =
        LazyLock::new(|| PgBouncer::start(Cluster::shared(), "transaction", FEW).unwrap());

    flovyn_core::conformance_cases!(two_of_each, Through(&POOLER));
}

fn new() -> NewExecution {
    NewExecution::new(ExecutionId::fresh(), "agent", Payload::of("go").unwrap()).unwrap()
}

fn claim() -> ClaimRequest {
    ClaimRequest {
        org: ORG,
        worker: WorkerId::fresh(),
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_secs(30),
        only: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_share_a_few_sessions_and_leave_nothing_in_them() {
    many_share("transaction", FEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_has_sessions_of_its_own_and_leaves_nothing_in_them() {
    many_share("session", MANY).await;
}

/// Several stores, each as large as a process's, take turns on the sessions there are, over TCP and by a socket of this machine.
/// Nothing that one has said to a session is there for the next, which is another program of the database's.
async fn many_share(mode: &str, sessions: usize) {
    let pooler = PgBouncer::start(Cluster::shared(), mode, sessions).unwrap();
    let user = Cluster::shared().fresh_user().unwrap();
    let mut stores = Vec::new();
    for n in 0..4 {
        let url = if n % 2 == 0 { pooler.url(&user) } else { pooler.local_url(&user) };
        stores.push(connect(url, PostgresOptions::default()).await.unwrap());
    }
    assert!(stores.iter().all(PostgresStorage::is_held), "row-level security holds for the user");
    let turns = stores.iter().cloned().map(|store| {
        tokio::spawn(async move {
            let mut made = Vec::new();
            for _ in 0..25 {
                let run = store.create_execution(new()).await.unwrap().execution.new.id;
                store.pass().await.unwrap();
                // Another store may have taken the run made here, and be ahead of this one's time with its own by a moment.
                let since = std::time::Instant::now();
                while store.claim_agents(claim()).await.unwrap().is_empty() {
                    assert!(since.elapsed() < Duration::from_secs(20), "a run that waits is not claimed");
                }
                made.push(run);
            }
            made
        })
    });
    let mut made = Vec::new();
    for turn in turns.collect::<Vec<_>>() {
        made.extend(turn.await.unwrap());
    }
    for (n, run) in made.iter().enumerate() {
        assert_eq!(stores[n % stores.len()].execution(ORG, *run).await.unwrap().new.id, *run);
    }
    assert!(stores[0].claim_agents(claim()).await.unwrap().is_empty(), "each was claimed once");

    // Whoever is given the same sessions next: nothing is prepared there, nothing set, no org named.
    let stranger = |statement: &str| {
        let url = pooler.url(&user);
        let told = std::process::Command::new("psql").args(["-X", "-A", "-t", "-c", statement, "-d", &url]).output();
        let told = told.expect("psql is there");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8_lossy(&told.stdout).trim().to_owned()
    };
    for _ in 0..2 * FEW {
        assert_eq!(stranger("SELECT count(*) FROM pg_prepared_statements"), "0");
        assert_eq!(stranger("SHOW enable_seqscan"), "on");
        assert_eq!(stranger("SELECT count(*) FROM agent_execution"), "0");
    }
    stores.iter().for_each(flovyn_core::storage::Storage::close);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pooler_lends_may_be_said() {
    let user = Cluster::shared().fresh_user().unwrap();
    let pooler = PgBouncer::start(Cluster::shared(), "session", ENOUGH).unwrap();
    // One that is kept for as long as the connection is open: statements are prepared as without a pooler.
    let url = format!("{}?pooler=session", pooler.url(&user));
    let store = connect(url, PostgresOptions::default()).await.unwrap();
    let run = store.create_execution(new()).await.unwrap().execution.new.id;
    assert_eq!(store.execution(ORG, run).await.unwrap().new.id, run);
    flovyn_core::storage::Storage::close(&store);
    let wrong = connect(format!("{}?pooler=often", pooler.url(&user)), PostgresOptions::default()).await;
    let wrong = wrong.expect_err("nobody lends so");
    assert!(wrong.code() == Code::InvalidArgument && wrong.message().contains("pooler=session"), "{wrong}");
    // It says of itself what it is, where the pooler does not show.
    let direct = Cluster::shared().fresh().unwrap();
    let store = connect(format!("{direct}&pooler=transaction"), PostgresOptions::default()).await.unwrap();
    let run = store.create_execution(new()).await.unwrap().execution.new.id;
    assert_eq!(store.execution(ORG, run).await.unwrap().new.id, run);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_refused_in_words() {
    let user = Cluster::shared().fresh_user().unwrap();
    let pooler = PgBouncer::start(Cluster::shared(), "statement", ENOUGH).unwrap();
    let refused = connect(pooler.url(&user), PostgresOptions::default()).await.unwrap_err();
    assert!(
        refused.code() == Code::InvalidArgument && refused.message().contains("pool_mode = transaction"),
        "{refused}"
    );
    let pooler = PgBouncer::start(Cluster::shared(), "transaction", FEW).unwrap();
    let options = format!("{}?options=-csearch_path%3Druns", pooler.url(&user));
    let refused = connect(options, PostgresOptions::default()).await.unwrap_err();
    assert!(
        refused.code() == Code::InvalidArgument && refused.message().contains("leave it out of the URL"),
        "{refused}"
    );
}
