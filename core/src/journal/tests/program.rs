//! Random agents as data: sequences, lanes, worker pools, races, joins, reads, entries, signals, timers, segments.

use super::rng::Rng;

/// A call site: what an author would point at in the source. Every site is called at most once in a life.
pub(super) type Site = u32;

/// What the input of a task is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// The same for all: identical calls.
    Same,
    /// Of the site.
    Own,
    /// Of the last outcome of the lane.
    Dependent,
}

/// How a task fails: its first attempts return an error, and so many may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Trouble {
    pub failures: u32,
    pub retries: u32,
}

/// Something that can be awaited.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    Task {
        kind: &'static str,
        input: Input,
        queue: bool,
        once_only: bool,
        trouble: Trouble,
    },
    Sleep(u64),
    Child,
    /// Tells a parent that is not there.
    Tell,
    Wait {
        name: &'static str,
        timeout: Option<u64>,
    },
    Step,
    Flush,
}

/// One statement of a lane.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stmt {
    /// Calls and awaits.
    Do(Site, Op),
    /// Appends an entry to a thread of the conversation.
    Entry(Site, &'static str),
    /// Happens once in a run, with steps of its own.
    Once(Site, Vec<(Site, Op)>),
    /// Ends the `once` of this site.
    OnceEnd(Site),
    /// Schedules a task that may outlive the segment.
    Detach(Site),
    /// Joins the detached task of the second site.
    Attach(Site, Site),
    /// Starts a child with an id, which may outlive the segment.
    Leave(Site),
    /// Starts the child of the second site again, and so waits for it.
    Join(Site, Site),
    /// Starts the child of the third site again, and waits for what is heard of it.
    Hear(Site, Site, Site),
    /// Starts the child of the third site again, and sends it a message.
    Message(Site, Site, Site),
    /// Starts the child of the third site again, and asks it to stop.
    Stop(Site, Site, Site),
    /// Asks for a signal; the answer goes into later inputs.
    Has(Site, &'static str),
    /// Takes the signals that are there.
    Drain(Site, &'static str),
    /// Asks whether the run shall stop.
    AskCancel(Site),
    /// Calls all; goes on with the first that ends and gives the others up.
    Race(Vec<(Site, Op)>),
    /// Calls all and awaits all.
    All(Vec<(Site, Op)>),
    /// Lanes that are joined.
    Fork(Vec<Vec<Stmt>>),
    /// Workers over one queue.
    Pool(usize, Vec<(Site, Op)>),
    /// Ends the segment.
    Checkpoint,
    /// Gives the work to another run.
    HandOff(Site),
}

/// A random agent.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// What an agent with state does whenever it is entered: a `once`.
    pub preamble: Option<Stmt>,
    /// One list for each segment; a single one for an agent without state.
    pub segments: Vec<Vec<Stmt>>,
    pub stateful: bool,
    /// Turns between an outcome and what the lane does next, by lane.
    pub hops: Vec<u64>,
    /// Lanes now and then wait for something the context does not know.
    pub hidden: bool,
    /// No choice in it depends on time.
    pub timeless: bool,
    /// One lane.
    pub sequential: bool,
    pub sites: u32,
}

/// What a generator may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allow {
    pub identical: bool,
    pub dependent: bool,
    pub timing: bool,
    pub once_only: bool,
    pub segments: bool,
    pub lanes: bool,
    pub entries: bool,
    /// Failing tasks, `once`, detached tasks.
    pub more: bool,
}

impl Allow {
    pub(super) const ALL: Allow = Allow {
        identical: true,
        dependent: true,
        timing: true,
        once_only: true,
        segments: true,
        lanes: true,
        entries: true,
        more: true,
    };
}

impl Program {
    /// Leaves nothing but steps one after another.
    pub(super) fn flatten(&mut self) {
        self.sequential = true;
        for body in &mut self.segments {
            body.retain(|stmt| matches!(stmt, Stmt::Do(..) | Stmt::Entry(..)));
        }
    }

    /// The program after one edit: a step inserted, removed, replaced or moved, at a random place.
    pub(super) fn edit(&self, rng: &mut Rng) -> Self {
        let mut program = self.clone();
        program.sites += 1;
        let fresh = Stmt::Do(program.sites, Op::plain("a", Input::Own));
        edit_body(&mut program.segments[0], fresh, rng);
        program
    }
}

