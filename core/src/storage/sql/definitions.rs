//! The port [`Definitions`], written once for all SQL backends: agents that are defined in the store.

use super::Dialect;
use super::backend::Backend;
use super::database_error::unknown;
use super::pages::{cursor, cut};
use super::tables::{Columns, Tables, json_opt, moment};
use super::values::row;
use crate::error::Result;
use crate::id::{DefinitionId, OrgId};
use crate::model::{Definition, DefinitionSpec, Page, PageRequest};
use crate::storage::Definitions;
use crate::storage::definitions::{taken, text_of};
use async_trait::async_trait;

/// A SELECT of the columns of [`read`], without its WHERE clause.
macro_rules! select_definition {
    () => {
        "SELECT org_id, id, spec, created_at, updated_at FROM agent_definition "
    };
}

#[async_trait]
impl<B: Backend> Definitions for B {
    async fn create_definition(&self, org: OrgId, spec: DefinitionSpec) -> Result<Definition> {
        let (id, text) = (DefinitionId::fresh(), text_of(&spec)?);
        self.write_alone("make a definition", move |tx| {
            let made = tx.changes_any(
                "INSERT INTO agent_definition (org_id, id, slug, spec, created_at, updated_at) \
                 VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT DO NOTHING RETURNING id",
                row![org.0, id.0, &spec.slug, &text, tx.now()],
            )?;
            if !made {
                return Err(taken(&spec.slug).into());
            }
            Ok(Definition { org, id, spec: spec.clone(), created_at: tx.now(), updated_at: tx.now() })
        })
        .await
    }

    async fn definition(&self, org: OrgId, name: &str) -> Result<Definition> {
        let (name, id) = (name.to_owned(), name.parse::<DefinitionId>().ok());
        self.read("look at a definition", org, move |tx| {
            let sql = concat!(
                select_definition!(),
                "WHERE org_id = $1 AND slug = $2 UNION ALL ",
                select_definition!(),
                "WHERE org_id = $1 AND id = $3 LIMIT 1"
            );
            let found = tx.one(sql, row![org.0, &name, id.map(|id| id.0)], read)?;
            found.ok_or_else(|| unknown("definition", &name).into())
        })
        .await
    }

    async fn definitions(&self, org: OrgId, page: PageRequest) -> Result<Page<Definition>> {
        self.read("list definitions", org, move |tx| {
            let after = cursor(&page, |text| Some(text.to_owned()))?.unwrap_or_default();
            let sql = concat!(select_definition!(), "WHERE org_id = $1 AND slug > $2 ORDER BY slug LIMIT $3");
            let rows = tx.query(sql, row![org.0, after, page.limit as i64 + 1], read)?;
            Ok(cut(rows, &page, |row| row.spec.slug.clone()))
        })
        .await
    }

    async fn replace_definition(&self, org: OrgId, id: DefinitionId, spec: DefinitionSpec) -> Result<Definition> {
        let text = text_of(&spec)?;
        self.write_alone("replace a definition", move |tx| {
            check_slug_is_free(tx, org, id, &spec.slug)?;
            let replaced = tx.change(
                "UPDATE agent_definition SET slug = $1, spec = $2, updated_at = $3 WHERE org_id = $4 AND id = $5 \
                 RETURNING org_id, id, spec, created_at, updated_at",
                row![&spec.slug, &text, tx.now(), org.0, id.0],
                read,
            )?;
            replaced.into_iter().next().ok_or_else(|| unknown("definition", id).into())
        })
        .await
    }

    async fn delete_definition(&self, org: OrgId, id: DefinitionId) -> Result<()> {
        self.write_alone("remove a definition", move |tx| {
            let sql = "DELETE FROM agent_definition WHERE org_id = $1 AND id = $2 RETURNING id";
            match tx.changes_any(sql, row![org.0, id.0])? {
                true => Ok(()),
                false => Err(unknown("definition", id).into()),
            }
        })
        .await
    }
}

/// Refuses a slug that another definition has. Of two callers who take it at the same time, the unique index refuses
/// one.
fn check_slug_is_free<T: Tables>(tx: &T, org: OrgId, but_of: DefinitionId, slug: &str) -> Result<(), T::Fault> {
    let sql = "SELECT 1 FROM agent_definition WHERE org_id = $1 AND slug = $2 AND id <> $3";
    match tx.one(sql, row![org.0, slug, but_of.0], |_| Ok(()))? {
        Some(()) => Err(taken(slug).into()),
        None => Ok(()),
    }
}

fn read<F>(row: &dyn Columns<F>) -> Result<Definition, F> {
    Ok(Definition {
        org: OrgId(row.id(0)?),
        id: DefinitionId(row.id(1)?),
        spec: json_opt(row, 2)?.ok_or_else(|| row.wrong(2, "JSON"))?,
        created_at: moment(row, 3)?,
        updated_at: moment(row, 4)?,
    })
}
