//! A simulated host: runs a [`Program`] turn by turn like an event loop, and keeps the log that the checks compare.

use super::program::{Input, Op, Program, Site, Stmt, Trouble};
use super::rng::Rng;
use crate::error::Code;
use crate::id::{ExecutionId, TaskId};
use crate::journal::{
    Answer, Call, ChildCall, ChildOptions, Completion, Ending, Handed, Machine, OnceBegin, OpRef, Outcome, Outside,
    Question,
};
use crate::model::{
    CancelMode, Cancellation, Delivery, MessageBody, Placement, RetryPolicy, SideEffects, TaskOptions, event_signal,
};
use crate::payload::{Digest, Payload};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What the agent's code saw and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ev {
    /// A call that took a slot, with its sequence.
    Call(Site, u32),
    /// A read with its answer.
    Read(Site, String),
    /// An outcome that was handed over.
    Got(Site, String),
    /// A task that found too many open.
    Full(Site),
}

#[derive(Debug)]
enum Need {
    Nothing,
    /// The first of these.
    Any(Vec<(OpRef, Site)>),
    /// All of these.
    Every(Vec<(OpRef, Site)>),
    Lanes(usize),
    Checkpoint,
}

#[derive(Debug)]
struct Lane {
    code: VecDeque<Stmt>,
    queue: Option<usize>,
    parent: Option<usize>,
    need: Need,
    last: String,
    /// How many are joined.
    joined: usize,
    /// The `once` it is in.
    once: Option<Site>,
    cancelled: bool,
    over: bool,
}

/// One life of an agent.
pub(super) struct Host {
    lanes: Vec<Lane>,
    queues: Vec<VecDeque<(Site, Op)>>,
    /// Lanes that go on at a turn, first in first out, and whether something outside of the context makes them.
    ready: VecDeque<(u64, usize, bool)>,
    hops: Vec<u64>,
    hidden: bool,
    rng: Rng,
    turn: u64,
    pub site_of: HashMap<OpRef, Site>,
    /// Tasks that were called since the world looked.
    pub tasks: Vec<(TaskId, Site, Trouble)>,
    /// Detached tasks by the site that scheduled them.
    detached: HashMap<Site, TaskId>,
    /// Sites that joined the task of another.
    pub joined: HashMap<Site, Site>,
    /// Sites that sent a message to a child, with the child, and those that asked one to stop.
    pub sent: HashMap<Site, Option<ExecutionId>>,
    pub log: Vec<Ev>,
    /// Logs of segments that a checkpoint ended in this life.
    pub ended: Vec<Vec<Ev>>,
    results: Vec<(Site, String)>,
    suffix: String,
    finished: bool,
    /// Tasks that were called without a recorded twin.
    pub fresh: Vec<(OpRef, Site)>,
    /// Races that were decided.
    pub races: u64,
    /// Calls that were refused.
    pub refused: Vec<String>,
    /// Tasks that found too many open.
    pub full: u64,
}

impl Host {
    pub(super) fn new(
        program: &Program,
        segment: usize,
        results: Vec<(Site, String)>,
        suffix: &str,
        seed: u64,
    ) -> Self {
        let mut code: VecDeque<Stmt> = program.preamble.iter().cloned().collect();
        for (number, body) in program.segments.iter().enumerate().skip(segment) {
            code.extend(body.iter().cloned());
            if program.stateful && number + 1 < program.segments.len() {
                code.push_back(Stmt::Checkpoint);
            }
        }
        let main = Lane {
            code,
            queue: None,
            parent: None,
            need: Need::Nothing,
            last: String::new(),
            joined: 0,
            once: None,
            cancelled: false,
            over: false,
        };
        let reference = |(site, word): &(Site, String)| {
            let task = word.strip_prefix("task ")?.parse().ok()?;
            Some((*site, TaskId(task)))
        };
        let detached = results.iter().filter_map(reference).collect();
        Self {
            lanes: vec![main],
            queues: Vec::new(),
            ready: VecDeque::from([(0, 0, false)]),
            hops: program.hops.clone(),
            hidden: program.hidden,
            rng: Rng::new(seed),
            turn: 0,
            site_of: HashMap::new(),
            tasks: Vec::new(),
            detached,
            joined: HashMap::new(),
            sent: HashMap::new(),
            log: Vec::new(),
            ended: Vec::new(),
            results,
            suffix: suffix.to_owned(),
            finished: false,
            fresh: Vec::new(),
            races: 0,
            refused: Vec::new(),
            full: 0,
        }
    }

