//! The machine under random agents, crashes and edits.
//!
//! Thousands of random agents run on a simulated host over the memory backend; their process dies at random commits, answers
//! are lost, waiting copies are dropped, code is edited. Every life must see what earlier lives made durable, in the same
//! order, at the same call sites. `SCALE` multiplies the number of cases; a failure names its seed, and `SEED` runs it alone.

mod beside;
mod budgets;
mod host;
mod parked;
mod patience;
mod program;
mod rng;
mod segments;
mod world;

use super::draft::Most;
use crate::model::{Execution, Status, is_own_signal};
use host::Ev;
use program::{Allow, Program};
use rng::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Crash, Plan, Stats, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs cases from seed 0 on in two threads, or the one of `SEED`; a failure names its seed.
fn cases(count: u64, case: impl Fn(u64) -> Result<Stats, String> + Sync) -> Stats {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..count * number("SCALE").unwrap_or(1),
    };
    let run = |first: u64| {
        let mut total = Stats::default();
        for seed in seeds.clone().skip(first as usize).step_by(2) {
            let result = catch_unwind(AssertUnwindSafe(|| case(seed)));
            match result.unwrap_or_else(|_| Err("it panicked".into())) {
                Ok(stats) => total.add(&stats),
                Err(wrong) => panic!("seed {seed}: {wrong}"),
            }
        }
        total
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let mut total = run(0);
        match other.join() {
            Ok(others) => total.add(&others),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        total
    })
}

fn plan(rng: &mut Rng) -> Plan {
    let mut plan = Plan {
        evict: [0, 0, 50, 100][rng.below(4) as usize],
        lost_answers: [0, 20][rng.below(2) as usize],
        cancel_at: rng.chance(15).then(|| rng.range(1, 80)),
        volatile: rng.chance(50),
        ..Plan::default()
    };
    for _ in 0..rng.range(1, 3) {
        plan.crashes.push_back(match rng.below(4) {
            0 => Crash::Before(rng.range(1, 6)),
            1 => Crash::After(rng.range(1, 6)),
            2 => Crash::Late(rng.range(1, 6)),
            _ => Crash::At(rng.range(1, 90)),
        });
    }
    plan
}

/// One random agent: undisturbed and disturbed.
fn disturbed(seed: u64) -> Result<Stats, String> {
    disturb(seed, |_, _| None)
}

/// The same where commits hold little, and few tasks may be open.
fn limited(seed: u64) -> Result<Stats, String> {
    disturb(seed, |rng, program| {
        let bytes = [1, 40, 1 << 20][rng.below(3) as usize];
        let most = Most { count: rng.range(1, 4) as usize, bytes };
        // Of branches that wait outside of the context nobody knows what they were told when they called.
        let open = if program.hidden || rng.chance(50) { usize::MAX } else { rng.range(1, 3) as usize };
        Some((most, open))
    })
}

fn disturb(seed: u64, limits: impl FnOnce(&mut Rng, &Program) -> Option<(Most, usize)>) -> Result<Stats, String> {
    let mut rng = Rng::new(seed);
    let program = Program::random(&mut rng, Allow::ALL);
    let mut plan = plan(&mut rng);
    plan.limits = limits(&mut rng, &program);
    if program.hidden {
        // Who is told of a stop depends on where it stands, and these branches stand anywhere.
        plan.cancel_at = None;
    }
    let cancelled = plan.cancel_at.is_some();
    let volatile = plan.volatile;
    let mut world = World::new(program.clone(), plan.clone(), seed);
    let told = |wrong: String| format!("{wrong}\n{plan:?}\n{program:?}");
    let execution = world.run().map_err(told)?;
    check(&world, &execution, cancelled).map_err(told)?;
    let mut stats = world.stats.clone();
    // How many are open when a task is called is a matter of time.
    let open = plan.limits.is_none_or(|(_, open)| open == usize::MAX);
    if program.timeless && !cancelled && !volatile && open {
        stats.compared += 1;
        let mut calm = World::new(program.clone(), Plan::default(), seed);
        let undisturbed = calm.run().map_err(told)?;
        compare(&program, (&calm, &undisturbed), (&world, &execution)).map_err(told)?;
        if !program.hidden && execution.status == Status::Completed {
            world.fork().map_err(told)?;
            let fork = world.run().map_err(|wrong| told(format!("as a fork: {wrong}")))?;
            check(&world, &fork, false).map_err(|wrong| told(format!("as a fork: {wrong}")))?;
            let (output, forked) = (output(&undisturbed), output(&fork));
            if output != forked {
                return Err(told(format!("the fork's output is {forked:?} instead of {output:?}")));
            }
            stats.forks += 1;
        }
    }
    Ok(stats)
}

