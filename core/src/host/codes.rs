//! The numbers by which effects, outcomes and the like cross into a host language. `make gen` names them there.

use crate::journal::{OnceBegin, OpRef, Outcome, Outside};
use crate::model::ChunkKind;

/// A set of codes as the generator writes it.
#[derive(Debug)]
pub struct CodeTable {
    /// The name of the set.
    pub name: &'static str,
    /// What its codes say.
    pub doc: &'static str,
    /// Name, number and meaning of each.
    pub codes: &'static [(&'static str, u32, &'static str)],
}

macro_rules! codes {
    ($(#[doc = $doc:literal] $set:ident { $(#[doc = $meaning:literal] $name:ident = $number:literal,)+ })+) => {
        $(
            #[doc = $doc]
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            #[repr(u8)]
            pub enum $set { $(#[doc = $meaning] $name = $number,)+ }

            impl $set {
                /// Its number.
                pub const fn number(self) -> u32 {
                    self as u32
                }
            }
        )+

        /// All sets of codes.
        pub const CODE_TABLES: &[CodeTable] = &[$(CodeTable {
            name: stringify!($set),
            doc: $doc.trim_ascii(),
            codes: &[$((stringify!($name), $number, $meaning.trim_ascii()),)+],
        },)+];
    };
}

codes! {
    /// What the engine asks of an activation.
    EffectCode {
        /// An await has its outcome: op, outcome code, value.
        Deliver = 0,
        /// Start an inline attempt of a task.
        Start = 1,
        /// Stop an inline attempt; its end no longer matters.
        CancelTask = 2,
        /// Put the copy away: why, and what of it.
        Close = 3,
        /// Say once the code is quiet whether anything outside may make it go on.
        Ask = 4,
        /// Write to the log what the run warns of.
        Warn = 5,
    }
    /// How an await ended.
    OutcomeCode {
        /// With a value.
        Value = 0,
        /// With a failure.
        Failed = 1,
        /// Its time was up.
        TimedOut = 2,
        /// The run was asked to stop.
        Cancelled = 3,
        /// With a value that the language cannot show: the error says why.
        Unreadable = 4,
        /// With what has happened to a child.
        Event = 5,
    }
    /// How a run ended, or that it waits.
    EndCode {
        /// With a value.
        Completed = 0,
        /// With a failure.
        Failed = 1,
        /// It was cancelled: what it kept.
        Cancelled = 2,
        /// It waits: what is known of it.
        Waiting = 3,
    }
    /// How a `once` begins.
    OnceCode {
        /// It happened in an earlier segment: its value.
        Done = 0,
        /// It happened in this segment: the op whose outcome is its value.
        Recorded = 1,
        /// It has not happened: run it.
        Run = 2,
    }
    /// What a preview shows.
    PreviewCode {
        /// A piece of text.
        Token = 0,
        /// Structured data.
        Data = 1,
        /// An error worth seeing.
        Error = 2,
    }
    /// What may make quiet code go on.
    OutsideCode {
        /// The outcomes alone that it waits for.
        Nothing = 0,
        /// Perhaps something that the engine cannot see.
        Unknown = 1,
        /// Something that the engine cannot see.
        Something = 2,
    }
    /// What a worker has for its loop.
    NewsCode {
        /// Run an agent from its top.
        Agent = 0,
        /// An activation has effects.
        Effects = 1,
        /// Run an attempt of a task.
        Task = 2,
        /// Stop an attempt of a task.
        CancelTask = 3,
    }
}

/// The op of a pending checkpoint, which is awaited by being asked for.
pub const CHECKPOINT_OP: u32 = OpRef::CHECKPOINT.0;

impl OutcomeCode {
    /// The code of an outcome whose value can be shown.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Value(_) | Outcome::Signal(_) | Outcome::Fired | Outcome::Done => Self::Value,
            Outcome::Event(_) => Self::Event,
            Outcome::Failed(_) => Self::Failed,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

impl OnceCode {
    /// The code of a beginning.
    pub fn of(begun: &OnceBegin) -> Self {
        match begun {
            OnceBegin::Done(_) => Self::Done,
            OnceBegin::Recorded(_) => Self::Recorded,
            OnceBegin::Run => Self::Run,
        }
    }
}

impl PreviewCode {
    /// The kind of a preview by its number; what is unknown is an error.
    pub fn kind(number: u32) -> ChunkKind {
        match number {
            0 => ChunkKind::Token,
            1 => ChunkKind::Data,
            _ => ChunkKind::Error,
        }
    }
}

impl OutsideCode {
    /// What a host says by its number; what is unknown is the most careful answer.
    pub fn outside(number: u32) -> Outside {
        match number {
            0 => Outside::Nothing,
            1 => Outside::Unknown,
            _ => Outside::Something,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back_as_what_they_say() {
        assert_eq!(PreviewCode::kind(PreviewCode::Token.number()), ChunkKind::Token);
        assert_eq!(PreviewCode::kind(PreviewCode::Data.number()), ChunkKind::Data);
        assert_eq!(PreviewCode::kind(PreviewCode::Error.number()), ChunkKind::Error);
        assert_eq!(OutsideCode::outside(OutsideCode::Nothing.number()), Outside::Nothing);
        assert_eq!(OutsideCode::outside(OutsideCode::Unknown.number()), Outside::Unknown);
        assert_eq!(OutsideCode::outside(OutsideCode::Something.number()), Outside::Something);
    }
}
