//! What the SQL backends have in common: what each call reads, decides and writes, and in which order.
//!
//! The algorithms decide on rows in memory. They ask the dialect only for statements ([`dialect`]): there is a trait
//! for each sort of row, which the dialect's open transaction implements. Transactions are synchronous in both
//! dialects, so this code is synchronous too. Only the ports are async: they hand closures to a [`Backend`]. Each
//! dialect has its own way to find and lock rows that are due or can be claimed, to bring commands to a transaction,
//! and to keep values in columns.

mod agents;
pub(super) mod backend;
mod budgets;
mod catalog;
pub(super) mod commit;
pub(super) mod database_error;
mod definitions;
pub(super) mod dialect;
pub(super) mod directory;
pub(super) mod executions;
pub(super) mod facts;
mod family;
pub(super) mod fork;
pub(super) mod group;
mod hand_off;
mod kinship;
pub(super) mod log;
mod machines;
mod messages;
pub(super) mod news;
pub(super) mod op;
mod pages;
pub(super) mod payloads;
pub(super) mod previews;
pub(super) mod quarantine;
pub(super) mod queues;
pub(super) mod reopen;
pub(super) mod request;
pub(super) mod run;
mod schedules;
pub(super) mod segment;
mod stop;
pub(super) mod tables;
pub(super) mod tail;
pub(super) mod task;
pub(super) mod time;
mod unfenced;
pub(super) mod values;
pub(super) mod workers;

pub(super) use backend::Backend;
pub(super) use catalog::{Listings, Place};
pub(super) use dialect::{
    CheckpointRow, Checkpoints, Dialect, Entries, Events, Failing, OpRow, Ops, Payloads, RunOf, Runs, Signals,
    Statements, TaskOf, Tasks, if_there,
};
pub(super) use kinship::{Kinship, UsageBelow};
pub(super) use tables::{Columns, Tables};
pub(super) use workers::Workers;
