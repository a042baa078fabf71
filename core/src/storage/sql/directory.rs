//! Organizations and keys, and what was done to them.

use super::Dialect;
use super::backend::Backend;
use super::database_error::unknown;
use super::pages::{cursor, cut, parse_number};
use super::tables::{Columns, Tables, moment, moment_opt, number, text};
use super::values::{row, text_of};
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::{ApiKey, AuditRow, NewKey, OrgLimits, Organization, Page, PageRequest, Seal, TokenHash};
use crate::storage::Directory;
use crate::storage::directory::{NARROW_KEPT, check_not_default, check_slug, goes_on, name_taken};
use async_trait::async_trait;

/// A SELECT of the columns of [`read_key`], without its WHERE clause.
macro_rules! select_key {
    () => {
        "SELECT org_id, id, name, scopes, created_at, expires_at, revoked_at FROM api_key "
    };
}

/// A SELECT of the columns of [`read_organization`], without its WHERE and ORDER BY clauses.
macro_rules! select_organization {
    () => {
        "SELECT org_id, name, created_at, limits FROM organization "
    };
}

#[async_trait]
impl<B: Backend> Directory for B {
    async fn create_organization(&self, name: &str, actor: &str) -> Result<Organization> {
        let (id, name, actor) = (check_slug(name)?, name.to_owned(), actor.to_owned());
        self.write_alone("make an organization", move |tx| {
            if let Some(there) = organization(tx, &name)? {
                return Ok(there);
            }
            let made = Organization { id, name: name.clone(), created_at: tx.now(), limits: OrgLimits::default() };
            tx.apply(
                "INSERT INTO organization (org_id, name, created_at) VALUES ($1, $2, $3)",
                row![id.0, &name, tx.now()],
            )?;
            audit(tx, id, &actor, "organization.created", &name)?;
            Ok(made)
        })
        .await
    }

    async fn organizations(&self) -> Result<Vec<Organization>> {
        self.read_all("list organizations", |tx| {
            tx.query(concat!(select_organization!(), "ORDER BY name"), row![], read_organization)
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
            tx.apply("UPDATE organization SET name = $1 WHERE org_id = $2", row![&name, org.0])?;
            audit(tx, org, &actor, "organization.renamed", &name)?;
            Ok(Organization { name: name.clone(), ..there })
        })
        .await
    }

