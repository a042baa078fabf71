//! Room for commits that are on their way: what is held of them is bounded, of all callers together and of each key.

use crate::Identity;
use flovyn_core::error::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a commit that need no room: most have fewer.
pub(super) const SMALL: u64 = 1 << 20;
/// Bytes that are held of all callers, and of one key: others' commits find room beside it.
const ALL: u64 = 384 << 20;
const OF_A_KEY: u64 = 192 << 20;

/// What is held. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Room(Arc<Mutex<HashMap<Arc<str>, u64>>>);

impl Room {
    /// Room for a commit of a caller, none so far; free again when it is dropped.
    pub(super) fn of(&self, who: &Identity) -> Held {
        Held { room: self.clone(), key: who.name().clone(), bytes: 0 }
    }
}

/// The room of one commit.
pub(super) struct Held {
    room: Room,
    key: Arc<str>,
    bytes: u64,
}

impl Held {
    /// Takes as much as a commit needs that has come so far.
    ///
    /// Errors: `StorageUnavailable` where there is none now: its sender, which holds it anyway, comes again.
    pub(super) fn grow(&mut self, to: u64) -> Result<()> {
        if to <= SMALL.max(self.bytes) {
            return Ok(());
        }
        let (mut held, more) = (self.room.0.lock(), to - self.bytes);
        let (all, of_key) = (held.values().sum::<u64>(), held.get(&self.key).copied().unwrap_or_default());
        for (who, taken, most) in [("the server", all, ALL), ("the key", of_key, OF_A_KEY)] {
            if taken + more > most {
                let message = format!(
                    "the commit needs {to} bytes, and {taken} of the {most} that {who} may have on their way are taken; \
                     send it again later"
                );
                return Err(Error::new(Code::StorageUnavailable, message));
            }
        }
        *held.entry(self.key.clone()).or_default() += more;
        self.bytes = to;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.room.0.lock();
        if let Some(taken) = held.get_mut(&self.key) {
            *taken -= self.bytes;
            if *taken == 0 {
                held.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::id::OrgId;

    #[test]
    fn no_key_takes_the_room_of_all() {
        let (room, one, two) = (Room::default(), Identity::operator(), Identity::of_org(OrgId::DEFAULT));
        let large = 128 << 20;
        let (mut first, mut second) = (room.of(&one), room.of(&one));
        first.grow(large).unwrap();
        first.grow(large).unwrap();
        assert_eq!(second.grow(large).unwrap_err().code(), Code::StorageUnavailable);
        second.grow(SMALL).unwrap();
        let mut other = room.of(&two);
        other.grow(large).unwrap();
        drop(first);
        second.grow(large).unwrap();
        drop((second, other));
        assert!(room.0.lock().is_empty());
    }
}
