//! What is looked at when the run is over: the record of the model server, the files, the store, the notes of the meter.

use crate::plan::{CALLS, Deed, count};
use crate::worker::{self, LIFE, Load, RUN};
use flovyn_core::runtime::FlovynClient;
use flovyn_toolkit::fake_llm::{FakeLlm, Outcome, Recorded};
use flovyn_toolkit::message::{Message, Part, ToolResult};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a tail may have at most: the ops of one turn.
const OPS: usize = 24;
/// Bytes of one turn's results with the checkpoint before them.
const BYTES: u64 = 64 << 10;
/// By how much two tails differ at most, one read as a turn begins and one as it ends.
const TURN: u64 = 16 << 10;

/// What became of a request to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It was answered, and the run has the answer.
    Kept,
    /// It was answered, and the process died before the answer was durable.
    Lost,
    /// The process died before the answer was whole.
    Cut,
}

/// One request.
#[derive(Debug)]
struct Request {
    life: usize,
    turn: u64,
    tokens: u64,
    asked: Asked,
}

/// All requests, in the order of their arrival.
pub(crate) struct Requests(Vec<Request>);

impl Requests {
    pub(crate) fn of(fake: &FakeLlm) -> Self {
        let all = fake.requests();
        let last: BTreeMap<u64, u64> = all.iter().map(|request| (request.turn, request.nth)).collect();
        Self(all.iter().map(|request| Request::of(request, last[&request.turn] == request.nth)).collect())
    }

    pub(crate) fn count(&self, asked: Asked) -> usize {
        self.0.iter().filter(|request| request.asked == asked).count()
    }

    /// About how many tokens the last conversation had.
    pub(crate) fn told_last(&self) -> u64 {
        self.0.last().map_or(0, |request| request.tokens)
    }

    /// Each answer was kept once, and no process asked for what was durable when it began.
    pub(crate) fn go_on_where_they_were(&self, turns: u64, loads: &[Load]) {
        let kept = self.0.iter().filter(|request| request.asked == Asked::Kept).map(|request| request.turn);
        assert_eq!(kept.collect::<Vec<_>>(), (1..=turns).collect::<Vec<_>>(), "each answer once, in order");
        for load in loads {
            let life: Vec<_> = self.0.iter().filter(|request| request.life == load.life).collect();
            let turns: Vec<_> = life.iter().map(|request| request.turn).collect();
            let first = load.answered + 1;
            assert_eq!(turns, (first..first + life.len() as u64).collect::<Vec<_>>(), "{load:?} goes on");
            let before_the_last = life.iter().rev().skip(1);
            assert!(before_the_last.clone().all(|request| request.asked == Asked::Kept), "{life:#?}");
        }
        let known: Vec<_> = loads.iter().map(|load| load.life).collect();
        let unknown = self.0.iter().find(|request| !known.contains(&request.life));
        assert!(unknown.is_none(), "{unknown:?} came of a process that had not taken the run up");
    }
}

impl Request {
    fn of(request: &Recorded, last: bool) -> Self {
        let asked = match (&request.outcome, last) {
            (Outcome::Completed, true) => Asked::Kept,
            (Outcome::Completed, false) => Asked::Lost,
            (Outcome::Disconnected | Outcome::Answering, false) => Asked::Cut,
            (outcome, _) => panic!("request {} of turn {}: {outcome:?}", request.nth, request.turn),
        };
        let life = request.headers[LIFE].parse().expect("a number");
        Self { life, turn: request.turn, tokens: request.body["messages"].to_string().len() as u64 / 4, asked }
    }
}

