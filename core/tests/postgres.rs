//! What is PostgreSQL's own: several processes on one database, groups, schema versions, index plans, a server that goes away.

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OrgId, RequestId, WorkerId};
use flovyn_core::model::{
    Batch, BatchEnd, CancelMode, Cancellation, Claim, CommitRequest, EventKind, ExecutionFilter, Label, LabelKey,
    NewExecution, NewOp, OpBody, OpKind, PageRequest, Status, Wait, child_signal,
};
use flovyn_core::payload::{Digest, Payload};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::storage::{AgentStorage, Catalog, ClaimRequest, Storage, WorkSource};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;

fn connect(url: &str) -> flovyn_core::Result<PostgresStorage> {
    PostgresStorage::connect(url, PostgresOptions::default())
}

fn start() -> NewExecution {
    NewExecution::new(ExecutionId::fresh(), "agent", Payload::of(&"input").unwrap()).unwrap()
}

fn claim(limit: usize) -> ClaimRequest {
    ClaimRequest {
        org: OrgId::DEFAULT,
        worker: WorkerId::fresh(),
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit,
        ttl: Duration::from_secs(30),
        only: None,
    }
}

#[test]
fn a_newer_schema_and_foreign_tables_are_refused() {
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    connect(&url).unwrap().close();
    connect(&url).unwrap().close();
    cluster.sql("postgres", &format!("INSERT INTO {schema}.flovyn_schema VALUES (99)")).unwrap();
    assert_eq!(connect(&url).unwrap_err().code(), Code::SchemaTooNew);

    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    cluster.sql("postgres", &format!("CREATE TABLE {schema}.agent_execution (theirs INT)")).unwrap();
    assert!(connect(&url).is_err());
}

