//! A run among those below it: what they have used together, and who they are to those who follow all of them.

use super::{StreamEvent, UsageTotals};
use crate::id::ExecutionId;
use std::sync::Arc;

/// What is added up over a run and all runs below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollUp {
    /// The run.
    pub execution: ExecutionId,
    /// The runs that it has started itself and that are still there, whether they have ended or not.
    pub children: u64,
    /// All runs below it.
    pub descendants: u64,
    /// What it and all below it have used, by model.
    pub usage: UsageTotals,
}

/// A run below another one, as those know it who follow a whole family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Relative {
    /// The run.
    pub id: ExecutionId,
    /// The run that started it.
    pub parent: ExecutionId,
    /// How many runs are above it.
    pub depth: u32,
    /// Its number in the store. Of the children of one run, those that were born later have higher ones.
    pub birth: u64,
}

/// An event of a run or of one below it, as a reader of all of them gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyEvent {
    /// What to resume after.
    pub cursor: Arc<str>,
    /// Whose event it is.
    pub execution: ExecutionId,
    /// How many runs are above that one.
    pub depth: u32,
    /// The event. Its own id is a position among the events of its run.
    pub event: StreamEvent,
}
