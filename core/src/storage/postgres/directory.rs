//! Organizations and keys, and what was done to them.

use super::PostgresStorage;
use super::catalog::{cursor, cut, parse_number};
use super::fault::Done;
use super::retention::{remove_rest, remove_some};
use super::sets::row;
use super::tx::Tx;
use super::values::{Row, text_of};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, OrgLimits, Organization, Page, PageRequest, Seal, TokenHash};
use crate::storage::Directory;
use crate::storage::directory::{check_not_default, check_slug, goes_on, name_taken};
use crate::storage::sql::trouble::unknown;
use async_trait::async_trait;

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
impl Directory for PostgresStorage {
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization> {
        let (id, name, actor) = (check_slug(name)?, name.to_owned(), actor.to_owned());
        self.write_alone("make an organization", move |tx| {
            if let Some(there) = organization(tx, &name)? {
                return Ok(there);
            }
            let made = Organization { id, name: name.clone(), created_at: tx.now, limits: OrgLimits::default() };
            tx.execute(
                "INSERT INTO organization (org_id, name, created_at) VALUES ($1, $2, $3)",
                row![id.0, name.clone(), tx.now.0],
            )?;
            audit(tx, id, &actor, "organization.created", &name)?;
            Ok(made)
        })
        .await
    }

    async fn organizations(&self) -> Result<Vec<Organization>> {
        self.read_all("list organizations", |tx| {
            tx.all(concat!(select_organization!(), "ORDER BY name"), row![], read_organization)
        })
        .await
    }

    async fn organization(&self, org: OrgId) -> Result<Option<Organization>> {
        self.read_all("look an organization up", move |tx| organization_at(tx, org)).await
    }

    async fn rename_organization(&self, org: OrgId, name: &str, actor: &str) -> Result<Organization> {
        check_not_default(org, "rename an organization")?;
        check_slug(name)?;
        let (name, actor) = (name.to_owned(), actor.to_owned());
        self.write_alone("rename an organization", move |tx| {
            let there = there(tx, org)?;
            if there.name == name {
                return Ok(there);
            }
            if name == "default" || organization(tx, &name)?.is_some() {
                return Err(name_taken(&name).into());
            }
            tx.execute("UPDATE organization SET name = $2 WHERE org_id = $1", row![org.0, name.clone()])?;
            audit(tx, org, &actor, "organization.renamed", &name)?;
            Ok(Organization { name: name.clone(), ..there })
        })
        .await
    }

    async fn limit_organization(&self, org: OrgId, limits: OrgLimits, actor: &str) -> Result<Organization> {
        let actor = actor.to_owned();
        self.write_alone("limit an organization", move |tx| {
            let there = there(tx, org)?;
            let sql = "UPDATE organization SET limits = $2 WHERE org_id = $1";
            tx.execute(sql, row![org.0, text_of(&limits)?])?;
            audit(tx, org, &actor, "organization.limited", &there.name)?;
            Ok(Organization { limits, ..there })
        })
        .await
    }

