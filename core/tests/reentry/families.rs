//! Random families under crashes at every commit: parents that start, hear, guide and stop children, budgets, handoffs.
//!
//! A family is data: what each run does, in order, and the children that it has do theirs. All choices are the program's, so
//! whatever happens to the processes, everything ends as it did undisturbed: each child was born once, each message was heard
//! once and in its order, no step that had its result ran again. `SCALE` multiplies the number of families, `SEED` runs one.

use super::{Work, work};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::context::{AgentContext, AgentContextExt, Child};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::{ChildOptions, Completion, OnDivergence};
use flovyn_core::model::{
    CancelMode, Cancellation, ChildEvent, Persistence, Shared, SharedContext, StartLimits, Usage,
};
use flovyn_core::testing::{Harness, Proof};
use futures::future::{join_all, select_all};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a run does, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Node {
    /// Differs from that of every other node.
    name: u32,
    acts: Vec<Act>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Act {
    Step,
    Entry,
    Sleep(u64),
    /// Uses so many tokens of its budget.
    Spend(u64),
    /// Tells its parent something, which a root does not do.
    Tell(u32),
    /// Asks its parent, and waits for the answer.
    Ask(u32),
    /// Waits to be told something by its parent.
    Listen,
    Fail,
    /// Starts all, and waits for all.
    All(Vec<(Node, How)>),
    /// Starts all, and does something about each as it ends, while the others go on.
    Select(Vec<(Node, How)>),
    /// Starts one, and hears it to its end; answers what it asks, and guides it if it listens.
    Hear(Node, bool),
    /// Starts one that listens, and stops it instead.
    Stop(Node, bool),
    /// Starts one that goes on, or is stopped, when this run ends.
    Leave(Node),
    /// Starts the same child twice by its name, and waits once more for what is there.
    Join(Node),
    HandOff(Node),
}

/// How a child is started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct How {
    budget: Option<u64>,
    ephemeral: bool,
    /// What it is given of the conversation: nothing, a look, or a thread in it.
    shares: u8,
}

impl How {
    fn options(&self) -> ChildOptions {
        let budget = self.budget.map(|tokens| serde_json::json!({ "tokens": tokens }).to_string());
        ChildOptions {
            limits: StartLimits { budget, ..StartLimits::default() },
            persistence: if self.ephemeral { Persistence::Ephemeral } else { Persistence::Full },
            shared_context: match self.shares {
                1 => Some(SharedContext::ReadOnly(Shared::default())),
                2 => Some(SharedContext::Conversation(Shared::default())),
                _ => None,
            },
            ..ChildOptions::default()
        }
    }
}

/// Does what its input says.
struct Member;

#[async_trait]
impl AgentDefinition for Member {
    type State = ();
    type Input = Node;
    type Output = String;

    fn kind(&self) -> &str {
        "member"
    }

    fn on_divergence(&self) -> OnDivergence {
        OnDivergence::Fail
    }

    async fn execute(&self, ctx: &dyn AgentContext, node: Node) -> Result<String> {
        let mut said = Vec::new();
        for (at, act) in node.acts.iter().enumerate() {
            said.push(act.perform(ctx, &node, at).await?);
        }
        Ok(format!("{}: [{}]", node.name, said.join(", ")))
    }
}

