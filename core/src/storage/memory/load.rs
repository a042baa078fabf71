//! Counts how much work waits and runs in each queue.

use super::state::State;
use crate::clock::Timestamp;
use crate::model::TaskStatus;
use crate::storage::QueueDepth;
use std::collections::BTreeMap;

impl State {
    pub(super) fn load(&self, now: Timestamp) -> Vec<QueueDepth> {
        let mut queues: BTreeMap<(&'static str, &str), QueueDepth> = BTreeMap::new();
        let mut count = |what, queue, pending: Option<Timestamp>, running: bool| {
            if pending.is_none() && !running {
                return;
            }
            let empty = || QueueDepth { what, queue: String::from(queue), pending: 0, running: 0, oldest: None };
            let load = queues.entry((what, queue)).or_insert_with(empty);
            load.pending += u64::from(pending.is_some());
            load.running += u64::from(running);
            load.oldest = [load.oldest, pending].into_iter().flatten().min();
        };
        for (key, run) in &self.runs {
            let ready = self.ready.contains(key) && run.visible_at <= now;
            let (queue, exec) = (run.exec.new.queue.as_str(), &run.exec);
            count("run", queue, ready.then_some(exec.updated_at), exec.worker.is_some());
            for slot in &run.open {
                let Some(row) = run.tasks.get(slot) else { continue };
                let pending = row.task.status == TaskStatus::Pending;
                let queue = row.task.new.queue.as_str();
                count("task", queue, pending.then_some(row.task.visible_at), row.lease_expires.is_some());
            }
        }
        queues.into_values().collect()
    }
}
