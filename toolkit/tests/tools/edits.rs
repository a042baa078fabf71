//! `edit`: what it replaces, what it refuses, what it keeps.

use crate::Work;
use flovyn_toolkit::tools::{Edit, FilesSeen, Read, Tool, Write};
use serde_json::{Value, json};

fn one(old: &str, new: &str) -> Value {
    json!({ "path": "f", "old_string": old, "new_string": new })
}

fn many(edits: Value) -> Value {
    json!({ "path": "f", "edits": edits })
}

#[tokio::test]
async fn texts_are_replaced_in_place() {
    let work = Work::new();
    let pair = json!([{ "old_string": "a", "new_string": "b" }, { "old_string": "b", "new_string": "c" }]);
    for (before, arguments, after) in [
        ("one two", one("two", "three"), "one three"),
        ("a\r\nb\r\n", one("a\nb", "x\ny\nz"), "x\r\ny\r\nz\r\n"),
        ("a\nb\r\nc\n", one("b", "B"), "a\nB\r\nc\n"),
        ("\u{feff}head\n", one("head", "top"), "\u{feff}top\n"),
        ("say “hi”\n", one("say \"hi\"", "said \"hi\""), "said \"hi\"\n"),
        ("x  \ny\n", one("x\ny", "z"), "z\n"),
        // All against the file as it was.
        ("a b", many(pair.clone()), "b c"),
        ("a b", many(Value::String(pair.to_string())), "b c"),
        ("a", many(json!({ "old_string": "a", "new_string": "z" })), "z"),
        ("a", many(json!("{\"old_string\": \"a\", \"new_string\": \"z\"}")), "z"),
        ("x x x", json!({ "path": "f", "old_string": "x", "new_string": "y", "replace_all": true }), "y y y"),
        ("drop me", one(" me", ""), "drop"),
    ] {
        work.put("f", before);
        let outcome = work.call(Edit, arguments.clone()).await;
        assert!(!outcome.is_error, "{before:?} {arguments}: {outcome:?}");
        assert_eq!(String::from_utf8(work.get("f")).unwrap(), after, "{before:?} {arguments}");
    }
}

#[tokio::test]
async fn what_cannot_be_replaced_is_told_and_leaves_the_file() {
    let work = Work::new();
    let before = "let total = sum(items);\nx\nx\n“q” and “q”\n";
    work.put("f", before);
    work.put("latin", b"caf\xe9");
    let both =
        json!([{ "old_string": "total = sum", "new_string": "1" }, { "old_string": "sum(items)", "new_string": "2" }]);
    let unlucky = json!([{ "old_string": "let", "new_string": "var" }, { "old_string": "nowhere", "new_string": "2" }]);
    for (arguments, code, said) in [
        (one("let totals = sum(item);", "y"), "not_found", "\n     1\tlet total = sum(items);"),
        (one("zzz", "y"), "not_found", "Could not find the exact text"),
        (one("x", "y"), "not_unique", "Found 2 occurrences of old_string in \"f\", at lines 2, 3"),
        (one("\"q\"", "y"), "not_found", "Could not find"),
        (one("x", "x"), "no_change", "are the same"),
        (one("", "y"), "invalid_arguments", "old_string is empty"),
        (many(both), "overlap", "edits[0] and edits[1] change the same text in line 1"),
        (many(unlucky), "not_found", "edits[1]: Could not find"),
        (many(json!([])), "invalid_arguments", "empty"),
        (many(json!("not json")), "invalid_arguments", "no JSON list"),
        (json!({ "path": "f" }), "invalid_arguments", "Give old_string and new_string, or edits."),
        (json!({ "path": "f", "old_string": "x", "edits": [] }), "invalid_arguments", "not both"),
        (json!({ "path": "none/f", "old_string": "x", "new_string": "y" }), "not_found", "There is no file"),
        (json!({ "path": "latin", "old_string": "caf", "new_string": "y" }), "not_utf8", "no UTF-8"),
    ] {
        let outcome = work.call(Edit, arguments.clone()).await;
        assert_eq!(outcome.error_code(), Some(code), "{arguments}: {outcome:?}");
        assert!(outcome.plain_text().contains(said), "{arguments}: {}", outcome.plain_text());
    }
    assert_eq!(work.get("f"), before.as_bytes());
    assert!(!work.path().join("none").exists(), "no directory is made for a file that is not there");
}

