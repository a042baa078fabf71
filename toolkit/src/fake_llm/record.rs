//! Records of requests and their outcomes, in memory and as lines of JSON.

use crate::provider::Api;
use flovyn_core::sync::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A request, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Its number since the start, from 1.
    pub nth: u64,
    /// The wire.
    pub api: Api,
    /// The model that was asked for.
    pub model: String,
    /// Its headers but for keys, by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Value,
    /// Answers in its conversation, plus one.
    pub turn: u64,
    /// The number of the scripted turn that answered, from 0; absent where none did.
    pub played: Option<usize>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The response is on its way.
    Answering,
    /// The response was sent to its end: what a provider charges.
    Completed,
    /// A fault of the script was played.
    Faulted,
    /// The client left before the end.
    Disconnected,
    /// The request was refused, with this status and reason.
    Refused {
        /// The HTTP status.
        status: u16,
        /// What was wrong with it.
        reason: String,
    },
}

/// All requests.
#[derive(Debug)]
pub(super) struct Records {
    all: Mutex<Vec<Recorded>>,
    /// Whether their bodies are kept.
    has_bodies: bool,
    log: Option<Mutex<File>>,
}

impl Records {
    pub(super) fn new(log: Option<&Path>) -> std::io::Result<Self> {
        let open = |path| File::options().create(true).append(true).open(path).map(Mutex::new);
        Ok(Self { all: Mutex::default(), has_bodies: true, log: log.map(open).transpose()? })
    }

    /// Records without the bodies of requests, each of which holds the whole conversation.
    pub(super) fn without_bodies() -> Self {
        Self { all: Mutex::default(), has_bodies: false, log: None }
    }

    /// Takes a request and gives its number.
    pub(super) fn arrive(&self, fill: impl FnOnce(u64) -> Recorded) -> u64 {
        let mut all = self.all.lock();
        let nth = all.len() as u64 + 1;
        let record = fill(nth);
        all.push(if self.has_bodies { record } else { Recorded { body: Value::Null, ..record } });
        nth
    }

    /// Says which turn answers.
    pub(super) fn played(&self, nth: u64, turn: usize) {
        let mut all = self.all.lock();
        if let Some(record) = usize::try_from(nth - 1).ok().and_then(|index| all.get_mut(index)) {
            record.played = Some(turn);
        }
    }

    /// Says what became of a request. The first word counts: a client that leaves after the end has still been served.
    pub(super) fn end(&self, nth: u64, outcome: Outcome) {
        let mut all = self.all.lock();
        let Some(record) = usize::try_from(nth - 1).ok().and_then(|index| all.get_mut(index)) else { return };
        if record.outcome != Outcome::Answering {
            return;
        }
        record.outcome = outcome;
        if let Some(log) = &self.log {
            let mut line = serde_json::to_vec(record).unwrap_or_default();
            line.push(b'\n');
            // A log that cannot be written is no reason to answer differently.
            let _written = log.lock().write_all(&line);
        }
    }

    pub(super) fn completed(&self) -> usize {
        self.all.lock().iter().filter(|record| record.outcome == Outcome::Completed).count()
    }

    pub(super) fn all(&self) -> Vec<Recorded> {
        self.all.lock().clone()
    }
}
