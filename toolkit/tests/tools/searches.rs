//! `grep` and `find`: what they find, in which order, and where they end.

use crate::Work;
use crate::sandbox::say;
use flovyn_toolkit::tools::{Find, Grep, Tool, ToolEnvironment};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn tree() -> Work {
    let work = Work::new();
    for (path, content) in [
        ("b.rs", "fn main() {}\n"),
        ("a.txt", "needle here\nno\nNEEDLE there\n"),
        ("src/lib.rs", "// needle\r\nfn needle() {}\r\n"),
        ("src/deep/mod.rs", "needle"),
        ("src-other/x.py", "needle = 1\n"),
        ("ignored/x.rs", "needle"),
        ("build/out.rs", "needle"),
        ("build/kept.rs", "needle"),
        ("notes.log", "needle"),
        ("src/keep.log", "needle"),
        ("private/x.rs", "needle"),
        (".hidden/x.rs", "needle"),
        (".env", "needle"),
        ("binary.rs", "needle\0needle"),
        (".gitignore", "ignored/\n*.log\n/build/*\n!/build/kept.rs\n"),
        ("src/.gitignore", "!keep.log\n"),
        (".git/info/exclude", "private\n"),
        ("a(b).txt", "f(x) = [1]\n"),
    ] {
        work.put(path, content);
    }
    symlink("src", work.path().join("link")).unwrap();
    symlink("a.txt", work.path().join("link.txt")).unwrap();
    work
}

#[tokio::test]
async fn lines_are_found_in_the_order_of_paths() {
    let work = tree();
    let everywhere = "a.txt:1: needle here\nbuild/kept.rs:1: needle\nsrc/deep/mod.rs:1: needle\nsrc/keep.log:1: needle\nsrc/lib.rs:1: // needle\nsrc/lib.rs:2: fn needle() {}\nsrc-other/x.py:1: needle = 1\n";
    for (arguments, expected) in [
        (json!({ "pattern": "needle" }), everywhere),
        (json!({ "pattern": "needle", "path": "." }), everywhere),
        (
            json!({ "pattern": "needle", "path": "src" }),
            "src/deep/mod.rs:1: needle\nsrc/keep.log:1: needle\nsrc/lib.rs:1: // needle\nsrc/lib.rs:2: fn needle() {}\n",
        ),
        (json!({ "pattern": "needle", "path": "link/deep" }), "src/deep/mod.rs:1: needle\n"),
        (json!({ "pattern": "needle", "path": "a.txt" }), "a.txt:1: needle here\n"),
        (json!({ "pattern": "needle", "path": "notes.log" }), "notes.log:1: needle\n"),
        (
            json!({ "pattern": "needle", "glob": "*.rs" }),
            "build/kept.rs:1: needle\nsrc/deep/mod.rs:1: needle\nsrc/lib.rs:1: // needle\nsrc/lib.rs:2: fn needle() {}\n",
        ),
        (json!({ "pattern": "needle", "glob": "src/*.rs" }), "src/lib.rs:1: // needle\nsrc/lib.rs:2: fn needle() {}\n"),
        (
            json!({ "pattern": "needle", "glob": "**/*.{py,txt}" }),
            "a.txt:1: needle here\nsrc-other/x.py:1: needle = 1\n",
        ),
        (json!({ "pattern": "needle", "type": "py" }), "src-other/x.py:1: needle = 1\n"),
        (
            json!({ "pattern": "^needle", "ignore_case": true, "path": "a.txt" }),
            "a.txt:1: needle here\na.txt:3: NEEDLE there\n",
        ),
        (json!({ "pattern": "f(x) = [", "literal": true }), "a(b).txt:1: f(x) = [1]\n"),
        (json!({ "pattern": "\\}$", "path": "src" }), "src/lib.rs:2: fn needle() {}\n"),
        (json!({ "pattern": "^needle.*e$", "path": "a.txt" }), "a.txt:1: needle here\n"),
        (json!({ "pattern": "^no$", "path": "a.txt" }), "a.txt:2: no\n"),
        (json!({ "pattern": "^//.*le$", "path": "src/lib.rs" }), "src/lib.rs:1: // needle\n"),
        (json!({ "pattern": "haystack" }), "No matches."),
    ] {
        let outcome = work.call(Grep, arguments.clone()).await;
        // Every search that comes by the binary file says so.
        let is = |name: &str, said: &str| arguments.get(name).is_none_or(|given| given == said);
        let comes_by = is("path", ".") && is("glob", "*.rs") && is("type", "rust");
        let note = if comes_by { "\n[Binary files are not searched, 1 here: binary.rs]" } else { "" };
        assert_eq!(outcome.plain_text(), format!("{expected}{note}"), "{arguments}");
    }
}