#[tokio::test]
async fn a_fuzzy_match_is_said() {
    let work = Work::new();
    work.put("f", "a – b\n");
    let outcome = work.call(Edit, one("a - b", "c")).await;
    assert!(outcome.plain_text().contains("overlooked") && outcome.details["fuzzy"] == true, "{outcome:?}");
    assert_eq!(outcome.details["diff"], "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a – b\n+c\n");
    assert_eq!(outcome.details["firstChangedLine"], 1);
}

#[tokio::test]
async fn an_edit_of_a_file_that_changed_since_it_was_read_is_stale() {
    let work = Work::new();
    work.put("f", "one\n");
    let mut seen = FilesSeen::default();
    seen.note(&work.call(Read, json!({ "path": "./f" })).await);
    let hash = seen.of_call(&json!({ "path": "f" })).unwrap().to_owned();
    let informed = work.environment.clone().with_seen(hash);
    work.put("f", "one\nmore\n");
    let outcome = Edit.call(one("one", "two"), &informed).await.unwrap();
    assert_eq!(outcome.error_code(), Some("stale"), "{outcome:?}");
    assert_eq!(work.get("f"), b"one\nmore\n");
    // Looked at again, it goes.
    seen.note(&work.call(Read, json!({ "path": "f" })).await);
    let informed = work.environment.clone().with_seen(seen.of_call(&json!({ "path": "f" })).unwrap());
    assert!(!Edit.call(one("one", "two"), &informed).await.unwrap().is_error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn edits_of_one_turn_do_not_make_each_other_stale() {
    let work = Work::new();
    work.put("f", (0..20).map(|line| format!("<{line}>\n")).collect::<String>());
    let read = work.call(Read, json!({ "path": "f" })).await;
    let informed = work.environment.clone().with_seen(read.details["hash"].as_str().unwrap());
    let edits = (0..20).map(|line| Edit.call(one(&format!("<{line}>"), &format!("[{line}]")), &informed));
    for outcome in futures::future::join_all(edits).await {
        assert!(!outcome.as_ref().unwrap().is_error, "{outcome:?}");
    }
    assert_eq!(work.get("f"), (0..20).map(|line| format!("[{line}]\n")).collect::<String>().into_bytes());
    // What another tool of the session wrote is known as well; what somebody else wrote is not.
    assert!(!Write.call(json!({ "path": "f", "content": "w" }), &informed).await.unwrap().is_error);
    assert!(!Edit.call(one("w", "x"), &informed).await.unwrap().is_error);
    work.put("f", "y");
    assert_eq!(Edit.call(one("y", "z"), &informed).await.unwrap().error_code(), Some("stale"));
}

#[tokio::test]
async fn a_write_does_not_replace_what_was_not_read_or_has_changed_since() {
    let work = Work::new();
    work.put("f", "one\n");
    let write = |content: &str| json!({ "path": "f", "content": content });
    let keeping = work.environment.clone().with_account_of_reads();
    let refused = Write.call(write("two\n"), &keeping).await.unwrap();
    assert_eq!(refused.error_code(), Some("not_read"), "{refused:?}");
    assert!(refused.plain_text().contains("Read it, then write"), "{}", refused.plain_text());
    assert_eq!(work.get("f"), b"one\n");
    // What is there already can be written, and a new file is nobody's loss.
    assert!(!Write.call(write("one\n"), &keeping).await.unwrap().is_error);
    let new = Write.call(json!({ "path": "new", "content": "1" }), &keeping).await.unwrap();
    assert!(!new.is_error, "{new:?}");
    // A file of this session's own can be written again in the same turn.
    assert!(!Write.call(json!({ "path": "new", "content": "2" }), &keeping).await.unwrap().is_error);

    let read = work.call(Read, json!({ "path": "f", "offset": 1, "limit": 1 })).await;
    let informed = keeping.clone().with_seen(read.details["hash"].as_str().unwrap());
    work.put("f", "somebody else\n");
    let stale = Write.call(write("two\n"), &informed).await.unwrap();
    assert_eq!(stale.error_code(), Some("stale"), "{stale:?}");
    assert_eq!(work.get("f"), b"somebody else\n");
    let read = work.call(Read, json!({ "path": "f" })).await;
    let informed = keeping.with_seen(read.details["hash"].as_str().unwrap());
    assert!(!Write.call(write("two\n"), &informed).await.unwrap().is_error);
    // Without a session nobody knows what was read: programs that call the tool replace what they like.
    assert!(!work.call(Write, write("three\n")).await.is_error);
}
