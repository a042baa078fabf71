//! Organizations and keys, and what was done to them.

use super::SqliteStorage;
use super::catalog::{cursor, cut, parse_number};
use super::fault::Done;
use super::retention::{remove_rest, remove_some};
use super::tx::Tx;
use super::values::{blob, id, text_of};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, OrgLimits, Organization, Page, PageRequest, Seal, TokenHash};
use crate::storage::Directory;
use crate::storage::directory::{check_not_default, check_slug, goes_on, name_taken};
use crate::storage::sql::trouble::unknown;
use async_trait::async_trait;
use rusqlite::{Row, params};

/// The columns of [`read_key`], after which comes a condition.
macro_rules! select_key {
    () => {
        "SELECT org_id, id, name, scopes, created_at, expires_at, revoked_at FROM api_key "
    };
}

/// The columns of [`read_organization`], after which comes a condition or an order.
macro_rules! select_organization {
    () => {
        "SELECT org_id, name, created_at, limits FROM organization "
    };
}

#[async_trait]
impl Directory for SqliteStorage {
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization> {
        let (id, name, actor) = (check_slug(name)?, name.to_owned(), actor.to_owned());
        self.write("make an organization", move |tx| {
            if let Some(there) = organization(tx, &name)? {
                return Ok(there);
            }
            let made = Organization { id, name: name.clone(), created_at: tx.now, limits: OrgLimits::default() };
            tx.execute(
                "INSERT INTO organization (org_id, name, created_at) VALUES (?1, ?2, ?3)",
                params![blob(&id.0), name, tx.now.0],
            )?;
            audit(tx, id, &actor, "organization.created", &name)?;
            Ok(made)
        })
        .await
    }

    async fn organizations(&self) -> Result<Vec<Organization>> {
        self.read("list organizations", |tx| {
            tx.all(concat!(select_organization!(), "ORDER BY name"), [], read_organization)
        })
        .await
    }

    async fn organization(&self, org: OrgId) -> Result<Option<Organization>> {
        self.read("look an organization up", move |tx| organization_at(tx, org)).await
    }

    async fn rename_organization(&self, org: OrgId, name: &str, actor: &str) -> Result<Organization> {
        check_not_default(org, "rename an organization")?;
        check_slug(name)?;
        let (name, actor) = (name.to_owned(), actor.to_owned());
        self.write("rename an organization", move |tx| {
            let there = there(tx, org)?;
            if there.name == name {
                return Ok(there);
            }
            if name == "default" || organization(tx, &name)?.is_some() {
                return Err(name_taken(&name).into());
            }
            tx.execute("UPDATE organization SET name = ?2 WHERE org_id = ?1", params![blob(&org.0), name])?;
            audit(tx, org, &actor, "organization.renamed", &name)?;
            Ok(Organization { name: name.clone(), ..there })
        })
        .await
    }

    async fn limit_organization(&self, org: OrgId, limits: OrgLimits, actor: &str) -> Result<Organization> {
        let actor = actor.to_owned();
        self.write("limit an organization", move |tx| {
            let there = there(tx, org)?;
            let sql = "UPDATE organization SET limits = ?2 WHERE org_id = ?1";
            tx.execute(sql, params![blob(&org.0), text_of(&limits)?])?;
            audit(tx, org, &actor, "organization.limited", &there.name)?;
            Ok(Organization { limits, ..there })
        })
        .await
    }

    async fn delete_organization(&self, org: OrgId, actor: &str) -> Result<()> {
        const ASKED: &str = "remove an organization";
        check_not_default(org, ASKED)?;
        let actor = actor.to_owned();
        self.write(ASKED, move |tx| {
            let there = there(tx, org)?;
            let live = "SELECT count(*) FROM agent_execution WHERE org_id = ?1 AND ended_at IS NULL";
            let live: u64 = tx.first(live, [blob(&org.0)], |row| row.get(0))?.unwrap_or_default();
            if live > 0 {
                return Err(goes_on(&there.name, live).into());
            }
            let ended = "UPDATE api_key SET revoked_at = ?2 WHERE org_id = ?1 AND revoked_at IS NULL";
            tx.execute(ended, params![blob(&org.0), tx.now.0])?;
            Ok(())
        })
        .await?;
        while self.write(ASKED, move |tx| remove_some(tx, org)).await? > 0 {}
        self.write(ASKED, move |tx| {
            let there = there(tx, org)?;
            // A run that a server began whose look at a key was a moment old.
            if remove_some(tx, org)? > 0 {
                return Err(goes_on(&there.name, 1).into());
            }
            remove_rest(tx, org)?;
            audit(tx, OrgId::DEFAULT, &actor, "organization.deleted", &there.name)
        })
        .await
    }

