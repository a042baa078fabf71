//! Files that documents and comments name exist, and links between documents lead somewhere.

use super::{root, sources};
use std::collections::{BTreeSet, HashSet};

/// What a name of a file ends with.
const ENDINGS: &[&str] = &[".rs", ".py", ".pyi", ".ts", ".mts", ".mjs", ".cjs", ".sql", ".proto", ".md"];

/// Names of files that are not of this repository, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("AGENTS.md", "a user's own"),
    ("CLAUDE.md", "a user's own"),
    ("NAME.md", "stands for a user's own"),
    (".github/copilot-instructions.md", "a user's own"),
    ("NNNN-short-name.md", "stands for the next record"),
    (".work/results-partial.md", "a benchmark writes it"),
    ("bindings-node/.examples/01-hello/typescript/hello.mjs", "is built"),
];

/// What a line names: whole spans between backticks, and paths that begin with a folder of the repository.
fn named<'a>(line: &'a str, folders: &HashSet<&str>) -> impl Iterator<Item = &'a str> {
    let is_path = |c: char| c.is_alphanumeric() || "_./-".contains(c);
    let spans = line.split('`').skip(1).step_by(2).filter(move |span| span.chars().all(is_path));
    let words = line.split(move |c| !is_path(c)).map(|word| word.trim_end_matches('.'));
    let paths = words.filter(|word| word.split_once('/').is_some_and(|(first, _)| folders.contains(first)));
    let names: Vec<_> = spans.chain(paths).filter(|name| ENDINGS.iter().any(|end| name.ends_with(end))).collect();
    names.into_iter().filter(|name| !ENDINGS.contains(name))
}

/// Backticks in TypeScript are mostly strings: its comments alone are looked at.
fn is_prose(file: &str, line: &str) -> bool {
    let line = line.trim_start();
    !file.ends_with("ts") || line.starts_with("//") || line.starts_with('*') || line.starts_with("/*")
}

#[test]
fn files_that_are_named_exist() {
    let files: Vec<String> = sources(ENDINGS).into_iter().map(|(name, _)| name).collect();
    let folders: HashSet<&str> = files.iter().filter_map(|name| Some(name.split_once('/')?.0)).collect();
    let ends_of = |name: &str| {
        let slashes = name.match_indices('/').map(|(at, _)| name[at + 1..].to_owned());
        slashes.chain([name.to_owned()]).collect::<Vec<_>>()
    };
    let anywhere: HashSet<String> = files.iter().flat_map(|name| ends_of(name)).collect();
    let mut missing = BTreeSet::new();
    for (file, text) in sources(&[".rs", ".py", ".ts", ".md"]) {
        if file == "CHANGELOG.md" || file == "tests/tidy/paths.rs" {
            continue; // The first tells what was; the second names what is not.
        }
        // A document may name any file; a comment means one of its own folder, or says the whole path.
        let own = file.split_once('/').map_or("", |(first, _)| first);
        let is_known = |name: &str| {
            if file.ends_with(".md") {
                return anywhere.contains(name);
            }
            let is_it = |known: &String| {
                known == name || known.starts_with(&format!("{own}/")) && known.ends_with(&format!("/{name}"))
            };
            files.iter().any(is_it)
        };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| is_prose(&file, line)) {
            for name in named(line, &folders) {
                if !is_known(name) && !ELSEWHERE.iter().any(|(known, _)| *known == name) {
                    missing.insert(format!("{file}:{}: {name}", number + 1));
                }
            }
        }
    }
    assert!(missing.is_empty(), "files that are named and do not exist: {missing:#?}");
}

/// A document without what stands between fences or backticks.
fn prose_of(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let mut fenced = false;
    let headings = text.lines().filter(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced && line.starts_with('#')
    });
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for (file, text) in sources(&[".md"]) {
        let folder = root().join(&file).parent().expect("a file is in a folder").to_owned();
        for link in prose_of(&text).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains(':') {
                continue;
            }
            let target = if path.is_empty() { root().join(&file) } else { folder.join(path) };
            let there = std::fs::read_to_string(&target).map_or_else(
                |_| target.exists(),
                |found| {
                    anchor.is_empty()
                        || target.extension().is_none_or(|end| end != "md")
                        || anchors(&found).contains(anchor)
                },
            );
            if !there {
                broken.push(format!("{file}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}
