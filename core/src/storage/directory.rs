//! The port for who may call: organizations and keys.

use crate::error::{Code, Error, Result};
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, Organization, Page, PageRequest, TokenHash};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// Organizations, their keys, and what was done to them. Every change leaves a row of audit in its transaction.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Makes an organization. A name that is taken gives the one that is there.
    ///
    /// Errors: `InvalidArgument` for a name that is no slug.
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization>;

    /// Every organization, by name.
    async fn organizations(&self) -> Result<Vec<Organization>>;

    /// Makes a key; it works as soon as this returns.
    async fn create_key(&self, key: NewKey) -> Result<ApiKey>;

    /// Every key of an org, oldest first, those that no longer work included.
    async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>>;

    /// Ends a key; one that ended before stays as it is. `NotFound` where the org has none of this id.
    async fn revoke_key(&self, org: OrgId, key: KeyId, actor: &str) -> Result<ApiKey>;

    /// The key of a token, whether it works or not.
    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>>;

    /// Adds a row of audit: who did what, to what. Rows are never changed, and each is sealed together with those before it.
    async fn record(&self, org: OrgId, actor: &str, action: &str, subject: &str) -> Result<()>;

    /// What was done to an org, newest first.
    async fn audit(&self, org: OrgId, page: PageRequest) -> Result<Page<AuditRow>>;
}

/// What retention leaves in the audit of each org: who, what, and the runs it took out.
pub(super) fn removals(orgs: impl IntoIterator<Item = OrgId>) -> Vec<(OrgId, String)> {
    let mut removed: BTreeMap<OrgId, usize> = BTreeMap::new();
    for org in orgs {
        *removed.entry(org).or_default() += 1;
    }
    removed.into_iter().map(|(org, runs)| (org, format!("ended runs: {runs}"))).collect()
}

/// Who retention is, in the audit, and what it does.
pub(super) const RETENTION: (&str, &str) = ("retention", "executions.removed");

/// The id that an organization of this name gets; the name `default` is that of the one a backend always has.
pub(super) fn check_slug(name: &str) -> Result<OrgId> {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(fits) || name.starts_with('-') {
        let message = format!(
            "{name:?} cannot be the name of an organization; use 1 to 63 lower-case letters, digits and `-`, not first"
        );
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(if name == "default" { OrgId::DEFAULT } else { OrgId::fresh() })
}
