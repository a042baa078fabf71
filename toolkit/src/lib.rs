//! Flovyn's toolkit: what makes an agent of a durable function.
//!
//! [`message`] is the provider-neutral model that entries store, [`provider`] speaks to models, [`pricing`] knows what they
//! cost, [`tools`] work on the host, [`mcp`] brings those of MCP servers, [`react`] is the built-in agent, [`external`] runs
//! agents of others, [`patterns`] are agents that lead others, [`config`] is all of it as one configuration for host languages,
//! [`catalog`] lists models and tools for pickers, and [`fake_llm`] is a scripted model server for tests. It uses `flovyn-core`
//! as any program would.

pub mod catalog;
pub mod config;
pub mod external;
pub mod fake_llm;
pub mod mcp;
pub mod message;
pub mod patterns;
pub mod pricing;
pub mod provider;
pub mod react;
pub mod tools;
