//! Predefined agents.

use super::MemoryStorage;
use super::catalog::{cursor, cut};
use super::state::{State, not_found};
use crate::error::Result;
use crate::id::{DefinitionId, OrgId};
use crate::model::{Definition, DefinitionSpec, Page, PageRequest};
use crate::storage::Definitions;
use crate::storage::definitions::{taken, text_of};
use async_trait::async_trait;

#[async_trait]
impl Definitions for MemoryStorage {
    async fn create_definition(&self, org: OrgId, spec: DefinitionSpec) -> Result<Definition> {
        text_of(&spec)?;
        self.call(|state, now| {
            state.check_slug_is_free(org, None, &spec.slug)?;
            let id = DefinitionId::fresh();
            let definition = Definition { org, id, spec, created_at: now, updated_at: now };
            state.definitions.insert((org, id), definition.clone());
            Ok(definition)
        })
    }

    async fn definition(&self, org: OrgId, name: &str) -> Result<Definition> {
        self.call(|state, _| {
            let id = name.parse().ok();
            let is_named = |row: &&Definition| Some(row.id) == id || row.spec.slug == name;
            let mut of_org = state.definitions.values().filter(|row| row.org == org);
            of_org.find(is_named).cloned().ok_or_else(|| not_found("definition", name))
        })
    }

    async fn definitions(&self, org: OrgId, page: PageRequest) -> Result<Page<Definition>> {
        self.call(|state, _| {
            let after = cursor(&page, |text| Some(text.to_owned()))?.unwrap_or_default();
            let of_org = state.definitions.values().filter(|row| row.org == org && row.spec.slug > after);
            let mut rows: Vec<_> = of_org.map(|row| (row.spec.slug.clone(), row.clone())).collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(cut(rows.into_iter(), &page, String::clone))
        })
    }

    async fn replace_definition(&self, org: OrgId, id: DefinitionId, spec: DefinitionSpec) -> Result<Definition> {
        text_of(&spec)?;
        self.call(|state, now| {
            state.check_slug_is_free(org, Some(id), &spec.slug)?;
            let row = state.definitions.get_mut(&(org, id)).ok_or_else(|| not_found("definition", id))?;
            (row.spec, row.updated_at) = (spec, now);
            Ok(row.clone())
        })
    }

    async fn delete_definition(&self, org: OrgId, id: DefinitionId) -> Result<()> {
        self.call(|state, _| match state.definitions.remove(&(org, id)) {
            Some(_) => Ok(()),
            None => Err(not_found("definition", id)),
        })
    }
}

impl State {
    fn check_slug_is_free(&self, org: OrgId, but_of: Option<DefinitionId>, slug: &str) -> Result<()> {
        let mut of_org = self.definitions.values().filter(|row| row.org == org);
        match of_org.find(|row| row.spec.slug == slug && Some(row.id) != but_of) {
            Some(_) => Err(taken(slug)),
            None => Ok(()),
        }
    }
}
