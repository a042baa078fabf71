//! The kill loop of an installation: three servers over one PostgreSQL and four workers, each a process, killed at random
//! again and again, the database too. Every run ends with what it would have ended with, nothing lost, nothing doubled.
//! Whoever starts runs, sends signals and asks for results does it through the servers: where one does not answer, another is
//! asked the same again.
//!
//! `SCALE=n` makes it n times as long; `SEED=n` repeats a sequence of kills. A program of its own, since its workers are it.

mod house;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::{Client, Outcome, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Delivery, NewKey, TokenHash, fresh_token};
use flovyn_core::runtime::{FlovynClient, Runtime};
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::testing::postgres::Cluster;
use futures::future::try_join_all;
use house::{Serving, serve};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, watch};

const SERVERS: usize = 3;
const WORKERS: usize = 4;
const RUNS: u64 = 24;
/// Signals that each run waits for, and so its turns.
const TURNS: u64 = 12;
/// Kills at scale 1, and how many of 40 are the database's and a server's; the others are a worker's.
const KILLS: usize = 110;
const OF_DATABASE: usize = 1;
const OF_SERVERS: usize = 15;
/// How long the runs may take to end once nothing is killed any more.
const HEAL: Duration = Duration::from_secs(60);

/// Leaves a trace outside of the database: which step of which run starts.
struct Trace;

#[derive(Serialize, Deserialize)]
struct Step {
    run: u64,
    step: u64,
}

#[async_trait]
impl TaskDefinition for Trace {
    type Input = Step;
    type Output = u64;

    fn kind(&self) -> &str {
        "trace"
    }

    async fn execute(&self, _ctx: &TaskContext, Step { run, step }: Step) -> Result<u64> {
        let log = std::env::var_os("STORM_LOG").unwrap_or_default();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        file.and_then(|mut file| file.write_all(format!("{run} {step}\n").as_bytes()))
            .map_err(|error| Error::new(Code::InvalidArgument, format!("the log cannot be written: {error}")))?;
        tokio::time::sleep(Duration::from_millis(3)).await;
        Ok(step)
    }
}

/// Sums what it is told, with a checkpoint every third turn.
struct Sums;

#[derive(Default, Serialize, Deserialize, flovyn_core::agent::AgentState)]
struct Sum {
    turn: u64,
    total: u64,
}

#[async_trait]
impl AgentDefinition for Sums {
    type State = Sum;
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "sums"
    }

    async fn execute(&self, ctx: &dyn AgentContext, run: u64) -> Result<u64> {
        let mut sum: Sum = ctx.state()?;
        while sum.turn < TURNS {
            let told: u64 = ctx.wait_for_signal("number")?.await?;
            for half in 0..2 {
                ctx.schedule_task(&Trace, &Step { run, step: sum.turn * 2 + half })?.await?;
            }
            sum.turn += 1;
            sum.total += told;
            ctx.append_entry("assistant", &sum.turn)?;
            if sum.turn.is_multiple_of(3) {
                ctx.checkpoint(&sum)?.await?;
            }
        }
        Ok(sum.total)
    }
}

/// A worker's process: serves until it is killed.
#[tokio::main]
async fn worker(url: &str) -> Result<()> {
    // Its server may be down for the moment.
    let flovyn = insist(async || FlovynClient::builder().url(url).agent(Sums).task(Trace).build().await).await?;
    let _serving = insist(async || flovyn.worker().await).await?;
    std::future::pending().await
}

/// What can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Database,
    Server,
    Worker,
}

/// So many kills in a random order, of which each victim has its part: the database is killed twice at least.
fn schedule(kills: usize, dice: &mut Dice) -> Vec<Victim> {
    let databases = (kills * OF_DATABASE / 40).max(2);
    let servers = kills * OF_SERVERS / 40;
    let mut all: Vec<_> = (0..kills)
        .map(|n| match n {
            n if n < databases => Victim::Database,
            n if n < databases + servers => Victim::Server,
            _ => Victim::Worker,
        })
        .collect();
    (1..all.len()).for_each(|n| all.swap(n, dice.below(n + 1)));
    all
}

/// A sequence that looks random and can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Everything that runs, each in a process that can be killed.
struct Installation {
    folder: tempfile::TempDir,
    cluster: Cluster,
    token: String,
    ports: Vec<u16>,
    db: String,
    servers: Vec<Serving>,
    workers: Vec<Child>,
}

impl Installation {
    fn start(cluster: Cluster, token: String, db: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let free =
            || std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let ports: Vec<u16> = (0..SERVERS).map(|_| free().port()).collect();
        let servers = ports.iter().map(|port| serve(folder.path(), db, *port)).collect();
        let mut all = Self { folder, cluster, token, ports, db: db.to_owned(), servers, workers: Vec::new() };
        all.workers = (0..WORKERS).map(|n| all.worker(n)).collect();
        all
    }