    /// Whether the code is quiet: nothing goes on unless an outcome is handed over, or something outside happens.
    pub(super) fn is_quiet(&self) -> bool {
        !self.finished && self.ready.iter().all(|(.., outside)| *outside)
    }

    /// Whether some lane waits for something outside.
    pub(super) fn outside(&self) -> Outside {
        let waits = self.ready.iter().any(|(.., outside)| *outside);
        if waits { Outside::Something } else { Outside::Nothing }
    }

    pub(super) fn alive(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.over).count()
    }

    /// One turn of the loop.
    pub(super) fn turn(&mut self, machine: &mut Machine) {
        self.turn += 1;
        for _ in 0..self.ready.len() {
            let Some((at, lane, outside)) = self.ready.pop_front() else { break };
            if at > self.turn {
                self.ready.push_back((at, lane, outside));
                continue;
            }
            self.run(lane, machine);
        }
    }

    /// Ends awaits.
    pub(super) fn deliver(&mut self, handed: Vec<Handed>) {
        for Handed { op, outcome } in handed {
            if op == OpRef::CHECKPOINT {
                self.ended.push(std::mem::take(&mut self.log));
                if let Some(lane) = self.lanes.iter().position(|lane| matches!(lane.need, Need::Checkpoint)) {
                    self.lanes[lane].need = Need::Nothing;
                    // A segment starts from its state alone: its lanes are numbered as those of a life that begins here.
                    self.lanes.truncate(lane + 1);
                    self.lanes[lane].last.clear();
                    self.wake(lane);
                }
                continue;
            }
            let Some(site) = self.site_of.get(&op).copied() else {
                self.refused.push(format!("an outcome for an op that nobody called: {op:?}"));
                continue;
            };
            let word = word(&outcome);
            let awaits = |lane: &Lane| match &lane.need {
                Need::Any(ops) | Need::Every(ops) => ops.iter().any(|(awaited, _)| *awaited == op),
                _ => false,
            };
            let lane = self.lanes.iter().position(awaits);
            // What a `once` does inside is not called again after its end.
            if lane.is_none_or(|lane| self.lanes[lane].once.is_none()) {
                self.log.push(Ev::Got(site, word.clone()));
            }
            let Some(index) = lane else {
                if outcome == Outcome::Cancelled {
                    // The race it was part of has been told already.
                    continue;
                }
                self.refused.push(format!("an outcome for site {site} that nobody awaits"));
                continue;
            };
            let lane = &mut self.lanes[index];
            let cancelled = outcome == Outcome::Cancelled;
            lane.cancelled |= cancelled;
            if lane.once.is_none() {
                self.results.push((site, word.clone()));
            }
            lane.last = word;
            match &mut lane.need {
                Need::Every(ops) => ops.retain(|(awaited, _)| *awaited != op),
                Need::Any(ops) => {
                    ops.retain(|(awaited, _)| *awaited != op);
                    if cancelled {
                        ops.clear();
                    }
                }
                _ => {}
            }
            let done = match &lane.need {
                Need::Every(ops) => ops.is_empty(),
                _ => true,
            };
            if done && lane.joined > 1 {
                // Which of them came last depends on time.
                lane.last = format!("joined by {}", lane.joined);
            }
            if done && !self.ready.iter().any(|(_, ready, _)| *ready == index) {
                self.wake(index);
            }
        }
    }

    fn wake(&mut self, lane: usize) {
        let hop = self.hops[lane % self.hops.len()];
        self.later(1 + hop, lane);
    }

    /// Lets a lane go on, now and then only after a wait outside of the context, which may be a long one.
    fn later(&mut self, turns: u64, lane: usize) {
        let outside = self.hidden && self.rng.chance(30);
        let wait = match outside {
            false => 0,
            true if self.rng.chance(15) => self.rng.range(50, 1_000),
            true => self.rng.range(3, 9),
        };
        self.ready.push_back((self.turn + turns + wait, lane, outside));
    }

    fn run(&mut self, index: usize, machine: &mut Machine) {
        if let Need::Any(rest) = std::mem::replace(&mut self.lanes[index].need, Need::Nothing) {
            self.races += u64::from(!rest.is_empty());
            for (op, _) in rest {
                machine.abandon(op);
            }
        }
        loop {
            if self.lanes[index].cancelled {
                self.lanes[index].code.clear();
                self.lanes[index].queue = None;
                self.lanes[index].once = None;
                self.entry(index, 900_000 + index as u32, "", machine);
                return self.end_lane(index, machine);
            }
            if self.lanes[index].code.is_empty()
                && let Some(queue) = self.lanes[index].queue
                && let Some((site, op)) = self.queues[queue].pop_front()
            {
                self.lanes[index].code.push_back(Stmt::Do(site, op));
            }
            let Some(stmt) = self.lanes[index].code.pop_front() else { return self.end_lane(index, machine) };
            match stmt {
                Stmt::Do(site, op) => {
                    let op = self.call(index, site, &op, machine);
                    if self.need(index, Need::Every(op.into_iter().collect()), machine) {
                        return;
                    }
                }
                Stmt::Entry(site, thread) => self.entry(index, site, thread, machine),
                Stmt::Once(site, body) => {
                    if let Some(op) = self.once(index, site, body, machine)
                        && self.need(index, Need::Every(vec![(op, site)]), machine)
                    {
                        return;
                    }
                }
                Stmt::OnceEnd(site) => {
                    self.lanes[index].once = None;
                    let value = Payload::json(format!("\"once {site}\""));
                    match machine.once_end(&once_name(site), Digest::default(), value) {
                        Ok(op) => {
                            self.site_of.insert(op, site);
                            if self.need(index, Need::Every(vec![(op, site)]), machine) {
                                return;
                            }
                        }
                        Err(error) => self.refused.push(error.to_string()),
                    }
                }
                Stmt::Detach(site) => self.detach(index, site, machine),
                Stmt::Attach(site, of) => {
                    // The state keeps what was detached, if that found room.
                    let Some(task) = self.detached.get(&of).copied() else { continue };
                    self.joined.insert(site, of);
                    let op = self.make(index, site, Call::Attach { task }, machine);
                    let ops = op.into_iter().map(|op| (op, site)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Leave(site) => drop(self.named_child(index, site, site, machine)),
                Stmt::Join(site, of) => {
                    self.joined.insert(site, of);
                    let op = self.named_child(index, site, of, machine);
                    let ops = op.into_iter().map(|op| (op, site)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Hear(join, site, of) => {
                    self.joined.extend([(join, of), (site, of)]);
                    let Some(child) = self.child_again(index, join, of, machine) else { continue };
                    let call = Call::Signal { name: event_signal(child).into(), timeout: None };
                    let op = self.make(index, site, call, machine);
                    let ops = op.into_iter().map(|op| (op, site)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Message(join, site, of) => {
                    self.joined.insert(join, of);
                    let Some(child) = self.child_again(index, join, of, machine) else { continue };
                    let (payload, delivery) = (Payload::json(format!("\"message {site}\"")), Delivery::NextStep);
                    let body = MessageBody::ToChild { child, name: "down".into(), payload, delivery };
                    self.sent.insert(site, Some(child));
                    let op = self.make(index, site, Call::Send(body), machine);
                    let ops = op.into_iter().map(|op| (op, site)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Stop(join, site, of) => {
                    self.joined.insert(join, of);
                    let Some(child) = self.child_again(index, join, of, machine) else { continue };
                    let how = Cancellation { mode: CancelMode::Graceful, grace: Duration::from_millis(20) };
                    self.sent.insert(site, None);
                    let op = self.make(index, site, Call::Send(MessageBody::Stop { child, how }), machine);
                    let ops = op.into_iter().map(|op| (op, site)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Has(site, name) => self.read(index, site, Question::HasSignal(name.into()), machine),
                Stmt::Drain(site, name) => {
                    self.read(index, site, Question::Drain { name: name.into(), turn: true }, machine);
                }
                Stmt::AskCancel(site) => self.read(index, site, Question::Cancellation, machine),
                Stmt::Race(ops) => {
                    let ops = ops.iter().filter_map(|(site, op)| self.call(index, *site, op, machine)).collect();
                    if self.need(index, Need::Any(ops), machine) {
                        return;
                    }
                }
                Stmt::All(ops) => {
                    let ops = ops.iter().filter_map(|(site, op)| self.call(index, *site, op, machine)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Fork(lanes) => {
                    let lanes = lanes.into_iter().map(|code| (VecDeque::from(code), None)).collect();
                    return self.fork(index, lanes);
                }
                Stmt::Pool(workers, items) => {
                    self.queues.push(items.into());
                    let queue = self.queues.len() - 1;
                    return self.fork(index, (0..workers).map(|_| (VecDeque::new(), Some(queue))).collect());
                }
                Stmt::HandOff(site) => {
                    let input = Payload::json(format!("\"child {site}\""));
                    let (options, hand_off) = (ChildOptions::default(), Some(Completion::WaitForChild));
                    let call = ChildCall { kind: "child".into(), input, options, hand_off };
                    let op = self.make(index, site, Call::Child(Box::new(call)), machine);
                    let ops = op.into_iter().map(|op| (op, site)).collect();
                    if self.need(index, Need::Every(ops), machine) {
                        return;
                    }
                }
                Stmt::Checkpoint => {
                    let state = Payload::of(&self.results).expect("a list of words");
                    match machine.checkpoint(state, "{}".into()) {
                        Ok(()) => {
                            self.lanes[index].need = Need::Checkpoint;
                            return;
                        }
                        Err(error) => self.refused.push(error.to_string()),
                    }
                }
            }
        }
    }

    /// Awaits; says whether there is anything to wait for.
    fn need(&mut self, index: usize, need: Need, machine: &mut Machine) -> bool {
        let (Need::Any(ops) | Need::Every(ops)) = &need else { return false };
        for (op, _) in ops {
            if let Err(error) = machine.await_op(*op) {
                self.refused.push(error.to_string());
            }
        }
        let waits = !ops.is_empty();
        self.lanes[index].joined = if let Need::Every(ops) = &need { ops.len() } else { 0 };
        self.lanes[index].need = if waits { need } else { Need::Nothing };
        waits
    }

    fn fork(&mut self, index: usize, lanes: Vec<(VecDeque<Stmt>, Option<usize>)>) {
        self.lanes[index].need = Need::Lanes(lanes.len());
        for (code, queue) in lanes {
            let last = self.lanes[index].last.clone();
            let lane = Lane {
                code,
                queue,
                parent: Some(index),
                need: Need::Nothing,
                last,
                joined: 0,
                once: None,
                cancelled: false,
                over: false,
            };
            self.lanes.push(lane);
            self.later(0, self.lanes.len() - 1);
        }
    }

    fn end_lane(&mut self, index: usize, machine: &mut Machine) {
        self.lanes[index].over = true;
        let cancelled = self.lanes[index].cancelled;
        let Some(parent) = self.lanes[index].parent else {
            self.finished = true;
            self.results.retain(|(_, word)| !word.starts_with("task "));
            self.results.sort();
            let output = Payload::of(&self.results).expect("a list of words");
            machine.finish(if cancelled { Ending::Cancelled } else { Ending::Completed(output) });
            machine.settle(false, Some(Outside::Nothing), true);
            return;
        };
        self.lanes[parent].cancelled |= cancelled;
        if let Need::Lanes(left) = &mut self.lanes[parent].need {
            *left -= 1;
            if *left == 0 {
                self.lanes[parent].need = Need::Nothing;
                self.wake(parent);
            }
        }
    }

    fn call(&mut self, lane: usize, site: Site, op_of: &Op, machine: &mut Machine) -> Option<(OpRef, Site)> {
        let call = match op_of {
            Op::Task { kind, input, queue, once_only, trouble } => Call::Task {
                kind: (*kind).into(),
                input: match input {
                    Input::Same => Payload::json("\"same\""),
                    Input::Own => Payload::json(format!("\"own {site}{}\"", self.suffix)),
                    // What two branches have seen may be alike; where waits are hidden, calls must be told apart.
                    Input::Dependent if self.hidden => {
                        Payload::json(format!("\"after {} at {site}\"", self.lanes[lane].last))
                    }
                    Input::Dependent => Payload::json(format!("\"after {}{}\"", self.lanes[lane].last, self.suffix)),
                },
                options: TaskOptions {
                    side_effects: if *once_only { SideEffects::AtMostOnce } else { SideEffects::Idempotent },
                    retry: RetryPolicy {
                        retries: trouble.retries,
                        initial: Duration::from_millis(2),
                        factor: 1.0,
                        ..RetryPolicy::default()
                    },
                    ..TaskOptions::default()
                },
                placement: if *queue { Placement::Queue } else { Placement::Inline },
                queue: "default".into(),
                key: None,
                aliases: Arc::default(),
            },
            Op::Child => {
                let input = Payload::json(format!("\"child {site}{}\"", self.suffix));
                Call::Child(Box::new(ChildCall {
                    kind: "child".into(),
                    input,
                    options: ChildOptions::default(),
                    hand_off: None,
                }))
            }
            Op::Tell => {
                let payload = Payload::json(format!("\"told {site}{}\"", self.suffix));
                Call::Send(MessageBody::ToParent { name: "up".into(), payload, is_request: false })
            }
            Op::Sleep(ticks) => Call::Timer { duration: Duration::from_millis(*ticks) },
            Op::Wait { name, timeout } => {
                Call::Signal { name: (*name).into(), timeout: timeout.map(Duration::from_millis) }
            }
            Op::Step => Call::StepMark,
            Op::Flush => Call::Flush,
        };
        let op = self.make(lane, site, call, machine)?;
        if let (Op::Task { trouble, .. }, Some(task)) = (op_of, self.tasks.last_mut()) {
            task.2 = *trouble;
        }
        Some((op, site))
    }

    /// Begins a `once`, or gives the op of one that happened in this segment.
    fn once(&mut self, lane: usize, site: Site, body: Vec<(Site, Op)>, machine: &mut Machine) -> Option<OpRef> {
        match machine.once_begin(&once_name(site), Digest::default()) {
            Ok(OnceBegin::Done(value)) => {
                let word = text(&value);
                if !self.results.contains(&(site, word.clone())) {
                    self.refused.push(format!("once {site} is {word:?} and was something else"));
                }
            }
            Ok(OnceBegin::Recorded(op)) => {
                self.site_of.insert(op, site);
                return Some(op);
            }
            Ok(OnceBegin::Run) => {
                let code = &mut self.lanes[lane].code;
                code.push_front(Stmt::OnceEnd(site));
                for (site, op) in body.into_iter().rev() {
                    code.push_front(Stmt::Do(site, op));
                }
                self.lanes[lane].once = Some(site);
            }
            Err(error) => self.refused.push(error.to_string()),
        }
        None
    }

    fn detach(&mut self, lane: usize, site: Site, machine: &mut Machine) {
        let call = Call::Task {
            kind: "b".into(),
            input: Payload::json(format!("\"own {site}\"")),
            options: TaskOptions { detached: true, ..TaskOptions::default() },
            placement: Placement::Queue,
            queue: "default".into(),
            key: None,
            aliases: Arc::default(),
        };
        self.make(lane, site, call, machine);
        if let Some((task, ..)) = self.tasks.last().filter(|(_, called, _)| *called == site) {
            self.detached.insert(site, *task);
            self.results.push((site, format!("task {}", task.0)));
        }
    }

    /// Starts the child of a site, or waits for it again.
    fn named_child(&mut self, lane: usize, site: Site, of: Site, machine: &mut Machine) -> Option<OpRef> {
        let input = Payload::json(format!("\"child {of}\""));
        let options = ChildOptions { id: Some(format!("child {of}").into()), ..ChildOptions::default() };
        let call = ChildCall { kind: "child".into(), input, options, hand_off: None };
        self.make(lane, site, Call::Child(Box::new(call)), machine)
    }

    /// Starts the child of a site again, and gives its id.
    fn child_again(&mut self, lane: usize, site: Site, of: Site, machine: &mut Machine) -> Option<ExecutionId> {
        let begun = self.named_child(lane, site, of, machine).and_then(|op| machine.index(op))?;
        machine.segment.ops[begun].child()
    }

    fn entry(&mut self, lane: usize, site: Site, thread: &'static str, machine: &mut Machine) {
        let content = Payload::json(format!("\"entry {site} after {}\"", self.lanes[lane].last));
        let call = Call::Entry {
            role: "user".into(),
            entry_type: "message".into(),
            content,
            turn_id: None,
            metadata: None,
            thread: thread.into(),
        };
        machine.open_thread(thread);
        self.make(lane, site, call, machine);
    }

    fn make(&mut self, lane: usize, site: Site, call: Call, machine: &mut Machine) -> Option<OpRef> {
        if self.alive() > 1 {
            machine.note_concurrent();
        }
        let once = self.lanes[lane].once.map(once_name);
        let is_task = matches!(call, Call::Task { .. });
        match machine.call(call, once.as_ref()) {
            Ok(called) => {
                let sequence = machine.op_id(called.op).map_or(u32::MAX, |id| id.slot.sequence);
                if once.is_none() {
                    self.log.push(Ev::Call(site, sequence));
                }
                self.site_of.insert(called.op, site);
                if let Some(task) = called.task.filter(|_| is_task) {
                    if !called.recorded {
                        self.fresh.push((called.op, site));
                    }
                    self.tasks.push((task, site, Trouble::default()));
                }
                Some(called.op)
            }
            Err(error) if error.code() == Code::LimitReached => {
                self.full += 1;
                if once.is_none() {
                    self.lanes[lane].last.push_str("full");
                    self.log.push(Ev::Full(site));
                }
                None
            }
            // A run that was told to stop is not handed off.
            Err(error) if error.code() == Code::Cancelled => {
                self.lanes[lane].cancelled = true;
                None
            }
            Err(error) => {
                self.refused.push(error.to_string());
                None
            }
        }
    }

    fn read(&mut self, lane: usize, site: Site, question: Question, machine: &mut Machine) {
        match machine.read(question, None) {
            Ok(answer) => {
                let word = match answer {
                    Answer::Flag(flag) => flag.to_string(),
                    Answer::Signals(values) => {
                        let words: Vec<String> = values.iter().map(text).collect();
                        format!("drained {}", words.join(","))
                    }
                    Answer::Value(value) => text(&value),
                };
                self.lanes[lane].last.push_str(&word);
                self.results.push((site, word.clone()));
                self.log.push(Ev::Read(site, word));
            }
            Err(error) => self.refused.push(error.to_string()),
        }
    }
}

fn once_name(site: Site) -> Arc<str> {
    format!("once {site}").into()
}

pub(super) fn text(payload: &Payload) -> String {
    payload.bytes().map_or_else(|_| "?".into(), |bytes| String::from_utf8_lossy(bytes).trim_matches('"').to_owned())
}

/// An outcome as one word.
pub(super) fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Value(value) => text(value),
        Outcome::Failed(failure) => format!("failed {}", failure.message.replace('"', "")),
        Outcome::Signal(value) => format!("signal {}", text(value)),
        Outcome::Event(event) => format!("heard {}", event.payload().map(text).unwrap_or_default()),
        Outcome::TimedOut => "timed out".into(),
        Outcome::Fired => "fired".into(),
        Outcome::Done => "done".into(),
        Outcome::Cancelled => "cancelled".into(),
    }
}
