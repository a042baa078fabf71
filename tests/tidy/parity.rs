//! Python and TypeScript have the same: methods of contexts, and methods of their native halves. What only one has is listed
//! with the reason.

use super::generated::stubs;
use super::root;
use std::collections::BTreeSet;
use std::fs;

/// Methods of contexts that not all three have.
const CONTEXTS: &[(&str, &str)] = &[
    ("signal_step", "a `def` agent joins steps, and its `wait_for_signal` has waited when it returns"),
    ("sleep_step", "a `def` agent joins steps, and its `sleep` has slept when it returns"),
    ("wait_for_signal_as", "a schema of TypeScript's is checked asynchronously; Python's takes a type instead"),
];

/// Methods of native classes that one binding has alone.
const NATIVE: &[(&str, &str, &str)] = &[
    ("Hub", "close", "Python has a hub for each event loop, Node one for the thread"),
    ("Hub", "fileno", "a loop of Python's watches a descriptor"),
    ("Hub", "token", "Node counts in JavaScript"),
    ("Hub", "wait", "some loops of Python's watch no descriptor"),
    ("Runtime", "close_now", "programs of Python without a loop block"),
    ("Session", "bind_thread", "threads are Python's"),
    ("Session", "input", "Node may not block: it loads input and state at once, by a call that ends"),
    ("Session", "is_replaying", "Python knows its branches, and says more of them while it replays"),
    ("Session", "load", "Node may not block: it loads input and state at once, by a call that ends"),
    ("Session", "note_concurrent", "nothing in JavaScript tells branches apart"),
    ("Session", "state", "Node may not block: it loads input and state at once, by a call that ends"),
    ("Session", "take_effects", "Python's loop gets effects with the news"),
    ("Worker", "poll", "Python's loop gets the news of all workers from its hub"),
    ("Worker", "serve_toolkit", "Python's toolkit is a class of its own"),
    ("Worker", "token", "Python's loop gets the news of all workers from its hub"),
    ("Worker", "toolkit_task", "Python's toolkit is a class of its own"),
];

/// The public methods of classes in a file of Python.
fn python(file: &str, classes: &[&str]) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("bindings-python/python/flovyn").join(file)).expect(file);
    let (mut class, mut found) = ("", BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("class ") {
            class = rest.split(['(', ':']).next().unwrap_or_default();
        }
        let method = line.strip_prefix("    async def ").or_else(|| line.strip_prefix("    def "));
        if let Some(rest) = method.filter(|rest| classes.contains(&class) && !rest.starts_with('_')) {
            found.insert(rest.split(['(', '[']).next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// The public methods of `AgentContext` in TypeScript, under the names that Python would give them.
fn typescript() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("bindings-node/ts/context.ts")).expect("context.ts");
    let class = text.split("export class AgentContext").nth(1).expect("the class is there");
    let class = class.split("\n}\n").next().unwrap_or_default();
    let members = class.lines().filter_map(|line| {
        let line =
            line.strip_prefix("  ").filter(|line| line.starts_with(|letter: char| letter.is_ascii_lowercase()))?;
        let words = ["async ", "get ", "set "];
        let line = words.iter().fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
        let length = line.find(|letter: char| !letter.is_ascii_alphanumeric())?;
        let (name, rest) = line.split_at(length);
        (rest.starts_with(['(', '<']) && name != "constructor").then(|| snake_case(name))
    });
    members.collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[test]
fn contexts_have_the_same_methods_in_both_languages() {
    let common = python("context.py", &["Context"]);
    let own = |file, class| common.union(&python(file, &[class])).cloned().collect::<BTreeSet<_>>();
    let contexts = [own("context.py", "AgentContext"), own("blocking.py", "SyncAgentContext"), typescript()];
    assert!(contexts.iter().all(|methods| methods.len() > 30), "contexts were not read: {contexts:?}");
    let all: BTreeSet<_> = contexts.iter().flatten().cloned().collect();
    let apart: BTreeSet<_> =
        all.iter().filter(|name| contexts.iter().any(|methods| !methods.contains(*name))).map(String::as_str).collect();
    let excused: BTreeSet<_> = CONTEXTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(apart, excused, "methods that not all contexts have, and those that have a reason for it");
}

#[test]
fn native_halves_have_the_same_methods() {
    let classes = stubs::shared_classes();
    assert!(classes["Session"][0].len() > 30, "the native sessions were not read");
    let apart: BTreeSet<(&str, &str)> = classes
        .iter()
        .flat_map(|(class, [python, node])| python.symmetric_difference(node).map(move |name| (&**class, &**name)))
        .collect();
    let excused: BTreeSet<_> = NATIVE.iter().map(|(class, name, _)| (*class, *name)).collect();
    assert_eq!(apart, excused, "methods that one native half has alone, and those that have a reason for it");
}
