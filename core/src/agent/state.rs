//! The state of an agent: what checkpoints save, and how an update is applied to it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};

pub use flovyn_core_macros::AgentState;

/// The state of an agent. `()` declares an agent without state: its recovery replays the whole recorded run.
///
/// `#[derive(AgentState)]` implements it together with [`Reduce`]:
///
/// ```
/// use flovyn_core::agent::{AgentState, Reduce};
/// use serde::{Deserialize, Serialize};
/// use std::collections::BTreeMap;
///
/// #[derive(Default, Serialize, Deserialize, AgentState)]
/// struct Research {
///     phase: String,
///     #[reducer(append)]
///     sources: Vec<String>,
///     #[reducer(merge)]
///     scores: BTreeMap<String, u32>,
/// }
///
/// let mut state = Research::default();
/// state.reduce(ResearchUpdate::new().phase("read").sources(["a".to_owned()]).scores([("a".to_owned(), 1)]));
/// state.reduce(ResearchUpdate { sources: Some(vec!["b".to_owned()]), ..ResearchUpdate::new() });
/// assert_eq!((state.phase.as_str(), state.sources.len(), state.scores["a"]), ("read", 2, 1));
/// ```
pub trait AgentState: Serialize + DeserializeOwned + Default + Send + Sync {
    /// Whether checkpoints carry state.
    const DECLARED: bool = true;
}

impl AgentState for () {
    const DECLARED: bool = false;
}

/// A state that can apply an update to itself. `#[derive(AgentState)]` implements it.
pub trait Reduce {
    /// A change: fields it does not name stay as they are.
    type Update: Default;

    /// Applies an update field by field, each with the reducer of that field. It changes the value in memory only: the
    /// change is durable with the next checkpoint.
    fn reduce(&mut self, update: Self::Update);
}

/// A value that grows at its end: what `#[reducer(append)]` needs.
pub trait Append {
    /// Puts `more` after what is there.
    fn append(&mut self, more: Self);
}

/// A map that can take over the keys of another: what `#[reducer(merge)]` needs.
pub trait Merge {
    /// Takes over every key of `other`; where both have one, `other` wins.
    fn merge(&mut self, other: Self);
}

impl<T> Append for Vec<T> {
    fn append(&mut self, more: Self) {
        self.extend(more);
    }
}

impl<T> Append for VecDeque<T> {
    fn append(&mut self, more: Self) {
        self.extend(more);
    }
}

impl Append for String {
    fn append(&mut self, more: Self) {
        self.push_str(&more);
    }
}

impl<T: Ord> Append for BTreeSet<T> {
    fn append(&mut self, more: Self) {
        self.extend(more);
    }
}

impl<T: Eq + Hash, S: BuildHasher> Append for HashSet<T, S> {
    fn append(&mut self, more: Self) {
        self.extend(more);
    }
}

impl<K: Ord, V> Merge for BTreeMap<K, V> {
    fn merge(&mut self, other: Self) {
        self.extend(other);
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Merge for HashMap<K, V, S> {
    fn merge(&mut self, other: Self) {
        self.extend(other);
    }
}

impl Merge for serde_json::Map<String, Value> {
    /// Objects inside objects are merged in the same way.
    fn merge(&mut self, other: Self) {
        for (key, value) in other {
            match self.get_mut(&key) {
                Some(kept) => kept.merge(value),
                None => {
                    self.insert(key, value);
                }
            }
        }
    }
}

impl Merge for Value {
    /// Two objects join; anything else takes the old value's place.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Value::Object(kept), Value::Object(other)) => kept.merge(other),
            (kept, other) => *kept = other,
        }
    }
}

impl<T: Merge> Merge for Option<T> {
    /// `None` changes nothing.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Some(kept), Some(other)) => kept.merge(other),
            (kept @ None, other) => *kept = other,
            (Some(_), None) => {}
        }
    }
}