impl Op {
    fn plain(kind: &'static str, input: Input) -> Self {
        Self::Task { kind, input, queue: false, once_only: false, trouble: Trouble::default() }
    }
}

fn edit_body(body: &mut Vec<Stmt>, fresh: Stmt, rng: &mut Rng) {
    let forks: Vec<_> = (0..body.len()).filter(|at| matches!(body[*at], Stmt::Fork(_))).collect();
    if !forks.is_empty() && rng.chance(60) {
        let at = forks[rng.below(forks.len() as u64) as usize];
        if let Stmt::Fork(lanes) = &mut body[at] {
            let lane = rng.below(lanes.len() as u64) as usize;
            return edit_body(&mut lanes[lane], fresh, rng);
        }
    }
    let at = rng.below(body.len() as u64) as usize;
    match rng.below(4) {
        _ if body.is_empty() => body.push(fresh),
        0 => body.insert(at, fresh),
        1 => drop(body.remove(at)),
        2 => body[at] = fresh,
        _ => {
            let step = body.remove(at);
            body.insert(rng.below(body.len() as u64 + 1) as usize, step);
        }
    }
}

struct Maker<'a> {
    rng: &'a mut Rng,
    allow: Allow,
    sites: u32,
    detached: Vec<Site>,
    left: Vec<Site>,
}

impl Program {
    pub(super) fn random(rng: &mut Rng, mut allow: Allow) -> Self {
        let hidden = allow.lanes && rng.chance(20);
        if hidden {
            // What the context cannot see cannot be repeated: such agents need calls that can be told apart.
            (allow.identical, allow.timing, allow.entries) = (false, false, false);
        }
        let timing = allow.timing && rng.chance(60);
        allow.timing = timing;
        let stateful = allow.segments && rng.chance(25);
        let sequential = !allow.lanes || rng.chance(20);
        let count = if stateful { rng.range(2, 4) } else { 1 };
        let hops = (0..12).map(|_| [0, 0, 0, 1, 2][rng.below(5) as usize]).collect();
        let mut maker = Maker { rng, allow, sites: 0, detached: Vec::new(), left: Vec::new() };
        let preamble = (stateful && maker.rng.chance(50)).then(|| maker.once());
        let mut segments: Vec<_> = (0..count).map(|_| maker.body(if sequential { 0 } else { 2 }, true)).collect();
        // Whoever detached a task joins it at the end, whatever came between.
        let joins: Vec<_> = std::mem::take(&mut maker.detached);
        for detached in joins {
            let join = Stmt::Attach(maker.site(), detached);
            segments.last_mut().expect("a program has a segment").push(join);
        }
        for left in std::mem::take(&mut maker.left) {
            let last = segments.last_mut().expect("a program has a segment");
            // Whether it comes before the child's end depends on time.
            for _ in 0..if timing { maker.rng.below(3) } else { 0 } {
                last.push(match maker.rng.chance(75) {
                    true => Stmt::Message(maker.site(), maker.site(), left),
                    false => Stmt::Stop(maker.site(), maker.site(), left),
                });
            }
            for _ in 0..maker.rng.range(1, 2) {
                let join = match maker.rng.chance(40) {
                    true => Stmt::Hear(maker.site(), maker.site(), left),
                    false => Stmt::Join(maker.site(), left),
                };
                last.push(join);
            }
        }
        if maker.allow.more && !hidden && maker.rng.chance(15) {
            // Who gets it completes: the runs of some sites fail.
            let sites = [maker.site(), maker.site()];
            let site = sites.into_iter().find(|site| site % 4 != 0).expect("one of two");
            segments.last_mut().expect("a program has a segment").push(Stmt::HandOff(site));
        }
        let sites = maker.sites;
        Self { preamble, segments, stateful, hops, hidden, timeless: !timing, sequential, sites }
    }
}

