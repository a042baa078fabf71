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
use crate::sync::Mutex;
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
    "queues",
];

/// Refusals that must have been met somewhere.
const CODES: [Code; 11] = [
    Code::ExecutionExists,
    Code::ExecutionNotFound,
    Code::NotFound,
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
                let (a, b) = (scrub(&format!("{a:#?}")), scrub(&format!("{b:#?}")));
                assert!(a == b, "{}\n{name}: the answers differ\n{}", self.at(), differences(&a, &b));
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
            let differ = differences(&format!("{expected:#?}"), &format!("{found:#?}"));
            panic!("{}\nthe rows of {id} differ\n{differ}", self.at());
        }
    }
}

/// What two texts do not have in common at their ends, with a little before it.
fn differences(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let before = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let after = expected.iter().rev().zip(found.iter().rev()).take_while(|(a, b)| a == b).count();
    let part = |lines: &[&str]| {
        let end = lines.len().saturating_sub(after).max(before).min(before + 40);
        lines[before..end].join("\n")
    };
    let context = expected[before.saturating_sub(25)..before].join("\n");
    format!("{context}\n-- expected\n{}\n-- found\n{}", part(&expected), part(&found))
}

/// Leaves out what is no part of the contract: the words of failures, and the moment a row was last touched.
fn scrub(text: &str) -> String {
    let text = blank(text, "message: \"", |rest| {
        let mut escaped = false;
        rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })
    });
    blank(&text, "updated_at: Timestamp(", |rest| rest.find(')'))
}

/// Leaves out what follows each `start`, up to the place `end` finds.
fn blank(text: &str, start: &str, end: impl Fn(&str) -> Option<usize>) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(start) {
        clean.push_str(&rest[..place + start.len()]);
        rest = &rest[place + start.len()..];
        rest = &rest[end(rest).unwrap_or(rest.len())..];
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
        assert_eq!(super::scrub("updated_at: Timestamp(\n 12,\n), x"), "updated_at: Timestamp(), x");
    }
}
