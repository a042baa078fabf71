//! A hundred tool calls, a conversation of more than 200,000 tokens, and a worker that is killed with SIGKILL again and again:
//! the run ends as if nobody had killed anything, and stores each word once.
//!
//! `SCALE=n` does it n times with other moments of death; `SEED=n` repeats one sequence of them.

mod evidence;
mod plan;
mod worker;
#[path = "../worker_process/mod.rs"]
mod worker_process;

use evidence::{Asked, Requests};
use flovyn_toolkit::fake_llm::FakeLlm;
use flovyn_toolkit::react::{RunOutcome, StopReason};
use plan::CALLS;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use worker::Load;
use worker_process::{WorkerProcess, wait_for};

/// Deaths in the course of the run, evenly among its calls, one of them in its middle.
const DEATHS: usize = 19;
/// After so many deaths the next process dies soon after it has begun.
const BRIEF: usize = 3;
/// Within a turn a process may die at any moment: about how long one takes.
const TURN: Duration = Duration::from_millis(150);
/// The conversation that the model is sent last, in tokens.
const TOKENS: u64 = 200_000;

/// A run with its deaths, and what is left of it.
struct Killed {
    folder: TempDir,
    fake: FakeLlm,
    outcome: RunOutcome,
    kills: usize,
    /// Bytes that were stored in the middle, after so many calls of the model.
    half: (u64, u64),
}

/// Processes over a folder, one after the other.
struct Lives<'a> {
    folder: &'a Path,
    url: String,
    begun: usize,
}

impl Lives<'_> {
    fn begin(&mut self) -> WorkerProcess {
        worker::tell(self.folder, &self.url, self.begun);
        self.begun += 1;
        WorkerProcess::start("worker::process", self.folder)
    }
}

impl Killed {
    fn run(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        plan::prepare(&folder.path().join("work"));
        let fake = FakeLlm::start(plan::script()).expect("a server");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut soon = |after: Duration| std::thread::sleep(after + TURN.mul_f64(random.f64()));
        let mut lives = Lives { folder: folder.path(), url: fake.url(), begun: 0 };
        let mut process = lives.begin();
        let mut half = None;
        for death in 1..=DEATHS {
            let calls = CALLS * death / (DEATHS + 1);
            wait_for(&format!("the answer {calls}"), || {
                assert!(!process.has_ended(), "seed {seed}: the worker ended by itself");
                fake.paid() >= calls
            });
            soon(Duration::ZERO);
            process.kill();
            if death % BRIEF == 0 {
                let brief = lives.begin();
                soon(Duration::from_millis(20));
                brief.kill();
            }
            if calls == CALLS / 2 {
                half = Some((fake.paid() as u64, evidence::stored_bytes(folder.path())));
            }
            process = lives.begin();
        }
        let outcome = process.result();
        let kills = lives.begun - 1;
        Self { fake, outcome, kills, half: half.expect("one death is in the middle"), folder }
    }
}

#[test]
fn a_long_run_survives_its_workers() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SCALE").unwrap_or(1),
    };
    for seed in seeds {
        let begun = Instant::now();
        let killed = Killed::run(seed);
        let took = begun.elapsed();
        let evidence = judge(&killed);
        println!("long run, seed {seed}: {} kills in {:.1} s; {evidence}", killed.kills, took.as_secs_f64());
    }
}

/// Everything that has to hold of a run; what is worth telling of it.
fn judge(killed: &Killed) -> String {
    let (folder, turns) = (killed.folder.path(), CALLS as u64 + 1);
    assert_eq!((killed.outcome.stop_reason, killed.outcome.text.as_str()), (StopReason::End, "All is done."));
    assert_eq!(u64::from(killed.outcome.turns), turns);
    assert!(killed.kills >= 15, "{} kills", killed.kills);

    let loads = Load::all(folder);
    let requests = Requests::of(&killed.fake);
    requests.go_on_where_they_were(turns, &loads);
    let told = requests.told_last();
    assert!(told > TOKENS, "the conversation has {told} tokens");
    let (lost, cut) = (requests.count(Asked::Lost), requests.count(Asked::Cut));
    assert_eq!(killed.fake.paid() as u64, turns + lost as u64, "calls that were paid");

    let interrupted = evidence::effects(folder);
    assert!(interrupted <= killed.kills, "{interrupted} commands were interrupted by {} deaths", killed.kills);
    let (ops, bytes) = evidence::recoveries_are_short(&loads);

    let ((asked, half), whole) = (killed.half, evidence::stored_bytes(folder));
    let growth = whole as f64 / half as f64;
    let calls = turns as f64 / asked as f64;
    assert!(growth < 1.1 * calls, "{half} bytes after {asked} calls of the model, {whole} after {turns}");
    format!(
        "{turns} model calls were kept, {cut} cut and {lost} lost with their process; {interrupted} commands interrupted; \
         {told} tokens; {half} bytes stored after {asked} calls, {whole} at the end; recoveries read {ops} ops and {bytes} \
         bytes at most"
    )
}