impl Act {
    async fn perform(&self, ctx: &dyn AgentContext, node: &Node, at: usize) -> Result<String> {
        let what = format!("{}.{at}", node.name);
        let start = |child: &Node, how: ChildOptions| ctx.spawn_agent_with::<String>("member", child, how);
        Ok(match self {
            Self::Step => work(ctx, &what, 7)?.await?,
            Self::Entry => {
                ctx.append_entry("user", &what)?;
                format!("{} entries", ctx.messages().await?.len())
            }
            Self::Sleep(seconds) => {
                ctx.sleep(Duration::from_secs(*seconds))?.await?;
                "slept".into()
            }
            Self::Spend(tokens) => {
                let usage = Usage { calls: 1, input_tokens: *tokens, ..Usage::default() };
                ctx.record_usage("model", usage)?;
                ctx.flush()?.await?;
                format!("spent {tokens}")
            }
            Self::Tell(number) => {
                ctx.signal_parent("news", &(node.name, number))?.await?;
                "told".into()
            }
            Self::Ask(number) => ctx.request_from_parent::<String>("question", &(node.name, number), None)?.await?,
            Self::Listen => format!("heard {}", ctx.wait_for_signal::<String>("guide")?.await?),
            Self::Fail => return Err(Error::new(Code::InvalidArgument, format!("{what} fails"))),
            Self::All(children) => {
                let all =
                    children.iter().map(|(child, how)| start(child, how.options())).collect::<Result<Vec<_>>>()?;
                join_all(all).await.into_iter().map(end).collect::<Vec<_>>().join(" & ")
            }
            Self::Select(children) => {
                let named = |(child, how): &(Node, How)| start(child, how.options()).map(|it| (child.name, it));
                let mut open = children.iter().map(named).collect::<Result<Vec<_>>>()?;
                let mut ends = Vec::new();
                while !open.is_empty() {
                    let (first, at, _) = select_all(open.iter_mut().map(|(_, child)| child)).await;
                    let (name, _) = open.remove(at);
                    // Which one is first is a matter of time, and recorded: a life that takes another one asks for a step
                    // that is not in its record.
                    let step = work(ctx, &format!("{what} takes {name}"), 3)?.await?;
                    ends.push((name, end(first), step));
                }
                ends.sort();
                format!("{ends:?}")
            }
            Self::Hear(child, guides) => hear(ctx, start(child, ChildOptions::default())?, *guides).await?,
            Self::Stop(child, hard) => {
                let child = start(child, ChildOptions::default())?;
                let mode = if *hard { CancelMode::Hard } else { CancelMode::Graceful };
                ctx.cancel_child(&child, Cancellation { mode, ..Cancellation::USUAL })?.await?;
                end(child.await)
            }
            Self::Leave(child) => {
                let child = start(child, ChildOptions::default())?;
                // The child is born with the next commit.
                ctx.flush()?.await?;
                drop(child);
                "left".into()
            }
            Self::Join(child) => {
                let named = || ChildOptions { id: Some("named".into()), ..ChildOptions::default() };
                let first = end(start(child, named())?.await);
                let again = end(start(child, named())?.await);
                format!("{first} = {again}")
            }
            Self::HandOff(successor) => {
                match ctx
                    .handoff_to_agent("member", successor, ChildOptions::default(), Completion::WaitForChild)
                    .await? {}
            }
        })
    }
}

fn end(end: Result<String>) -> String {
    end.unwrap_or_else(|error| format!("{:?}", error.code()))
}

/// Hears a child to its end.
async fn hear(ctx: &dyn AgentContext, child: Child<String>, guides: bool) -> Result<String> {
    if guides {
        ctx.signal_child(&child, "guide", &"this way")?.await?;
    }
    let mut heard = Vec::new();
    loop {
        heard.push(match ctx.wait_for_child_event(&child, None)?.await? {
            ChildEvent::Signal { payload, .. } => format!("news {}", payload.parse::<serde_json::Value>()?),
            ChildEvent::Request { payload, request, .. } => {
                let asked = payload.parse::<serde_json::Value>()?;
                let answer = work(ctx, &format!("answer {asked}"), 3)?.await?;
                ctx.respond(&request, &answer)?.await?;
                format!("asked {asked}")
            }
            ChildEvent::Completed { output } => {
                heard.push(output.parse()?);
                break;
            }
            other => {
                heard.push(format!("{other:?}").split_whitespace().next().unwrap_or_default().to_owned());
                break;
            }
        });
    }
    Ok(heard.join("; "))
}

/// Random numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// What a run may do.
#[derive(Clone, Copy)]
struct Kind {
    depth: u32,
    /// Its parent listens.
    heard: bool,
    /// There is no budget above it.
    free: bool,
    /// It has a budget that no other run spends: who is stopped of several is a matter of time.
    budget: bool,
}

impl Kind {
    fn child(self) -> Self {
        Self { depth: self.depth + 1, heard: false, free: self.free && !self.budget, budget: false }
    }
}

struct Maker {
    dice: Dice,
    names: u32,
    /// How many more runs there may be.
    room: u64,
}

impl Maker {
    fn node(&mut self, acts: Vec<Act>) -> Node {
        self.names += 1;
        Node { name: self.names, acts }
    }

    /// A run of this kind.
    fn run(&mut self, of: Kind) -> Node {
        let Kind { depth, .. } = of;
        let mut acts = Vec::new();
        for _ in 0..=self.dice.below(2) {
            acts.push(self.act(of));
        }
        let last = self.dice.below(20);
        if last == 0 && depth > 0 {
            acts.push(Act::Fail);
        } else if last < 3 && self.room > 0 && depth < 3 {
            self.room -= 1;
            let successor = self.run(of.child());
            acts.push(Act::HandOff(successor));
        }
        self.node(acts)
    }

