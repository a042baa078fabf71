//! What the program that starts a server adds to it: the server depends on none of it.

use crate::catalog::{self, Catalog};
use crate::limits::Rate;
use crate::policy::Need;
use crate::service::Service;
use std::fmt::Debug;
use std::sync::Arc;
use tonic::service::Routes;

/// Parts that a server is given.
#[derive(Debug, Clone)]
pub struct Extensions {
    /// What it lists for pickers.
    pub catalog: Arc<dyn Catalog>,
    /// What it speaks over gRPC beside `flovyn.v2`.
    pub protocols: Vec<Arc<dyn Protocol>>,
}

impl Default for Extensions {
    /// Nothing to pick, and no other protocol.
    fn default() -> Self {
        Self { catalog: catalog::empty(), protocols: Vec::new() }
    }
}

/// A protocol that a server speaks over gRPC beside its own. Its callers are let in and counted as all others are.
pub trait Protocol: Debug + Send + Sync {
    /// The names of its services.
    fn services(&self) -> &'static [&'static str];

    /// The descriptors of its services, for reflection.
    fn descriptors(&self) -> &'static [u8];

    /// The permission that a method needs, by its path; a method that needs none that is known is refused.
    fn need_of_method(&self, path: &str) -> Option<Need>;

    /// The rate limit that calls of a method count for.
    fn rate_of_method(&self, path: &str) -> Option<Rate>;

    /// Adds its services to those of a server.
    fn add_to(&self, routes: Routes, service: &Service) -> Routes;
}
