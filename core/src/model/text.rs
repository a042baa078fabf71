//! Words from outside that become columns: what no backend can keep is refused where it is given.

use crate::error::{Code, Error, Result};

/// Refuses what PostgreSQL cannot store in a text, on every backend alike: a NUL.
///
/// Errors: `InvalidArgument` with the place.
pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    let Some(at) = text.find('\0') else { return Ok(()) };
    let message = format!("{what} {text:?} has a NUL character at byte {at}, which cannot be stored; leave it out");
    Err(Error::new(Code::InvalidArgument, message))
}
