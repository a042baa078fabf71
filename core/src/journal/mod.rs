//! The rules of a run, pure: no async, no I/O, no clock. Inputs in, effects out.

pub mod retry;