    fn url(&self, n: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[n % SERVERS])
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("steps.log")
    }

    fn worker(&self, n: usize) -> Child {
        Command::new(std::env::current_exe().expect("this program has a path"))
            .env("STORM_WORKER_OF", self.url(n))
            .env("STORM_LOG", self.log())
            .env("FLOVYN_TOKEN", &self.token)
            .spawn()
            .expect("a worker starts")
    }

    /// Kills one of them and starts another in its place.
    fn strike(&mut self, victim: Victim, dice: &mut Dice) {
        match victim {
            Victim::Database => self.cluster.crash_and_restart().expect("PostgreSQL comes back"),
            Victim::Server => {
                let n = dice.below(SERVERS);
                self.servers[n].end();
                self.servers[n] = serve(self.folder.path(), &self.db, self.ports[n]);
            }
            Victim::Worker => {
                let n = dice.below(WORKERS);
                end(&mut self.workers[n]);
                self.workers[n] = self.worker(n);
            }
        }
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(end);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill().and_then(|()| child.wait());
}

/// Makes the key of all callers, as an operator does before the first server is up.
async fn key(db: &str) -> Result<String> {
    let runtime = Runtime::open(db).await?;
    let token = fresh_token();
    let (name, scopes, actor) = ("storm".to_owned(), "member worker".parse()?, "a test".to_owned());
    let key = NewKey {
        org: OrgId::DEFAULT,
        name,
        scopes,
        expires_in: None,
        not_after: None,
        hash: TokenHash::of(&token),
        actor,
    };
    let directory = runtime.storage().server_side().unwrap();
    directory.create_key(key).await?;
    runtime.close().await?;
    Ok(token)
}

/// Asks again for as long as what is asked cannot be reached.
async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    loop {
        match ask().await {
            Err(error) if error.code() == Code::StorageUnavailable => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            answer => return answer,
        }
    }
}

/// Clients of all servers, as a client of several URLs has them.
struct Servers {
    urls: Vec<String>,
    token: String,
    open: Vec<OnceCell<Runtime>>,
    /// How many calls each has answered, and how often another had to be asked.
    answered: Vec<AtomicUsize>,
    failed_over: AtomicUsize,
}

impl Servers {
    fn new(urls: Vec<String>, token: String) -> Self {
        let (open, answered) = urls.iter().map(|_| (OnceCell::new(), AtomicUsize::new(0))).unzip();
        Self { urls, token, open, answered, failed_over: AtomicUsize::new(0) }
    }

    async fn client(&self, n: usize) -> Result<Client> {
        let connect = async || {
            let options = RemoteOptions { token: Some(self.token.clone()) };
            Ok::<_, Error>(Runtime::over(Arc::new(RemoteStorage::connect(&self.urls[n], options).await?)))
        };
        Ok(self.open[n].get_or_try_init(connect).await?.client())
    }

