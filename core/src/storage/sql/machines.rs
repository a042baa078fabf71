//! The port [`Machines`], written once for all SQL backends: machines and how they are paired.

use super::Dialect;
use super::backend::Backend;
use super::database_error::unknown;
use super::directory::{audit, insert_key};
use super::tables::{Columns, Tables, moment, moment_opt, number, text};
use super::values::row;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::model::machine::{
    MAX_PAIRINGS, check_name, check_offers, fresh_code, fresh_secret, key_of, name_taken, no_code, no_secret,
    shown_code, shown_host, stored_code, too_many,
};
use crate::model::{Approval, Approved, Machine, PAIRING_TIME, Paired, Pairing, TokenHash, fresh_token};
use crate::storage::Machines;
use async_trait::async_trait;
use uuid::Uuid;

/// A SELECT of the columns of [`read`], without its WHERE clause. A machine ends with its key.
macro_rules! select_machine {
    () => {
        "SELECT m.org_id, m.key_id, m.name, m.owner, m.offers, m.created_at, m.seen_at, \
         coalesce(m.revoked_at, k.revoked_at), k.expires_at \
         FROM machine m LEFT JOIN api_key k ON k.org_id = m.org_id AND k.id = m.key_id "
    };
}

#[async_trait]
impl<B: Backend> Machines for B {
    async fn request_pairing(&self, name: &str, host: &str) -> Result<Pairing> {
        check_name(name)?;
        let (name, host, code, secret) = (name.to_owned(), shown_host(host), fresh_code(), fresh_secret());
        self.write_alone("begin a pairing", move |tx| {
            tx.apply("DELETE FROM machine_pairing WHERE expires_at <= $1", row![tx.now()])?;
            let open = tx.one("SELECT count(*) FROM machine_pairing", row![], |row| number(row, 0))?;
            if open.unwrap_or_default() >= MAX_PAIRINGS {
                return Err(too_many().into());
            }
            let expires_at = tx.now().after(PAIRING_TIME);
            let made = tx.changes_any(
                "INSERT INTO machine_pairing (secret, code, name, host, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING code",
                row![TokenHash::of(&secret).0.to_vec(), &code, &name, &host, tx.now(), expires_at],
            )?;
            // Somebody else has the code: one time in millions.
            if !made {
                return Err(too_many().into());
            }
            Ok(Pairing { code: shown_code(&code), secret: secret.clone(), expires_at })
        })
        .await
    }

    async fn approve_pairing(&self, org: OrgId, approval: Approval) -> Result<Approved> {
        approval.check()?;
        let code = stored_code(&approval.code);
        self.write_alone("approve a pairing", move |tx| {
            let Approval { name: named, owner, actor, not_after, .. } = &approval;
            let sql = "SELECT name, host FROM machine_pairing WHERE code = $1 AND expires_at > $2 AND actor IS NULL";
            let found = tx.one(sql, row![&code, tx.now()], |row| Ok((text(row, 0)?, text(row, 1)?)))?;
            let Some((asked, host)) = found else { return Err(no_code().into()) };
            let name = named.clone().unwrap_or(asked);
            let owner = owner.clone().unwrap_or_else(|| actor.clone());
            check_free(tx, org, &name)?;
            let sql = "SELECT owner FROM machine_pairing WHERE org_id = $1 AND name = $2 AND expires_at > $3";
            if let Some(other) = tx.one(sql, row![org.0, &name, tx.now()], |row| text(row, 0))? {
                return Err(name_taken(&name, &other).into());
            }
            // Somebody else may have approved it since it was read.
            let approved = tx.changes_any(
                "UPDATE machine_pairing SET org_id = $1, name = $2, owner = $3, actor = $4, not_after = $5 \
                 WHERE code = $6 AND actor IS NULL RETURNING code",
                row![org.0, &name, &owner, actor, not_after.map(|at| at.0), &code],
            )?;
            if !approved {
                return Err(no_code().into());
            }
            audit(tx, org, actor, "machine.approved", &name)?;
            Ok(Approved { name, owner, host })
        })
        .await
    }

    async fn collect_pairing(&self, secret: &str) -> Result<Option<Paired>> {
        let (hash, token, key, id) = (TokenHash::of(secret), fresh_token(), KeyId::fresh(), crate::id::random());
        let asked = "look at a pairing";
        let waits = self.read_all(asked, move |tx| {
            let sql = "SELECT actor FROM machine_pairing WHERE secret = $1 AND expires_at > $2";
            tx.one(sql, row![hash.0.to_vec(), tx.now()], |row| row.text(0))
        });
        match waits.await? {
            None => return Err(no_secret()),
            Some(None) => return Ok(None),
            Some(Some(_)) => {}
        }
        self.write_alone("collect a pairing", move |tx| {
            let collected = tx.change(
                "DELETE FROM machine_pairing WHERE secret = $1 AND expires_at > $2 AND actor IS NOT NULL \
                 RETURNING org_id, name, owner, host, not_after",
                row![hash.0.to_vec(), tx.now()],
                |row| Ok((OrgId(row.id(0)?), text(row, 1)?, text(row, 2)?, text(row, 3)?, moment_opt(row, 4)?)),
            )?;
            let Some((org, name, owner, host, not_after)) = collected.into_iter().next() else {
                return Err(no_secret().into());
            };
            check_free(tx, org, &name)?;
            let actor = format!("the machine {name}");
            insert_key(tx, &key_of(org, &name, &token, not_after, actor.clone())?, key)?;
            insert(tx, org, id, (&name, &owner, &host), key)?;
            audit(tx, org, &actor, "machine.paired", &name)?;
            Ok(Some(Paired { org, name, token: token.clone() }))
        })
        .await
    }

