//! Organizations and keys, and what was done to them.

use super::MemoryStorage;
use super::catalog::{cursor, cut, parse_number};
use super::state::not_found;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, Organization, Page, PageRequest, Seal, TokenHash};
use crate::storage::Directory;
use crate::storage::directory::check_slug;
use async_trait::async_trait;
use std::collections::BTreeMap;

/// Who may call.
#[derive(Default)]
pub(super) struct Callers {
    organizations: BTreeMap<String, Organization>,
    keys: Vec<(TokenHash, ApiKey)>,
    audit: BTreeMap<(OrgId, u64), AuditRow>,
}

impl Callers {
    /// Records what was done, by whom, to what.
    pub(super) fn record(&mut self, org: OrgId, actor: &str, action: &str, subject: &str, at: Timestamp) {
        let number = self.audit.len() as u64 + 1;
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
            let made = Organization { id, name: name.to_owned(), created_at: now };
            state.callers.organizations.insert(name.to_owned(), made.clone());
            state.callers.record(id, actor, "organization.created", name, now);
            made
        }))
    }

    async fn organizations(&self) -> Result<Vec<Organization>> {
        Ok(self.call(|state, _| state.callers.organizations.values().cloned().collect()))
    }

    async fn create_key(&self, new: NewKey) -> Result<ApiKey> {
        Ok(self.call(|state, now| {
            let key = ApiKey {
                org: new.org,
                id: KeyId::fresh(),
                name: new.name,
                scopes: new.scopes,
                created_at: now,
                expires_at: new.expires_in.map(|time| now.after(time)),
                revoked_at: None,
            };
            state.callers.keys.push((new.hash, key.clone()));
            state.callers.record(new.org, &new.actor, "key.created", &key.id.to_string(), now);
            key
        }))
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