    fn act(&mut self, of: Kind) -> Act {
        let Kind { depth, heard, .. } = of;
        let number = self.dice.below(100) as u32;
        let may_start = depth < 3 && self.room > 0;
        match self.dice.below(if may_start { 18 } else { 7 }) {
            0 | 1 => Act::Step,
            2 => Act::Entry,
            3 => Act::Sleep(1 + self.dice.below(90)),
            4 if of.free || of.budget => Act::Spend(1 + self.dice.below(40)),
            4 => Act::Step,
            5 if heard => Act::Tell(number),
            6 if heard => Act::Ask(number),
            5 | 6 => Act::Step,
            7..11 => {
                let count = (1 + self.dice.below(5)).min(self.room);
                self.room -= count;
                Act::All((0..count).map(|_| self.child(of)).collect())
            }
            11 | 12 => {
                self.room -= 1;
                let guides = self.dice.below(2) == 0;
                let mut child = self.run(Kind { heard: true, ..of.child() });
                if guides {
                    child.acts.insert(0, Act::Listen);
                }
                Act::Hear(child, guides)
            }
            13 => {
                self.room -= 1;
                let child = self.node(vec![Act::Step, Act::Listen]);
                Act::Stop(child, self.dice.below(2) == 0)
            }
            14 => {
                self.room -= 1;
                let child = self.node(vec![Act::Listen]);
                Act::Leave(child)
            }
            15 => {
                self.room -= 1;
                Act::Join(self.run(of.child()))
            }
            _ => {
                let count = (2 + self.dice.below(3)).min(self.room);
                self.room -= count;
                Act::Select((0..count).map(|_| self.child(of)).collect())
            }
        }
    }

    fn child(&mut self, of: Kind) -> (Node, How) {
        let budget = (self.dice.below(5) == 0).then(|| 20 + self.dice.below(60));
        let how = How { budget, ephemeral: self.dice.below(4) == 0, shares: self.dice.below(6) as u8 };
        (self.run(Kind { budget: budget.is_some(), ..of.child() }), how)
    }
}

async fn proven(seed: u64) -> Proof {
    let mut maker = Maker { dice: Dice(seed), names: 0, room: 8 };
    let root = loop {
        let root = maker.run(Kind { depth: 0, heard: false, free: true, budget: false });
        if maker.names > 2 {
            break root;
        }
    };
    let host = || NativeHost::default().agent(Member).unwrap().task(Work).unwrap();
    let harness = Harness::new("member", Payload::of(&root).unwrap(), host).concurrent().by_attempt();
    harness.check().await.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{root:#?}"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Families of random shape, depth 3 and up to five children at a time, in two threads.
#[test]
fn random_families_survive_crashes() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..100 * number("SCALE").unwrap_or(1),
    };
    let run = |first: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let mut total = Proof::default();
        for seed in seeds.clone().skip(first as usize).step_by(2) {
            let proof = runtime.block_on(proven(seed));
            total.runs += proof.runs;
            total.crashes += proof.crashes;
            total.commits += proof.commits;
        }
        total
    };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let one = run(0);
        (one, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (runs, crashes) = (one.runs + two.runs, one.crashes + two.crashes);
    println!("{runs} families, {crashes} crashes");
    assert!(number("SEED").is_some() || runs > 1_000, "the families are too tame: {runs}");
}

/// Says how many lives there were before.
struct Moody;

static LIVES: AtomicU32 = AtomicU32::new(0);

#[async_trait]
impl AgentDefinition for Moody {
    type State = ();
    type Input = ();
    type Output = ();

    fn kind(&self) -> &str {
        "moody"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<()> {
        ctx.append_entry("user", &LIVES.fetch_add(1, Ordering::SeqCst))?;
        work(ctx, "moody", 3)?.await.map(drop)
    }
}

/// Has a moody child, and gives nothing of it away.
struct Calm;

#[async_trait]
impl AgentDefinition for Calm {
    type State = ();
    type Input = ();
    type Output = ();

    fn kind(&self) -> &str {
        "calm"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<()> {
        ctx.spawn_agent("moody", &())?.await
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_the_same_again_is_noticed() {
    let host = || NativeHost::default().agent(Calm).unwrap().agent(Moody).unwrap().task(Work).unwrap();
    let error = Harness::new("calm", Payload::null(), host).check().await.unwrap_err();
    assert!(error.code() == Code::Diverged && error.message().contains("in the child moody(null): entry 0"), "{error}");
}
