//! The unified diff of a change, for cards.

use super::excerpt;
use serde_json::{Value, json};
use similar::TextDiff;
use std::time::Duration;

/// How long the best diff is searched. After that a coarser one is used.
const PATIENCE: Duration = Duration::from_millis(500);

/// The details of a change: a unified diff with three lines of context, cut at 50 KB, and the numbers of added and
/// removed lines. It is empty for content that is not text.
pub(crate) fn details(path: &str, before: Option<&[u8]>, after: &[u8]) -> Value {
    let (Ok(old), Ok(new)) = (std::str::from_utf8(before.unwrap_or_default()), std::str::from_utf8(after)) else {
        return json!({ "diff": null });
    };
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let text = written(path, before.is_some(), &diff);
    let (mut added, mut removed) = (0, 0);
    for change in diff.iter_all_changes() {
        match change.tag() {
            similar::ChangeTag::Insert => added += 1,
            similar::ChangeTag::Delete => removed += 1,
            similar::ChangeTag::Equal => {}
        }
    }
    let (shown, cut) = excerpt::head(&text, excerpt::MAX_LINES, excerpt::MAX_BYTES);
    json!({ "diff": shown, "diffCut": cut, "added": added, "removed": removed })
}

/// The whole unified diff of a change; none for content that is not text.
pub(crate) fn unified(path: &str, before: Option<&[u8]>, after: &[u8]) -> Option<String> {
    let (old, new) = (std::str::from_utf8(before.unwrap_or_default()).ok()?, std::str::from_utf8(after).ok()?);
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    Some(written(path, before.is_some(), &diff))
}

fn written(path: &str, existed: bool, diff: &TextDiff<'_, '_, str>) -> String {
    let from = if existed { format!("a/{path}") } else { "/dev/null".into() };
    diff.unified_diff().context_radius(3).header(&from, &format!("b/{path}")).to_string()
}
