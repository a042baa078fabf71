//! The port for machines: how they are let in, found and revoked.

use crate::error::Result;
use crate::id::OrgId;
pub use crate::model::{
    Approval, Approved, MACHINE_QUEUES, MAX_OFFERS, Machine, PAIRING_TIME, Paired, Pairing, check_task, choose,
    machine_of, machine_queue,
};
use async_trait::async_trait;

/// Machines and their pairing. Every change writes a row of audit in its transaction.
#[async_trait]
pub trait Machines: Send + Sync {
    /// Asks to be let in. `host` is what the computer says of itself to whoever approves.
    ///
    /// Errors: `InvalidArgument` for what is no name; `RateLimited` where too many wait to be approved.
    async fn request_pairing(&self, name: &str, host: &str) -> Result<Pairing>;

    /// Approves a code for an org.
    ///
    /// Errors: `NotFound` for a code that is not open; `AlreadyExists` where the org has a machine of the name.
    async fn approve_pairing(&self, org: OrgId, approval: Approval) -> Result<Approved>;

    /// Gives the machine's key to whoever has the secret of an approved pairing, once; none before it is approved.
    ///
    /// Errors: `NotFound` for a secret whose time is over or that was collected before.
    async fn collect_pairing(&self, secret: &str) -> Result<Option<Paired>>;

    /// The machines of an org, oldest first, those that were revoked included.
    async fn machines(&self, org: OrgId) -> Result<Vec<Machine>>;

    /// Notes that a machine is there, and what it offers if that is given. Does nothing for one that is not.
    async fn announce_machine(&self, org: OrgId, name: &str, offers: Option<&str>) -> Result<()>;

    /// Revokes a machine with its key: servers refuse it within five seconds. Its name is free again.
    ///
    /// Errors: `NotFound`.
    async fn revoke_machine(&self, org: OrgId, name: &str, actor: &str) -> Result<Machine>;
}
