//! What a person or a project says to the agent in files and options.
//!
//! `permission` reads the rules of `--allowed-tools` and of settings.

pub(crate) mod permission;