#[tokio::test]
async fn paths_are_found_in_order() {
    let work = tree();
    for (arguments, expected) in [
        (json!({ "pattern": "*.rs" }), "b.rs\nbinary.rs\nbuild/kept.rs\nsrc/deep/mod.rs\nsrc/lib.rs\n"),
        (json!({ "pattern": "**/*.rs" }), "b.rs\nbinary.rs\nbuild/kept.rs\nsrc/deep/mod.rs\nsrc/lib.rs\n"),
        (json!({ "pattern": "src/**" }), "src/deep/\nsrc/deep/mod.rs\nsrc/keep.log\nsrc/lib.rs\n"),
        (json!({ "pattern": "*.rs", "path": "src" }), "src/deep/mod.rs\nsrc/lib.rs\n"),
        (json!({ "pattern": "deep/*", "path": "src" }), "src/deep/mod.rs\n"),
        (json!({ "pattern": "*/" }), "build/\nsrc/\nsrc/deep/\nsrc-other/\n"),
        (json!({ "pattern": "nothing*" }), "No files found."),
    ] {
        let outcome = work.call(Find, arguments.clone()).await;
        assert_eq!(outcome.plain_text(), expected, "{arguments}");
    }
}

#[tokio::test]
async fn what_cannot_be_searched_is_told() {
    let work = tree();
    for (tool, arguments, code) in [
        (&Grep as &dyn Tool, json!({ "pattern": "(" }), "invalid_pattern"),
        (&Grep, json!({ "pattern": "a", "glob": "{" }), "invalid_pattern"),
        (&Grep, json!({ "pattern": "a", "type": "klingon" }), "unknown_type"),
        (&Grep, json!({ "pattern": "a", "path": "nowhere" }), "not_found"),
        (&Find, json!({ "pattern": "[" }), "invalid_pattern"),
        (&Find, json!({ "pattern": "*", "path": "nowhere" }), "not_found"),
        (&Find, json!({ "pattern": "*", "path": ".." }), "outside"),
    ] {
        let outcome = tool.call(arguments.clone(), &work.environment).await.unwrap();
        assert_eq!(outcome.error_code(), Some(code), "{arguments}: {outcome:?}");
    }
}

#[tokio::test]
async fn floods_are_cut() {
    let work = Work::new();
    for folder in 0..40 {
        for file in 0..40 {
            work.put(&format!("{folder:02}/{file:02}"), "match\n".repeat(3));
        }
    }
    work.put("00/00", format!("{}match\n", "é".repeat(600)));
    let found = work.call(Grep, json!({ "pattern": "match|é" })).await;
    let text = found.plain_text();
    assert_eq!(text.lines().filter(|line| line.contains(": ")).count(), 100);
    assert!(text.starts_with(&format!("00/00:1: {} [cut at 500 of 605 characters]\n", "é".repeat(500))), "{text}");
    assert!(text.ends_with("[Only the first 100 matches are shown. Narrow the pattern, the path or the glob.]"));
    let found = work.call(Find, json!({ "pattern": "*" })).await;
    let text = found.plain_text();
    assert_eq!(text.lines().filter(|line| line.starts_with(|letter: char| letter.is_ascii_digit())).count(), 1_000);
    assert!(text.ends_with("[Only the first 1000 paths are shown. Narrow the pattern or the path.]"));
    assert_eq!(found.details["cut"], true);
}