    async fn limit_organization(&self, org: OrgId, limits: OrgLimits, actor: &str) -> Result<Organization> {
        let actor = actor.to_owned();
        self.write_alone("limit an organization", move |tx| {
            let there = there(tx, org)?;
            let sql = "UPDATE organization SET limits = $1 WHERE org_id = $2";
            tx.apply(sql, row![text_of(&limits)?, org.0])?;
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
            let live = tx.one(live, row![org.0], |row| row.int(0))?.flatten().unwrap_or_default();
            if live > 0 {
                return Err(goes_on(&there.name, live.unsigned_abs()).into());
            }
            let ended = "UPDATE api_key SET revoked_at = $1 WHERE org_id = $2 AND revoked_at IS NULL";
            tx.apply(ended, row![tx.now(), org.0])?;
            Ok(())
        })
        .await?;
        while self.write_alone(ASKED, move |tx| tx.remove_some(org)).await? > 0 {}
        self.write_alone(ASKED, move |tx| {
            let there = there(tx, org)?;
            // A run that a server began whose look at a key was a moment old.
            if tx.remove_some(org)? > 0 {
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
            insert_key(tx, &new, key)?;
            key_at(tx, new.org, key)
        })
        .await
    }

    async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>> {
        self.read("list keys", org, move |tx| {
            tx.query(concat!(select_key!(), "WHERE org_id = $1 ORDER BY created_at, id"), row![org.0], read_key)
        })
        .await
    }

    async fn revoke_key(&self, org: OrgId, key: KeyId, actor: &str) -> Result<ApiKey> {
        let actor = actor.to_owned();
        self.write_alone("revoke a key", move |tx| {
            let revoked = tx.changes_any(
                "UPDATE api_key SET revoked_at = $1 WHERE org_id = $2 AND id = $3 AND revoked_at IS NULL RETURNING id",
                row![tx.now(), org.0, key.0],
            )?;
            if revoked {
                audit(tx, org, &actor, "key.revoked", &key.to_string())?;
            }
            key_at(tx, org, key)
        })
        .await
    }

    async fn key_of(&self, token: TokenHash) -> Result<Option<ApiKey>> {
        self.read_all("look a token up", move |tx| {
            tx.one(concat!(select_key!(), "WHERE hash = $1"), row![token.0.to_vec()], read_key)
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
            let rows = tx.query(sql, row![org.0, before, (page.limit + 1) as i64], read_audit)?;
            Ok(cut(rows, &page, |row: &AuditRow| row.number.to_string()))
        })
        .await
    }
}

fn read_audit<F>(row: &dyn Columns<F>) -> Result<AuditRow, F> {
    Ok(AuditRow {
        number: number(row, 0)?.unsigned_abs(),
        at: moment(row, 1)?,
        actor: text(row, 2)?,
        action: text(row, 3)?,
        subject: text(row, 4)?,
        seal: row.bytes(5)?.and_then(seal_of),
    })
}

fn seal_of(bytes: Vec<u8>) -> Option<Seal> {
    bytes.try_into().ok().map(Seal)
}

fn read_key<F>(row: &dyn Columns<F>) -> Result<ApiKey, F> {
    Ok(ApiKey {
        org: OrgId(row.id(0)?),
        id: KeyId(row.id(1)?),
        name: text(row, 2)?,
        // Scopes of a later version allow nothing here.
        scopes: text(row, 3)?.parse().unwrap_or_default(),
        created_at: moment(row, 4)?,
        expires_at: moment_opt(row, 5)?,
        revoked_at: moment_opt(row, 6)?,
    })
}

/// Makes a key, and records it.
pub(super) fn insert_key<T: Tables>(tx: &T, new: &NewKey, key: KeyId) -> Result<(), T::Fault> {
    let expires = new.expires_at(tx.now()).map(|end| end.0);
    if new.scopes.is_narrow() {
        // Scopes are written in an order in which those of one run or of one user come last.
        let sql = "DELETE FROM api_key WHERE org_id = $1 AND expires_at < $2 AND (scopes LIKE 'run:%' OR scopes LIKE 'user:%')";
        tx.apply(sql, row![new.org.0, tx.now().before(NARROW_KEPT)])?;
    }
    tx.apply(
        "INSERT INTO api_key (org_id, id, name, hash, scopes, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        row![new.org.0, key.0, new.name.clone(), new.hash.0.to_vec(), new.scopes.to_string(), tx.now(), expires],
    )?;
    audit(tx, new.org, &new.actor, "key.created", &key.to_string())
}

fn key_at<T: Tables>(tx: &T, org: OrgId, key: KeyId) -> Result<ApiKey, T::Fault> {
    let sql = concat!(select_key!(), "WHERE org_id = $1 AND id = $2");
    tx.one(sql, row![org.0, key.0], read_key)?.ok_or_else(|| unknown("key", key).into())
}

fn read_organization<F>(row: &dyn Columns<F>) -> Result<Organization, F> {
    Ok(Organization {
        id: OrgId(row.id(0)?),
        name: text(row, 1)?,
        created_at: moment(row, 2)?,
        // Limits of a later version are none here.
        limits: row.text(3)?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    })
}

fn organization<T: Tables>(tx: &T, name: &str) -> Result<Option<Organization>, T::Fault> {
    tx.one(concat!(select_organization!(), "WHERE name = $1"), row![name.to_owned()], read_organization)
}

fn organization_at<T: Tables>(tx: &T, org: OrgId) -> Result<Option<Organization>, T::Fault> {
    tx.one(concat!(select_organization!(), "WHERE org_id = $1"), row![org.0], read_organization)
}

fn there<T: Tables>(tx: &T, org: OrgId) -> Result<Organization, T::Fault> {
    organization_at(tx, org)?.ok_or_else(|| unknown("organization", org).into())
}

/// Removes an organization that has no runs, with all else of it. Its payloads go when nobody refers to them.
fn remove_rest<T: Tables>(tx: &T, org: OrgId) -> Result<(), T::Fault> {
    for sql in [
        "DELETE FROM agent_definition WHERE org_id = $1",
        "DELETE FROM schedule WHERE org_id = $1",
        "DELETE FROM queue_limit WHERE org_id = $1",
        "DELETE FROM worker WHERE org_id = $1",
        "DELETE FROM enrolled_worker WHERE org_id = $1",
        "DELETE FROM watch WHERE org_id = $1",
        "DELETE FROM preview WHERE org_id = $1",
        "DELETE FROM machine WHERE org_id = $1",
        "DELETE FROM machine_pairing WHERE org_id = $1",
        "DELETE FROM api_key WHERE org_id = $1",
        "DELETE FROM audit WHERE org_id = $1",
        "DELETE FROM organization WHERE org_id = $1",
    ] {
        tx.apply(sql, row![org.0])?;
    }
    Ok(())
}

/// Records what was done, by whom, to what. A row is sealed together with the one before it.
pub(in crate::storage) fn audit<T: Tables>(
    tx: &T,
    org: OrgId,
    actor: &str,
    action: &str,
    subject: &str,
) -> Result<(), T::Fault> {
    let before = tx.newest_seal(org)?.and_then(seal_of);
    let seal = Seal::of(org, before, tx.now(), [actor, action, subject]);
    tx.apply(
        "INSERT INTO audit (org_id, at, actor, action, subject, seal) VALUES ($1, $2, $3, $4, $5, $6)",
        row![org.0, tx.now(), actor, action, subject, &seal.0[..]],
    )
}
