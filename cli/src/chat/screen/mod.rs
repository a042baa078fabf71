//! The screen of a chat: `style` has rows of text, `markdown`, `table`, `card`, `diff`, `form` and `footer` make them, `pager` and `picker` show many of
//! them; `editor` is the line of the user, `keys` reads the keyboard; `terminal` draws, and `plain` prints for screen readers.

pub(super) mod card;
mod code;
mod diff;
pub(super) mod editor;
pub(super) mod field_text;
pub(super) mod footer;
pub(super) mod form;
pub(super) mod keys;
pub(super) mod markdown;
pub(super) mod pager;
pub(super) mod picker;
pub(super) mod plain;
pub(super) mod printable;
pub(super) mod style;
mod table;
pub(super) mod terminal;