/// The schema as one text, told by the catalog of a database: tables by name, each with its columns, keys and indexes.
const DESCRIBED: &str = "
    SELECT format(E'CREATE TABLE %I (\\n%s\\n)%s;\\n%s', relname, inside, with_options, beside) FROM (
        SELECT relname, coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '') AS with_options,
            (SELECT string_agg('    ' || line, E',\\n' ORDER BY part, at, line) FROM (
                SELECT 0 AS part, attnum AS at, concat_ws(' ', quote_ident(attname), format_type(atttypid, atttypmod),
                    CASE WHEN attcollation NOT IN (0, 100) THEN
                        'COLLATE ' || (SELECT quote_ident(collname) FROM pg_collation c WHERE c.oid = attcollation) END,
                    CASE WHEN attnotnull THEN 'NOT NULL' END,
                    CASE WHEN attidentity = 'a' THEN 'GENERATED ALWAYS AS IDENTITY' END,
                    'DEFAULT ' || (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
                        WHERE adrelid = attrelid AND adnum = attnum)) AS line
                FROM pg_attribute WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped
                UNION ALL
                SELECT 1, 0, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = t.oid AND contype <> 'n'
            ) lines) AS inside,
            coalesce((SELECT string_agg(pg_get_indexdef(indexrelid), E';\\n' ORDER BY indexrelid::regclass::text) || E';\\n'
                FROM pg_index i WHERE indrelid = t.oid
                    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u'))), '')
            || CASE WHEN relforcerowsecurity THEN format(E'ALTER TABLE %I FORCE ROW LEVEL SECURITY;\\n', relname) ELSE '' END
            AS beside
        FROM pg_class t WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
    ) tables ORDER BY relname";

#[test]
fn the_schema_file_equals_the_migrations() {
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    connect(&url).unwrap().close();
    let told = cluster.sql("postgres", &format!("SET search_path = {schema}; {DESCRIBED}")).unwrap();
    let told = told.replace(&format!("{schema}."), "");
    let made = format!("-- Generated from the migrations; `FLOVYN_BLESS=1 cargo test` writes it.\n\n{}\n", told.trim());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/storage/postgres/schema.sql");
    if std::env::var_os("FLOVYN_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), made);
}

#[test]
fn wrong_urls_are_told_apart() {
    for (url, code) in [
        ("postgres://", Code::InvalidArgument),
        ("postgres://host:x/db", Code::InvalidArgument),
        ("postgres://%2Fnowhere/db", Code::StorageUnavailable),
    ] {
        assert_eq!(connect(url).unwrap_err().code(), code, "{url}");
    }
    let options = PostgresOptions { ca: Some("/nowhere/ca.pem".into()), ..PostgresOptions::default() };
    let untrusted = PostgresStorage::connect("postgres://host/db?sslmode=verify-full", options).unwrap_err();
    assert!(
        untrusted.code() == Code::InvalidArgument && untrusted.message().contains("/nowhere/ca.pem"),
        "{untrusted}"
    );
    let missing = connect(&Cluster::shared().url("nobody_made_this")).unwrap_err();
    assert_eq!(missing.code(), Code::StorageUnavailable);
    assert!(missing.message().contains("nobody_made_this"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_openings_migrate_a_database_once() {
    let url = Cluster::shared().fresh().unwrap();
    let opening = (0..4).map(|_| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || connect(&url))
    });
    for opened in futures::future::join_all(opening).await {
        opened.unwrap().unwrap();
    }
}

/// What one process writes rings the other's bell, and each run is claimed once.
#[tokio::test(flavor = "multi_thread")]
async fn processes_share_the_work() {
    let url = Cluster::shared().fresh().unwrap();
    let (one, other) = (connect(&url).unwrap(), connect(&url).unwrap());
    let mut bell = other.hints().agents();
    // The first look of the other must not be the news.
    tokio::time::timeout(Duration::from_secs(20), async {
        let started = start();
        one.create_execution(started.clone()).await.unwrap();
        bell.changed().await;
    })
    .await
    .expect("the bell rings");
    for _ in 0..40 {
        one.create_execution(start()).await.unwrap();
    }
    let mut claimed = Vec::new();
    loop {
        let (a, b) = tokio::join!(one.claim_agents(claim(3)), other.claim_agents(claim(5)));
        let (a, b) = (a.unwrap(), b.unwrap());
        if a.is_empty() && b.is_empty() {
            break;
        }
        claimed.extend(a.into_iter().chain(b).map(|claim| claim.execution.new.id));
    }
    let count = claimed.len();
    claimed.sort();
    claimed.dedup();
    assert_eq!((count, claimed.len()), (41, 41));
}

/// Takes so many steps.
struct Walker;

#[async_trait]
impl AgentDefinition for Walker {
    type State = ();
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "walker"
    }

    async fn execute(&self, ctx: &dyn AgentContext, steps: u64) -> flovyn_core::Result<u64> {
        for n in 0..steps {
            ctx.run("step", async move { Ok(n) })?.await?;
        }
        Ok(steps)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_reads_no_more_when_many_went_before_it() {
    const STEPS: u64 = 400;
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    let runtime = Runtime::open(&url).await.unwrap();
    let host = NativeHost::default().agent(Walker).unwrap();
    let _worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let run = runtime.client().start("walker", Payload::of(&STEPS).unwrap(), StartOptions::default()).await.unwrap();
    run.outcome(Some(Duration::from_secs(60))).await.unwrap();
    runtime.close().await.unwrap();
    let read = format!(
        "SELECT pg_stat_force_next_flush(); SELECT sum(idx_tup_read) FROM pg_stat_user_indexes \
         WHERE schemaname = '{schema}' AND relname = 'event'"
    );
    // What closed connections have read is counted a moment later.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let read: u64 = cluster.sql("postgres", &read).unwrap().trim().parse().unwrap();
    assert!((STEPS..STEPS * 20).contains(&read), "{read} index entries of events were read in {STEPS} steps");
}

/// Commands that share a transaction: those that are refused leave the others alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_command_leaves_its_neighbours_alone() {
    let url = Cluster::shared().fresh().unwrap();
    let options = PostgresOptions { committers: 1, ..PostgresOptions::default() };
    let storage = PostgresStorage::connect(&url, options).unwrap();
    let taken = start();
    storage.create_execution(taken.clone()).await.unwrap();
    let all = (0..60).map(|n| {
        let storage = storage.clone();
        // Every third is the taken id with another input, every third names a text that no column can hold.
        let mut new = start();
        match n % 3 {
            0 => {
                new = NewExecution::new(taken.id, "agent", Payload::of(&n).unwrap()).unwrap();
            }
            1 => new.key = Some("a\0b".into()),
            _ => {}
        }
        let id = new.id;
        tokio::spawn(async move { (n, id, storage.create_execution(new).await.map_err(|error| error.code())) })
    });
    for done in futures::future::join_all(all).await {
        let (n, id, result) = done.unwrap();
        match n % 3 {
            0 => assert_eq!(result.unwrap_err(), Code::ExecutionExists),
            1 => assert_eq!(result.unwrap_err(), Code::InvalidArgument),
            _ => {
                assert!(!result.unwrap().existing);
                assert_eq!(storage.execution(OrgId::DEFAULT, id).await.unwrap().new.id, id);
            }
        }
    }
}

/// A server that goes away and comes back costs its callers an error that may be retried, and no acknowledged run.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_loses_nothing() {
    let cluster = Cluster::start("").unwrap();
    let storage = connect(&cluster.fresh().unwrap()).unwrap();
    let mut kept = Vec::new();
    for _ in 0..20 {
        kept.push(storage.create_execution(start()).await.unwrap().execution.new.id);
    }
    cluster.crash_and_restart().unwrap();
    let new = start();
    let mut tries = 0;
    let again = loop {
        match storage.create_execution(new.clone()).await {
            Ok(created) => break created,
            Err(error) if error.is_retryable() && tries < 50 => tries += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(again.execution.new.id, new.id);
    for id in kept {
        assert_eq!(storage.execution(OrgId::DEFAULT, id).await.unwrap().new.id, id);
    }
}

/// A session of whoever owns the tables, and what it sees of them.
struct Session<'a>(&'a Cluster, &'a str);

impl Session<'_> {
    fn sees(&self, named: &str, statement: &str) -> std::io::Result<String> {
        let named = if named.is_empty() { String::new() } else { format!("SET flovyn.org = '{named}';") };
        self.0.sql("postgres", &format!("SET ROLE tenant; SET search_path = {}; {named} {statement}", self.1))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_sees_the_org_it_names_and_nothing_without() {
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    let storage = connect(&url).unwrap();
    let (own, other) = (OrgId::DEFAULT, OrgId::fresh());
    for org in [own, own, other] {
        storage.create_execution(NewExecution { org, ..start() }).await.unwrap();
    }
    let session = Session(cluster, schema);
    let count = "SELECT count(*) FROM agent_execution";
    assert_eq!(session.sees("", count).unwrap(), "0", "a forgotten name shows nothing");
    assert_eq!(session.sees(&own.to_string(), count).unwrap(), "2");
    assert_eq!(session.sees(&other.to_string(), count).unwrap(), "1");
    assert_eq!(session.sees("*", count).unwrap(), "3");
    // What does not name its org in the statement is held to it all the same, also where it writes.
    assert_eq!(session.sees(&other.to_string(), "SELECT count(*) FROM event").unwrap(), "1");
    let all = "WITH gone AS (UPDATE agent_execution SET priority = 7 RETURNING 1) SELECT count(*) FROM gone";
    assert_eq!(session.sees(&other.to_string(), all).unwrap(), "1");
    let forged = format!("INSERT INTO audit (org_id, at, actor, action, subject) VALUES ('{own}', 1, 'a', 'b', 'c')");
    let refused = session.sees(&other.to_string(), &forged).unwrap_err();
    assert!(refused.to_string().contains("row-level security"), "{refused}");

    // No table with rows of orgs is left out.
    let open = cluster.sql(
        "postgres",
        &format!(
            "SELECT string_agg(c.relname, ' ') FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' \
             WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r' \
             AND NOT (c.relrowsecurity AND c.relforcerowsecurity)"
        ),
    );
    assert_eq!(open.unwrap(), "");
    storage.close();
}

/// What the store reads, it reads as the org of the call: a rule of the tables, which each row of a run passes, counts all
/// events that the same connection sees by a statement that names no org.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_reads_for_an_org_sees_no_row_of_another() {
    let cluster = Cluster::shared();
    let url = cluster.fresh().unwrap();
    let schema = url.rsplit("%3D").next().unwrap();
    let storage = connect(&url).unwrap();
    assert!(storage.is_held());
    assert!(!connect(&url.replacen("tenant@", "flovyn@", 1)).unwrap().is_held(), "a superuser passes the wall");
    let (own, other) = (OrgId::fresh(), OrgId::fresh());
    let mut runs = Vec::new();
    for org in [own, own, other, other, other] {
        runs.push((org, storage.create_execution(NewExecution { org, ..start() }).await.unwrap().execution.new.id));
    }
    let told = format!("{schema} sees");
    let counting = format!(
        "CREATE FUNCTION {schema}.tell() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
         RAISE LOG '{told}|%|%|%|', current_setting('flovyn.org'), (SELECT count(*) FROM {schema}.event), \
         (SELECT string_agg(DISTINCT org_id::text, ' ') FROM {schema}.event); RETURN true; END $$; \
         CREATE POLICY tells ON {schema}.agent_execution AS RESTRICTIVE USING ({schema}.tell())"
    );
    cluster.sql("postgres", &counting).unwrap();
    // What was told since so many lines: the org that the session named, how many events it saw, and whose.
    let since = |lines: usize| {
        let log = cluster.log().unwrap();
        let all = log.lines().filter(|line| line.contains(&told)).skip(lines);
        all.map(|line| line.split('|').skip(1).take(3).map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let mut lines = 0;
    for (org, id) in [runs[0], runs[4]] {
        let (run, seen) = (id, org.to_string());
        let events = if org == own { "2" } else { "3" };
        for call in 0..10 {
            let (filter, page) = (ExecutionFilter::default(), PageRequest::default);
            let rows = match call {
                0 => storage.execution(org, run).await.map(|_| 1),
                1 => storage.executions(org, filter, page()).await.map(|page| page.items.len()),
                2 => storage.entries(org, run, page()).await.map(|page| page.items.len()),
                3 => storage.tasks(org, run, page()).await.map(|page| page.items.len()),
                4 => storage.checkpoints(org, run, page()).await.map(|page| page.items.len()),
                5 => storage.signals(org, run, page()).await.map(|page| page.items.len()),
                6 => storage.events(org, run, 0, 9).await.map(|events| events.len()),
                7 => storage.journal(org, run, 0).await.map(|ops| ops.len()),
                8 => storage.facts_after(org, run, 0).await.map(|facts| facts.0.len()),
                _ => storage.queues(org).await.map(|loads| loads.len()),
            };
            rows.unwrap();
            let tellings = since(lines);
            assert!(!tellings.is_empty(), "call {call} reads runs");
            for telling in &tellings {
                assert_eq!(telling[..], [&seen[..], events, &seen[..]], "call {call} of {seen}");
            }
            lines += tellings.len();
        }
        // By the id of another's run it finds none.
        let (_, foreign) = *runs.iter().find(|(of, _)| *of != org).unwrap();
        assert_eq!(storage.execution(org, foreign).await.unwrap_err().code(), Code::ExecutionNotFound);
        lines = since(0).len();
    }
    // The counter counts what a session that names everybody sees.
    let all = cluster.sql("postgres", &format!("SET ROLE tenant; SET flovyn.org = '*'; SELECT {schema}.tell()"));
    assert_eq!(all.unwrap(), "t");
    assert_eq!(since(lines).pop().map(|telling| telling[1].clone()).as_deref(), Some("5"));
    storage.close();
}

/// A door in front of a socket that speaks PostgreSQL's way of asking for TLS, then TLS, as a server with `ssl = on` does.
async fn encrypting(socket: std::path::PathBuf, cert: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(cert.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(std::sync::Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let (acceptor, socket) = (acceptor.clone(), socket.clone());
            tokio::spawn(async move {
                let mut asked = [0; 8];
                tcp.read_exact(&mut asked).await.ok()?;
                assert_eq!(asked, [0, 0, 0, 8, 4, 210, 22, 47], "it asks for TLS before all else");
                tcp.write_all(b"S").await.ok()?;
                let mut tls = acceptor.accept(tcp).await.ok()?;
                let mut behind = tokio::net::UnixStream::connect(socket).await.ok()?;
                tokio::io::copy_bidirectional(&mut tls, &mut behind).await.ok()
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_reached_encrypted_by_those_who_trust_it() {
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap());
    let file = |name: &str, cert: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        let file = folder.path().join(name);
        std::fs::write(&file, cert.cert.pem()).unwrap();
        file
    };
    let (trusted, stranger) = (file("own.pem", &own), file("other.pem", &other));
    let url = Cluster::shared().fresh().unwrap();
    let (socket, options) = url.split_once('@').unwrap().1.split_once('/').unwrap();
    let port = encrypting(format!("{}/.s.PGSQL.5432", socket.replace("%2F", "/")).into(), &own).await;
    let connect = async |host: &str, mode: &str, ca: &std::path::Path| {
        let url = format!("postgres://tenant@{host}:{port}/{options}&sslmode={mode}");
        let options = PostgresOptions { ca: Some(ca.to_owned()), ..PostgresOptions::default() };
        tokio::task::spawn_blocking(move || PostgresStorage::connect(&url, options)).await.unwrap()
    };
    for mode in ["require", "verify-full"] {
        let storage = connect("localhost", mode, &trusted).await.unwrap();
        let created = storage.create_execution(start()).await.unwrap();
        let id = created.execution.new.id;
        assert_eq!(storage.execution(OrgId::DEFAULT, id).await.unwrap().new.id, id);
        storage.close();
        assert_eq!(connect("localhost", mode, &stranger).await.unwrap_err().code(), Code::StorageUnavailable);
        assert!(connect("127.0.0.1", mode, &trusted).await.is_err(), "the certificate is of localhost");
    }
}

fn request(claim: &Claim, base: u64, batch: Batch) -> CommitRequest {
    CommitRequest {
        org: OrgId::DEFAULT,
        execution: claim.execution.new.id,
        lease: claim.lease,
        request_id: RequestId::fresh(),
        digest: Digest::default(),
        base,
        known: claim.high,
        batch,
        refused: Vec::new(),
        local: None,
    }
}

/// The first commit of a run: so many children are born.
fn born(children: usize) -> Batch {
    let child = |sequence: usize| NewOp {
        sequence: sequence as u32,
        once: None,
        label: Label { kind: OpKind::Child, name: "agent".into(), key: LabelKey::Digest(Digest::default()) },
        seen: vec![],
        body: OpBody::Child(Box::new(start())),
    };
    Batch::new(0, (0..children).map(child).collect(), BatchEnd::Continue)
}

/// A parent and its children end in the same moment, in two processes: no transaction waits for another in a circle.
#[tokio::test(flavor = "multi_thread")]
async fn a_family_that_ends_at_once_locks_in_one_order() {
    const CHILDREN: usize = 200;
    let cluster = Cluster::shared();
    cluster.sql("postgres", "CREATE DATABASE ends_at_once").unwrap();
    let url = cluster.url("ends_at_once");
    let stores = [connect(&url).unwrap(), connect(&url).unwrap()];
    for round in 0..3 {
        stores[0].create_execution(start()).await.unwrap();
        let parent = stores[0].claim_agents(claim(1)).await.unwrap().remove(0);
        stores[0].commit(request(&parent, 0, born(CHILDREN))).await.unwrap();
        let children = stores[0].claim_agents(claim(CHILDREN)).await.unwrap();
        assert_eq!(children.len(), CHILDREN, "round {round}");
        let ends = children.iter().map(|child| (child, 0)).chain([(&parent, 1)]);
        let ends = ends.enumerate().map(|(at, (claim, base))| {
            let end = Batch::new(0, vec![], BatchEnd::Complete(Payload::null()));
            stores[at % 2].commit(request(claim, base, end))
        });
        for ended in futures::future::join_all(ends).await {
            // A child that its parent has taken along first has lost its lease only if it was ended.
            ended.map(drop).or_else(|error| if error.code() == Code::LeaseLost { Ok(()) } else { Err(error) }).unwrap();
        }
    }
    stores.into_iter().for_each(|store| store.close());
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'ends_at_once'";
    assert_eq!(cluster.sql("postgres", deadlocks).unwrap().trim(), "0");
}

/// The ends of one family share transactions: each is told the parent once, also beside commits of the parent itself and
/// ends that are refused.
#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_a_family_are_told_together() {
    const CHILDREN: usize = 150;
    let storage = Arc::new(connect(&Cluster::shared().fresh().unwrap()).unwrap());
    let parent = storage.create_execution(start()).await.unwrap().execution.new.id;
    let parent_claim = storage.claim_agents(claim(1)).await.unwrap().remove(0);
    assert_eq!(parent_claim.execution.new.id, parent);
    storage.commit(request(&parent_claim, 0, born(CHILDREN))).await.unwrap();
    let children = storage.claim_agents(claim(CHILDREN)).await.unwrap();
    assert_eq!(children.len(), CHILDREN);
    let end = |child: &Claim, base| {
        let store = storage.clone();
        let output = Payload::json(format!("\"{}\"", child.execution.new.id));
        let end = request(child, base, Batch::new(0, vec![], BatchEnd::Complete(output)));
        async move { store.commit(end).await }
    };
    // Every third child's end is sent once more under a base that it does not have.
    let ends = children.iter().enumerate().flat_map(|(at, child)| {
        let wrong = (at % 3 == 0).then(|| (end(child, 7), false));
        wrong.into_iter().chain([(end(child, 0), true)])
    });
    let own = async {
        let mut number = 1;
        for _ in 0..20 {
            number = storage.commit(request(&parent_claim, number, born(0))).await.unwrap().number;
        }
    };
    let ends = join_all(ends.map(|(end, counts)| async move { (end.await.is_ok(), counts) }));
    let (ended, ()) = tokio::join!(ends, own);
    assert!(ended.iter().all(|(ok, counts)| ok == counts));
    let page = PageRequest { limit: 1_000, after: None };
    let told = storage.signals(OrgId::DEFAULT, parent, page).await.unwrap().items;
    let mut names: Vec<_> = told.iter().map(|signal| signal.name.clone()).collect();
    names.sort_unstable();
    let mut wanted: Vec<_> = children.iter().map(|child| child_signal(child.execution.new.id)).collect();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    let events = storage.events(OrgId::DEFAULT, parent, 0, 1_000).await.unwrap();
    let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::Signal).count(), CHILDREN);
    for child in &children {
        assert_eq!(storage.execution(OrgId::DEFAULT, child.execution.new.id).await.unwrap().status, Status::Completed);
    }
}

/// A family is stopped by one process while another one lets its runs start more runs and end: none of them goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_family_that_grows_is_stopped_whole() {
    const CHILDREN: usize = 60;
    let cluster = Cluster::shared();
    cluster.sql("postgres", "CREATE DATABASE stopped_whole").unwrap();
    let url = cluster.url("stopped_whole");
    let stores = [connect(&url).unwrap(), connect(&url).unwrap()];
    for how in [CancelMode::Graceful, CancelMode::Hard, CancelMode::Graceful, CancelMode::Hard] {
        stores[0].create_execution(start()).await.unwrap();
        let parent = stores[0].claim_agents(claim(1)).await.unwrap().remove(0);
        stores[0].commit(request(&parent, 0, born(CHILDREN))).await.unwrap();
        let children = stores[0].claim_agents(claim(CHILDREN)).await.unwrap();
        let work = children.iter().enumerate().map(|(at, child)| {
            let (grow, end) = (born(2), Batch::new(0, vec![], BatchEnd::Complete(Payload::null())));
            let batch = if at % 3 == 0 { end } else { grow };
            stores[0].commit(request(child, 0, batch))
        });
        let cancellation = Cancellation { mode: how, ..Cancellation::USUAL };
        let stop = stores[1].request_cancel(OrgId::DEFAULT, parent.execution.new.id, cancellation);
        let (worked, stopped) = futures::future::join(futures::future::join_all(work), stop).await;
        stopped.unwrap();
        for answer in worked {
            let gone = |error: &flovyn_core::Error| matches!(error.code(), Code::LeaseLost | Code::ExecutionClosed);
            assert!(answer.as_ref().err().is_none_or(gone), "{answer:?}");
        }
        let open = |more: &str| {
            let sql = format!("SELECT count(*) FROM agent_execution WHERE ended_at IS NULL {more}");
            cluster.sql("stopped_whole", &sql).unwrap().trim().to_owned()
        };
        // Those that a worker holds tidy up; what they start then ends with them.
        assert_eq!(open("AND depth < 2 AND cancel_mode IS NULL"), "0");
        if how == CancelMode::Graceful {
            let at_once = Cancellation { mode: CancelMode::Hard, ..Cancellation::USUAL };
            stores[1].request_cancel(OrgId::DEFAULT, parent.execution.new.id, at_once).await.unwrap();
        }
        assert_eq!(open(""), "0");
    }
    stores.into_iter().for_each(|store| store.close());
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'stopped_whole'";
    assert_eq!(cluster.sql("postgres", deadlocks).unwrap().trim(), "0");
}

/// What the transaction that stops a family of so many runs sends to the database: asked gracefully, then at once. A third of the
/// runs works, a third waits, and nobody has claimed the others.
async fn statements_of_stops(database: &str, runs: usize) -> [Vec<String>; 2] {
    let cluster = Cluster::shared();
    cluster.sql("postgres", &format!("CREATE DATABASE {database}")).unwrap();
    cluster.sql("postgres", &format!("ALTER DATABASE {database} SET log_statement = 'all'")).unwrap();
    let store = connect(&cluster.url(database)).unwrap();
    let top = store.create_execution(start()).await.unwrap().execution.new.id;
    let parent = store.claim_agents(claim(1)).await.unwrap().remove(0);
    let claimed = (runs - 1) / 3 * 2;
    store.commit(request(&parent, 0, born(claimed))).await.unwrap();
    let mut children = Vec::new();
    while children.len() < claimed {
        children.extend(store.claim_agents(claim(100)).await.unwrap());
    }
    store.commit(request(&children[0], 0, born(runs - 1 - claimed))).await.unwrap();
    let wait = Wait { signals: vec!["never".into()], ..Wait::default() };
    let waits = children[1..].iter().step_by(2);
    let waits = waits.map(|child| request(child, 0, Batch::new(0, vec![], BatchEnd::Suspend(wait.clone()))));
    for answer in join_all(waits.map(|request| store.commit(request))).await {
        answer.unwrap();
    }
    let mut told = [CancelMode::Graceful, CancelMode::Hard].map(|mode| (mode, Vec::new()));
    for (mode, sent) in &mut told {
        let before = cluster.log().unwrap().len();
        store.request_cancel(OrgId::DEFAULT, top, Cancellation { mode: *mode, ..Cancellation::USUAL }).await.unwrap();
        let log = cluster.log().unwrap();
        let lines: Vec<&str> = log[before..].lines().collect();
        // Others ask this server too. The session is the one that reads all below the run.
        let session = |line: &str| line.split_once('[')?.1.split_once(']').map(|(session, _)| format!("[{session}]"));
        let found = lines.iter().find(|line| line.contains("WITH RECURSIVE down")).expect("it reads what is below");
        let session = session(found).expect("a line names its session");
        let is_sent = |line: &&&str| line.contains("LOG:  execute") || line.contains("LOG:  statement");
        let of_session = lines.iter().filter(|line| line.contains(&session)).filter(is_sent);
        sent.extend(of_session.map(|line| line.split_once("LOG:  ").map_or(*line, |(_, text)| text).to_owned()));
    }
    let open = cluster.sql(database, "SELECT count(*) FROM agent_execution WHERE ended_at IS NULL").unwrap();
    let all = cluster.sql(database, "SELECT count(*) FROM agent_execution").unwrap();
    assert_eq!((open.trim(), all.trim()), ("0", runs.to_string().as_str()));
    store.close();
    told.map(|(_, sent)| sent)
}

/// A request to stop goes down the tree in statements for all runs together: ten times as many runs are stopped by as many
/// statements.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_a_large_family_sends_no_more_statements() {
    let few = statements_of_stops("stops_few", 50).await;
    let many = statements_of_stops("stops_many", 500).await;
    for (few, many) in few.iter().zip(&many) {
        println!("{} statements", few.len());
        assert_eq!(few.len(), many.len(), "{few:#?} {many:#?}");
        assert!((5..=20).contains(&few.len()), "{few:#?}");
    }
}
