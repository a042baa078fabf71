//! The seven rules of the message model, and what a conversation becomes for another model.