    async fn create_key(&self, new: NewKey) -> Result<ApiKey> {
        let key = KeyId::fresh();
        self.write("make a key", move |tx| {
            let expires = new.expires_in.map(|time| tx.now.after(time).0);
            tx.execute(
                "INSERT INTO api_key (org_id, id, name, hash, scopes, created_at, expires_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    blob(&new.org.0),
                    blob(&key.0),
                    new.name,
                    new.hash.0,
                    new.scopes.to_string(),
                    tx.now.0,
                    expires
                ],
            )?;
            audit(tx, new.org, &new.actor, "key.created", &key.to_string())?;
            key_at(tx, new.org, key)
        })
        .await
    }

    async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>> {
        self.read("list keys", move |tx| {
            tx.all(concat!(select_key!(), "WHERE org_id = ?1 ORDER BY created_at, id"), [blob(&org.0)], read_key)
        })
        .await
    }

    async fn revoke_key(&self, org: OrgId, key: KeyId, actor: &str) -> Result<ApiKey> {
        let actor = actor.to_owned();
        self.write("revoke a key", move |tx| {
            let revoked = tx.execute(
                "UPDATE api_key SET revoked_at = ?3 WHERE org_id = ?1 AND id = ?2 AND revoked_at IS NULL",
                params![blob(&org.0), blob(&key.0), tx.now.0],
            )?;
            if revoked > 0 {
                audit(tx, org, &actor, "key.revoked", &key.to_string())?;
            }
            key_at(tx, org, key)
        })
        .await
    }

    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>> {
        self.read("look a token up", move |tx| tx.first(concat!(select_key!(), "WHERE hash = ?1"), [token.0], read_key))
            .await
    }

    async fn record(&self, org: OrgId, actor: &str, action: &str, subject: &str) -> Result<()> {
        let (actor, action, subject) = (actor.to_owned(), action.to_owned(), subject.to_owned());
        self.write("record what was done", move |tx| audit(tx, org, &actor, &action, &subject)).await
    }

    async fn audit(&self, org: OrgId, page: PageRequest) -> Result<Page<AuditRow>> {
        self.read("list what was done", move |tx| {
            let before: i64 = cursor(&page, parse_number)?.unwrap_or(i64::MAX);
            let sql = "SELECT id, at, actor, action, subject, seal FROM audit WHERE org_id = ?1 AND id < ?2 \
                       ORDER BY id DESC LIMIT ?3";
            let rows = tx.all(sql, params![blob(&org.0), before, (page.limit + 1) as i64], read_audit)?;
            Ok(cut(rows, &page, |row: &AuditRow| row.number.to_string()))
        })
        .await
    }
}

fn read_audit(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        number: row.get(0)?,
        at: Timestamp(row.get(1)?),
        actor: row.get(2)?,
        action: row.get(3)?,
        subject: row.get(4)?,
        seal: row.get::<_, Option<[u8; 32]>>(5)?.map(Seal),
    })
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    let scopes = row.get::<_, String>(3)?;
    Ok(ApiKey {
        org: OrgId(id(row, 0)?),
        id: KeyId(id(row, 1)?),
        name: row.get(2)?,
        // Scopes of a later version allow nothing here.
        scopes: scopes.parse().unwrap_or_default(),
        created_at: Timestamp(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
        revoked_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
    })
}

fn key_at(tx: &Tx, org: OrgId, key: KeyId) -> Done<ApiKey> {
    let sql = concat!(select_key!(), "WHERE org_id = ?1 AND id = ?2");
    tx.first(sql, [blob(&org.0), blob(&key.0)], read_key)?.ok_or_else(|| unknown("key", key).into())
}

fn read_organization(row: &Row<'_>) -> rusqlite::Result<Organization> {
    let limits = row.get::<_, Option<String>>(3)?;
    Ok(Organization {
        id: OrgId(id(row, 0)?),
        name: row.get(1)?,
        created_at: Timestamp(row.get(2)?),
        // Limits of a later version are none here.
        limits: limits.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    })
}

fn organization(tx: &Tx, name: &str) -> Done<Option<Organization>> {
    tx.first(concat!(select_organization!(), "WHERE name = ?1"), [name], read_organization)
}

fn organization_at(tx: &Tx, org: OrgId) -> Done<Option<Organization>> {
    tx.first(concat!(select_organization!(), "WHERE org_id = ?1"), [blob(&org.0)], read_organization)
}

fn there(tx: &Tx, org: OrgId) -> Done<Organization> {
    organization_at(tx, org)?.ok_or_else(|| unknown("organization", org).into())
}

/// Records what was done, by whom, to what.
pub(super) fn audit(tx: &Tx, org: OrgId, actor: &str, action: &str, subject: &str) -> Done<()> {
    let newest = "SELECT seal FROM audit WHERE org_id = ?1 ORDER BY id DESC LIMIT 1";
    let before = tx.first(newest, [blob(&org.0)], |row| row.get::<_, Option<[u8; 32]>>(0))?.flatten().map(Seal);
    let seal = Seal::of(org, before, tx.now, [actor, action, subject]);
    tx.execute(
        "INSERT INTO audit (org_id, at, actor, action, subject, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![blob(&org.0), tx.now.0, actor, action, subject, seal.0],
    )?;
    Ok(())
}
