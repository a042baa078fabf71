//! `read` and `write`: pages, caps, images, modes, atomicity.

use crate::{Work, names};
use flovyn_toolkit::message::Content;
use flovyn_toolkit::tools::{Read, Tool, Write};
use image::{ImageFormat, RgbImage};
use serde_json::json;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn lines(count: usize) -> String {
    (1..=count).map(|line| format!("line {line}\n")).collect()
}

#[tokio::test]
async fn pages_are_as_documented() {
    let work = Work::new();
    work.put("long", lines(5_000));
    work.put("short", "one\r\ntwo");
    work.put("marked", "\u{feff}first\n");
    work.put("empty", "");
    work.put("wide", format!("{}\n{}\nend\n", "x".repeat(2_000), "é".repeat(2_001)));
    work.put("fat", format!("{}\n", "y".repeat(1_000)).repeat(100));
    work.put("latin", b"caf\xe9\n");
    for (arguments, begins, ends) in [
        (json!({ "path": "short" }), "     1\tone\n", "     2\ttwo\n"),
        (json!({ "path": "marked" }), "     1\tfirst\n", "     1\tfirst\n"),
        (json!({ "path": "empty" }), "[The file is empty.]", "[The file is empty.]"),
        (
            json!({ "path": "long" }),
            "     1\tline 1\n",
            "  2000\tline 2000\n\n[Showing lines 1-2000 of 5000. Use offset=2001 to continue.]",
        ),
        (
            json!({ "path": "long", "offset": 4_999 }),
            "  4999\tline 4999\n",
            "  5000\tline 5000\n\n[Showing lines 4999-5000 of 5000.]",
        ),
        (
            json!({ "path": "long", "offset": 10, "limit": 2 }),
            "    10\t",
            "    11\tline 11\n\n[Showing lines 10-11 of 5000. Use offset=12 to continue.]",
        ),
        (
            json!({ "path": "long", "limit": 1 }),
            "     1\tline 1\n\n",
            "[Showing lines 1-1 of 5000. Use offset=2 to continue.]",
        ),
        (json!({ "path": "fat" }), "     1\tyyy", "[Showing lines 1-50 of 100. Use offset=51 to continue.]"),
        (
            json!({ "path": "wide" }),
            "     1\txxx",
            "[Long lines are cut. See all of one with bash: sed -n '2p' FILE | cut -c2001-]",
        ),
        (json!({ "path": "latin" }), "     1\tcaf\u{fffd}\n", "edit does not change such files.]"),
    ] {
        let outcome = work.call(Read, arguments.clone()).await;
        let text = outcome.plain_text();
        assert!(!outcome.is_error && text.starts_with(begins) && text.ends_with(ends), "{arguments}: {text}");
        assert!(text.len() < 51 * 1024, "{arguments}: {} bytes", text.len());
    }
    let wide = work.call(Read, json!({ "path": "wide" })).await.plain_text();
    assert!(wide.contains(&format!("     1\t{}\n", "x".repeat(2_000))), "a line of 2000 characters is whole");
    assert!(wide.contains(&format!("{} [cut at 2000 characters", "é".repeat(2_000))) && !wide.contains('\u{fffd}'));
}

#[tokio::test]
async fn what_cannot_be_read_is_told() {
    let work = Work::new();
    work.put("short", "one\n");
    work.put("program", b"\x7fELF\0\0\0");
    work.put("broken.png", b"\x89PNG\r\n\x1a\nnot really");
    for (arguments, code, said) in [
        (json!({ "path": "nothing" }), "not_found", "There is no file"),
        (json!({ "path": "short/below" }), "not_a_directory", "as if it were a directory"),
        (json!({ "path": "short", "offset": 2 }), "offset_too_large", "which has 1 lines"),
        (json!({ "path": "program" }), "binary", "file, xxd, strings"),
        (json!({ "path": "broken.png" }), "broken_image", "cannot be read as one"),
        (json!({ "offset": 1 }), "invalid_arguments", "path"),
    ] {
        let outcome = work.call(Read, arguments.clone()).await;
        assert_eq!(outcome.error_code(), Some(code), "{arguments}: {outcome:?}");
        assert!(outcome.plain_text().contains(said), "{arguments}: {}", outcome.plain_text());
    }
}

#[tokio::test]
async fn the_hash_is_of_the_whole_file_whatever_is_shown() {
    let work = Work::new();
    let content = lines(30_000);
    work.put("long", &content);
    let expected = blake3::hash(content.as_bytes()).to_hex().to_string();
    for arguments in [json!({ "path": "long" }), json!({ "path": "long", "offset": 29_000, "limit": 5 })] {
        assert_eq!(work.call(Read, arguments).await.details["hash"], expected);
    }
}

