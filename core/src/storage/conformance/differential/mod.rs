//! Random histories on two backends at once: every answer and, after every step, every row must be the same.
//!
//! The reference is one backend, the subject another, both on one driven clock. A failure names the seed and the step;
//! the same seed repeats it exactly. [`Coverage`] makes sure that the histories reach what they are meant to.

mod batches;
mod script;

use super::rig::Rig;
use super::snapshot::Snapshot;
use super::{Factory, Subject};
use crate::error::{Code, Result};
use crate::id::ExecutionId;
use parking_lot::Mutex;
use script::Script;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What random histories have met: outcomes by call, and how often.
#[derive(Debug, Default)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

/// The outcome of a call that was carried out.
const OK: &str = "OK";

/// Calls that must have succeeded somewhere.
const CALLS: [&str; 24] = [
    "create_execution",
    "load_segment",
    "facts_after",
    "commit",
    "repeat",
    "store_signal",
    "request_cancel",
    "resume",
    "resolve_task",
    "resolve_divergence",
    "fork",
    "read_payload",
    "branch",
    "register_worker",
    "claim_agents",
    "claim_tasks",
    "report_task",
    "heartbeat",
    "release",
    "unregister_worker",
    "pass",
    "executions",
    "task",
    "unserved",
];

/// Refusals that must have been met somewhere.
const CODES: [Code; 10] = [
    Code::ExecutionExists,
    Code::ExecutionNotFound,
    Code::ExecutionClosed,
    Code::SlotTaken,
    Code::OutOfOrder,
    Code::LeaseLost,
    Code::OpenOperations,
    Code::InvalidTransition,
    Code::InvalidArgument,
    Code::StepLimitReached,
];

impl Coverage {
    /// Panics where a call never succeeded or a refusal was never met.
    pub fn check(&self) {
        for call in CALLS {
            assert!(self.0.contains_key(&(call, OK)), "no history has carried out {call}: {self:#?}");
        }
        for code in CODES {
            assert!(
                self.0.keys().any(|(_, outcome)| *outcome == code.as_str()),
                "no history has met {code}: {self:#?}"
            );
        }
    }

    fn add(&mut self, call: &'static str, outcome: &'static str) {
        *self.0.entry((call, outcome)).or_default() += 1;
    }
}

/// Plays one random history of so many steps on two fresh backends.
pub async fn play(reference: &dyn Factory, subject: &dyn Factory, seed: u64, steps: usize, coverage: &mut Coverage) {
    let rig = Rig::new(reference).await;
    let subject = subject.open(rig.clock.clone()).await;
    let pair = Pair { rig, subject, seed, step: Mutex::new((0, String::new())), coverage: Mutex::default() };
    let mut script = Script::new(&pair, seed);
    for step in 0..steps {
        *pair.step.lock() = (step, String::new());
        script.step().await;
        pair.compare_rows(&script.touched().await).await;
    }
    pair.compare_rows(script.ids()).await;
    for ((call, outcome), count) in pair.coverage.into_inner().0 {
        *coverage.0.entry((call, outcome)).or_default() += count;
    }
}

/// Two backends that are asked the same.
struct Pair {
    rig: Rig,
    subject: Subject,
    seed: u64,
    step: Mutex<(usize, String)>,
    coverage: Mutex<Coverage>,
}

/// Asks both backends the same and returns the reference's answer once it is the subject's too.
macro_rules! both {
    ($pair:expr, $name:literal, $call:ident($($argument:expr),*)) => {{
        let pair = $pair;
        pair.note($name, || format!("{:?}", ($(&$argument,)*)));
        let expected = pair.rig.storage.$call($($argument.clone()),*).await;
        let found = pair.subject.storage.$call($($argument.clone()),*).await;
        pair.same($name, expected, found)
    }};
}
use both;

impl Pair {
    /// Keeps the last request, for the message of a failure.
    fn note(&self, name: &str, request: impl FnOnce() -> String) {
        self.step.lock().1 = format!("{name}{}", request());
    }

    fn at(&self) -> String {
        let (step, request) = &*self.step.lock();
        format!("seed {}, step {step}: {request}", self.seed)
    }

    fn same<T: Debug>(&self, name: &'static str, expected: Result<T>, found: Result<T>) -> Result<T> {
        match (&expected, &found) {
            (Ok(a), Ok(b)) => {
                assert_eq!(scrub(&format!("{a:#?}")), scrub(&format!("{b:#?}")), "{}", self.at());
                self.coverage.lock().add(name, OK);
            }
            (Err(a), Err(b)) => {
                assert_eq!(a.code(), b.code(), "{}\n{a}\n{b}", self.at());
                self.coverage.lock().add(name, a.code().as_str());
            }
            _ => panic!("{}\nexpected {expected:?}\nfound {found:?}", self.at()),
        }
        expected
    }

    async fn compare_rows(&self, ids: &[ExecutionId]) {
        for id in ids {
            let expected = Snapshot::of(&*self.rig.storage, *id).await;
            let found = Snapshot::of(&*self.subject.storage, *id).await;
            if expected == found {
                continue;
            }
            let (expected, found) = (format!("{expected:#?}"), format!("{found:#?}"));
            let lines = expected.lines().zip(found.lines());
            let differ: Vec<_> = lines.filter(|(a, b)| a != b).take(20).collect();
            panic!("{}\nrows of {id} differ (expected, found):\n{differ:#?}", self.at());
        }
    }
}

/// Leaves out the words of failures: they are for people and differ between backends.
fn scrub(text: &str) -> String {
    const START: &str = "message: \"";
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(START) {
        clean.push_str(&rest[..place + START.len()]);
        rest = &rest[place + START.len()..];
        let mut escaped = false;
        let end = rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_left_out() {
        let text = r#"a { message: "x \" y", b: 1 } message: "" z"#;
        assert_eq!(super::scrub(text), r#"a { message: "", b: 1 } message: "" z"#);
    }
}
