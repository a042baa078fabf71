//! What the program that starts a server adds to it.

use crate::catalog::{self, Catalog};
use std::sync::Arc;

/// Parts that a server is given, so that it depends on none of them.
#[derive(Debug, Clone)]
pub struct Extensions {
    /// What it lists for pickers.
    pub catalog: Arc<dyn Catalog>,
}

impl Default for Extensions {
    /// Nothing to pick.
    fn default() -> Self {
        Self { catalog: catalog::empty() }
    }
}