#[tokio::test]
async fn images_are_known_by_their_bytes_and_made_smaller() {
    let work = Work::new();
    for (name, format, width, height, expected) in [
        ("small.txt", ImageFormat::Png, 40, 30, (40, 30, "image/png")),
        ("photo", ImageFormat::Jpeg, 64, 64, (64, 64, "image/jpeg")),
        ("wide.png", ImageFormat::Png, 4_000, 1_000, (2_000, 500, "image/png")),
        ("high.webp", ImageFormat::WebP, 100, 2_500, (80, 2_000, "image/png")),
    ] {
        let mut bytes = Cursor::new(Vec::new());
        RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 7]))
            .write_to(&mut bytes, format)
            .unwrap();
        work.put(name, bytes.into_inner());
        let outcome = work.call(Read, json!({ "path": name })).await;
        let details = &outcome.details;
        let found = (
            details["width"].as_u64().unwrap(),
            details["height"].as_u64().unwrap(),
            details["mime"].as_str().unwrap(),
        );
        assert_eq!(found, expected, "{name}");
        let Content::Media(media) = &outcome.content[1].content else { panic!("{name}: {:?}", outcome.content) };
        let flovyn_toolkit::message::MediaSource::Base64(data) = &media.source else { panic!("{media:?}") };
        use base64::Engine;
        let shown = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
        let shown = image::load_from_memory(&shown).unwrap();
        assert_eq!((shown.width().into(), shown.height().into()), (expected.0, expected.1), "{name}");
    }
}

#[tokio::test]
async fn a_write_makes_or_replaces_a_file_with_its_parents() {
    let work = Work::new();
    let outcome = work.call(Write, json!({ "path": "a/b/c.txt", "content": "one\ntwo\n" })).await;
    assert_eq!(outcome.plain_text(), "Wrote 8 bytes to a/b/c.txt (created).");
    assert_eq!(outcome.details["diff"], "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n");
    let outcome = work.call(Write, json!({ "path": "a/b/c.txt", "content": "one\n2\n" })).await;
    assert_eq!(outcome.plain_text(), "Wrote 6 bytes to a/b/c.txt (overwritten).");
    assert_eq!(outcome.details["diff"], "--- a/a/b/c.txt\n+++ b/a/b/c.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    assert_eq!((&outcome.details["added"], &outcome.details["removed"]), (&json!(1), &json!(1)));
    assert_eq!(outcome.details["hash"], blake3::hash(b"one\n2\n").to_hex().to_string());
    assert_eq!(work.get("a/b/c.txt"), b"one\n2\n");
    assert_eq!(names(&work.path().join("a/b")), ["c.txt"], "nothing else is left");
    assert!(work.call(Write, json!({ "path": "a/b/c.txt", "content": "" })).await.plain_text().contains("0 bytes"));
    let through = work.call(Write, json!({ "path": "a/b/c.txt/d", "content": "" })).await;
    assert!(through.is_error, "{through:?}");
}

#[tokio::test]
async fn the_mode_is_kept() {
    let work = Work::new();
    for mode in [0o755, 0o600, 0o640] {
        work.put("script", "old");
        let path = work.path().join("script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        work.call(Write, json!({ "path": "script", "content": "new" })).await;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_see_the_old_or_the_new_content_never_a_part() {
    let work = Work::new();
    let contents: Vec<String> = ["a", "b", "c"].map(|letter| letter.repeat(300_000)).into();
    work.put("file", &contents[0]);
    let end = Arc::new(AtomicBool::new(false));
    let (path, known, ended) = (work.path().join("file"), contents.clone(), end.clone());
    let reader = std::thread::spawn(move || {
        let mut seen = std::collections::HashSet::new();
        while !ended.load(Ordering::Relaxed) {
            let found = std::fs::read_to_string(&path).unwrap();
            seen.insert(known.iter().position(|content| *content == found).expect("a whole content"));
        }
        seen.len()
    });
    let environment = &work.environment;
    let writes = (0..60).map(|turn| Write.call(json!({ "path": "file", "content": contents[turn % 3] }), environment));
    for outcome in futures::future::join_all(writes).await {
        assert!(!outcome.unwrap().is_error);
    }
    end.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 1, "the reader saw changes");
    assert_eq!(names(work.path()), ["file"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_does_not_lead_to_what_is_run_later() {
    let work = Work::new();
    work.put(".git/hooks/pre-commit", "old");
    std::os::unix::fs::symlink(".git/hooks", work.path().join("docs")).unwrap();
    std::os::unix::fs::symlink(".git/hooks/pre-commit", work.path().join("notes.md")).unwrap();
    for path in ["docs/pre-commit", "notes.md", "docs/new"] {
        let outcome = Write.call(json!({ "path": path, "content": "evil" }), &work.environment).await.unwrap();
        assert_eq!(outcome.error_code(), Some("guarded"), "{path}: {outcome:?}");
    }
    assert_eq!(work.get(".git/hooks/pre-commit"), b"old");
    let outcome =
        Write.call(json!({ "path": ".git/hooks/pre-commit", "content": "new" }), &work.environment).await.unwrap();
    assert!(!outcome.is_error, "by its own name a person has seen it: {outcome:?}");
}
