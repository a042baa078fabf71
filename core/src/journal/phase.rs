//! Where a copy of a run stands: what its code is at, and what it holds in the store.
//!
//! These are two things. Code of a copy that waits in the store may go on by itself, save or end.

use super::effect::Ending;
use crate::model::{NewCheckpoint, Wait};

/// What the code is at. Whether it repeats what is recorded is told by the script.
#[derive(Debug)]
pub(super) enum Phase {
    /// It goes on, or waits for an outcome.
    Running,
    /// It has asked for a checkpoint, which is here until its commit leaves.
    Saving(Option<Box<NewCheckpoint>>),
    /// It ended or is to be paused, and that is not durable yet.
    Ending(Box<Ending>),
    /// The copy takes nothing more.
    Over,
}

/// What the copy holds in the store.
#[derive(Debug)]
pub(super) enum Standing {
    /// The run, as its holder.
    Advancing,
    /// Nothing: by its last commit the run waits for this.
    Waiting(Box<Wait>),
    /// The run, by a claim that was taken for it. What it was woken by is on its way.
    Claimed,
}

impl Phase {
    /// Ends the code for this reason. That it was saving matters no more.
    pub fn end(&mut self, ending: Ending) {
        *self = Self::Ending(Box::new(ending));
    }

    /// Whether a checkpoint was asked for and is not durable yet.
    pub fn is_saving(&self) -> bool {
        matches!(self, Self::Saving(_))
    }

    /// Whether the code has ended, durably or not.
    pub fn is_ending(&self) -> bool {
        matches!(self, Self::Ending(_))
    }

    /// Whether the copy takes nothing more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }
}

impl Standing {
    /// Whether the run waits in the store.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }
}