/// What holds at the end of every run.
fn check(world: &World, execution: &Execution, cancelled: bool) -> Result<(), String> {
    match execution.status {
        Status::Completed => {}
        Status::Cancelled if cancelled => {}
        status => return Err(format!("the run ended {status}: {:?}", execution.failure)),
    }
    if let Some(site) = world.restarted_finished.first() {
        return Err(format!("site {site} had finished and was run again"));
    }
    for word in ["diverged", "reworded"] {
        if world.warnings(word) > 0 {
            return Err(format!("nobody edited the code, but the run warns {word:?}:\n{}", world.story()));
        }
    }
    if !cancelled && world.warnings("orphaned") > 0 {
        return Err("ops of a live branch were orphaned".into());
    }
    if let Some(doubled) = world.doubled()? {
        return Err(format!("{doubled} is there twice"));
    }
    check_signals(world, cancelled)
}

/// Every signal was handed over at most once, in order within its name, and exactly those are consumed.
fn check_signals(world: &World, cancelled: bool) -> Result<(), String> {
    let mut handed: Vec<String> = Vec::new();
    for event in world.durable.iter().flatten() {
        match event {
            Ev::Got(_, word) => handed.extend(word.strip_prefix("signal ").map(str::to_owned)),
            Ev::Read(_, word) => {
                let drained = word.strip_prefix("drained ").unwrap_or_default();
                handed.extend(drained.split(',').filter(|word| !word.is_empty()).map(str::to_owned));
            }
            Ev::Call(..) | Ev::Full(_) => {}
        }
    }
    for name in ["p", "q"] {
        let mine: Vec<&String> = handed.iter().filter(|word| word.starts_with(name)).collect();
        if mine.windows(2).any(|two| two[0] >= two[1]) && !world.program.hidden {
            return Err(format!("signals were handed over twice or out of order: {mine:?}"));
        }
    }
    let mut consumed: Vec<String> = world
        .stored_signals()
        .iter()
        .filter(|signal| signal.consumed_by.is_some() && !is_own_signal(&signal.name))
        .map(|signal| host::text(&signal.payload))
        .collect();
    handed.sort();
    consumed.sort();
    if handed != consumed && !cancelled {
        return Err(format!("handed over {handed:?}, consumed {consumed:?}"));
    }
    Ok(())
}

fn output(execution: &Execution) -> Option<String> {
    execution.output.as_ref().map(host::text)
}

fn compare(program: &Program, calm: (&World, &Execution), rough: (&World, &Execution)) -> Result<(), String> {
    if output(calm.1) != output(rough.1) {
        return Err(format!("the output is {:?} instead of {:?}", output(rough.1), output(calm.1)));
    }
    if !program.sequential {
        return Ok(());
    }
    for segment in 0..program.segments.len() as u32 {
        let plain = |world: &World| -> Vec<_> {
            let ops = world.journal(segment).into_iter();
            ops.map(|op| (op.sequence, op.label, op.seen)).collect()
        };
        let (before, after) = (plain(calm.0), plain(rough.0));
        // Outcomes that came together may be handed over in either order.
        let labels = |ops: &[(u32, crate::model::Label, Vec<crate::model::Seen>)]| {
            let mut ops = ops.to_vec();
            for (_, _, seen) in &mut ops {
                seen.sort_unstable();
            }
            ops
        };
        if labels(&before) != labels(&after) {
            return Err(format!("the journal of segment {segment} is\n{after:?}\ninstead of\n{before:?}"));
        }
    }
    Ok(())
}

#[test]
fn random_agents_survive_crashes() {
    let stats = cases(12_000, disturbed);
    println!("{stats:?}");
    if number("SEED").is_none() {
        let enough = [
            (stats.cases, 12_000),
            (stats.crashes, 12_000),
            (stats.reentries, 12_000),
            (stats.replayed, 60_000),
            (stats.resumed, 3_000),
            (stats.races, 6_000),
            (stats.lost_answers, 6_000),
            (stats.late, 3_000),
            (stats.cancels, 900),
            (stats.in_doubt, 300),
            (stats.checkpoints, 3_000),
            (stats.compared, 1_500),
            (stats.failures, 3_000),
            (stats.children, 3_000),
            (stats.sent, 600),
            (stats.handed, 600),
            (stats.forks, 1_200),
        ];
        assert!(enough.iter().all(|(seen, least)| seen >= least), "the cases are too tame: {stats:?}");
    }
}

#[test]
fn limits_change_nothing_but_what_they_limit() {
    let stats = cases(5_000, limited);
    println!("{stats:?}");
    if number("SEED").is_none() {
        let enough = [
            (stats.crashes, 5_000),
            (stats.reentries, 5_000),
            (stats.parts, 31_250),
            (stats.full, 1_875),
            (stats.checkpoints, 1_250),
            (stats.compared, 312),
        ];
        assert!(enough.iter().all(|(seen, least)| seen >= least), "the cases are too tame: {stats:?}");
    }
}

