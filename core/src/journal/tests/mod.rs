//! The machine under random agents, crashes and edits.
