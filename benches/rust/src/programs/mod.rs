//! The measured programs.

pub(crate) mod fanout;
pub(crate) mod replicas;
pub(crate) mod w1;
pub(crate) mod w2;
pub(crate) mod w3;
pub(crate) mod w3_recover;
pub(crate) mod w4;
pub(crate) mod w4_read;
pub(crate) mod w5;
pub(crate) mod w5_evicted;
pub(crate) mod w6_recover;
pub(crate) mod w7;
