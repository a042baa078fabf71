//! Runs an agent undisturbed, then with every disturbance in turn, and compares.

use super::{CrashPoint, CrashPoints, Ledger, Observed, VirtualClock};
use crate::agent::NativeHost;
use crate::client::{Client, Handle, StartOptions};
use crate::error::{Code, Error, Result};
use crate::id::{OpId, OrgId};
use crate::model::{PageRequest, Persistence, Resolution, Rows, Status, TaskStatus, WaitReason};
use crate::payload::Payload;
use crate::runtime::Runtime;
use crate::storage::Storage;
use crate::storage::guarded::{Call, Gate, Guarded};
use crate::storage::machines::machine_queue;
use crate::storage::memory::MemoryStorage;
use crate::streaming::Chunks;
use crate::sync::Mutex;
use crate::worker::WorkerOptions;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

type Outside = Arc<dyn Fn(Handle) -> BoxFuture<'static, ()> + Send + Sync>;

/// The longest a run may take, in virtual time.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);

/// Processes a run may use up.
const MOST_LIVES: usize = 200;

/// An agent under proof. A task that a crash left in doubt is answered with "run it again", for it did not end. Call [`check`](Self::check) where tokio's time is paused: waiting then costs nothing.
pub struct Harness {
    kind: String,
    input: Payload,
    host: Box<dyn Fn() -> NativeHost + Send + Sync>,
    outside: Option<Outside>,
    ordered: bool,
    by_attempt: bool,
    /// The folder for the files of local runs.
    local: Option<PathBuf>,
}

/// The most runs below the one under proof that are looked at.
const MOST_RUNS: usize = 1_000;

/// What [`Harness::check`] did.
#[derive(Debug, Default, Clone)]
pub struct Proof {
    /// Runs of the agent with all below it, the undisturbed one included.
    pub runs: usize,
    /// Processes that were killed.
    pub crashes: usize,
    /// Answers that were lost.
    pub lost_answers: usize,
    /// Commits of the undisturbed run.
    pub commits: u64,
    /// What the undisturbed run left.
    pub observed: Option<Observed>,
}

/// One run with its disturbances.
struct Plan {
    name: String,
    /// The point of each process in turn; the last one has none.
    points: VecDeque<CrashPoint>,
    /// Whether every further process dies there too.
    repeat: Option<CrashPoint>,
    /// Whether waiting copies are kept in memory.
    parks: bool,
}

impl Harness {
    /// An agent with its input; `host` makes what serves it, once per process.
    pub fn new(kind: &str, input: Payload, host: impl Fn() -> NativeHost + Send + Sync + 'static) -> Self {
        Self {
            kind: kind.to_owned(),
            input,
            host: Box::new(host),
            outside: None,
            ordered: true,
            by_attempt: false,
            local: None,
        }
    }

    /// What happens to the run from outside: runs beside it once, on a connection that never fails.
    #[must_use]
    pub fn outside<F>(mut self, act: impl Fn(Handle) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.outside = Some(Arc::new(move |handle| Box::pin(act(handle))));
        self
    }

    /// The agent's branches may come to their turns in another order after a crash: what ran together is compared as a set.
    #[must_use]
    pub fn concurrent(mut self) -> Self {
        self.ordered = false;
        self
    }

    /// What a task does depends on the number of its attempt, which counts those lost with their process: how often it
    /// failed is not compared.
    #[must_use]
    pub fn by_attempt(mut self) -> Self {
        self.by_attempt = true;
        self
    }

    /// The run is one with persistence "local": its values are in files of this folder, one for each disturbance.
    #[must_use]
    pub fn local(mut self, folder: impl Into<PathBuf>) -> Self {
        self.local = Some(folder.into());
        self
    }

    /// Proves it, or tells the first difference.
    pub async fn check(&self) -> Result<Proof> {
        let calm = Plan { name: "undisturbed".into(), points: VecDeque::new(), repeat: None, parks: true };
        let (expected, mut proof) = self.run(&calm).await?;
        let commits = proof.commits;
        let family = expected.family.values().map(Vec::len).sum();
        for plan in plans(commits, family) {
            let (observed, part) = self.run(&plan).await?;
            proof.runs += 1;
            proof.crashes += part.crashes;
            proof.lost_answers += part.lost_answers;
            if let Some(difference) = self.compared(expected.clone()).difference(&self.compared(observed)) {
                return Err(different(&plan.name, &difference));
            }
        }
        proof.observed = Some(expected);
        Ok(proof)
    }

    /// What has to be equal.
    fn compared(&self, observed: Observed) -> Observed {
        let observed = if self.by_attempt { observed.whatever_attempt() } else { observed };
        if self.ordered { observed } else { observed.unordered() }
    }

