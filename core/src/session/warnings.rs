//! Puts the warnings of a run into words for the log of the process that advances it. Readers of the run get them as
//! events.

use super::Session;
use crate::model::{Batch, EventKind, NewEvent};
use crate::streaming::without_log;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// When it is looked whether anybody serves a task that this process does not. By then its commit is written.
const UNSERVED_AFTER: Duration = Duration::from_millis(300);

impl Session {
    /// Warns if nobody alive serves a kind of tasks on a queue that the agent has just called for the first time: most often
    /// it was forgotten where the agent is served, or the queue has another name, and the run would wait in silence.
    pub(crate) fn warn_unless_served(&self, kind: &str, queue: &str) {
        let (storage, org, run) = (Arc::downgrade(self.storage()), self.org(), self.execution_id());
        let (kind, queue) = (kind.to_owned(), queue.to_owned());
        self.runtime.spawn(async move {
            tokio::time::sleep(UNSERVED_AFTER).await;
            let Some(storage) = storage.upgrade() else { return };
            let Ok(unserved) = storage.unserved(org).await else { return };
            if unserved.iter().any(|(waiting, at, _)| *waiting == kind && *at == queue) {
                let line = format!(
                    "task {kind:?} of run {run} waits: no live worker serves it on the queue {queue:?}. Register it where \
                     its agent is served, name the queue of those who serve it, or start them"
                );
                if !without_log(&line) {
                    tracing::warn!("{line}");
                }
            }
        });
    }
}

/// The warnings of a batch, except those that the process logs elsewhere.
pub(super) fn warnings(batch: &Batch) -> impl Iterator<Item = String> {
    batch.events.iter().filter(|event| event.kind == EventKind::Warning).filter_map(|event| words(event, batch.segment))
}

fn words(NewEvent { sequence, data, .. }: &NewEvent, segment: u32) -> Option<String> {
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    let op = || sequence.map(|sequence| format!("{segment}-{sequence}")).unwrap_or_default();
    Some(match text("warning") {
        "diverged" => {
            format!("its code no longer does what was recorded, and it goes on in the new way: {}", text("message"))
        }
        "orphaned" => {
            let ops: Vec<_> = data["ops"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            format!("its code no longer calls what was recorded, which is left as it is: {}", ops.join(", "))
        }
        "reworded" => format!(
            "op {} was recorded as {} and is called as {} now: what was recorded counts",
            op(),
            text("recorded"),
            text("called")
        ),
        "long_tail" => format!("it has made {} steps since its last checkpoint: {}", data["ops"], text("advice")),
        "budget_low" => format!("little is left of its budget: {}", data["budget"]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_warning_says_what_was_recorded_and_what_is_called() {
        let told = |sequence, data| words(&NewEvent { kind: EventKind::Warning, sequence, data }, 2);
        let reworded = json!({ "warning": "reworded", "recorded": "task \"a\"", "called": "task \"b\"" });
        let expected = "op 2-7 was recorded as task \"a\" and is called as task \"b\" now: what was recorded counts";
        assert_eq!(told(Some(7), reworded).as_deref(), Some(expected));
        let orphaned = json!({ "warning": "orphaned", "ops": ["task \"a\"", "timer"] });
        assert!(told(None, orphaned).unwrap().ends_with("left as it is: task \"a\", timer"));
        assert_eq!(told(None, json!({ "warning": "unfinished" })), None, "the host says it with its place");
    }
}
