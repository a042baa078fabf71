//! The measured programs.

pub mod fanout;
pub mod replicas;
pub mod w1;
pub mod w2;
pub mod w3;
pub mod w3_recover;
pub mod w4;
pub mod w4_read;
pub mod w5;
pub mod w5_evicted;
pub mod w6_recover;
pub mod w7;
