//! The transcript that Claude Code keeps of a session: what it says of a turn that was cut, and what was spent before.

use super::{read_blocks, read_results, words};
use crate::external::event::{ExternalEvent, TurnEnd, TurnEndReason, TurnLog};
use crate::external::protocol::{CatchUp, SessionConfig};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;

/// What Claude Code writes there when a turn was stopped.
const STOPPED: &str = "[Request interrupted by user";

/// The lines of a session's transcript; none where it is not found.
pub(super) async fn read(config: &SessionConfig, id: &str) -> Option<Vec<Value>> {
    let folder = match config.variable("CLAUDE_CONFIG_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(config.variable("HOME")?).join(".claude"),
    };
    let (projects, file) = (folder.join("projects"), format!("{id}.jsonl"));
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let project: String = config.working_dir.to_string_lossy().chars().map(plain).collect();
    let text = match tokio::fs::read(projects.join(project).join(&file)).await {
        Ok(text) => text,
        // Long paths are shortened in a way of its own.
        Err(_) => {
            let mut folders = tokio::fs::read_dir(projects).await.ok()?;
            loop {
                let project = folders.next_entry().await.ok()??;
                if let Ok(text) = tokio::fs::read(project.path().join(&file)).await {
                    break text;
                }
            }
        }
    };
    // The last line may be half written.
    Some(text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// What the session had cost when its last process ended, in millionths of a US dollar. The next process counts from there;
/// one that was killed has written nothing, and is not counted by Claude Code either.
pub(super) fn cost(lines: &[Value]) -> u64 {
    let states = lines.iter().filter(|line| line["type"] == "cost-state");
    let dollars = states.filter_map(|line| line["totalCostUSD"].as_f64()).next_back();
    (dollars.unwrap_or(0.0).max(0.0) * 1e6).round() as u64
}

/// What a transcript says of the turn that was cut.
pub(super) fn catch_up(lines: &[Value], heard: &TurnLog) -> CatchUp {
    let first = heard.sent.first().map_or("", |text| text.trim());
    let own = lines.iter().filter(|line| line["isSidechain"] != true && line["isMeta"] != true);
    let own: Vec<_> = own.filter(|line| !matches!(kind(line), Kind::Other)).collect();
    let begins = |line: &Value| said(line).iter().any(|text| text.trim() == first);
    let Some(place) = own.iter().rposition(|line| begins(line)) else {
        return CatchUp::Unheard;
    };
    let (mut known, mut events, mut end) = (Vec::new(), VecDeque::new(), None);
    for line in &own[place..] {
        let message = &line["message"];
        end = None;
        match kind(line) {
            Kind::Answer => {
                end = (message["stop_reason"] == "end_turn").then(TurnEnd::default);
                read_blocks(message, false, &mut events);
            }
            Kind::Said if words(&message["content"]).starts_with(STOPPED) => {
                end = Some(TurnEnd { reason: TurnEndReason::Interrupted, message: None });
            }
            Kind::Said => known.extend(said(line)),
            Kind::Results => read_results(message, &mut events),
            Kind::Other => {}
        }
    }
    let mut events = Vec::from(events);
    match end {
        Some(end) => {
            events.push(ExternalEvent::TurnEnd(end));
            CatchUp::Ended(events)
        }
        None => CatchUp::Cut { heard: known, events },
    }
}

enum Kind {
    Said,
    Results,
    Answer,
    Other,
}

fn kind(line: &Value) -> Kind {
    match line["type"].as_str().unwrap_or_default() {
        "user" => {
            let blocks = line["message"]["content"].as_array().into_iter().flatten();
            match blocks.into_iter().any(|block| block["type"] == "tool_result") {
                true => Kind::Results,
                false => Kind::Said,
            }
        }
        // What it writes itself, where it puts a conversation in order that was cut, nobody has said.
        "assistant" if line["message"]["model"] != "<synthetic>" => Kind::Answer,
        // A message that has steered a turn.
        "attachment" if line["attachment"]["type"] == "queued_command" => Kind::Said,
        _ => Kind::Other,
    }
}

/// The messages of the user in a line: the whole, and where several were taken up at once each of them.
fn said(line: &Value) -> Vec<String> {
    let content = match kind(line) {
        Kind::Said if line["type"] == "attachment" => &line["attachment"]["prompt"],
        Kind::Said => &line["message"]["content"],
        Kind::Results | Kind::Answer | Kind::Other => return Vec::new(),
    };
    let blocks = content.as_array().into_iter().flatten();
    let texts = blocks.filter_map(|block| block["text"].as_str()).map(str::to_owned);
    std::iter::once(words(content)).chain(texts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::event::{ToolEnded, ToolStarted};
    use serde_json::json;

    fn user(content: Value) -> Value {
        json!({"type": "user", "message": {"role": "user", "content": content}})
    }

    fn answer(model: &str, stop: &str, content: Value) -> Value {
        let message = json!({"role": "assistant", "model": model, "stop_reason": stop, "content": [content]});
        json!({"type": "assistant", "message": message})
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    #[test]
    fn a_turn_that_was_cut_is_told_without_what_nobody_said() {
        let call = json!({"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "ls"}});
        let result = json!([{"type": "tool_result", "tool_use_id": "a", "content": "cut", "is_error": true}]);
        let lines = [
            json!({"type": "queue-operation", "operation": "enqueue"}),
            user(json!([text("go")])),
            json!({"type": "attachment", "attachment": {"type": "date", "date": "2026-11-29"}}),
            answer("m", "tool_use", call),
            json!({"type": "attachment", "attachment": {"type": "queued_command", "prompt": [text("and seals")]}}),
            user(result),
            answer("<synthetic>", "stop_sequence", text("No response requested.")),
            json!({"type": "cost-state", "totalCostUSD": 0.5}),
        ];
        let events = vec![
            ExternalEvent::ToolStart(ToolStarted {
                id: "a".into(),
                name: "Bash".into(),
                arguments: json!({"command": "ls"}),
            }),
            ExternalEvent::MessageEnd,
            ExternalEvent::ToolEnd(ToolEnded { id: "a".into(), content: "cut".into(), is_error: true }),
        ];
        let CatchUp::Cut { heard, events: found } = catch_up(&lines, &TurnLog::of("go".into())) else {
            panic!("it was cut")
        };
        assert_eq!(found, events);
        assert!(heard.contains(&"go".to_owned()) && heard.contains(&"and seals".to_owned()), "{heard:?}");
        assert_eq!((cost(&lines), cost(&lines[..3])), (500_000, 0));
    }

    #[test]
    fn messages_that_were_taken_up_at_once_are_each_known() {
        let lines = [user(json!([text("steered\n"), text("go")])), answer("m", "end_turn", text("Done"))];
        assert!(matches!(catch_up(&lines, &TurnLog::of("go".into())), CatchUp::Ended(events) if events.len() == 3));
        assert_eq!(catch_up(&lines, &TurnLog::of("stay".into())), CatchUp::Unheard);
    }

    #[test]
    fn a_turn_that_was_stopped_has_ended() {
        let lines = [user(json!("go")), user(json!([text("[Request interrupted by user for tool use]")]))];
        let end = TurnEnd { reason: TurnEndReason::Interrupted, message: None };
        let ended = CatchUp::Ended(vec![ExternalEvent::TurnEnd(end)]);
        assert_eq!(catch_up(&lines, &TurnLog::of("go".into())), ended);
    }
}