#[tokio::test]
async fn a_search_stops_when_it_is_told_to() {
    let work = Work::new();
    for file in 0..200 {
        work.put(&format!("{file:03}"), "match\n".repeat(10));
    }
    for (tool, arguments) in
        [(&Grep as &dyn Tool, json!({ "pattern": "nothing" })), (&Find, json!({ "pattern": "nothing" }))]
    {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let environment = work.environment.clone().with_stop(move || counted.fetch_add(1, Ordering::Relaxed) >= 20);
        let error = tool.call(arguments, &environment).await.unwrap_err();
        assert_eq!(error.code(), flovyn_core::error::Code::Cancelled);
        assert_eq!(looks.load(Ordering::Relaxed), 21, "it went on");
    }
}

#[tokio::test]
async fn of_a_long_line_what_is_around_its_match_is_shown() {
    let work = Work::new();
    let filler = "x".repeat(9_000_000);
    work.put("big.js", format!("{filler}NEEDLE{filler}\nNEEDLE\n"));
    work.put("end.js", format!("{}NEEDLE", "ü".repeat(1_000)));
    work.put("odd.js", [&[0xff, 0xbf].repeat(1_000)[..], b"NEEDLE\r\n"].concat());
    work.put("start.js", format!("NEEDLE{filler}\n"));
    let outcome = work.call(Grep, json!({ "pattern": "NEEDLE" })).await;
    let text = outcome.plain_text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    assert_eq!(lines[5..], ["", "[Not UTF-8, read as Windows-1252: odd.js]"]);
    assert!(lines[0].starts_with("big.js:1: [from byte 8999901 of 18000006] xxx"), "{text}");
    assert!(lines[0].contains("xNEEDLEx") && lines[0].len() < 600, "{text}");
    assert_eq!(lines[1], "big.js:2: NEEDLE");
    assert_eq!(lines[2], format!("end.js:1: [from byte 1901 of 2006] {}NEEDLE", "ü".repeat(50)));
    assert!(lines[3].starts_with("odd.js:1: [from byte ") && lines[3].ends_with("ÿ¿NEEDLE"), "{text}");
    assert!(
        lines[4].starts_with("start.js:1: NEEDLExxx") && lines[4].ends_with("[cut at 500 of 9000006 characters]"),
        "{text}"
    );
    assert_eq!((&outcome.details["matches"], &outcome.details["leftOut"]), (&json!(5), &json!(0)));
}

#[tokio::test]
async fn what_was_not_searched_is_said() {
    let work = Work::new();
    work.put("dump.txt", [&b"needle 1\n"[..], &b"x\n".repeat(100_000), b"\0needle 2\n"].concat());
    work.put("picture.bin", b"\0needle");
    work.put("long.txt", [&b"needle 3\n"[..], &vec![b'y'; 65 << 20], b"\nneedle 4\n"].concat());
    let everywhere = work.call(Grep, json!({ "pattern": "needle" })).await;
    assert_eq!(
        everywhere.plain_text(),
        "dump.txt:1: needle 1\nlong.txt:1: needle 3\n\n[Not searched to the end: dump.txt is binary from byte 200009 on; use \
         bash: grep -a]\n[Not searched to the end: long.txt has a line longer than 64.0 MB; use bash: grep -o -b]\n[Binary \
         files are not searched, 1 here: picture.bin]"
    );
    assert_eq!(everywhere.details["leftOut"], 2);
    let alone = work.call(Grep, json!({ "pattern": "needle", "path": "picture.bin" })).await.plain_text();
    assert_eq!(
        alone,
        "No matches.\n[Not searched to the end: picture.bin is binary from byte 0 on; use bash: grep -a]"
    );
}

