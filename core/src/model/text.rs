//! Checks of texts that callers give and that backends store in columns. A text that some backend cannot store is
//! refused before it gets to any.

use crate::error::{Code, Error, Result};

/// The longest name or key, in bytes. An index of every backend has room for it beside its other columns.
pub const MAX_NAME: usize = 500;

/// The longest id that a user may give to a run, in characters.
pub const MAX_ID: usize = 200;

/// How many characters of a refused text an error shows.
const SHOWN: usize = 60;

/// Refuses a text with a NUL, which PostgreSQL cannot store. It is refused on every backend, so that all behave alike.
///
/// Errors: `InvalidArgument` with the place.
pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    let Some(at) = text.find('\0') else { return Ok(()) };
    let shown = shown(text);
    let message = format!("{what} {shown} has a NUL character at byte {at}, which cannot be stored; leave it out");
    Err(Error::new(Code::InvalidArgument, message))
}

/// Refuses a name or a key with a NUL, and one of more than [`MAX_NAME`] bytes.
///
/// Errors: `InvalidArgument` with the place or the length.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.len() > MAX_NAME {
        let (shown, length) = (shown(name), name.len());
        let message = format!("{what} {shown} has {length} bytes and may have {MAX_NAME}: give a shorter one");
        return Err(Error::new(Code::InvalidArgument, message).with("limit", MAX_NAME));
    }
    check_text(what, name)
}

/// As [`check_name`], and refuses an empty one: no worker could serve it.
///
/// Errors: `InvalidArgument`.
pub(crate) fn check_kind(what: &str, kind: &str) -> Result<()> {
    if kind.is_empty() {
        let message = format!("{what} is empty; give the name under which a worker serves it");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    check_name(what, kind)
}

/// Refuses an id that is empty, one with a NUL, and one of more than [`MAX_ID`] characters.
///
/// Errors: `InvalidArgument` with the place or the length.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let length = id.chars().count();
    if !(1..=MAX_ID).contains(&length) {
        let message = format!("an id has 1 to {MAX_ID} characters, but {length} were given");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    check_text("the id", id)
}

fn shown(text: &str) -> String {
    let mut begin: String = text.chars().take(SHOWN).collect();
    if begin.len() < text.len() {
        begin.push('…');
    }
    format!("{begin:?}")
}
