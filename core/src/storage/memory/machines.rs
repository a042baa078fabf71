//! Machines and how they are paired.

use super::MemoryStorage;
use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::machine::{
    MAX_PAIRINGS, check_name, check_offers, fresh_code, fresh_secret, key_of, name_taken, no_code, no_secret,
    shown_code, shown_host, stored_code, too_many,
};
use crate::model::{Approval, Approved, Machine, PAIRING_TIME, Paired, Pairing, TokenHash, fresh_token};
use crate::storage::Machines;
use async_trait::async_trait;

/// A pairing that was not collected.
pub(super) struct Waiting {
    secret: TokenHash,
    code: String,
    name: String,
    host: String,
    expires_at: Timestamp,
    /// By whom it was approved, for which org and owner, and when the key is to end.
    approved: Option<(OrgId, String, Option<Timestamp>)>,
}

#[async_trait]
impl Machines for MemoryStorage {
    async fn request_pairing(&self, name: &str, host: &str) -> Result<Pairing> {
        check_name(name)?;
        self.call(|state, now| {
            state.pairings.retain(|open| now < open.expires_at);
            if state.pairings.len() as i64 >= MAX_PAIRINGS {
                return Err(too_many());
            }
            let (code, secret, expires_at) = (fresh_code(), fresh_secret(), now.after(PAIRING_TIME));
            state.pairings.push(Waiting {
                secret: TokenHash::of(&secret),
                code: code.clone(),
                name: name.to_owned(),
                host: shown_host(host),
                expires_at,
                approved: None,
            });
            Ok(Pairing { code: shown_code(&code), secret, expires_at })
        })
    }

    async fn approve_pairing(&self, org: OrgId, approval: Approval) -> Result<Approved> {
        approval.check()?;
        let code = stored_code(&approval.code);
        self.call(|state, now| {
            let is_open = |open: &Waiting| open.code == code && now < open.expires_at && open.approved.is_none();
            let Some(at) = state.pairings.iter().position(is_open) else { return Err(no_code()) };
            let name = approval.name.clone().unwrap_or_else(|| state.pairings[at].name.clone());
            state.check_free(org, &name, now)?;
            let same = |open: &&Waiting| open.name == name && now < open.expires_at;
            let other = state.pairings.iter().filter(same).find_map(|open| open.approved.as_ref());
            if let Some((_, owner, _)) = other.filter(|(of, ..)| *of == org) {
                return Err(name_taken(&name, owner));
            }
            let owner = approval.owner.clone().unwrap_or_else(|| approval.actor.clone());
            let open = &mut state.pairings[at];
            (open.name, open.approved) = (name.clone(), Some((org, owner.clone(), approval.not_after)));
            let host = open.host.clone();
            state.callers.record(org, &approval.actor, "machine.approved", &name, now);
            Ok(Approved { name, owner, host })
        })
    }

    async fn collect_pairing(&self, secret: &str) -> Result<Option<Paired>> {
        let hash = TokenHash::of(secret);
        self.call(|state, now| {
            let open = state.pairings.iter().position(|open| open.secret == hash && now < open.expires_at);
            let Some(at) = open else { return Err(no_secret()) };
            let Some((org, owner, not_after)) = state.pairings[at].approved.clone() else { return Ok(None) };
            let name = state.pairings[at].name.clone();
            state.check_free(org, &name, now)?;
            let open = state.pairings.remove(at);
            let (token, actor) = (fresh_token(), format!("the machine {}", open.name));
            let key = state.callers.add_key(key_of(org, &open.name, &token, not_after, actor.clone())?, now);
            state.machines.push(Machine {
                org,
                name: open.name.clone(),
                owner,
                key: key.id,
                offers: serde_json::json!({ "host": open.host }).to_string(),
                created_at: now,
                seen_at: None,
                revoked_at: None,
                expires_at: key.expires_at,
            });
            state.callers.record(org, &actor, "machine.paired", &open.name, now);
            Ok(Some(Paired { org, name: open.name, token }))
        })
    }

    async fn machines(&self, org: OrgId) -> Result<Vec<Machine>> {
        Ok(self.call(|state, _| {
            let of_org = state.machines.iter().filter(|machine| machine.org == org);
            of_org.map(|machine| state.with_key(machine)).collect()
        }))
    }

    async fn announce_machine(&self, org: OrgId, name: &str, offers: Option<&str>) -> Result<()> {
        offers.map_or(Ok(()), check_offers)?;
        check_name(name)?;
        self.call(|state, now| {
            if let Some(machine) = state.current_machine(org, name) {
                machine.seen_at = Some(now);
                machine.offers = offers.map_or_else(|| std::mem::take(&mut machine.offers), str::to_owned);
            }
        });
        Ok(())
    }

    async fn revoke_machine(&self, org: OrgId, name: &str, actor: &str) -> Result<Machine> {
        self.call(|state, now| {
            let machine = state.current_machine(org, name).ok_or_else(|| not_found("machine", name))?;
            machine.revoked_at = Some(now);
            let machine = machine.clone();
            state.callers.end_key(machine.key, now);
            state.callers.record(org, actor, "machine.revoked", name, now);
            state.callers.record(org, actor, "key.revoked", &machine.key.to_string(), now);
            Ok(machine)
        })
    }
}

impl State {
    /// The machine of a name that was not ended itself.
    fn current_machine(&mut self, org: OrgId, name: &str) -> Option<&mut Machine> {
        let mut machines = self.machines.iter_mut();
        machines.find(|machine| machine.org == org && machine.name == name && machine.revoked_at.is_none())
    }

    /// A machine ends with its key.
    fn with_key(&self, machine: &Machine) -> Machine {
        let revoked_at = machine.revoked_at.or_else(|| self.callers.key(machine.key)?.revoked_at);
        Machine { revoked_at, ..machine.clone() }
    }

    /// Refuses a name that a machine has which may work. One whose key has ended is ended too.
    fn check_free(&mut self, org: OrgId, name: &str, now: Timestamp) -> Result<()> {
        let Some(there) = self.current_machine(org, name).map(|machine| machine.clone()) else { return Ok(()) };
        if self.with_key(&there).is_live(now) {
            return Err(name_taken(name, &there.owner));
        }
        if let Some(machine) = self.current_machine(org, name) {
            machine.revoked_at = Some(now);
        }
        Ok(())
    }
}