#[tokio::test]
async fn files_in_other_encodings_are_searched() {
    let work = Work::new();
    let utf16 = |text: &str, order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(order).collect()
    };
    work.put("big.txt", utf16("Grüße aus Köln\n", u16::to_be_bytes));
    work.put("little.txt", utf16("nichts\nGrüße aus Bonn\n", u16::to_le_bytes));
    work.put("latin.txt", b"Gr\xfc\xdfe aus Ulm, 5 \x80\n");
    work.put("mixed.txt", [b"\xe9t\xe9\n", "Grüße aus Wien\n".as_bytes()].concat());
    work.put("other.txt", b"\xe9t\xe9\n");
    work.put("unmarked.txt", utf16("Grüße aus Bern\n", u16::to_le_bytes).split_off(2));
    let outcome = work.call(Grep, json!({ "pattern": "Grüße.*[€n]$" })).await;
    assert_eq!(
        outcome.plain_text(),
        "big.txt:1: Grüße aus Köln\nlatin.txt:1: Grüße aus Ulm, 5 €\nlittle.txt:2: Grüße aus Bonn\nmixed.txt:2: Grüße aus \
         Wien\n\n[Not UTF-8, read as Windows-1252: latin.txt, mixed.txt]\n[Binary files are not searched, 1 here: \
         unmarked.txt]"
    );
    assert_eq!((&outcome.details["notUtf8"], &outcome.details["leftOut"]), (&json!(2), &json!(0)));
}

#[tokio::test]
async fn a_search_that_finds_nothing_can_be_stopped_inside_a_file() {
    let work = Work::new();
    work.put("large.txt", "nothing here\n".repeat(1_000_000));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let environment = work.environment.clone().with_stop(move || count.fetch_add(1, Ordering::Relaxed) >= 5);
    let ended = Grep.call(json!({ "pattern": "needle" }), &environment).await;
    assert_eq!(ended.expect_err("it was stopped").code(), flovyn_core::error::Code::Cancelled);
    assert!(asked.load(Ordering::Relaxed) < 20, "it read on");
}

/// An environment in which others change a directory once its names are listed: the first look whether to stop comes then.
fn changed_when_listed(work: &Work, change: fn(&Path)) -> ToolEnvironment {
    let (root, is_changed) = (work.path().to_owned(), AtomicBool::new(false));
    work.environment.clone().with_stop(move || {
        if !is_changed.swap(true, Ordering::Relaxed) {
            change(&root);
        }
        false
    })
}

#[tokio::test]
async fn what_others_put_in_the_place_of_a_file_is_named_and_not_waited_for() {
    fn change(root: &Path) {
        let at = |name: &str| root.join(name);
        ["b.txt", "c.txt", "d.txt", "e.txt", "f.txt"].iter().for_each(|name| fs::remove_file(at(name)).unwrap());
        ["gone", "sub"].iter().for_each(|name| fs::remove_dir_all(at(name)).unwrap());
        // A pipe that nobody writes to, a directory, a link to nothing, a link that leads out.
        assert!(Command::new("mkfifo").arg(at("b.txt")).status().unwrap().success());
        fs::create_dir(at("c.txt")).unwrap();
        symlink("nothing", at("d.txt")).unwrap();
        symlink("/etc/hosts", at("e.txt")).unwrap();
        fs::write(at("sub"), "needle\n").unwrap();
    }
    let tree = || {
        let work = Work::new();
        for path in ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt", "gone/x.txt", "sub/x.txt", "z.txt"] {
            work.put(path, "needle\n");
        }
        work
    };
    let work = tree();
    let found = Grep.call(json!({ "pattern": "needle" }), &changed_when_listed(&work, change)).await.unwrap();
    assert_eq!(
        found.plain_text(),
        "a.txt:1: needle\nz.txt:1: needle\n\n[Not searched to the end: b.txt cannot be read]\n[Not searched to the end: \
         c.txt cannot be read]\n[Not searched to the end: e.txt cannot be read]\n[Not searched to the end: sub/ cannot be \
         read]",
        "what is gone has no matches"
    );
    assert_eq!((&found.details["leftOut"], &found.details["matches"]), (&json!(4), &json!(2)));
    let work = tree();
    let found = Find.call(json!({ "pattern": "x.txt" }), &changed_when_listed(&work, change)).await.unwrap();
    assert_eq!(found.plain_text(), "No files found.\n[Not searched: sub/ cannot be read]");
}

