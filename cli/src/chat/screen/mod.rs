//! The screen of a chat: `style` has rows of text, `markdown`, `card` and `form` make them, `editor` is the line of
//! the user, `terminal` draws.

pub(super) mod card;
pub(super) mod editor;
pub(super) mod form;
pub(super) mod markdown;
pub(super) mod style;
pub(super) mod terminal;
