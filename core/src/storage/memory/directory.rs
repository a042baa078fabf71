//! Organizations and keys. What was done to them is not kept: nothing here outlives its process.

use super::MemoryStorage;
use super::state::not_found;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, NewKey, Organization, TokenHash};
use crate::storage::Directory;
use crate::storage::directory::check_slug;
use async_trait::async_trait;
use std::collections::BTreeMap;

/// Who may call.
#[derive(Default)]
pub(super) struct Callers {
    organizations: BTreeMap<String, Organization>,
    keys: Vec<(TokenHash, ApiKey)>,
}

#[async_trait]
impl Directory for MemoryStorage {
    async fn create_organization(&self, name: &str, _actor: &str) -> Result<Organization> {
        let id = check_slug(name)?;
        Ok(self.call(|state, now| {
            let made = || Organization { id, name: name.to_owned(), created_at: now };
            state.callers.organizations.entry(name.to_owned()).or_insert_with(made).clone()
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
            key
        }))
    }

    async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>> {
        Ok(self.call(|state, _| {
            let keys = state.callers.keys.iter().map(|(_, key)| key);
            keys.filter(|key| key.org == org).cloned().collect()
        }))
    }

    async fn revoke_key(&self, org: OrgId, id: KeyId, _actor: &str) -> Result<ApiKey> {
        self.call(|state, now| {
            let mut keys = state.callers.keys.iter_mut().map(|(_, key)| key);
            let key = keys.find(|key| key.org == org && key.id == id).ok_or_else(|| not_found("key", id))?;
            key.revoked_at.get_or_insert(now);
            Ok(key.clone())
        })
    }

    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>> {
        Ok(self.call(|state, _| {
            let mut keys = state.callers.keys.iter();
            keys.find(|(hash, _)| *hash == token).map(|(_, key)| key.clone())
        }))
    }
}
