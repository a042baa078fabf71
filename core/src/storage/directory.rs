//! The port for organizations, their keys and their audit.

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, OrgLimits, Organization, Page, PageRequest, Status, TokenHash};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most characters of an organization's name.
pub const MAX_SLUG: usize = 63;
/// How long a key of a single run or of a single user stays listed after its end.
pub const NARROW_KEPT: Duration = Duration::from_secs(3_600);

/// Organizations, their keys, and what was done to them. Every change writes a row of audit in its transaction.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Makes an organization. If the name is taken, returns the organization that has it.
    ///
    /// Errors: `InvalidArgument` for a name that is no slug.
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization>;

    /// Every organization, by name.
    async fn organizations(&self) -> Result<Vec<Organization>>;

    /// One organization. None if it was never made; that can be so of the default one, which calls without an
    /// organization use.
    async fn organization(&self, org: OrgId) -> Result<Option<Organization>>;

    /// Renames an organization. Its id and all that it has stay.
    ///
    /// Errors: `NotFound`; `AlreadyExists` if another one has the name; `InvalidArgument` for a name that is no slug,
    /// and for the organization `default`.
    async fn rename_organization(&self, org: OrgId, name: &str, actor: &str) -> Result<Organization>;

    /// Replaces the limits of an organization's callers. Servers apply them within five seconds.
    ///
    /// Errors: `NotFound`.
    async fn limit_organization(&self, org: OrgId, limits: OrgLimits, actor: &str) -> Result<Organization>;

    /// Removes an organization with its keys, its ended runs and all else that it has. Its keys end first. If the
    /// removal is cut short, call it again. It is recorded in the audit of `default`.
    ///
    /// Errors: `NotFound`; `InvalidTransition` while runs have not ended; `InvalidArgument` for the organization `default`.
    async fn delete_organization(&self, org: OrgId, actor: &str) -> Result<()>;

    /// Makes a key. It works as soon as this returns. One of a single run or of a single user removes such keys of its org that
    /// ended over [`NARROW_KEPT`] ago: they are made in numbers.
    async fn create_key(&self, key: NewKey) -> Result<ApiKey>;

    /// All keys of an org, oldest first, those that no longer work included.
    async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>>;

    /// Ends a key. A key that has ended stays as it is. `NotFound` if the org has none with this id.
    async fn revoke_key(&self, org: OrgId, key: KeyId, actor: &str) -> Result<ApiKey>;

    /// The key of a token, whether it works or not.
    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>>;

    /// Adds a row of audit: who did what, to what. Rows are never changed, and each is sealed together with those before it.
    async fn record(&self, org: OrgId, actor: &str, action: &str, subject: &str) -> Result<()>;

    /// The audit of an org, newest first.
    async fn audit(&self, org: OrgId, page: PageRequest) -> Result<Page<AuditRow>>;
}

/// How many runs retention has removed from each org, as its audit says it.
pub(super) fn removals(orgs: impl IntoIterator<Item = OrgId>) -> Vec<(OrgId, String)> {
    let mut removed: BTreeMap<OrgId, usize> = BTreeMap::new();
    for org in orgs {
        *removed.entry(org).or_default() += 1;
    }
    removed.into_iter().map(|(org, runs)| (org, format!("ended runs: {runs}"))).collect()
}

/// Refuses to remove a run that has not ended, that a fork or a child needs, or that has an open task.
pub(super) fn check_removable(id: ExecutionId, status: Status, forked: bool, parent: bool, open: bool) -> Result<()> {
    let (why, what) = match (status.is_terminal(), forked, parent, open) {
        (false, ..) => (format!("it is {status}"), "cancel it first, or wait for its end"),
        (_, true, ..) => ("a fork of it reads its history".to_owned(), "remove the fork first"),
        (_, _, true, _) => ("it has a child".to_owned(), "remove its children first"),
        (.., true) => ("a detached task of it runs".to_owned(), "wait for the task's end"),
        _ => return Ok(()),
    };
    Err(Error::new(Code::InvalidTransition, format!("cannot remove the run {id}: {why}; {what}")).with("from", status))
}

/// The actor and the action of retention in the audit.
pub(super) const RETENTION: (&str, &str) = ("retention", "executions.removed");

/// Refuses the default organization, which always exists under its name for calls that name none.
pub(super) fn check_not_default(org: OrgId, asked: &str) -> Result<()> {
    if org == OrgId::DEFAULT {
        let message = format!("{asked}: the organization `default` stays, for calls that name none; name another");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(())
}

/// The error for a name that another organization has.
pub(super) fn name_taken(name: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("there is an organization {name:?} already; choose another name"))
}

/// The error for an organization that cannot be removed, since some of its runs have not ended.
pub(super) fn goes_on(name: &str, runs: u64) -> Error {
    let message = format!("{runs} runs of the organization {name:?} have not ended; cancel them, then remove it");
    Error::new(Code::InvalidTransition, message).with("runs", runs)
}

/// Checks a name and returns the id that a new organization of this name gets. The name `default` stands for the one
/// that every backend has.
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