    /// Asks one server, and where that does not answer the next.
    async fn ask<T>(&self, mut n: usize, ask: impl AsyncFn(Client) -> Result<T>) -> Result<T> {
        loop {
            n = (n + 1) % self.urls.len();
            let answer = async { ask(self.client(n).await?).await }.await;
            match answer {
                Err(error) if error.code() == Code::StorageUnavailable => {
                    self.failed_over.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                answer => {
                    self.answered[n].fetch_add(1, Ordering::Relaxed);
                    return answer;
                }
            }
        }
    }
}

/// What became of a run.
struct Ended {
    outcome: Outcome,
    turns: Vec<u64>,
}

/// Starts a run, sends its signals as the storm goes on, each once however often it must be repeated, and waits for its end.
async fn talk(servers: &Servers, run: u64, mut storm: watch::Receiver<u64>) -> Result<Ended> {
    let input = Payload::of(&run)?;
    let start = async |client: Client| {
        client.start("sums", input.clone(), StartOptions::with_id(format!("sum-{run}"))).await.map(|handle| handle.id())
    };
    let first: ExecutionId = servers.ask(run as usize, start).await?;
    assert_eq!(servers.ask(run as usize + 1, start).await?, first, "run {run} is started once");
    for turn in 0..TURNS {
        // Fails where the storm is over, and then nothing is waited for.
        let _ = storm.wait_for(|part| *part >= turn).await;
        let (number, key) = (Payload::of(&(run * 1_000 + turn))?, format!("turn {turn}"));
        let signal = async |client: Client| {
            let handle = client.handle(&first.to_string()).await?;
            handle.signal("number", number.clone(), Delivery::default(), Some(key.clone())).await
        };
        servers.ask((run + turn) as usize, signal).await?;
    }
    let end = async |client: Client| {
        let handle = client.handle(&first.to_string()).await?;
        let outcome = handle.outcome(None).await?;
        let turns = handle.messages().await?.iter().map(|entry| entry.new.content.parse()).collect::<Result<_>>()?;
        Ok(Ended { outcome, turns })
    };
    servers.ask(run as usize, end).await
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::main]
async fn storm() -> Result<()> {
    let seed = number("SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let kills = KILLS * number("SCALE").unwrap_or(1) as usize;
    println!("storm: SEED={seed}, {kills} kills over {SERVERS} servers, {WORKERS} workers and PostgreSQL");
    let cluster = Cluster::start("").expect("PostgreSQL starts");
    let db = cluster.fresh().expect("a database");
    let token = key(&db).await?;
    let mut installation = Installation::start(cluster, token.clone(), &db);

    let servers = Servers::new((0..SERVERS).map(|n| installation.url(n)).collect(), token);
    // Tells which of its turns the storm has come to: so the runs live through all of it.
    let (tell, storm) = watch::channel(0);
    let striking = tokio::task::spawn_blocking(move || {
        let (mut dice, mut killed, began) = (Dice(seed), BTreeMap::<_, usize>::new(), Instant::now());
        for (n, victim) in schedule(kills, &mut dice).into_iter().enumerate() {
            installation.strike(victim, &mut dice);
            *killed.entry(victim).or_default() += 1;
            tell.send_replace(n as u64 * TURNS / kills as u64);
            std::thread::sleep(Duration::from_millis(20 + dice.below(80) as u64));
        }
        println!("storm: killed {killed:?} in {:.1} s", began.elapsed().as_secs_f64());
        (installation, killed, Instant::now())
    });
    let talking = try_join_all((0..RUNS).map(|run| talk(&servers, run, storm.clone())));
    let (ended, installation, killed, last) = {
        let mut talking = std::pin::pin!(talking);
        let mut striking = std::pin::pin!(striking);
        tokio::select! {
            ended = &mut talking => {
                let (installation, killed, last) = striking.await.expect("the kills end");
                (ended?, installation, killed, last)
            }
            struck = &mut striking => {
                let (installation, killed, last) = struck.expect("the kills end");
                let ended = tokio::time::timeout(HEAL, talking).await.expect("all runs end once nothing is killed");
                (ended?, installation, killed, last)
            }
        }
    };
    println!("storm: all {RUNS} runs ended {:.1} s after the last kill", last.elapsed().as_secs_f64());
    for victim in [Victim::Server, Victim::Worker, Victim::Database] {
        assert!(killed.get(&victim).is_some_and(|times| *times >= 2), "{victim:?}: {killed:?}");
    }
    for (run, Ended { outcome, turns }) in (0..).zip(ended) {
        let Outcome::Completed(output) = outcome else { panic!("run {run} ended with {outcome:?}") };
        let expected: u64 = (0..TURNS).map(|turn| run * 1_000 + turn).sum();
        assert_eq!(output.parse::<u64>()?, expected, "run {run}");
        assert_eq!(turns, (1..=TURNS).collect::<Vec<_>>(), "run {run}");
    }
    println!("storm: the servers answered {:?}, another was asked {:?} times", servers.answered, servers.failed_over);
    assert!(servers.answered.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{:?}", servers.answered);
    let again = repeated(&installation.log());
    println!("storm: {} steps, {again} of them started again, each while it was in flight", RUNS * TURNS * 2);
    Ok(())
}

/// How many starts were repeated; none after the next step of its run had started, for then it was finished.
fn repeated(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).expect("the steps' log");
    let (mut last, mut repeated) = (BTreeMap::<u64, u64>::new(), 0);
    for line in text.lines() {
        let (run, step) = line.split_once(' ').expect("a whole line");
        let (run, step): (u64, u64) = (run.parse().expect("a run"), step.parse().expect("a step"));
        match last.insert(run, step) {
            Some(before) if before == step => repeated += 1,
            before => assert_eq!(step, before.map_or(0, |before| before + 1), "run {run} did a finished step again"),
        }
    }
    assert!(last.len() == RUNS as usize && last.values().all(|step| *step == TURNS * 2 - 1), "{last:?}");
    repeated
}

fn main() -> Result<()> {
    if let Ok(url) = std::env::var("STORM_WORKER_OF") {
        return worker(&url);
    }
    // What the test runner of other programs understands.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let listed = std::env::args().any(|word| word == "--list");
    if listed || (!words.is_empty() && !words.iter().any(|word| "storm".contains(word.as_str()))) {
        return Ok(());
    }
    storm()
}
