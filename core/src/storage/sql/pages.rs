//! Pages of listings: where one starts, and where the next does.

use crate::error::{Code, Error, Result};
use crate::id::Slot;
use crate::model::{Cursor, MAX_PAGE, Page, PageRequest};
use std::str::FromStr;

/// The place after which a page starts. Refuses a limit out of bounds, and a cursor that no listing has returned.
pub(in crate::storage) fn cursor<K>(page: &PageRequest, parse: impl Fn(&str) -> Option<K>) -> Result<Option<K>> {
    if !(1..=MAX_PAGE).contains(&page.limit) {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("a page of {} items was asked for; ask for 1 to {MAX_PAGE}", page.limit),
        ));
    }
    let Some(Cursor(text)) = &page.after else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| {
        Error::new(Code::InvalidArgument, format!("{text:?} is no cursor of this listing; pass one it returned"))
    })
}

/// Makes a page of its rows. The caller has read one row more than the page holds: that one tells whether there is a
/// next page.
pub(in crate::storage) fn cut<T>(mut rows: Vec<T>, page: &PageRequest, name: impl Fn(&T) -> String) -> Page<T> {
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let next = rows.last().filter(|_| more).map(|row| Cursor(name(row)));
    Page { items: rows, next }
}

/// A slot as a cursor names it.
pub(super) fn parse_slot(text: &str) -> Option<Slot> {
    let (segment, sequence) = text.split_once('-')?;
    Some(Slot { segment: segment.parse().ok()?, sequence: sequence.parse().ok()? })
}

/// A number, or an id, as a cursor names it.
pub(super) fn parse_number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}
