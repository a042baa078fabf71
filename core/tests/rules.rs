//! One test for each rule of the engine: what it promises, on every backend.

#[path = "rules/batches.rs"]
mod batches;
#[path = "rules/budgets.rs"]
mod budgets;
#[path = "rules/errors.rs"]
mod errors;
#[path = "rules/families.rs"]
mod families;
#[path = "rules/family_budgets.rs"]
mod family_budgets;
#[path = "rules/handoffs.rs"]
mod handoffs;
#[path = "rules/limits.rs"]
mod limits;
#[path = "rules/messages.rs"]
mod messages;
#[path = "rules/order.rs"]
mod order;
#[path = "rules/persistence.rs"]
mod persistence;
#[path = "rules/refusals.rs"]
mod refusals;
#[path = "rules/steps.rs"]
mod steps;
#[path = "rules/world.rs"]
mod world;
