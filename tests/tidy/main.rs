//! The house's own rules, checked: layers, file sizes, headers, error pages, rule tests, one version, no forbidden names,
//! and in `paths.rs` that what is named exists.

use flovyn_core::error::Code;
use flovyn_core::model::OpKind;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

mod console;
mod crates;
#[allow(dead_code)]
#[path = "gen.rs"]
mod generated;
mod parity;
mod paths;
mod server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is inside the repository").to_owned()
}

/// Files that git tracks or would track, with one of these endings.
fn sources(endings: &[&str]) -> Vec<(String, String)> {
    let listed = std::process::Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    let names = String::from_utf8(listed.stdout).expect("file names are UTF-8");
    let files: Vec<_> = names
        .lines()
        .filter(|name| endings.iter().any(|ending| name.ends_with(ending)))
        .filter_map(|name| Some((name.to_owned(), fs::read_to_string(root().join(name)).ok()?)))
        .collect();
    assert!(!files.is_empty(), "no source files with {endings:?} were found");
    files
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/")
        || name.starts_with("tests/")
        || name.ends_with("tests.rs")
        || name.contains("/conformance/")
}

#[test]
fn every_file_says_what_it_owns() {
    let mut without = Vec::new();
    for (name, text) in sources(&[".rs"]) {
        if !text.starts_with("//!") && !text.starts_with("#!") {
            without.push(name);
        }
    }
    for (name, text) in sources(&[".py"]) {
        let body = text.strip_prefix("#!/usr/bin/env python3\n").unwrap_or(&text);
        if !body.is_empty() && !body.starts_with("\"\"\"") && !body.starts_with("r\"\"\"") && !body.starts_with('#') {
            without.push(name);
        }
    }
    for (name, text) in sources(&[".ts", ".tsx", ".mts", ".mjs", ".cjs"]) {
        if !text.starts_with("// ") && !text.starts_with("#!") && !name.ends_with(".d.ts") {
            without.push(name);
        }
    }
    assert!(without.is_empty(), "files without a header that says what they own: {without:#?}");
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> = sources(&[".rs", ".py", ".ts", ".tsx"])
        .into_iter()
        .filter(|(name, _)| !is_test(name))
        .map(|(name, text)| (text.lines().count(), name))
        .filter(|(lines, _)| *lines > 600)
        .collect();
    assert!(long.is_empty(), "files over 600 lines; split them by what they own: {long:#?}");
}

/// The layers of core, lowest first. A module imports lower layers and its own.
const LAYERS: &[(u8, &[&str])] = &[
    (0, &["error", "id", "clock", "canonical", "payload", "forks", "heap", "spawn", "sync"]),
    (1, &["model"]),
    (2, &["journal"]),
    (3, &["streaming", "storage", "tracer", "view"]),
    (4, &["wire"]),
    (5, &["session"]),
    (6, &["context"]),
    (7, &["agent", "task"]),
    (8, &["worker", "client"]),
    (9, &["runtime"]),
    (10, &["host"]),
    (11, &["testing"]),
];

/// Imports that go upwards on purpose, with the reason.
const UPWARD: &[(&str, &str, &str)] = &[
    ("context", "task", "a context schedules registered tasks; both are one language's face of the session"),
    ("agent", "worker", "the native host implements the worker's Host port"),
    ("task", "worker", "a task context speaks for a worker's ticket"),
];

