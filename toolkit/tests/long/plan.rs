//! What the run does: a hundred calls of host tools, each with a trace that shows how often it took effect.

use flovyn_toolkit::fake_llm::{Pace, Script, Turn};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Calls of the run. Its model is asked once more, for the last word.
pub(crate) const CALLS: usize = 100;
/// Bytes of a file that is read or printed.
const SOURCE: usize = 20_000;

/// What one call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Counts on in a file: made twice, it would fail.
    Edit,
    /// Makes a file: made twice, it would say that it replaced one.
    Write,
    /// Looks.
    Read,
    /// Appends a line to a log: made twice, the line is there twice.
    Bash,
}

impl Deed {
    pub(crate) fn of(call: usize) -> Self {
        [Self::Edit, Self::Write, Self::Read, Self::Bash][call % 4]
    }

    fn call(self, number: usize) -> (&'static str, Value) {
        let source = source(number);
        match self {
            Self::Edit => {
                let (old, new) = (count(number / 4), count(number / 4 + 1));
                ("edit", json!({"path": "count", "old_string": old, "new_string": new}))
            }
            Self::Write => ("write", json!({"path": format!("notes/{number}"), "content": "{{pad:2000}}"})),
            Self::Read => ("read", json!({"path": source})),
            Self::Bash => ("bash", json!({"command": format!("echo {number} >> log; sleep 0.03; cat {source}")})),
        }
    }
}

fn source(call: usize) -> String {
    format!("sources/{call}")
}

/// The content of the file that is counted in.
pub(crate) fn count(number: usize) -> String {
    format!("count: {number}\n")
}

/// The model's answers, slow enough that processes die in the middle of them.
pub(crate) fn script() -> Script {
    let calls = (0..CALLS).map(|number| {
        let (name, arguments) = Deed::of(number).call(number);
        Turn { text: Some(format!("Step {number}. {{{{pad:300}}}}")), ..Turn::call(name, arguments) }
    });
    let pace = Pace { ttft_ms: 40, chunk_ms: 2, ..Pace::default() };
    Script { pace, ..Script::new(calls.chain([Turn::text("All is done.")])) }
}

/// Lays out the folder that the tools work in.
pub(crate) fn prepare(work: &Path) {
    fs::create_dir_all(work.join("sources")).expect("folders");
    fs::write(work.join("count"), count(0)).expect("a file");
    for number in (0..CALLS).filter(|number| matches!(Deed::of(*number), Deed::Read | Deed::Bash)) {
        fs::write(work.join(source(number)), lines(number as u64)).expect("a file");
    }
}

/// Text that no compression makes vanish.
fn lines(seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = String::with_capacity(SOURCE + 80);
    while text.len() < SOURCE {
        text.extend((0..72).map(|_| random.alphanumeric()));
        text.push('\n');
    }
    text
}
