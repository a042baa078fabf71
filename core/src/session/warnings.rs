//! Puts the warnings of a run into words for the log of the process that advances it. Readers of the run get them as
//! events.

use crate::model::{Batch, EventKind, NewEvent};
use serde_json::Value;

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
