//! Takes back what a call of `write` or `edit` has changed, by the details of its result.
//!
//! The details have the diff of the change and the hashes of the file before and after it, so a file is put back exactly as it
//! was, in whatever process and however long ago the change was made.

use super::WorkingDirectory;
use super::directory::hash;
use super::fault::Fault;
use serde_json::Value;

/// Files that are put back at most.
const MAX_FILE: u64 = 64 << 20;
/// The note of a diff about a line without an end.
const NO_END: &str = "\\ No newline at end of file";

/// Why a file was not put back. It is as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPutBack {
    /// The file has changed since; it can be tried nevertheless.
    Changed,
    /// It cannot be done; the text says why.
    Impossible(String),
}

/// Takes back one change, by the `details` of the result. With `forced` a file that has changed since loses this change
/// alone and keeps the others.
///
/// # Errors
///
/// The file was not put back.
pub fn put_back(directory: &WorkingDirectory, details: &Value, forced: bool) -> Result<(), NotPutBack> {
    let impossible = |why: &str| NotPutBack::Impossible(why.to_owned());
    let of_fault = |fault: Fault| match fault {
        Fault::ForModel(_, message) => NotPutBack::Impossible(message),
        Fault::Machine(error) => NotPutBack::Impossible(error.message().to_owned()),
    };
    let (Some(path), Some(after)) = (details["path"].as_str(), details["hash"].as_str()) else {
        return Err(impossible("its result does not say what was changed"));
    };
    let location = directory.inner_path(path).and_then(|inner| directory.locate(&inner)).map_err(of_fault)?;
    directory.alone(&location.path, || {
        let found = location.read(MAX_FILE).map_err(of_fault)?;
        let is_as_left = found.as_deref().is_some_and(|found| hash(found) == after);
        if !is_as_left && !forced {
            return Err(NotPutBack::Changed);
        }
        let (Some(before), Some(found)) = (details["before"].as_str(), &found) else {
            return match (details["before"].as_str(), found) {
                (None, Some(_)) => location.remove().map_err(of_fault),
                (None, None) => Ok(()),
                (Some(_), _) => Err(impossible("the file is no longer there")),
            };
        };
        let diff = details["diff"].as_str().filter(|_| details["diffCut"] != true);
        let diff = diff.ok_or_else(|| impossible("the change was too large to keep what was there before"))?;
        let text = std::str::from_utf8(found).map_err(|_| impossible("the file is no text any more"))?;
        let old = reversed(text, diff).ok_or_else(|| impossible("the changed lines are no longer there"))?;
        if is_as_left && hash(old.as_bytes()) != before {
            return Err(impossible("what was there before is not known"));
        }
        location.replace(old.as_bytes(), "undo").map_err(of_fault)
    })
}

/// A part of a diff: where it begins in the new text, and its lines on both sides.
#[derive(Default)]
struct Hunk {
    start: usize,
    old: Vec<String>,
    new: Vec<String>,
}

/// A text without the changes of a diff; none if one of them is not in it.
fn reversed(text: &str, diff: &str) -> Option<String> {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    // From the end, so that the numbers of the lines before stay true.
    for hunk in hunks(diff).into_iter().rev() {
        let at = nearest(&lines, &hunk)?;
        lines.splice(at..at + hunk.new.len(), hunk.old);
    }
    Some(lines.concat())
}

/// Where the new lines of a hunk are, nearest to where they were.
fn nearest(lines: &[String], hunk: &Hunk) -> Option<usize> {
    let is_at = |at: &usize| lines[*at..].starts_with(&hunk.new);
    let last = lines.len().checked_sub(hunk.new.len())?;
    (0..=last).filter(is_at).min_by_key(|at| at.abs_diff(hunk.start))
}

fn hunks(diff: &str) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let (mut in_old, mut in_new) = (false, false);
    for line in diff.split_inclusive('\n') {
        if let Some(head) = line.strip_prefix("@@ ") {
            let start = head.split_once('+').and_then(|(_, rest)| rest.split([',', ' ']).next()?.parse::<usize>().ok());
            hunks.push(Hunk { start: start.unwrap_or(1).saturating_sub(1), ..Hunk::default() });
            continue;
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        if line.starts_with(NO_END) {
            let cut =
                |lines: &mut Vec<String>| lines.last_mut().map(|line| line.truncate(line.trim_end_matches('\n').len()));
            in_old.then(|| cut(&mut hunk.old));
            in_new.then(|| cut(&mut hunk.new));
            continue;
        }
        let Some((sign, rest)) = line.split_at_checked(1) else { continue };
        (in_old, in_new) = (sign != "+", sign != "-");
        if in_old {
            hunk.old.push(rest.to_owned());
        }
        if in_new {
            hunk.new.push(rest.to_owned());
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::super::diff;
    use super::*;
    use serde_json::json;

    fn details(path: &str, before: Option<&str>, after: &str) -> Value {
        let mut details = diff::details(path, before.map(str::as_bytes), after.as_bytes());
        details["path"] = json!(path);
        details["before"] = json!(before.map(|before| hash(before.as_bytes())));
        details["hash"] = json!(hash(after.as_bytes()));
        details
    }

    #[test]
    fn a_change_is_taken_back_exactly() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = WorkingDirectory::open(folder.path()).expect("a directory");
        let file = folder.path().join("a.txt");
        let many: String = (1..60).map(|line| format!("{line}\n")).collect();
        for (before, after) in [
            ("one\ntwo\n".to_owned(), "one\n2\n".to_owned()),
            ("no end".to_owned(), "no end\n".to_owned()),
            ("a\r\nb".to_owned(), "a\r\nc\r\n".to_owned()),
            (String::new(), "x\n".to_owned()),
            (many.clone(), many.replace("10\n", "ten\n").replace("50\n", "")),
        ] {
            std::fs::write(&file, &after).expect("a file");
            put_back(&directory, &details("a.txt", Some(&before), &after), false).expect("it is put back");
            assert_eq!(std::fs::read_to_string(&file).expect("the file"), before);
        }
        std::fs::write(&file, "new").expect("a file");
        put_back(&directory, &details("a.txt", None, "new"), false).expect("it is put back");
        assert!(!file.exists(), "what was made is removed");
    }

    #[test]
    fn what_changed_since_is_asked_about_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = WorkingDirectory::open(folder.path()).expect("a directory");
        let file = folder.path().join("a.txt");
        let change = details("a.txt", Some("a\nb\nc\n"), "a\nB\nc\n");
        std::fs::write(&file, "mine\na\nB\nc\n").expect("a file");
        assert_eq!(put_back(&directory, &change, false), Err(NotPutBack::Changed));
        put_back(&directory, &change, true).expect("the rest is as it was");
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), "mine\na\nb\nc\n");
        assert!(matches!(put_back(&directory, &change, true), Err(NotPutBack::Impossible(_))), "it is no longer there");
        std::fs::remove_file(&file).expect("it was there");
        assert_eq!(put_back(&directory, &change, false), Err(NotPutBack::Changed));
    }
}
