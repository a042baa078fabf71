//! Bounds the memory of commits that are being received, for all callers together and for each key.

use crate::access::Identity;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Commits up to this size need no reservation; most are smaller.
pub(super) const SMALL_COMMIT: u64 = 1 << 20;
/// Bytes for all callers, and for one key: one key cannot keep out the commits of others.
const SERVER_LIMIT: u64 = 384 << 20;
const KEY_LIMIT: u64 = 192 << 20;

/// The bytes that each key has reserved. Clones share them.
#[derive(Clone, Default)]
pub(super) struct CommitMemory(Arc<Mutex<HashMap<Arc<str>, u64>>>);

impl CommitMemory {
    /// The reservation of a caller's commit, empty so far; released when it is dropped.
    pub(super) fn reservation(&self, who: &Identity) -> Reservation {
        Reservation { memory: self.clone(), key: who.name().clone(), bytes: 0 }
    }
}

/// The memory of one commit.
pub(super) struct Reservation {
    memory: CommitMemory,
    key: Arc<str>,
    bytes: u64,
}

impl Reservation {
    /// Grows the reservation to the bytes that have been received.
    ///
    /// Errors: `StorageUnavailable` where they exceed a limit: the sender, which has the commit anyway, sends it again.
    pub(super) fn grow(&mut self, to: u64) -> Result<()> {
        if to <= SMALL_COMMIT.max(self.bytes) {
            return Ok(());
        }
        let (mut reserved, more) = (self.memory.0.lock(), to - self.bytes);
        let (all, of_key) = (reserved.values().sum::<u64>(), reserved.get(&self.key).copied().unwrap_or_default());
        for (who, used, most) in [("the server", all, SERVER_LIMIT), ("the key", of_key, KEY_LIMIT)] {
            if used + more > most {
                let message = format!(
                    "the commit needs {to} bytes, and {used} of the {most} that {who} may have on their way are taken; \
                     send it again later"
                );
                return Err(Error::new(Code::StorageUnavailable, message));
            }
        }
        *reserved.entry(self.key.clone()).or_default() += more;
        self.bytes = to;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.memory.0.lock();
        if let Some(used) = reserved.get_mut(&self.key) {
            *used -= self.bytes;
            if *used == 0 {
                reserved.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::id::OrgId;

    #[test]
    fn no_key_takes_the_memory_of_all() {
        let (memory, one, two) = (CommitMemory::default(), Identity::operator(), Identity::of_org(OrgId::DEFAULT));
        let large = 128 << 20;
        let (mut first, mut second) = (memory.reservation(&one), memory.reservation(&one));
        first.grow(large).unwrap();
        first.grow(large).unwrap();
        assert_eq!(second.grow(large).unwrap_err().code(), Code::StorageUnavailable);
        second.grow(SMALL_COMMIT).unwrap();
        let mut other = memory.reservation(&two);
        other.grow(large).unwrap();
        drop(first);
        second.grow(large).unwrap();
        drop((second, other));
        assert!(memory.0.lock().is_empty());
    }
}
