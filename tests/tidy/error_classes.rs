//! The classes of error codes in Python and TypeScript, made from the catalog of codes.

use flovyn_core::error::Code;
use std::fmt::Write;

/// Codes whose classes have fields or roots of their own. People write these, outside the generated part.
const WRITTEN_BY_HAND: &[Code] = &[
    Code::AgentFailed,
    Code::AgentCancelled,
    Code::TaskFailed,
    Code::ChildFailed,
    Code::ChildCancelled,
    Code::NotSerializable,
    Code::Cancelled,
    Code::Suspended,
];

/// Codes whose class is a kind of another code's class.
const PARENTS: &[(Code, Code)] = &[(Code::ExecutionNotFound, Code::NotFound), (Code::TaskTimeout, Code::TaskFailed)];

/// Python's own classes that callers may catch as well.
const PYTHON_PARENTS: &[(Code, &str)] =
    &[(Code::SignalTimeout, "TimeoutError"), (Code::Timeout, "TimeoutError"), (Code::InvalidArgument, "ValueError")];

/// What a class says where programs use it otherwise than a person reads the code.
const DOCS: &[(Code, &str)] = &[
    (Code::NonRetryable, "Says that a task must not be tried again."),
    (Code::InDoubt, "Nobody knows whether a call took effect; a decision is waited for (`handle.resolve`)."),
    (Code::Waiting, "A run is waiting and the caller asked not to; `context` says for what."),
];

/// Classes of Python's module that stand for no code.
const PYTHON_WITHOUT_CODE: &[&str] = &["FlovynError", "HandedOff", "NotDone"];

fn found<T: Copy>(table: &[(Code, T)], code: Code) -> Option<T> {
    table.iter().find(|(one, _)| *one == code).map(|(_, value)| *value)
}

fn doc(code: Code) -> &'static str {
    found(DOCS, code).unwrap_or(code.title())
}

fn parent(code: Code) -> &'static str {
    found(PARENTS, code).map_or("FlovynError", Code::as_str)
}

/// The codes whose classes are generated; a class comes after the one it is a kind of.
fn generated() -> Vec<Code> {
    let mut codes: Vec<_> = Code::ALL.iter().copied().filter(|code| !WRITTEN_BY_HAND.contains(code)).collect();
    codes.sort_by_key(|code| found(PARENTS, *code).is_some());
    codes
}

/// The names of Python's module.
pub(crate) fn python_names() -> String {
    let mut names: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).chain(PYTHON_WITHOUT_CODE.to_vec()).collect();
    names.sort_unstable();
    let list: String = names.iter().map(|name| format!("    \"{name}\",\n")).collect();
    format!("__all__ = [\n{list}]\n")
}

/// Python's classes.
pub(crate) fn python() -> String {
    let mut text = String::new();
    for code in generated() {
        let parents = match found(PYTHON_PARENTS, code) {
            Some(other) => format!("{}, {other}", parent(code)),
            None => parent(code).to_owned(),
        };
        let doc = doc(code).replace('`', "``");
        let _ = write!(text, "\n\nclass {code}({parents}):\n    \"\"\"{doc}\"\"\"\n");
        if code.is_retryable() {
            text.push_str("\n    retryable = True\n");
        }
    }
    text.push_str("\n\n");
    text
}

/// TypeScript's classes, and the tables that name them.
pub(crate) fn typescript() -> String {
    let mut text = String::new();
    for code in generated() {
        let _ = write!(text, "/** {} */\nexport class {code} extends {} {{}}\n", doc(code), parent(code));
    }
    let names =
        |codes: &mut dyn Iterator<Item = &Code>| -> String { codes.map(|code| format!("    {code},\n")).collect() };
    let _ = write!(
        text,
        "\n/** The class of each code. */\n\
         export const byCode: ReadonlyMap<string, new (message?: string, options?: ErrorOptions) => FlovynError> = new Map(\n  \
         [\n{}  ].map((made) => [made.name, made]),\n);\n",
        names(&mut Code::ALL.iter()),
    );
    let retryable = Code::ALL.iter().filter(|code| code.is_retryable()).map(|code| format!("\"{code}\""));
    let _ = write!(
        text,
        "\n/** The codes of errors after which the same request may succeed. */\nconst RETRYABLE = new Set([{}]);\n",
        retryable.collect::<Vec<_>>().join(", ")
    );
    text
}
