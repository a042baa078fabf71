//! Organizations, their keys and their audit.

use super::MemoryStorage;
use super::catalog::{cursor, cut, parse_number};
use super::state::not_found;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, OrgLimits, Organization, Page, PageRequest, Seal, TokenHash};
use crate::storage::Directory;
use crate::storage::directory::{NARROW_KEPT, check_not_default, check_slug, goes_on, name_taken};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// Organizations, keys and audit rows.
#[derive(Default)]
pub(super) struct Callers {
    organizations: BTreeMap<String, Organization>,
    keys: Vec<(TokenHash, ApiKey)>,
    audit: BTreeMap<(OrgId, u64), AuditRow>,
    /// How many audit rows were ever written.
    recorded: u64,
}

impl Callers {
    /// Makes a key, and records it.
    pub(super) fn add_key(&mut self, new: NewKey, now: Timestamp) -> ApiKey {
        let expires_at = new.expires_at(now);
        if new.scopes.is_narrow() {
            let kept = now.before(NARROW_KEPT);
            let is_old = |key: &ApiKey| key.scopes.is_narrow() && key.expires_at.is_some_and(|end| end < kept);
            self.keys.retain(|(_, key)| key.org != new.org || !is_old(key));
        }
        let key = ApiKey {
            org: new.org,
            id: KeyId::fresh(),
            name: new.name,
            scopes: new.scopes,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        self.keys.push((new.hash, key.clone()));
        self.record(new.org, &new.actor, "key.created", &key.id.to_string(), now);
        key
    }

    /// A key, whether it works or not.
    pub(super) fn key(&self, id: KeyId) -> Option<&ApiKey> {
        self.keys.iter().map(|(_, key)| key).find(|key| key.id == id)
    }

    /// Ends a key, if it has not ended.
    pub(super) fn end_key(&mut self, id: KeyId, now: Timestamp) {
        if let Some((_, key)) = self.keys.iter_mut().find(|(_, key)| key.id == id) {
            key.revoked_at = key.revoked_at.or(Some(now));
        }
    }

    fn of(&mut self, org: OrgId) -> Result<&mut Organization> {
        self.organizations.values_mut().find(|there| there.id == org).ok_or_else(|| not_found("organization", org))
    }

    /// Adds a row of audit: who did what, to what.
    pub(super) fn record(&mut self, org: OrgId, actor: &str, action: &str, subject: &str, at: Timestamp) {
        self.recorded += 1;
        let number = self.recorded;
        let (actor, action, subject) = (actor.to_owned(), action.to_owned(), subject.to_owned());
        let newest = self.audit.range((org, 0)..=(org, u64::MAX)).next_back();
        let before = newest.and_then(|(_, row)| row.seal);
        let seal = Some(Seal::of(org, before, at, [&actor, &action, &subject]));
        self.audit.insert((org, number), AuditRow { number, at, actor, action, subject, seal });
    }
}

#[async_trait]
impl Directory for MemoryStorage {
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization> {
        let id = check_slug(name)?;
        Ok(self.call(|state, now| {
            if let Some(there) = state.callers.organizations.get(name) {
                return there.clone();
            }
            let made = Organization { id, name: name.to_owned(), created_at: now, limits: OrgLimits::default() };
            state.callers.organizations.insert(name.to_owned(), made.clone());
            state.callers.record(id, actor, "organization.created", name, now);
            made
        }))
    }

    async fn organizations(&self) -> Result<Vec<Organization>> {
        Ok(self.call(|state, _| state.callers.organizations.values().cloned().collect()))
    }

    async fn organization(&self, org: OrgId) -> Result<Option<Organization>> {
        Ok(self.call(|state, _| state.callers.organizations.values().find(|there| there.id == org).cloned()))
    }

    async fn rename_organization(&self, org: OrgId, name: &str, actor: &str) -> Result<Organization> {
        check_not_default(org, "rename an organization")?;
        check_slug(name)?;
        self.call(|state, now| {
            let mut there = state.callers.of(org)?.clone();
            if there.name == name {
                return Ok(there);
            }
            if name == "default" || state.callers.organizations.contains_key(name) {
                return Err(name_taken(name));
            }
            state.callers.organizations.remove(&there.name);
            there.name = name.to_owned();
            state.callers.organizations.insert(name.to_owned(), there.clone());
            state.callers.record(org, actor, "organization.renamed", name, now);
            Ok(there)
        })
    }

    async fn limit_organization(&self, org: OrgId, limits: OrgLimits, actor: &str) -> Result<Organization> {
        self.call(|state, now| {
            let there = state.callers.of(org)?;
            there.limits = limits;
            let there = there.clone();
            state.callers.record(org, actor, "organization.limited", &there.name, now);
            Ok(there)
        })
    }

    async fn delete_organization(&self, org: OrgId, actor: &str) -> Result<()> {
        check_not_default(org, "remove an organization")?;
        self.call(|state, now| {
            let name = state.callers.of(org)?.name.clone();
            let live = state.runs.iter().filter(|((of, _), run)| *of == org && !run.exec.status.is_terminal()).count();
            if live > 0 {
                return Err(goes_on(&name, live as u64));
            }
            state.remove_org(org);
            state.callers.organizations.remove(&name);
            state.callers.keys.retain(|(_, key)| key.org != org);
            state.machines.retain(|machine| machine.org != org);
            state.callers.audit.retain(|(of, _), _| *of != org);
            state.callers.record(OrgId::DEFAULT, actor, "organization.deleted", &name, now);
            Ok(())
        })
    }

    async fn create_key(&self, new: NewKey) -> Result<ApiKey> {
        Ok(self.call(|state, now| state.callers.add_key(new, now)))
    }

    async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>> {
        Ok(self.call(|state, _| {
            let keys = state.callers.keys.iter().map(|(_, key)| key);
            keys.filter(|key| key.org == org).cloned().collect()
        }))
    }

    async fn revoke_key(&self, org: OrgId, id: KeyId, actor: &str) -> Result<ApiKey> {
        self.call(|state, now| {
            let mut keys = state.callers.keys.iter_mut().map(|(_, key)| key);
            let key = keys.find(|key| key.org == org && key.id == id).ok_or_else(|| not_found("key", id))?;
            let ended = key.revoked_at.replace(key.revoked_at.unwrap_or(now)).is_some();
            let key = key.clone();
            if !ended {
                state.callers.record(org, actor, "key.revoked", &id.to_string(), now);
            }
            Ok(key)
        })
    }

    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>> {
        Ok(self.call(|state, _| {
            let mut keys = state.callers.keys.iter();
            keys.find(|(hash, _)| *hash == token).map(|(_, key)| key.clone())
        }))
    }

    async fn record(&self, org: OrgId, actor: &str, action: &str, subject: &str) -> Result<()> {
        self.call(|state, now| state.callers.record(org, actor, action, subject, now));
        Ok(())
    }

    async fn audit(&self, org: OrgId, page: PageRequest) -> Result<Page<AuditRow>> {
        self.call(|state, _| {
            let before = cursor(&page, parse_number)?.unwrap_or(u64::MAX);
            let rows = state.callers.audit.range((org, 0)..(org, before)).rev();
            Ok(cut(rows.map(|((_, number), row)| (*number, row.clone())), &page, u64::to_string))
        })
    }
}