#[test]
fn modules_import_lower_layers_only() {
    let layer = |module: &str| LAYERS.iter().find(|(_, modules)| modules.contains(&module)).map(|(layer, _)| *layer);
    let mut wrong = Vec::new();
    for (name, text) in sources(&[".rs"]) {
        let Some(path) = name.strip_prefix("core/src/").filter(|path| *path != "lib.rs") else { continue };
        let module = path.split(['/', '.']).next().unwrap_or_default();
        let Some(mine) = layer(module) else {
            wrong.push(format!("{name} is of no layer"));
            continue;
        };
        // A backend that is reached over the wire stands on it.
        let mine = if path.starts_with("storage/remote/") { 4 } else { mine };
        for line in
            text.lines().take_while(|line| !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test,"))
        {
            for used in line.split("crate::").skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                let allowed = UPWARD.iter().any(|(from, to, _)| *from == module && *to == used);
                if layer(used).is_some_and(|theirs| theirs > mine) && !allowed && !is_test(&name) {
                    wrong.push(format!("{name} (layer {mine}) uses {used}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports that go upwards: {wrong:#?}");
}

/// The contract of a backend has no method that somebody who forwards it could forget.
#[test]
fn contracts_of_storage_have_no_default_methods() {
    let mut wrong = Vec::new();
    for (name, text) in sources(&[".rs"]) {
        let is_contract = name.strip_prefix("core/src/storage/").is_some_and(|file| !file.contains('/'));
        if !is_contract || name.ends_with("guarded.rs") {
            continue;
        }
        let mut contract = None;
        for line in text.lines() {
            match line.strip_prefix("pub trait ") {
                Some(declared) => contract = declared.split([':', ' ']).next(),
                None if line == "}" => contract = None,
                None if contract.is_some() && line == "    }" => {
                    wrong.push(format!("{name}: {}", contract.unwrap_or_default()));
                }
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "traits of the storage contract with a method that has a body: {wrong:#?}");
}

/// The one file of core where each of these may stand. Tokio's own time is no door: tests drive it.
const DOORS: &[(&str, &str)] = &[
    ("Instant::now()", "core/src/clock.rs"),
    ("thread::sleep(", "core/src/clock.rs"),
    ("Uuid::new_v4()", "core/src/id.rs"),
    ("Uuid::now_v7()", "core/src/id.rs"),
    ("tokio::spawn(", "core/src/spawn.rs"),
    ("thread::spawn(", "core/src/spawn.rs"),
    ("thread::Builder", "core/src/spawn.rs"),
];

#[test]
fn time_chance_and_threads_have_one_door_each() {
    let mut wrong = Vec::new();
    for (name, text) in sources(&[".rs"]) {
        let is_tests = is_test(&name)
            || ["core/src/testing/", "core/src/storage/conformance/"].iter().any(|folder| name.starts_with(folder));
        if !name.starts_with("core/src/") || is_tests {
            continue;
        }
        let code =
            text.lines().take_while(|line| !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test,"));
        let has_steady_time = text.lines().any(|line| line.contains("std::time::") && line.contains("Instant"));
        for line in code.filter(|line| !line.trim_start().starts_with("//")) {
            for (call, door) in DOORS {
                let is_tokio = *call == "Instant::now()" && (!has_steady_time || line.contains("tokio::time::Instant"));
                if line.contains(call) && name != *door && !is_tokio {
                    wrong.push(format!("{name}: {call} has its place in {door}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "calls that go past the doors of core: {wrong:#?}");
}

/// All that the journal may name, besides its own: nothing here waits, reads a clock or touches a file.
const PURE: &[(&str, &[&str])] = &[
    ("crate", &["clock::Timestamp", "error::", "Error", "id::", "journal", "model::", "payload::"]),
    ("std", &["collections::", "fmt", "iter::", "mem::", "result::Result", "sync::Arc", "time::Duration"]),
];

/// The only library it may use: a warning's data is JSON.
const LIBRARY: &str = "serde_json";

#[test]
fn the_journal_does_no_io() {
    let manifest = fs::read_to_string(root().join("core/Cargo.toml")).expect("the core has a manifest");
    let libraries = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let libraries: Vec<String> = libraries
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ']).next().filter(|name| !name.is_empty()))
        .map(|name| name.replace('-', "_"))
        .collect();
    assert!(libraries.iter().any(|name| name == "tokio"), "the core's libraries were not found: {libraries:?}");
    let mut wrong = Vec::new();
    // The rules that are wrong on purpose are for tests alone.
    let journal = sources(&[".rs"]).into_iter().filter(|(name, _)| name.starts_with("core/src/journal/"));
    for (name, text) in journal.filter(|(name, _)| !is_test(name) && !name.ends_with("/wrong.rs")) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.take_while(|line| !line.starts_with("mod tests {")) {
            for (from, allowed) in PURE {
                for path in paths(line, from) {
                    if !allowed.iter().any(|prefix| path.starts_with(prefix)) {
                        wrong.push(format!("{name} names {from}::{path}"));
                    }
                }
            }
            for library in libraries.iter().filter(|library| *library != LIBRARY) {
                wrong.extend(paths(line, library).map(|path| format!("{name} names {library}::{path}")));
            }
            for word in ["async ", "unsafe ", "println!", "thread_local!"] {
                if line.contains(word) {
                    wrong.push(format!("{name} has {word:?}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "the journal is pure, so that it can be simulated: {wrong:#?}");
}

/// The paths of a line that begin with this name, without it.
fn paths<'a>(line: &'a str, from: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(from).filter_map(move |(at, _)| {
        let is_word = line[..at]
            .chars()
            .next_back()
            .is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != ':');
        line[at + from.len()..].strip_prefix("::").filter(|_| is_word)
    })
}

#[test]
fn every_error_code_has_a_page() {
    let folder = root().join("docs/errors");
    for code in Code::ALL {
        let page = folder.join(format!("{code}.md"));
        let text = fs::read_to_string(&page).unwrap_or_else(|_| panic!("docs/errors/{code}.md is missing"));
        for section in [format!("# {code}"), "## Cause".into(), "## What to do".into()] {
            assert!(text.contains(&section), "docs/errors/{code}.md has no section {section:?}");
        }
    }
    let known: BTreeSet<_> = Code::ALL.iter().map(|code| format!("{code}.md")).collect();
    for entry in fs::read_dir(&folder).expect("docs/errors is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name == "README.md" || known.contains(&name), "docs/errors/{name} is the page of no code");
    }
}

#[test]
fn what_is_generated_is_up_to_date() {
    for generated in generated::all() {
        let file = generated.file;
        let text = fs::read_to_string(root().join(file)).expect(file);
        assert!(generated.put_into(&text) == Ok(text.clone()), "run `make gen`: {file} is not what is generated");
    }
}

#[test]
fn every_error_code_is_a_class_in_both_languages() {
    for (file, end) in [("bindings-python/python/flovyn/errors.py", "("), ("bindings-node/ts/errors.ts", " ")] {
        let text = fs::read_to_string(root().join(file)).expect(file);
        let missing: Vec<_> = Code::ALL.iter().filter(|code| !text.contains(&format!("class {code}{end}"))).collect();
        assert!(missing.is_empty(), "codes without a class in {file}: {missing:?}");
    }
}

#[test]
fn every_rule_of_the_engine_has_its_test() {
    let text: String = sources(&[".rs"])
        .into_iter()
        .filter(|(name, _)| name.starts_with("core/tests/"))
        .map(|(_, text)| text)
        .collect();
    let missing: Vec<_> = (1..=20).filter(|rule| !text.contains(&format!("rule_{rule:02}_"))).collect();
    assert!(missing.is_empty(), "rules without a test: {missing:?}");
}

#[test]
fn every_rule_of_families_has_a_case_of_the_contract_and_its_place_on_the_page() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let (cases, page) = (read("core/src/storage/conformance/mod.rs"), read("docs/rules.md"));
    for (what, text) in [("case that every backend is held to", &cases), ("test on docs/rules.md", &page)] {
        let missing: Vec<_> = (1..=15).filter(|rule| !text.contains(&format!("family_{rule:02}_"))).collect();
        assert!(missing.is_empty(), "rules of families without a {what}: {missing:?}");
    }
    let code: String = sources(&[".rs", ".py", ".ts", ".tsx"]).into_iter().map(|(_, text)| text).collect();
    let known: HashSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let named = page.split('`').filter(|word| word.starts_with("family_"));
    let gone: Vec<_> = named.filter(|test| !known.contains(test)).collect();
    assert!(gone.is_empty(), "docs/rules.md names tests that do not exist: {gone:?}");
}

/// Codes that no program of `tests/scenarios` can come to, with the reason.
const BEYOND_PROGRAMS: &[(Code, &str)] = &[
    (Code::SlotTaken, "between the engine and its store"),
    (Code::OutOfOrder, "between the engine and its store"),
    (Code::LeaseLost, "between the engine and its store"),
    (Code::Suspended, "an evicted copy has nobody to tell"),
    (Code::CorruptCheckpoint, "needs every checkpoint of a run damaged"),
    (Code::StorageUnavailable, "of the store"),
    (Code::SchemaTooNew, "of the store"),
    (Code::UnsupportedFilesystem, "of the store"),
    (Code::RateLimited, "of a server's keys"),
    (Code::WrongThread, "threads are Python's"),
    (Code::ForkedProcess, "forks are Python's"),
    (Code::WrongStateType, "types of states are each language's own"),
    (Code::OutsideAgent, "a program is inside an agent"),
    (Code::ParentGone, "a child that its parent's end leaves behind has nobody to tell"),
    (Code::Waiting, "of `run`, which serves one run alone"),
    (Code::UnknownKind, "of executors put together by hand"),
    (Code::PayloadTooLarge, "needs 256 MiB"),
    (Code::BudgetExceeded, "the run pauses, and tells those who look at it"),
    (Code::NotFound, "of what clients list over REST"),
    (Code::AlreadyExists, "of what operators make"),
    (Code::Unauthenticated, "of a server whose token is wrong"),
    (Code::PermissionDenied, "of a server whose key may do less"),
    (Code::Internal, "no program comes to a bug on purpose"),
];

#[test]
fn every_op_rule_and_code_has_a_scenario() {
    let programs: Vec<serde_json::Value> = sources(&[".json"])
        .into_iter()
        .filter(|(name, _)| name.starts_with("tests/scenarios/programs/"))
        .flat_map(|(name, text)| serde_json::from_str::<Vec<serde_json::Value>>(&text).expect(&name))
        .collect();
    assert!(programs.len() >= 60, "there are {} scenarios", programs.len());
    let names: BTreeSet<_> = programs.iter().map(|program| program["name"].as_str().expect("a name")).collect();
    assert_eq!(names.len(), programs.len(), "two scenarios have one name");
    let text = serde_json::to_string(&programs).expect("JSON");
    let word = |kind: OpKind| match kind {
        OpKind::Timer => "sleep",
        OpKind::Read => "has",
        OpKind::Abandon => "first",
        OpKind::Entry => "entry",
        OpKind::Task => "task",
        OpKind::Signal => "signal",
        OpKind::Attach => "attach",
        OpKind::Usage => "usage",
        OpKind::StepMark => "step",
        OpKind::Flush => "flush",
        OpKind::Once => "once",
        OpKind::Child => "child",
        OpKind::Send => "message",
    };
    let ops: Vec<_> = OpKind::ALL.into_iter().filter(|kind| !text.contains(&format!("[\"{}\"", word(*kind)))).collect();
    assert!(ops.is_empty(), "kinds of ops without a scenario: {ops:?}");
    let about = |rule: u64| {
        programs.iter().any(|program| program["rules"].as_array().is_some_and(|rules| rules.contains(&rule.into())))
    };
    let rules: Vec<_> = (1..=20).filter(|rule| !about(*rule)).collect();
    assert!(rules.is_empty(), "rules without a scenario: {rules:?}");
    for code in Code::ALL {
        let (has, excused) =
            (text.contains(&format!("\"{code}\"")), BEYOND_PROGRAMS.iter().any(|(one, _)| one == code));
        assert!(has != excused, "{code} has {} scenario and {} excuse", u8::from(has), u8::from(excused));
    }
}

#[test]
fn names_say_what_they_hold() {
    const FORBIDDEN: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "impl"];
    for (name, _) in sources(&[".rs", ".py", ".ts", ".sql"]) {
        for part in name.split(['/', '.', '_']) {
            assert!(!FORBIDDEN.contains(&part), "{name}: {part:?} says nothing about what is inside");
        }
    }
}

/// Words that are no names in the server, the command line, the toolkit, the bindings and their host, with the field's names for what they were used for.
const PRIVATE_WORDS: &[(&str, &str)] = &[
    ("Door", "Listener"),
    ("Doors", "ServeOptions"),
    ("Latch", "ListenerCloser"),
    ("Hall", "Acceptor"),
    ("Papers", "CertificateResolver"),
    ("Neighbours", "ConnectionLimiter"),
    ("Strangers", "AuthFailureLimiter"),
    ("Entered", "ConnectionPermit"),
    ("Bus", "NatsBridge"),
    ("Word", "Message"),
    ("Ears", "Subscriber"),
    ("Post", "Publisher"),
    ("Given", "Wire, or the arguments or declaration it is"),
    ("Happening", "ChatEvent"),
    ("Inquiry", "Elicitation"),
    ("Kit", "Toolkit"),
    ("Scene", "the context or the environment of what"),
    ("Stage", "TestWorld"),
    ("Talk", "LiveSession"),
    ("Asked", "the request or the kind of what"),
    ("Heard", "the request or the cache of what"),
    ("Held", "the lease, permit or reservation it is"),
    ("Kept", "the cache or entry it is"),
    ("Made", "the value it is"),
    ("Mortal", "CrashableStore"),
    ("Place", "the position or location of what"),
    ("Shown", "the content or preview it is"),
    ("Told", "the response, fault or signal it is"),
    ("Unasked", "the origin of the call"),
    ("bury", "kill or release_calls"),
    ("door", "listener"),
    ("guests", "connections_with_peer"),
    ("happening", "event"),
    ("inquiry", "elicitation"),
    ("kit", "toolkit"),
    ("latch", "closer"),
    ("neighbours", "limiter"),
    ("papers", "certificates"),
    ("say", "send, append or write"),
    ("tell", "emit, log, push or report"),
    ("told", "to_status, to_value, print_… or message"),
];

/// The same for what streams hints and previews, where some of the words above are still in use.
const PRIVATE_WORDS_OF_STREAMING: &[(&str, &str)] = &[
    ("Bell", "Signal"),
    ("Board", "Hub"),
    ("Elsewhere", "Registered"),
    ("Heard", "Counts"),
    ("Herald", "OnPublish"),
    ("Lease", "Registration"),
    ("Lookout", "ChangePoller"),
    ("Made", "Buffered"),
    ("Place", "Position"),
    ("Question", "Flight"),
    ("Reach", "ProgressBySource"),
    ("Reads", "SharedReads"),
    ("Said", "Preview"),
    ("Seat", "Caller"),
    ("Shown", "Delivered"),
    ("Together", "SingleFlight"),
    ("Told", "Progress"),
    ("board", "hub"),
    ("hear", "receive"),
    ("herald", "on_publish"),
    ("lookout", "change_poller"),
    ("rung", "requested"),
    ("say", "publish or register"),
    ("tell", "call or push"),
    ("told", "progress or message"),
];

/// The same for the rest of core.
const PRIVATE_WORDS_OF_CORE: &[(&str, &str)] = &[
    ("Bell", "the waker it is"),
    ("Board", "Hub"),
    ("Desk", "WriteContext"),
    ("Door", "Listener"),
    ("Herald", "OnPublish"),
    ("Lookout", "ChangePoller"),
    ("Made", "the value it is"),
    ("Mortal", "CrashableStore"),
    ("Said", "the message it is"),
    ("Seat", "Caller"),
    ("Shown", "the view or preview it is"),
    ("Together", "SingleFlight"),
    ("Told", "the reading, facts or stream it is"),
    ("bury", "kill or release_calls"),
    ("herald", "on_publish"),
    ("lookout", "change_poller"),
];

/// The identifiers of Rust code, without those of comments and literals.
fn identifiers(mut code: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    while let Some(first) = code.chars().next() {
        let raw = code.strip_prefix('r').map(|rest| (rest.trim_start_matches('#'), rest));
        let length = match first {
            '/' if code.starts_with("//") => code.find('\n').unwrap_or(code.len()),
            'b' if code.starts_with("br") || code.starts_with("b\"") => 1,
            'r' if raw.is_some_and(|(text, _)| text.starts_with('"')) => {
                let (text, rest) = raw.expect("it begins with r");
                let end = format!("\"{}", "#".repeat(rest.len() - text.len()));
                let start = code.len() - text.len() + 1;
                start + code[start..].find(&end).expect("a raw literal ends") + end.len()
            }
            '"' => {
                let mut escaped = false;
                let is_end = |letter: char| {
                    let was_escaped = std::mem::replace(&mut escaped, false);
                    escaped = letter == '\\' && !was_escaped;
                    letter == '"' && !was_escaped
                };
                2 + code[1..].find(is_end).expect("a literal ends")
            }
            // A character; else a lifetime.
            '\'' if code[1..].starts_with('\\') => 4 + code[3..].find('\'').expect("a character ends"),
            '\'' if code.chars().nth(2) == Some('\'') => code.chars().take(3).map(char::len_utf8).sum(),
            letter if is_part(letter) => {
                let length = code.find(|letter| !is_part(letter)).unwrap_or(code.len());
                found.push(&code[..length]);
                length
            }
            letter => letter.len_utf8(),
        };
        code = &code[length..];
    }
    found
}

#[test]
fn comments_and_literals_have_no_identifiers() {
    let code = r###"fn a<'b>(c: &'b str) { d('e', '\n', "f \" g", r#"h " i"#, b"j"); } // k
        l"###;
    assert_eq!(identifiers(code), ["fn", "a", "b", "c", "b", "str", "d", "l"]);
}

#[test]
fn names_are_the_words_of_the_field() {
    let mut wrong = BTreeSet::new();
    for (name, text) in sources(&[".rs"]) {
        const FOLDERS: &[&str] = &[
            "server/src/",
            "cli/src/",
            "toolkit/src/",
            "bindings-node/src/",
            "bindings-python/src/",
            "core/src/host/",
        ];
        let private = match name.as_str() {
            name if FOLDERS.iter().any(|folder| name.starts_with(folder)) => PRIVATE_WORDS,
            name if name.starts_with("core/src/streaming/") => PRIVATE_WORDS_OF_STREAMING,
            name if name.starts_with("core/src/") => PRIVATE_WORDS_OF_CORE,
            _ => continue,
        };
        for word in identifiers(&text) {
            if let Some((word, term)) = private.iter().find(|(private, _)| *private == word) {
                wrong.insert(format!("{name}: {word}; call it {term}"));
            }
        }
    }
    assert!(wrong.is_empty(), "names that a newcomer has to learn first: {wrong:#?}");
}

#[test]
fn there_is_one_version() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let version = manifest.split("version = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a version");
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    assert!(changelog.contains(version) || changelog.contains("[Unreleased]"), "CHANGELOG.md does not know {version}");
    for (name, text) in sources(&["Cargo.toml"]) {
        let has_one = text.lines().any(|line| line.starts_with("version"));
        if name != "Cargo.toml" && has_one {
            assert!(text.contains("version.workspace = true"), "{name} has a version of its own");
        }
    }
    let python = fs::read_to_string(root().join("bindings-python/pyproject.toml")).expect("pyproject.toml");
    assert!(python.contains("dynamic = [\"version\"]"), "the Python package takes its version from the workspace");
    for folder in ["bindings-node", "react"] {
        for file in ["package.json", "package-lock.json"] {
            let npm = fs::read_to_string(root().join(folder).join(file)).expect("the npm package is there");
            let ours = npm.lines().find_map(|line| line.trim().strip_prefix("\"version\": \""));
            let has_it = ours.is_some_and(|rest| rest.starts_with(&format!("{version}\"")));
            assert!(has_it, "{folder}/{file} has another version");
        }
    }
}

#[test]
fn nothing_unfinished_is_left_in_the_code() {
    // Built from parts, so that this file does not find itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    for (name, text) in sources(&[".rs", ".py", ".ts", ".sql", ".md"]) {
        for word in words {
            assert!(!text.contains(word), "{name} contains {word}");
        }
    }
}

#[test]
fn results_name_no_place_of_the_machine_they_come_from() {
    let results = sources(&["RESULTS.md", "RESULTS-FAMILIES.md", "RESULTS-SERVER.md"]);
    for (name, text) in results {
        for place in ["/home/", "/root/", "/Users/", "/tmp/", "/work/", "/benches/"] {
            assert!(!text.contains(place), "{name} names a path under {place}");
        }
    }
}

/// The crates of other people in a build, each with the features it is built with.
fn built_with(selection: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}"];
    let listed = std::process::Command::new(env!("CARGO"))
        .args(tree)
        .args(selection)
        .current_dir(root())
        .output()
        .expect("cargo lists what a build is made of");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let lines = String::from_utf8(listed.stdout).expect("names of crates are UTF-8");
    let lines = lines.lines().map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", ""));
    lines.filter(|line| line.contains('|') && !line.starts_with("flovyn-cli ")).collect()
}

#[test]
fn packages_for_tests_are_made_of_what_the_tests_are_made_of() {
    let tests = built_with(&[
        "--workspace",
        "--exclude=flovyn-python",
        "--exclude=flovyn-node",
        "--features=flovyn-core/testing",
        "--edges=normal,build,dev",
    ]);
    let names: BTreeSet<_> = tests.iter().filter_map(|line| line.split('|').next()).collect();
    for package in ["flovyn-python", "flovyn-node"] {
        let package = built_with(&["-p", package, "--features=flovyn-cli/as-tested", "--edges=normal,build"]);
        let apart: Vec<_> = package
            .difference(&tests)
            .filter(|line| line.split('|').next().is_some_and(|name| names.contains(name)))
            .collect();
        assert!(
            apart.is_empty(),
            "built twice; add what the tests enable to `as-tested` in cli/Cargo.toml: {apart:#?}"
        );
    }
}
