//! The native half of the `@flovyn/sdk` package: conversion, and the bridge between the engine and Node's event loop.
//!
//! Rust never runs JavaScript but for one callback without arguments, which says that something is there to take. What
//! JavaScript asks is either answered at once or ends through the queue of a [`hub`].
// In tests nothing is exported to Node, which alone calls some of it.
#![cfg_attr(test, allow(dead_code))]

mod daemon;
mod error;
mod fake_llm;
mod family;
mod handle;
mod hub;
mod runtime;
mod session;
mod task;
mod test_world;
mod toolkit;
mod value;
mod watching;
mod worker;

use napi_derive::napi;

/// The version of the package.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Runs the `flovyn` command with the program's name and its arguments; gives the exit code.
#[napi]
pub fn cli(words: Vec<String>) -> i32 {
    forget_handlers();
    flovyn_cli::run(words.into_iter().map(Into::into).collect())
}

/// Takes Node's own handlers away from the signals that the command listens to. They raise the signal again, counting on
/// being gone by then; called from another handler they would do so for ever.
#[cfg(unix)]
fn forget_handlers() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the default action needs nothing of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(not(unix))]
fn forget_handlers() {}
