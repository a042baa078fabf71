//! Listings: keyset pages and filters.

use crate::clock::Timestamp;
use crate::id::ExecutionId;
use crate::model::{Execution, Status};
use std::collections::BTreeMap;

/// How many items the largest page has.
pub const MAX_PAGE: usize = 1_000;

/// An opaque place in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

/// Which part of a listing.
#[derive(Debug, Clone)]
pub struct PageRequest {
    /// How many items at most (1 to [`MAX_PAGE`]).
    pub limit: usize,
    /// The place after which it begins; the start of the listing if absent.
    pub after: Option<Cursor>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { limit: 100, after: None }
    }
}

/// A part of a listing.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items in order.
    pub items: Vec<T>,
    /// Where the next page starts; none at the end.
    pub next: Option<Cursor>,
}

/// Which runs to list. The newest come first.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Any of these statuses; all when empty.
    pub statuses: Vec<Status>,
    /// Of this agent.
    pub kind: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// With all of these metadata values.
    pub metadata: BTreeMap<String, String>,
    /// Started at or after.
    pub created_from: Option<Timestamp>,
    /// Started before.
    pub created_until: Option<Timestamp>,
    /// Children of this run.
    pub parent: Option<ExecutionId>,
    /// Below this run in its family: its children, theirs, and so on.
    pub root: Option<ExecutionId>,
    /// Started by no other run.
    pub roots: bool,
    /// Where each of these words is somewhere in its id, key, kind, queue, metadata or input, in letters of any case. Of an input
    /// that is stored apart, being large, nothing is looked at.
    pub search: Option<String>,
}

/// What of a filter is looked for in the run itself, and not by the store.
pub(crate) struct Fits {
    metadata: BTreeMap<String, String>,
    words: Vec<String>,
}

impl ExecutionFilter {
    /// What is looked for in each run.
    pub(crate) fn fits(&self) -> Fits {
        let text = self.search.as_deref().unwrap_or_default().to_lowercase();
        Fits { metadata: self.metadata.clone(), words: text.split_whitespace().map(str::to_owned).collect() }
    }
}

impl Fits {
    /// Whether a run has the metadata and all words.
    pub(crate) fn admits(&self, run: &Execution) -> bool {
        let has = |(name, value): (&String, &String)| run.new.metadata.get(name) == Some(value);
        self.metadata.iter().all(has) && (self.words.is_empty() || self.has_words(run))
    }

    /// Whether runs are looked for by words: every one of them may have to be looked at.
    pub(crate) fn is_search(&self) -> bool {
        !self.words.is_empty()
    }

    fn has_words(&self, run: &Execution) -> bool {
        let new = &run.new;
        let input = new.input.bytes().map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
        let id = new.id.to_string();
        let texts = [&id, new.key.as_deref().unwrap_or_default(), &new.kind, &new.queue, &input];
        let texts = texts.into_iter().chain(new.metadata.values().map(String::as_str));
        // A word does not reach from one text into the next.
        let all = texts.collect::<Vec<_>>().join("\n").to_lowercase();
        self.words.iter().all(|word| all.contains(word))
    }
}