/// Set where the permissions of files hold for the process.
const HOLDS: &str = "FLOVYN_TEST_PERMISSIONS_HOLD";

#[tokio::test]
async fn what_nobody_permits_to_read_is_named() {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new(&exe);
    // Permissions do not hold for a root that may override them.
    if rustix::process::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--bounding-set", "-dac_override,-dac_read_search"]).arg(&exe);
    }
    let inner = "searches::searches_what_it_may_not_read";
    command.args(["--exact", inner, "--ignored", "--nocapture"]).env(HOLDS, "yes");
    let tried = match command.output() {
        Ok(tried) => tried,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return say("permissions: setpriv is not there"),
        Err(error) => panic!("{error}"),
    };
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(tried.status.success() && said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&tried.stderr));
}

#[tokio::test]
#[ignore = "it is run by another test, in a process whose permissions hold"]
async fn searches_what_it_may_not_read() {
    if std::env::var(HOLDS).is_err() {
        return;
    }
    let work = Work::new();
    let closed: Vec<_> = (0..7).map(|number| format!("closed{number}.txt")).collect();
    closed.iter().for_each(|path| work.put(path, "needle\n"));
    work.put("open.txt", "needle\n");
    work.put("vault/deep/x.txt", "needle\n");
    let set = |path: &str, mode: u32| {
        fs::set_permissions(work.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    closed.iter().skip(1).for_each(|path| set(path, 0o000));
    set("vault/deep", 0o000);
    let everywhere = work.call(Grep, json!({ "pattern": "needle" })).await;
    let named: String =
        (1..6).map(|number| format!("\n[Not searched to the end: closed{number}.txt cannot be read]")).collect();
    assert_eq!(
        everywhere.plain_text(),
        format!("closed0.txt:1: needle\nopen.txt:1: needle\n{named}\n[Nor were 2 more files.]"),
        "the first five are named"
    );
    assert_eq!(everywhere.details["leftOut"], 7);
    let below = work.call(Grep, json!({ "pattern": "needle", "path": "vault" })).await;
    assert_eq!(below.plain_text(), "No matches.\n[Not searched to the end: vault/deep/ cannot be read]");
    let asked = work.call(Grep, json!({ "pattern": "needle", "path": "vault/deep" })).await;
    assert_eq!(asked.plain_text(), below.plain_text());
    let asked = work.call(Grep, json!({ "pattern": "needle", "path": "closed1.txt" })).await;
    assert_eq!(asked.error_code(), Some("permission_denied"), "{asked:?}");
    let found = work.call(Find, json!({ "pattern": "x.txt" })).await;
    assert_eq!(found.plain_text(), "No files found.\n[Not searched: vault/deep/ cannot be read]");
    assert_eq!(found.details["leftOut"], 1);
    set("vault/deep", 0o755);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_breaks_off_while_it_is_read_is_named() {
    // Nothing is at the beginning of the memory of a process, so to read it there is an error.
    let environment = ToolEnvironment::open("/proc/self").unwrap();
    let found = Grep.call(json!({ "pattern": "needle", "path": "mem" }), &environment).await.unwrap();
    let text = found.plain_text();
    assert!(
        text.starts_with("No matches.\n[Not searched to the end: mem cannot be read: Input/output error"),
        "{text}"
    );
    assert_eq!(found.details["leftOut"], 1);
}