/// Each call has one result and took effect once; how many commands were interrupted, which are not run again.
pub(crate) fn effects(folder: &Path) -> usize {
    let results = results(folder);
    let work = folder.join("work");
    let log = fs::read_to_string(work.join("log")).expect("a log");
    let mut interrupted = 0;
    for (number, result) in results.iter().enumerate() {
        let text: String = result.content.iter().filter_map(Part::as_text).collect();
        let logged = log.lines().filter(|line| *line == number.to_string()).count();
        match (Deed::of(number), result.is_error) {
            (Deed::Bash, true) => {
                assert!(text.starts_with("Interrupted after start, outcome unknown"), "call {number}: {text}");
                assert!(logged <= 1, "call {number} was run {logged} times");
                interrupted += 1;
            }
            (Deed::Bash, false) => assert_eq!(logged, 1, "call {number}"),
            (Deed::Write, false) => {
                let action = result.details.as_ref().map(|details| &details["action"]);
                assert_eq!(action.and_then(|action| action.as_str()), Some("created"), "call {number}: {result:?}");
            }
            (Deed::Edit | Deed::Read, false) => {}
            (deed, true) => panic!("call {number}, {deed:?}: {text}"),
        }
    }
    assert_eq!(fs::read_to_string(work.join("count")).expect("a file"), count(CALLS / 4), "every edit was made once");
    assert_eq!(fs::read_dir(work.join("notes")).expect("a folder").count(), CALLS / 4, "no half-written file is left");
    interrupted
}

/// The results of all calls, in order; the conversation is one that a provider takes: each call is answered at once.
fn results(folder: &Path) -> Vec<ToolResult> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let entries = runtime.block_on(async {
        let flovyn = FlovynClient::builder().url(&format!("sqlite:{}", worker::database(folder).display()));
        let flovyn = flovyn.build().await.expect("a store");
        let entries = flovyn.handle(RUN).await.expect("the run").messages().await.expect("the conversation");
        flovyn.close().await.expect("it closes");
        entries
    });
    let messages = entries.iter().filter(|entry| entry.new.entry_type == "message");
    let messages: Vec<Message> = messages.map(|entry| entry.new.content.parse().expect("a message")).collect();
    let answers: Vec<_> = messages.iter().enumerate().filter(|(_, one)| one.tool_calls().next().is_some()).collect();
    assert_eq!(answers.len(), CALLS, "each call once");
    let all = messages.iter().flat_map(Message::tool_results).count();
    assert_eq!(all, CALLS, "one result each");
    let pairs = answers.into_iter().map(|(at, answer)| {
        let call = answer.tool_calls().next().expect("a call");
        let result = messages[at + 1].tool_results().next().expect("a result");
        assert_eq!(result.id, call.id, "the result follows its call");
        result.clone()
    });
    pairs.collect()
}

/// However long the run, a process that takes it up reads the tail of one turn. The most that one has read: ops and bytes.
pub(crate) fn recoveries_are_short(loads: &[Load]) -> (usize, u64) {
    let long = loads.iter().find(|load| load.ops > OPS || load.bytes > BYTES);
    assert!(long.is_none(), "{long:?} reads more than a turn");
    let (early, late): (Vec<_>, Vec<_>) = loads.iter().partition(|load| load.answered < CALLS as u64 / 2);
    // Not the most: a death may come just where one large result is in the tail.
    let usual = |half: Vec<&Load>| {
        let mut bytes: Vec<u64> = half.iter().map(|load| load.bytes).collect();
        bytes.sort_unstable();
        bytes.get(bytes.len() / 2).copied().unwrap_or_default()
    };
    let (early, late) = (usual(early), usual(late));
    assert!(late < early + TURN, "{late} bytes are read late in the run, {early} early");
    let most = |of: fn(&Load) -> u64| loads.iter().map(of).max().unwrap_or_default();
    (most(|load| load.ops as u64) as usize, most(|load| load.bytes))
}

/// Bytes that the store uses, whatever its log still repeats.
pub(crate) fn stored_bytes(folder: &Path) -> u64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(worker::database(folder), flags).expect("the file opens");
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, u64>(0)).expect("a number");
    (number("PRAGMA page_count") - number("PRAGMA freelist_count")) * number("PRAGMA page_size")
}
