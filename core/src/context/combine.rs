//! Waiting for several steps at once.

use super::Step;
use crate::error::Result;
use crate::journal::Outcome;
use futures::future::select_all;

/// The first of several steps to end.
pub struct Selected {
    /// Its place in the list.
    pub index: usize,
    /// What it ended with.
    pub outcome: Result<Outcome>,
    /// The others, still open.
    pub rest: Vec<Step>,
}

impl Selected {
    /// Waits for the first of several steps. The others stay open in `rest`; dropping them gives them up.
    pub async fn first_of(steps: Vec<Step>) -> Self {
        let (outcome, index, rest) = select_all(steps).await;
        Self { index, outcome, rest }
    }
}
