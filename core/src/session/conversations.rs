//! A cache of the conversations that a worker has read, so that it reads each entry from the store once.

use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OrgId};
use crate::model::Entry;
use crate::storage::Storage;
use crate::storage::local_reference::check_contents;
use crate::sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most bytes of all conversations together.
const LIMIT: usize = 32 << 20;

/// The bytes that an entry counts beside its texts.
const OF_AN_ENTRY: usize = 256;

/// The conversations that runs of a worker have read. Entries never change, so nothing has to be invalidated. Contents
/// that the store returns by reference are kept by reference.
pub(crate) struct Conversations {
    storage: Arc<dyn Storage>,
    org: OrgId,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    of: HashMap<ExecutionId, Conversation>,
    /// The runs by the number of their last read. The one that was read least recently is dropped first.
    order: BTreeMap<u64, ExecutionId>,
    reads: u64,
    bytes: usize,
}

#[derive(Default)]
struct Conversation {
    entries: HashMap<EntryId, Entry>,
    /// The leaf that was read last.
    last: Option<EntryId>,
    read: u64,
    bytes: usize,
}

impl Conversations {
    pub(crate) fn new(storage: Arc<dyn Storage>, org: OrgId) -> Self {
        Self { storage, org, cache: Mutex::default() }
    }

    /// The durable entries from the root to a leaf, for the run `reader`. Entries that the cache has are not read
    /// again.
    pub(crate) async fn branch(&self, reader: ExecutionId, leaf: EntryId) -> Result<Vec<Entry>> {
        let mut branch = {
            let mut cache = self.cache.lock();
            if let Some(branch) = cache.up_from(reader, leaf) {
                cache.touch(reader, leaf);
                return Ok(branch);
            }
            cache.read_last(reader)
        };
        let read = self.storage.branch(self.org, leaf, branch.last().map(|last| last.new.id)).await?;
        check_contents(&read)?;
        if read.first().is_none_or(|first| first.new.parent.is_none()) {
            // The store has returned the whole branch from its root: the leaf is not below what was read last.
            branch.clear();
        }
        branch.extend(read);
        self.cache.lock().learn(reader, leaf, &branch);
        Ok(branch)
    }

    /// Drops the entries that a run has read.
    pub(crate) fn forget(&self, reader: ExecutionId) {
        self.cache.lock().forget(reader);
    }
}

impl Cache {
    /// The cached entries from the root to this one. None if one of them is missing.
    fn up_from(&self, reader: ExecutionId, leaf: EntryId) -> Option<Vec<Entry>> {
        let entries = &self.of.get(&reader)?.entries;
        let mut branch = Vec::with_capacity(entries.get(&leaf)?.depth as usize + 1);
        let mut next = Some(leaf);
        while let Some(id) = next {
            let entry = entries.get(&id)?;
            next = entry.new.parent;
            branch.push(entry.clone());
        }
        branch.reverse();
        Some(branch)
    }

    /// The branch that a run has read last.
    fn read_last(&self, reader: ExecutionId) -> Vec<Entry> {
        let last = self.of.get(&reader).and_then(|conversation| conversation.last);
        last.and_then(|last| self.up_from(reader, last)).unwrap_or_default()
    }

    fn learn(&mut self, reader: ExecutionId, leaf: EntryId, branch: &[Entry]) {
        let conversation = self.of.entry(reader).or_default();
        for entry in branch {
            conversation.entries.entry(entry.new.id).or_insert_with(|| {
                let weight = weight(entry);
                conversation.bytes += weight;
                self.bytes += weight;
                entry.clone()
            });
        }
        self.touch(reader, leaf);
        while self.bytes > LIMIT
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            self.forget(*oldest);
        }
    }

    fn touch(&mut self, reader: ExecutionId, leaf: EntryId) {
        self.reads += 1;
        if let Some(conversation) = self.of.get_mut(&reader) {
            self.order.remove(&conversation.read);
            self.order.insert(self.reads, reader);
            (conversation.read, conversation.last) = (self.reads, Some(leaf));
        }
    }

    fn forget(&mut self, reader: ExecutionId) {
        if let Some(conversation) = self.of.remove(&reader) {
            self.order.remove(&conversation.read);
            self.bytes -= conversation.bytes;
        }
    }
}

fn weight(entry: &Entry) -> usize {
    let new = &entry.new;
    let texts = new.thread.len()
        + new.role.len()
        + new.entry_type.len()
        + new.turn_id.as_ref().map_or(0, String::len)
        + new.metadata.as_ref().map_or(0, String::len);
    let content = new.content.stored().map_or_else(|| new.content.size() as usize, |_| 0);
    OF_AN_ENTRY + texts + content
}

#[cfg(test)]
mod tests {
    use super::{Cache, LIMIT, weight};
    use crate::clock::Timestamp;
    use crate::id::{EntryId, ExecutionId, Slot};
    use crate::model::{Entry, NewEntry};
    use crate::payload::Payload;
    use uuid::Uuid;

    fn entry(number: u128, parent: Option<u128>, size: usize) -> Entry {
        let new = NewEntry {
            id: EntryId(Uuid::from_u128(number)),
            parent: parent.map(|parent| EntryId(Uuid::from_u128(parent))),
            thread: String::new(),
            role: "user".into(),
            entry_type: "message".into(),
            content: Payload::raw(vec![0; size]),
            turn_id: None,
            metadata: None,
        };
        let (execution, slot) = (ExecutionId(Uuid::nil()), Slot::default());
        Entry { new, execution, slot, depth: u32::from(parent.is_some()), created_at: Timestamp(0) }
    }

    /// What was not read for the longest time goes first, and what is too large alone is not cache.
    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut cache = Cache::default();
        let run = |number| ExecutionId(Uuid::from_u128(number));
        let third = [entry(1, None, LIMIT / 3), entry(2, Some(1), 0)];
        let (root, leaf) = (third[0].new.id, third[1].new.id);
        cache.learn(run(1), leaf, &third);
        cache.learn(run(2), leaf, &third);
        cache.learn(run(2), leaf, &third);
        let both = third.iter().map(weight).sum::<usize>();
        assert_eq!(cache.bytes, 2 * both, "each once a run");
        cache.touch(run(1), root);
        cache.learn(run(3), leaf, &third);
        assert_eq!((cache.bytes, cache.order.len()), (2 * both, 2));
        assert_eq!(cache.up_from(run(1), leaf).as_deref(), Some(&third[..]));
        assert_eq!(
            (cache.up_from(run(2), leaf), cache.up_from(run(3), root).map(|branch| branch.len())),
            (None, Some(1))
        );
        assert_eq!((cache.read_last(run(1)).len(), cache.read_last(run(2)).len()), (1, 0));
        let large = [entry(1, None, LIMIT)];
        cache.learn(run(4), root, &large);
        assert_eq!((cache.bytes, cache.of.len(), cache.order.len()), (0, 0, 0));
    }
}
