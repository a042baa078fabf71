//! What a worker keeps of the conversations it has read, so that each entry is asked of the store once.

use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OrgId};
use crate::model::Entry;
use crate::storage::Storage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bytes kept of all conversations together.
const LIMIT: usize = 32 << 20;

/// What an entry weighs beside its texts.
const OF_AN_ENTRY: usize = 256;

/// The conversations that runs of a worker have read. Entries never change, so what was read stays true; contents that the
/// store returns by reference are kept by reference.
pub(crate) struct Conversations {
    storage: Arc<dyn Storage>,
    org: OrgId,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    of: HashMap<ExecutionId, Conversation>,
    /// Who was read when: the first one goes first.
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
    pub fn new(storage: Arc<dyn Storage>, org: OrgId) -> Self {
        Self { storage, org, kept: Mutex::default() }
    }

    /// The durable entries from the root to a leaf, as the store has them, for a run that reads them.
    pub async fn branch(&self, reader: ExecutionId, leaf: EntryId) -> Result<Vec<Entry>> {
        let last = {
            let mut kept = self.kept.lock();
            match kept.up_from(reader, Some(leaf)) {
                Some(branch) => {
                    kept.touch(reader, leaf);
                    return Ok(branch);
                }
                None => kept.of.get(&reader).and_then(|conversation| conversation.last),
            }
        };
        let mut read = self.storage.branch(self.org, leaf, last).await?;
        let known = self.kept.lock().up_from(reader, read.first().and_then(|first| first.new.parent));
        let known = match known {
            Some(known) => known,
            // What it was to follow is no longer kept.
            None => {
                read = self.storage.branch(self.org, leaf, None).await?;
                Vec::new()
            }
        };
        self.kept.lock().learn(reader, leaf, &read);
        Ok(known.into_iter().chain(read).collect())
    }

    /// Drops what a run has read.
    pub fn forget(&self, reader: ExecutionId) {
        self.kept.lock().forget(reader);
    }
}

impl Kept {
    /// The kept entries from the root to one of them; none where one is missing.
    fn up_from(&self, reader: ExecutionId, mut next: Option<EntryId>) -> Option<Vec<Entry>> {
        let mut branch = Vec::new();
        if next.is_some() {
            let entries = &self.of.get(&reader)?.entries;
            while let Some(id) = next {
                let entry = entries.get(&id)?;
                if branch.is_empty() {
                    branch.reserve_exact(entry.depth as usize + 1);
                }
                next = entry.new.parent;
                branch.push(entry.clone());
            }
        }
        branch.reverse();
        Some(branch)
    }

    fn learn(&mut self, reader: ExecutionId, leaf: EntryId, read: &[Entry]) {
        let conversation = self.of.entry(reader).or_default();
        for entry in read {
            if conversation.entries.insert(entry.new.id, entry.clone()).is_none() {
                let weight = weight(entry);
                conversation.bytes += weight;
                self.bytes += weight;
            }
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
