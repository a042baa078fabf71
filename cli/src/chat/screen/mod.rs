//! The screen of a chat: `style` has rows of text, `markdown`, `card` and `form` make them, `editor` is the line of
//! the user, `terminal` draws.

pub mod card;
pub mod editor;
pub mod form;
pub mod markdown;
pub mod style;
pub mod terminal;