    async fn machines(&self, org: OrgId) -> Result<Vec<Machine>> {
        self.read("list machines", org, move |tx| {
            let sql = concat!(select_machine!(), "WHERE m.org_id = $1 ORDER BY m.created_at, m.id");
            tx.query(sql, row![org.0], read)
        })
        .await
    }

    async fn announce_machine(&self, org: OrgId, name: &str, offers: Option<&str>) -> Result<()> {
        offers.map_or(Ok(()), check_offers)?;
        check_name(name)?;
        let (name, offers) = (name.to_owned(), offers.map(str::to_owned));
        self.write_alone("note that a machine is there", move |tx| {
            tx.apply(
                "UPDATE machine SET seen_at = $1, offers = coalesce($2, offers) \
                 WHERE org_id = $3 AND name = $4 AND revoked_at IS NULL",
                row![tx.now(), offers.clone(), org.0, &name],
            )
        })
        .await
    }

    async fn revoke_machine(&self, org: OrgId, name: &str, actor: &str) -> Result<Machine> {
        // What is no name is not sent to a database: it could not even read it.
        check_name(name).map_err(|_| unknown("machine", name))?;
        let (name, actor) = (name.to_owned(), actor.to_owned());
        self.write_alone("revoke a machine", move |tx| {
            let Some(machine) = current(tx, org, &name)? else { return Err(unknown("machine", &name).into()) };
            end(tx, &machine)?;
            tx.apply(
                "UPDATE api_key SET revoked_at = $1 WHERE org_id = $2 AND id = $3 AND revoked_at IS NULL",
                row![tx.now(), org.0, machine.key.0],
            )?;
            audit(tx, org, &actor, "machine.revoked", &name)?;
            audit(tx, org, &actor, "key.revoked", &machine.key.to_string())?;
            Ok(Machine { revoked_at: Some(tx.now()), ..machine })
        })
        .await
    }
}

/// The machine of a name whose row was not ended.
fn current<T: Tables>(tx: &T, org: OrgId, name: &str) -> Result<Option<Machine>, T::Fault> {
    let sql = concat!(select_machine!(), "WHERE m.org_id = $1 AND m.name = $2 AND m.revoked_at IS NULL");
    tx.one(sql, row![org.0, name.to_owned()], read)
}

fn end<T: Tables>(tx: &T, machine: &Machine) -> Result<(), T::Fault> {
    tx.apply(
        "UPDATE machine SET revoked_at = $1 WHERE org_id = $2 AND name = $3 AND revoked_at IS NULL",
        row![tx.now(), machine.org.0, &machine.name],
    )
}

/// Refuses a name that a machine has which may work. The row of one whose key has ended is ended too.
fn check_free<T: Tables>(tx: &T, org: OrgId, name: &str) -> Result<(), T::Fault> {
    match current(tx, org, name)? {
        Some(there) if there.is_live(tx.now()) => Err(name_taken(name, &there.owner).into()),
        Some(there) => end(tx, &there),
        None => Ok(()),
    }
}

fn insert<T: Tables>(
    tx: &T,
    org: OrgId,
    id: Uuid,
    (name, owner, host): (&str, &str, &str),
    key: KeyId,
) -> Result<(), T::Fault> {
    let offers = serde_json::json!({ "host": host }).to_string();
    let made = tx.changes_any(
        "INSERT INTO machine (org_id, id, name, owner, key_id, offers, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT DO NOTHING RETURNING id",
        row![org.0, id, name.to_owned(), owner.to_owned(), key.0, offers, tx.now()],
    )?;
    // Of two that take a name at the same time, the unique index refuses one.
    if made { Ok(()) } else { Err(name_taken(name, "somebody else").into()) }
}

fn read<F>(row: &dyn Columns<F>) -> Result<Machine, F> {
    Ok(Machine {
        org: OrgId(row.id(0)?),
        key: KeyId(row.id(1)?),
        name: text(row, 2)?,
        owner: text(row, 3)?,
        offers: text(row, 4)?,
        created_at: moment(row, 5)?,
        seen_at: row.int(6)?.map(Timestamp),
        revoked_at: moment_opt(row, 7)?,
        expires_at: moment_opt(row, 8)?,
    })
}
