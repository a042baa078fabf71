//! The port by which a reader of a run finds the runs below it as they are born.

use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::Relative;
use async_trait::async_trait;

/// Who is below whom.
#[async_trait]
pub trait Families: Send + Sync {
    /// The children of these runs that were born after a number, in the order of birth, at most `limit`. What the runs of
    /// one parent have for numbers follows the order in which they became visible: none is missed by going on after the
    /// last one.
    async fn children_after(&self, org: OrgId, parents: &[(ExecutionId, u64)], limit: usize) -> Result<Vec<Relative>>;

    /// The runs with these numbers that another run has started. Unknown ones are left out.
    async fn born(&self, org: OrgId, births: &[u64]) -> Result<Vec<Relative>>;
}
