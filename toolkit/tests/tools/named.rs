//! Files by their names: hidden and ignored ones that are named, and names that are written in two ways.

use crate::Work;
use flovyn_toolkit::tools::{Edit, Find, Grep, Read, Write};
use serde_json::json;

#[tokio::test]
async fn what_is_named_is_found_although_it_is_hidden_or_ignored() {
    let work = Work::new();
    for path in [
        ".env",
        ".github/workflows/ci.yml",
        ".github/.hidden/x",
        "src/.config/a.toml",
        "src/main.rs",
        "node_modules/left/index.js",
        "node_modules/left/package.json",
        "secret.txt",
        "deep/.env",
        "deep/node_modules/x.js",
    ] {
        work.put(path, "needle\n");
    }
    work.put(".gitignore", "node_modules\nsecret.txt\n");
    for (arguments, expected) in [
        (json!({ "pattern": "*" }), "deep/\nsrc/\nsrc/main.rs\n"),
        (json!({ "pattern": "**" }), "deep/\nsrc/\nsrc/main.rs\n"),
        (json!({ "pattern": ".env" }), ".env\ndeep/.env\n"),
        (json!({ "pattern": "**/.env" }), ".env\ndeep/.env\n"),
        (json!({ "pattern": ".env*" }), ".env\ndeep/.env\n"),
        (
            json!({ "pattern": ".github/**" }),
            ".github/.hidden/\n.github/.hidden/x\n.github/workflows/\n.github/workflows/ci.yml\n",
        ),
        (json!({ "pattern": "./.github/workflows/*.yml" }), ".github/workflows/ci.yml\n"),
        (json!({ "pattern": ".github" }), ".github/\n"),
        (json!({ "pattern": "*", "path": ".github/workflows" }), ".github/workflows/ci.yml\n"),
        (json!({ "pattern": "src/.config/*" }), "src/.config/a.toml\n"),
        (json!({ "pattern": "src/*" }), "src/main.rs\n"),
        (json!({ "pattern": "node_modules/**/*.js" }), "node_modules/left/index.js\n"),
        (json!({ "pattern": "*.json", "path": "node_modules" }), "node_modules/left/package.json\n"),
        (json!({ "pattern": "secret.txt" }), "secret.txt\n"),
        (json!({ "pattern": "*.txt" }), "No files found."),
    ] {
        assert_eq!(work.call(Find, arguments.clone()).await.plain_text(), expected, "{arguments}");
    }
    let found = work.call(Grep, json!({ "pattern": "needle", "path": ".github" })).await.plain_text();
    assert_eq!(found, ".github/.hidden/x:1: needle\n.github/workflows/ci.yml:1: needle\n");
}

#[tokio::test]
async fn a_name_is_found_by_its_normal_form() {
    let work = Work::new();
    // As macOS writes them: letters and their marks apart, and a narrow space before "AM".
    let (decomposed, narrow) = ("u\u{308}ber/cafe\u{301}.txt", "Screenshot 2026-11-26 at 9.41.00\u{202f}AM.txt");
    work.put(decomposed, "one\n");
    work.put(narrow, "one\n");
    for (said, stored) in [("\u{fc}ber/caf\u{e9}.txt", decomposed), ("Screenshot 2026-11-26 at 9.41.00 AM.txt", narrow)]
    {
        let read = work.call(Read, json!({ "path": said })).await;
        assert_eq!((read.plain_text().as_str(), &read.details["path"]), ("     1\tone\n", &json!(stored)));
        let edited = work.call(Edit, json!({ "path": said, "old_string": "one", "new_string": "two" })).await;
        assert!(!edited.is_error, "{edited:?}");
        assert_eq!(work.get(stored), b"two\n");
        let written = work.call(Write, json!({ "path": said, "content": "three\n" })).await;
        assert_eq!(written.details["action"], "overwritten", "{written:?}");
        assert_eq!(work.get(stored), b"three\n");
        let found = work.call(Find, json!({ "pattern": said })).await.plain_text();
        assert_eq!(found, format!("{stored}\n"));
        let found = work.call(Grep, json!({ "pattern": "three", "glob": said })).await.plain_text();
        assert_eq!(found, format!("{stored}:1: three\n"));
    }
    assert_eq!(crate::names(&work.path().join("u\u{308}ber")), ["cafe\u{301}.txt"], "nothing else was made");
    // A name that is there as it is said is taken before another of the same form.
    work.put("a\u{a0}b", "hard");
    work.put("a b", "soft");
    assert_eq!(work.call(Read, json!({ "path": "a b" })).await.plain_text(), "     1\tsoft\n");
    assert_eq!(work.call(Read, json!({ "path": "a\u{a0}b" })).await.plain_text(), "     1\thard\n");
    // A new file gets the name that was said.
    let new = work.call(Write, json!({ "path": "u\u{308}ber/ne\u{301}w.txt", "content": "" })).await;
    assert_eq!((new.is_error, work.get("u\u{308}ber/ne\u{301}w.txt").len()), (false, 0));
}
