//! Listings: keyset pages and filters.

use crate::clock::Timestamp;
use crate::id::ExecutionId;
use crate::model::Status;
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
}