impl Maker<'_> {
    fn site(&mut self) -> Site {
        self.sites += 1;
        self.sites
    }

    /// `depth` is how deep lanes may nest.
    fn body(&mut self, depth: u32, top: bool) -> Vec<Stmt> {
        let mut body = Vec::new();
        let length = if depth == 0 { self.rng.range(1, 5) } else { self.rng.range(1, 3) };
        for _ in 0..length {
            body.push(self.statement(depth));
        }
        if top && depth > 0 && !body.iter().any(|stmt| matches!(stmt, Stmt::Fork(_) | Stmt::Pool(..))) {
            let at = self.rng.below(body.len() as u64 + 1) as usize;
            let lanes = self.lanes(depth);
            body.insert(at, lanes);
        }
        body
    }

    fn lanes(&mut self, depth: u32) -> Stmt {
        if self.rng.chance(35) {
            let workers = self.rng.range(2, 4) as usize;
            let items = self.rng.range(3, 8);
            let same = self.allow.identical && self.rng.chance(25);
            let input = if same { Input::Same } else { Input::Own };
            let items = (0..items).map(|_| {
                let kind = if self.rng.chance(30) { "b" } else { "a" };
                (self.site(), Op::plain(kind, input))
            });
            return Stmt::Pool(workers, items.collect());
        }
        let lanes = self.rng.range(2, 4);
        Stmt::Fork((0..lanes).map(|_| self.body(depth - 1, false)).collect())
    }

    fn statement(&mut self, depth: u32) -> Stmt {
        let timing = self.allow.timing;
        match self.rng.below(100) {
            0..35 => Stmt::Do(self.site(), self.op()),
            35..38 if self.allow.more => self.once(),
            38..41 if self.allow.more => {
                let site = self.site();
                if self.rng.chance(50) {
                    self.left.push(site);
                    return Stmt::Leave(site);
                }
                self.detached.push(site);
                Stmt::Detach(site)
            }
            35..50 if self.allow.entries => {
                let thread = ["", "", "side", "aside"][self.rng.below(4) as usize];
                Stmt::Entry(self.site(), thread)
            }
            50..57 if timing => Stmt::Has(self.site(), self.name()),
            57..61 if timing => Stmt::Drain(self.site(), self.name()),
            61..64 if timing => Stmt::AskCancel(self.site()),
            64..78 if timing => {
                let count = self.rng.range(2, 3);
                Stmt::Race((0..count).map(|_| (self.site(), self.op())).collect())
            }
            78..88 => {
                let count = self.rng.range(2, 3);
                Stmt::All((0..count).map(|_| (self.site(), self.op())).collect())
            }
            88..100 if depth > 0 => self.lanes(depth),
            _ => Stmt::Do(self.site(), self.op()),
        }
    }

    fn once(&mut self) -> Stmt {
        let timing = std::mem::replace(&mut self.allow.timing, false);
        let count = self.rng.range(1, 3);
        let once = Stmt::Once(self.site(), (0..count).map(|_| (self.site(), self.op_in_once())).collect());
        self.allow.timing = timing;
        once
    }

    /// No child: a `once` starts none.
    fn op_in_once(&mut self) -> Op {
        match self.op() {
            Op::Child => Op::plain("a", Input::Own),
            op => op,
        }
    }

    fn trouble(&mut self) -> Trouble {
        if !self.allow.more || !self.rng.chance(25) {
            return Trouble::default();
        }
        Trouble { failures: self.rng.range(1, 3) as u32, retries: self.rng.below(4) as u32 }
    }

    fn name(&mut self) -> &'static str {
        ["p", "q"][self.rng.below(2) as usize]
    }

    fn op(&mut self) -> Op {
        let upto = if self.allow.identical { 100 } else { 70 };
        match self.rng.below(upto) {
            0..70 if self.allow.more && self.rng.chance(12) => Op::Child,
            0..70 if self.allow.more && self.rng.chance(6) => Op::Tell,
            0..70 => {
                let kind = if self.rng.chance(30) { "b" } else { "a" };
                let input = match self.rng.below(3) {
                    0 if self.allow.identical => Input::Same,
                    1 if self.allow.dependent => Input::Dependent,
                    _ => Input::Own,
                };
                let queue = self.rng.chance(25);
                let once_only = self.allow.once_only && !queue && self.rng.chance(10);
                let mut trouble = self.trouble();
                if once_only {
                    trouble.retries = 0;
                }
                Op::Task { kind, input, queue, once_only, trouble }
            }
            70..80 => Op::Sleep([5, 9][self.rng.below(2) as usize]),
            80..90 if self.allow.timing => {
                let timeout = self.rng.chance(50).then(|| self.rng.range(4, 12));
                Op::Wait { name: self.name(), timeout }
            }
            90..95 => Op::Step,
            _ => Op::Flush,
        }
    }
}
