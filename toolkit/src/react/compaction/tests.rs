//! Where conversations are cut.

use super::*;
use crate::message::{ToolCall, ToolResult};
use flovyn_core::Payload;
use flovyn_core::clock::Timestamp;
use flovyn_core::id::{ExecutionId, Slot};
use flovyn_core::model::{Entry, NewEntry};
use serde_json::json;

fn id(number: u8) -> EntryId {
    EntryId(uuid::Uuid::from_bytes([number; 16]))
}

fn entry(number: u8, entry_type: &str, content: &impl Serialize) -> Entry {
    let new = NewEntry {
        id: id(number),
        parent: None,
        thread: String::new(),
        role: "user".into(),
        entry_type: entry_type.into(),
        content: Payload::of(content).expect("JSON"),
        turn_id: None,
        metadata: None,
    };
    let execution = ExecutionId(uuid::Uuid::nil());
    Entry { new, execution, slot: Slot::default(), depth: 0, created_at: Timestamp(0) }
}

/// About 100 tokens.
fn long(word: &str) -> String {
    word.repeat(400 / word.len())
}

fn called(number: u8, tool: &str) -> Message {
    let call = ToolCall::new(format!("c{number}"), tool, json!({"path": format!("{tool}.rs"), "x": long("x")}));
    Message::new(Role::Assistant, vec![call.into()])
}

fn gave(number: u8) -> Message {
    Message::tool([ToolResult::text(format!("c{number}"), "read", long("r"))])
}

fn transcript(messages: &[Message]) -> Transcript {
    let entries: Vec<_> = (1..).zip(messages).map(|(number, message)| entry(number, "message", message)).collect();
    Transcript::of(&entries).expect("a transcript")
}

fn keeping(keep_recent_tokens: u64) -> CompactionConfig {
    CompactionConfig { keep_recent_tokens, ..CompactionConfig::default() }
}

#[test]
fn a_window_is_full_before_it_overflows() {
    let config = CompactionConfig::default();
    assert!(!config.is_due(1_000_000, None), "of an unknown window nothing is known");
    assert!(!config.is_due(183_616, Some(200_000)) && config.is_due(183_617, Some(200_000)));
    assert!(config.is_due(751, Some(1_000)) && !config.is_due(750, Some(1_000)), "a small window keeps a quarter free");
    assert!(!CompactionConfig { enabled: false, ..config }.is_due(1_000_000, Some(1_000)));
}

#[test]
fn whole_turns_are_hidden_first() {
    let turn = |n| [Message::user(long("u")), called(n, "read"), gave(n), Message::assistant(long("a"))];
    let messages: Vec<_> = [turn(1), turn(2)].concat();
    let cut = keeping(450).cut(&transcript(&messages), None, false).expect("a cut");
    assert_eq!(cut.first_kept, Some(id(5)));
    assert_eq!(cut.extracts, [Extract { from: None, until: Some(id(5)), turn_prefix: false, focus: None }]);
    assert!(cut.details.read_files.contains("read.rs"));
}

#[test]
fn a_call_is_never_parted_from_its_results() {
    let messages = [
        Message::user(long("u")),
        Message::assistant(long("a")),
        Message::user("go"),
        called(1, "read"),
        gave(1),
        gave(1),
    ];
    for keep in 0..700 {
        let cut = keeping(keep).cut(&transcript(&messages), None, false);
        let Some(cut) = cut else { continue };
        assert!(![Some(id(5)), Some(id(6)), None].contains(&cut.first_kept), "{keep}: {cut:?}");
    }
}

#[test]
fn one_long_turn_is_cut_inside_and_its_beginning_told_for_itself() {
    let messages = [
        Message::user(long("o")),
        Message::assistant(long("o")),
        Message::user(long("u")),
        called(1, "write"),
        gave(1),
        called(2, "read"),
        gave(2),
    ];
    let cut = keeping(250).cut(&transcript(&messages), None, false).expect("a cut");
    assert_eq!(cut.first_kept, Some(id(6)));
    let expected = [
        Extract { from: None, until: Some(id(3)), turn_prefix: false, focus: None },
        Extract { from: Some(id(3)), until: Some(id(6)), turn_prefix: true, focus: None },
    ];
    assert_eq!(cut.extracts, expected);
    assert!(cut.details.modified_files.contains("write.rs") && cut.details.read_files.is_empty());
    let prompt = expected[1].prompt(&transcript(&messages))[1].text();
    assert!(prompt.contains("[User]\nuuuu") && prompt.contains("write(") && !prompt.contains("read("), "{prompt}");
    assert!(!prompt.contains("oooo"));
}

#[test]
fn what_cannot_be_cut_is_left_alone() {
    assert_eq!(keeping(10).cut(&transcript(&[]), None, false), None);
    assert_eq!(keeping(10).cut(&transcript(&[Message::user(long("u"))]), None, false), None);
    assert_eq!(keeping(10_000).cut(&transcript(&[Message::user("a"), Message::assistant("b")]), None, false), None);
    let overflown = keeping(10_000).cut(&transcript(&[Message::user(long("a")), Message::user(long("b"))]), None, true);
    assert_eq!(overflown.and_then(|cut| cut.first_kept), Some(id(2)), "the provider knows better than the estimate");
}

#[test]
fn a_summary_hides_what_it_stands_for_and_is_carried_on() {
    let compacted = Compacted {
        summary: "It was about otters.".into(),
        first_kept_entry_id: Some(id(2)),
        tokens_before: 9,
        usage: Usage::default(),
        details: CompactionDetails { modified_files: ["a.rs".to_owned()].into(), ..CompactionDetails::default() },
    };
    let entries = [
        entry(1, "message", &Message::user("old")),
        entry(2, "message", &Message::user(long("k"))),
        entry(3, "compaction", &compacted),
        entry(4, "message", &Message::user(long("n"))),
        entry(5, "context_edit", &json!({"targetId": id(2), "replacement": Message::user("edited")})),
    ];
    let transcript = Transcript::of(&entries).expect("a transcript");
    let texts: Vec<_> = transcript.messages().iter().map(Message::text).collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[0].contains("It was about otters.") && texts[0].contains("Files changed: a.rs"));
    assert_eq!(texts[1..], ["edited".to_owned(), long("n")]);
    let cut = keeping(10).cut(&transcript, None, false).expect("a cut");
    let prompt = cut.extracts[0].prompt(&transcript)[1].text();
    assert!(prompt.contains("[Summary from before]\nIt was about otters.") && prompt.contains("edited"), "{prompt}");
    assert!(cut.details.modified_files.contains("a.rs"));
}

#[test]
fn results_are_cut_short_for_the_summariser_alone() {
    let text = "é".repeat(3_000);
    let long = Message::tool([ToolResult::text("c", "read", text.clone())]);
    let whole = Extract { from: None, until: None, turn_prefix: false, focus: None };
    let transcript = transcript(&[Message::user("go"), long]);
    let prompt = whole.prompt(&transcript)[1].text();
    assert!(prompt.contains("… [1000 characters left out]"));
    assert!(transcript.messages()[1].tool_results().any(|result| result.content[0].as_text() == Some(&text)));
}