    async fn delete_organization(&self, org: OrgId, actor: &str) -> Result<()> {
        const ASKED: &str = "remove an organization";
        check_not_default(org, ASKED)?;
        let actor = actor.to_owned();
        self.write_alone(ASKED, move |tx| {
            let there = there(tx, org)?;
            let live = "SELECT count(*) FROM agent_execution WHERE org_id = $1 AND ended_at IS NULL";
            let live: u64 = tx.first(live, row![org.0], |row| row.get(0))?.unwrap_or_default();
            if live > 0 {
                return Err(goes_on(&there.name, live).into());
            }
            let ended = "UPDATE api_key SET revoked_at = $2 WHERE org_id = $1 AND revoked_at IS NULL";
            tx.execute(ended, row![org.0, tx.now.0])?;
            Ok(())
        })
        .await?;
        while self.write_alone(ASKED, move |tx| remove_some(tx, org)).await? > 0 {}
        self.write_alone(ASKED, move |tx| {
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
        self.write_alone("make a key", move |tx| {
            let expires = new.expires_in.map(|time| tx.now.after(time).0);
            tx.execute(
                "INSERT INTO api_key (org_id, id, name, hash, scopes, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7)",
                row![
                    new.org.0,
                    key.0,
                    new.name.clone(),
                    new.hash.0.to_vec(),
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
        self.read("list keys", org, move |tx| {
            tx.all(concat!(select_key!(), "WHERE org_id = $1 ORDER BY created_at, id"), row![org.0], read_key)
        })
        .await
    }

    async fn revoke_key(&self, org: OrgId, key: KeyId, actor: &str) -> Result<ApiKey> {
        let actor = actor.to_owned();
        self.write_alone("revoke a key", move |tx| {
            let revoked = tx.execute_returning(
                "UPDATE api_key SET revoked_at = $3 WHERE org_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING 1",
                row![org.0, key.0, tx.now.0],
                |_| Ok(()),
            )?;
            if revoked.is_some() {
                audit(tx, org, &actor, "key.revoked", &key.to_string())?;
            }
            key_at(tx, org, key)
        })
        .await
    }

    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>> {
        self.read_all("look a token up", move |tx| {
            tx.first(concat!(select_key!(), "WHERE hash = $1"), row![token.0.to_vec()], read_key)
        })
        .await
    }

    async fn record(&self, org: OrgId, actor: &str, action: &str, subject: &str) -> Result<()> {
        let (actor, action, subject) = (actor.to_owned(), action.to_owned(), subject.to_owned());
        self.write_alone("record what was done", move |tx| audit(tx, org, &actor, &action, &subject)).await
    }

    async fn audit(&self, org: OrgId, page: PageRequest) -> Result<Page<AuditRow>> {
        self.read("list what was done", org, move |tx| {
            let before: i64 = cursor(&page, parse_number)?.unwrap_or(i64::MAX);
            let sql = "SELECT id, at, actor, action, subject, seal FROM audit WHERE org_id = $1 AND id < $2 \
                       ORDER BY id DESC LIMIT $3";
            let rows = tx.all(sql, row![org.0, before, (page.limit + 1) as i64], read_audit)?;
            Ok(cut(rows, &page, |row: &AuditRow| row.number.to_string()))
        })
        .await
    }
}

fn read_audit(row: &Row) -> Done<AuditRow> {
    Ok(AuditRow {
        number: row.get(0)?,
        at: Timestamp(row.get(1)?),
        actor: row.get(2)?,
        action: row.get(3)?,
        subject: row.get(4)?,
        seal: read_seal(row, 5)?,
    })
}

fn read_seal(row: &Row, column: usize) -> Done<Option<Seal>> {
    let seal = row.get::<Option<Vec<u8>>>(column)?;
    Ok(seal.and_then(|bytes| bytes.try_into().ok()).map(Seal))
}

fn read_key(row: &Row) -> Done<ApiKey> {
    let scopes = row.get::<String>(3)?;
    Ok(ApiKey {
        org: OrgId(row.get(0)?),
        id: KeyId(row.get(1)?),
        name: row.get(2)?,
        // Scopes of a later version allow nothing here.
        scopes: scopes.parse().unwrap_or_default(),
        created_at: Timestamp(row.get(4)?),
        expires_at: row.get::<Option<i64>>(5)?.map(Timestamp),
        revoked_at: row.get::<Option<i64>>(6)?.map(Timestamp),
    })
}

fn key_at(tx: &Tx, org: OrgId, key: KeyId) -> Done<ApiKey> {
    let sql = concat!(select_key!(), "WHERE org_id = $1 AND id = $2");
    tx.first(sql, row![org.0, key.0], read_key)?.ok_or_else(|| unknown("key", key).into())
}

fn read_organization(row: &Row) -> Done<Organization> {
    let limits = row.get::<Option<String>>(3)?;
    Ok(Organization {
        id: OrgId(row.get(0)?),
        name: row.get(1)?,
        created_at: Timestamp(row.get(2)?),
        // Limits of a later version are none here.
        limits: limits.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    })
}

fn organization(tx: &Tx, name: &str) -> Done<Option<Organization>> {
    tx.first(concat!(select_organization!(), "WHERE name = $1"), row![name.to_owned()], read_organization)
}

fn organization_at(tx: &Tx, org: OrgId) -> Done<Option<Organization>> {
    tx.first(concat!(select_organization!(), "WHERE org_id = $1"), row![org.0], read_organization)
}

fn there(tx: &Tx, org: OrgId) -> Done<Organization> {
    organization_at(tx, org)?.ok_or_else(|| unknown("organization", org).into())
}

/// Records what was done, by whom, to what.
pub(super) fn audit(tx: &Tx, org: OrgId, actor: &str, action: &str, subject: &str) -> Done<()> {
    // One after the other in an org: a row is sealed together with the one before it.
    let alone = "SELECT pg_advisory_xact_lock(hashtextextended('flovyn audit ' || $1::uuid::text, 0))";
    let newest = "SELECT seal FROM audit WHERE org_id = $1 ORDER BY id DESC LIMIT 1";
    let asked = tx.ask_all(&[(alone, row![org.0]), (newest, row![org.0])])?;
    let before = match asked.last().and_then(|rows| rows.first()) {
        Some(row) => read_seal(row, 0)?,
        None => None,
    };
    let seal = Seal::of(org, before, tx.now, [actor, action, subject]);
    tx.execute(
        "INSERT INTO audit (org_id, at, actor, action, subject, seal) VALUES ($1, $2, $3, $4, $5, $6)",
        row![org.0, tx.now.0, actor.to_owned(), action.to_owned(), subject.to_owned(), seal.0.to_vec()],
    )
}
