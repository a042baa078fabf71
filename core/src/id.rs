//! Ids: typed UUIDs, places in a journal, and the ids that are made from such a place.
//!
//! The id of what an op creates depends only on the place of the op (ARCHITECTURE.md, "Words"). So it does no harm when
//! the same op is written twice.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])+ $name:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A fresh time-ordered id (UUIDv7).
            pub fn fresh() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    )+};
}

ids! {
    /// A tenant.
    OrgId;
    /// One durable run of an agent.
    ExecutionId;
    /// A node of a conversation tree.
    EntryId;
    /// A task of a run; also its idempotency key.
    TaskId;
    /// A signal in a mailbox.
    SignalId;
    /// One process that advances runs.
    WorkerId;
    /// A key of an org.
    #[doc(hidden)]
    KeyId;
    /// A predefined agent.
    #[doc(hidden)]
    DefinitionId;
    /// One commit request. It is sent again with the same id when its outcome is unknown.
    #[doc(hidden)]
    RequestId;
}

/// A UUID that nobody can guess (UUIDv4).
pub(crate) fn random() -> Uuid {
    Uuid::new_v4()
}

impl OrgId {
    /// The org of a backend that has only one.
    pub const DEFAULT: OrgId = OrgId(Uuid::from_u128(0x666c_6f76_796e_0000_8000_0000_0000_0001));
}

impl ExecutionId {
    /// The id of the run with a user's key: the key itself if it is a UUID, otherwise a UUIDv5 of org and key.
    pub fn of_key(org: OrgId, key: &str) -> Self {
        Self(Uuid::parse_str(key).unwrap_or_else(|_| Uuid::new_v5(&org.0, key.as_bytes())))
    }

    /// The id of the child that this run has given an id.
    pub(crate) fn child(self, id: &str) -> Self {
        Self(Uuid::new_v5(&self.0, format!("child:{id}").as_bytes()))
    }
}

/// The place of an op in its execution's journal.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Slot {
    /// The number of the segment, from 0.
    pub segment: u32,
    /// The number of the op in the segment, from 0.
    pub sequence: u32,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.segment, self.sequence)
    }
}

/// The place of an op inside a `once`. It does not name a segment, so the op keeps its id when a later segment calls
/// the
/// `once` again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[doc(hidden)]
pub struct OnceSlot {
    /// The name given to `once`.
    pub name: std::sync::Arc<str>,
    /// 0 for the result of the `once`, and from 1 on for the ops that are called while it runs.
    pub n: u32,
}

/// The name of an op, from which the ids of what it creates are made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpId {
    /// The run.
    pub execution: ExecutionId,
    /// Its place.
    pub slot: Slot,
    /// Its place inside a `once`. Where there is one, the id is made from it and not from the slot.
    pub once: Option<OnceSlot>,
}

impl OpId {
    /// The UUID of the thing this op creates (UUIDv5 of the op id).
    pub fn uuid(&self) -> Uuid {
        use std::io::Write;
        let mut name = [0u8; 128];
        let mut cursor = std::io::Cursor::new(&mut name[..]);
        match write!(cursor, "{self}") {
            Ok(()) => {
                let end = cursor.position() as usize;
                Uuid::new_v5(&self.execution.0, &name[..end])
            }
            Err(_) => Uuid::new_v5(&self.execution.0, self.to_string().as_bytes()),
        }
    }

    /// Reads `{execution}-{segment}-{sequence}` or `{execution}-once-{name}-{n}`; the slot of the latter is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        let execution = text.get(..36)?.parse().ok()?;
        let rest = text.get(37..)?;
        if let Some(rest) = rest.strip_prefix("once-") {
            let (name, n) = rest.rsplit_once('-')?;
            let once = OnceSlot { name: name.into(), n: n.parse().ok()? };
            return Some(Self { execution, slot: Slot::default(), once: Some(once) });
        }
        let (segment, sequence) = rest.split_once('-')?;
        Some(Self {
            execution,
            slot: Slot { segment: segment.parse().ok()?, sequence: sequence.parse().ok()? },
            once: None,
        })
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.once {
            Some(once) => write!(f, "{}-once-{}-{}", self.execution, once.name, once.n),
            None => write!(f, "{}-{}", self.execution, self.slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_ids_read_back() {
        let execution = ExecutionId::fresh();
        let plain = OpId { execution, slot: Slot { segment: 3, sequence: 14 }, once: None };
        assert_eq!(OpId::parse(&plain.to_string()), Some(plain));
        let once = OpId { execution, slot: Slot::default(), once: Some(OnceSlot { name: "a-b".into(), n: 2 }) };
        assert_eq!(OpId::parse(&once.to_string()), Some(once));
        assert_eq!(OpId::parse("nonsense"), None);
    }

    #[test]
    fn a_long_once_name_still_gives_one_stable_id() {
        let op = OpId {
            execution: ExecutionId::fresh(),
            slot: Slot::default(),
            once: Some(OnceSlot { name: "x".repeat(200).into(), n: 0 }),
        };
        assert_eq!(op.uuid(), op.uuid());
    }
}
