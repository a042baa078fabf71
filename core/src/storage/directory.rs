//! The port for who may call: organizations and keys.

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, OrgLimits, Organization, Page, PageRequest, Status, TokenHash};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// The longest name in URLs, in characters.
pub const MAX_SLUG: usize = 63;

/// Organizations, their keys, and what was done to them. Every change leaves a row of audit in its transaction.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Makes an organization. A name that is taken gives the one that is there.
    ///
    /// Errors: `InvalidArgument` for a name that is no slug.
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization>;

    /// Every organization, by name.
    async fn organizations(&self) -> Result<Vec<Organization>>;

    /// One organization; none where it was never made, as that of calls that name none may be.
    async fn organization(&self, org: OrgId) -> Result<Option<Organization>>;

    /// Gives an organization another name; its id and all it has stay.
    ///
    /// Errors: `NotFound`; `AlreadyExists` where another has the name; `InvalidArgument` for a name that is no slug, and for
    /// the organization `default`.
    async fn rename_organization(&self, org: OrgId, name: &str, actor: &str) -> Result<Organization>;

    /// Sets what the callers of an organization may ask for, in place of what was set; servers heed it within five seconds.
    ///
    /// Errors: `NotFound`.
    async fn limit_organization(&self, org: OrgId, limits: OrgLimits, actor: &str) -> Result<Organization>;

    /// Removes an organization with its keys, its ended runs and all else it has. Its keys end first; a removal that was cut
    /// short is asked for again. The audit of `default` tells of it.
    ///
    /// Errors: `NotFound`; `InvalidTransition` while runs have not ended; `InvalidArgument` for the organization `default`.
    async fn delete_organization(&self, org: OrgId, actor: &str) -> Result<()>;

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

/// Refuses to remove a run that goes on, or that others need.
pub(super) fn check_removable(id: ExecutionId, status: Status, forked: bool, open: bool) -> Result<()> {
    let (why, what) = match (status.is_terminal(), forked, open) {
        (false, ..) => (format!("it is {status}"), "cancel it first, or wait for its end"),
        (_, true, _) => ("a fork of it reads its history".to_owned(), "remove the fork first"),
        (.., true) => ("a detached task of it runs".to_owned(), "wait for the task's end"),
        _ => return Ok(()),
    };
    Err(Error::new(Code::InvalidTransition, format!("cannot remove the run {id}: {why}; {what}")).with("from", status))
}

/// Who retention is, in the audit, and what it does.
pub(super) const RETENTION: (&str, &str) = ("retention", "executions.removed");

/// Refuses the organization of calls that name none, which is always there under its name.
pub(super) fn check_not_default(org: OrgId, asked: &str) -> Result<()> {
    if org == OrgId::DEFAULT {
        let message = format!("{asked}: the organization `default` stays, for calls that name none; name another");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(())
}

/// The refusal of a name that another organization has.
pub(super) fn name_taken(name: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("there is an organization {name:?} already; choose another name"))
}

/// The refusal to remove an organization some of whose runs go on.
pub(super) fn goes_on(name: &str, runs: u64) -> Error {
    let message = format!("{runs} runs of the organization {name:?} have not ended; cancel them, then remove it");
    Error::new(Code::InvalidTransition, message).with("runs", runs)
}

/// The id that an organization of this name gets; the name `default` is that of the one a backend always has.
pub(super) fn check_slug(name: &str) -> Result<OrgId> {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if name.is_empty() || name.len() > MAX_SLUG || !name.bytes().all(fits) || name.starts_with('-') {
        let message = format!(
            "{name:?} cannot be the name of an organization; use 1 to {MAX_SLUG} lower-case letters, digits and `-`, not first"
        );
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(if name == "default" { OrgId::DEFAULT } else { OrgId::fresh() })
}