    async fn run(&self, plan: &Plan) -> Result<(Observed, Proof)> {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(VirtualClock::new())));
        let storage = if self.local.is_some() { Arc::new(Guarded::over(storage, Far)) } else { storage };
        // Answers are lost on purpose here.
        storage.hints().outage().close();
        // Time goes on when no process lives.
        let keeper = Runtime::over(storage.clone());
        let client = Client::new(storage.clone(), Chunks::default(), OrgId::DEFAULT);
        let options = StartOptions {
            id: Some("under proof".into()),
            queue: Some(self.worker(plan).queue),
            persistence: self.local.as_ref().map(|_| Persistence::Local),
            ..StartOptions::default()
        };
        let handle = client.start(&self.kind, self.input.clone(), options).await?;
        let outside = self.outside.as_ref().map(|act| tokio::spawn(act(handle.clone())));
        let lived = tokio::time::timeout(LONGEST, self.live(plan, &storage, &handle)).await;
        if let Some(outside) = outside {
            if outside.is_finished() {
                outside.await.map_err(|error| different(&plan.name, &format!("the outside panicked: {error}")))?;
            } else {
                outside.abort();
            }
        }
        let result = match lived {
            Ok(result) => result?,
            Err(_) => {
                let execution = handle.describe().await?;
                let why = format!("the run hangs: {} {:?}", execution.status, execution.wait);
                return Err(different(&plan.name, &why));
            }
        };
        let observed = Observed::of(&client, &handle).await?;
        keeper.close().await?;
        Ok((observed, result))
    }

    /// The options of its processes.
    fn worker(&self, plan: &Plan) -> WorkerOptions {
        let mut options = WorkerOptions::default();
        if !plan.parks {
            options.max_parked = 0;
        }
        if let Some(folder) = &self.local {
            options.queue = machine_queue("under-proof");
            options.values = Some(folder.join(format!("{}.db", plan.name)));
        }
        options
    }

    async fn live(&self, plan: &Plan, storage: &Arc<dyn Storage>, handle: &Handle) -> Result<Proof> {
        let mut proof = Proof { runs: 1, ..Proof::default() };
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let mut points = plan.points.clone();
        let client = Client::new(storage.clone(), Chunks::default(), storage.org());
        for _ in 0..MOST_LIVES {
            let point = points.pop_front().or(plan.repeat);
            let process = Arc::new(CrashPoints::with_ledger(storage.clone(), point, ledger.clone()));
            let runtime = Runtime::over(process.clone());
            let worker = runtime.worker(Arc::new((self.host)()), self.worker(plan)).await?;
            let ended = tokio::select! {
                biased;
                () = process.died() => false,
                outcome = handle.outcome(None) => outcome.map(|_| true)?,
                asked = asked(&client, handle) => return Err(different(&plan.name, &asked?)),
            };
            worker.kill();
            process.die();
            process.release_calls();
            proof.commits += process.commits();
            proof.lost_answers += usize::from(matches!(point, Some(CrashPoint::AnswerLost(_))));
            if ended || handle.status().await?.is_terminal() {
                return match ledger.lock().repeated().first() {
                    Some(step) => Err(different(&plan.name, &format!("step {step} had finished and was done again"))),
                    None => Ok(proof),
                };
            }
            proof.crashes += 1;
            storage.unregister_worker(storage.org(), worker.id()).await?;
        }
        Err(different(&plan.name, &format!("the run has not ended after {MOST_LIVES} processes")))
    }
}

/// Says of a store that its rows are elsewhere.
struct Far;

impl Gate for Far {
    async fn pass<T: Send>(&self, _: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        body.await
    }

    fn rows(&self, _: &dyn Storage) -> Rows {
        Rows::Elsewhere
    }
}

/// Is the person who is asked: a task in doubt did not happen, so it shall run. Ends when the run is paused, which is not
/// for a harness to decide.
async fn asked(client: &Client, root: &Handle) -> Result<String> {
    loop {
        let below = client.storage().descendants(client.org(), root.id(), MOST_RUNS).await?;
        for run in std::iter::once(root.describe().await?).chain(below) {
            let why = run.wait.and_then(|wait| wait.reason);
            if run.status == Status::Paused {
                return Ok(format!("the run {:?} is paused: {why:?} {:?}", run.new.kind, run.failure));
            }
            if why == Some(WaitReason::InDoubt) {
                let handle = client.handle(&run.new.id.to_string()).await?;
                let tasks = handle.tasks(PageRequest::default()).await?.items;
                for task in tasks.iter().filter(|task| task.status == TaskStatus::InDoubt) {
                    let op = OpId { execution: task.execution, slot: task.slot, once: None };
                    handle.resolve(op, Resolution::Retry).await?;
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Every disturbance, one at a time. `below` is how many runs are below the one under proof: a process has to live longer
/// than all of them need to come a step further.
fn plans(commits: u64, below: usize) -> Vec<Plan> {
    let plan = |name: String, point: Option<CrashPoint>| Plan {
        name,
        points: point.into_iter().collect(),
        repeat: None,
        parks: true,
    };
    let mut plans = vec![
        Plan { parks: false, ..plan("re-entered at every suspension".into(), None) },
        Plan { repeat: Some(CrashPoint::Checkpoint), ..plan("re-entered at every checkpoint".into(), None) },
        Plan {
            repeat: Some(CrashPoint::After(4 * (below as u64 + 1))),
            parks: false,
            ..plan("killed after every few commits".into(), None)
        },
    ];
    for n in 1..=commits {
        plans.push(plan(format!("killed before commit {n}"), Some(CrashPoint::Before(n))));
        plans.push(plan(format!("killed after commit {n}"), Some(CrashPoint::After(n))));
        plans.push(plan(format!("the answer of commit {n} lost"), Some(CrashPoint::AnswerLost(n))));
    }
    plans
}

fn different(plan: &str, what: &str) -> Error {
    Error::new(Code::Diverged, format!("{plan}: {what}"))
}
