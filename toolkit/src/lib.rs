//! Flovyn's toolkit: what makes an agent of a durable function.
//!
//! [`message`] is the provider-neutral model that entries store, [`provider`] speaks to models, [`pricing`] knows what they
//! cost, and [`fake_llm`] is a scripted model server for tests. [`react`] is the built-in agent. It uses `flovyn-core` as any program would.

pub mod fake_llm;
pub mod message;
pub mod pricing;
pub mod provider;
pub mod react;
pub mod tools;