/// A crash, and then another version of the code on the recorded tail.
fn edited(seed: u64) -> Result<Stats, String> {
    let mut rng = Rng::new(seed);
    let allow = Allow {
        identical: false,
        dependent: false,
        timing: false,
        once_only: false,
        segments: false,
        lanes: seed.is_multiple_of(2),
        entries: true,
        more: false,
    };
    let mut program = Program::random(&mut rng, allow);
    program.hidden = false;
    let (edit, suffix, code) = if seed % 5 == 1 {
        // A clock in the prompts: every input differs, the code is the same.
        program.flatten();
        (program.clone(), " at noon".to_owned(), "1")
    } else {
        (program.edit(&mut rng), String::new(), "2")
    };
    let mut plan = Plan { edited: Some((edit.clone(), suffix, code)), ..Plan::default() };
    plan.crashes.push_back(match rng.below(2) {
        0 => Crash::After(rng.range(1, 6)),
        _ => Crash::At(rng.range(1, 60)),
    });
    if rng.chance(30) {
        plan.crashes.push_back(Crash::At(rng.range(1, 60)));
    }
    let told = |wrong: String| format!("{wrong}\n{plan:?}\n{program:?}");
    let mut world = World::new(program.clone(), plan.clone(), seed);
    let execution = world.run().map_err(told)?;
    if execution.status != Status::Completed {
        return Err(told(format!("the run ended {}: {:?}", execution.status, execution.failure)));
    }
    if let Some(site) = world.restarted_finished.first() {
        return Err(told(format!("site {site} had finished and was run again after an edit")));
    }
    if let Some(site) = world.repeated.first() {
        return Err(told(format!("site {site} was recorded and was called anew after an edit")));
    }
    let mut stats = world.stats.clone();
    stats.diverged = (world.warnings("diverged") > 0) as u64;
    stats.compared = (world.warnings("reworded") > 0) as u64;
    Ok(stats)
}

#[test]
fn an_edit_costs_the_edited_step_alone() {
    let stats = cases(4_000, edited);
    println!("{stats:?}");
    if number("SEED").is_none() {
        assert!(stats.diverged > 400 && stats.reentries > 2_000 && stats.compared > 200, "too tame: {stats:?}");
    }
}

#[test]
fn wrong_rules_are_noticed() {
    use super::wrong::{Rule, set};
    for rule in [Rule::LastTwin, Rule::AllAtOnce, Rule::NoSeen, Rule::ByKind, Rule::OnceAgain, Rule::OneLeaf] {
        let noticed = (0..2_000).find(|seed| {
            set(Some(rule));
            let result = catch_unwind(AssertUnwindSafe(|| disturbed(*seed)));
            set(None);
            !matches!(result, Ok(Ok(_)))
        });
        println!("{rule:?} is noticed by seed {noticed:?}");
        assert!(noticed.is_some(), "{rule:?} passes all cases");
    }
}

impl Stats {
    fn add(&mut self, other: &Stats) {
        self.cases += other.cases;
        self.crashes += other.crashes;
        self.reentries += other.reentries;
        self.replayed += other.replayed;
        self.resumed += other.resumed;
        self.races += other.races;
        self.lost_answers += other.lost_answers;
        self.late += other.late;
        self.cancels += other.cancels;
        self.in_doubt += other.in_doubt;
        self.checkpoints += other.checkpoints;
        self.diverged += other.diverged;
        self.compared += other.compared;
        self.parts += other.parts;
        self.full += other.full;
        self.failures += other.failures;
        self.children += other.children;
        self.sent += other.sent;
        self.handed += other.handed;
        self.forks += other.forks;
        self.steps += other.steps;
        self.ticks += other.ticks;
        // Cases come in any order.
        self.trace = self.trace.wrapping_add(other.trace);
    }
}

impl super::Machine {
    /// Whether an op was loaded from the store, or may still turn out to be one that was.
    fn is_recorded(&self, op: super::OpRef) -> bool {
        self.index(op).is_some_and(|index| self.segment.ops[index].is_recorded() || self.segment.ops[index].is_held())
    }

    /// The task of an op.
    fn kind_of(&self, op: super::OpRef) -> Option<crate::model::OpKind> {
        self.index(op).map(|index| self.segment.ops[index].label.kind)
    }

    fn task_of(&self, op: super::OpRef) -> Option<crate::id::TaskId> {
        self.segment.ops[self.index(op)?].task().map(|task| task.id)
    }

    /// Where it stands, for the message of a failed case.
    fn summary(&self) -> String {
        let ops: Vec<String> = self
            .segment
            .ops
            .iter()
            .map(|op| {
                let place = if op.is_held() { "Held".into() } else { format!("{:?}", op.place) };
                let ended = if op.has_durable_end() { " ended" } else { "" };
                let running = if op.is_running_here() { " running" } else { "" };
                format!("  {} {}: {place} {:?}{ended}{running}", op.sequence, op.label, op.awaiting)
            })
            .collect();
        format!(
            "{}\nnext {:?}, held {:?}, awaited {:?}, active {:?}, starting {:?}, quiet {}, in flight {}, {:?}, armed {}",
            ops.join("\n"),
            self.segment.script.next(),
            self.segment.held,
            self.segment.awaited,
            self.segment.active,
            self.segment.starting,
            self.host.quiet,
            self.in_flight.is_some(),
            self.standing,
            self.patience.is_running()
        )
    }
}
