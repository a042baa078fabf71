//! Machines and their pairing on the wire.

use super::{OfOrg, id, raw, some_time, v2};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, OrgId};
use crate::storage::machines::{Approved, Machine, Paired, Pairing};

impl From<Pairing> for v2::Pairing {
    fn from(pairing: Pairing) -> Self {
        Self { code: pairing.code, secret: pairing.secret, expires_at: pairing.expires_at.0 }
    }
}

impl From<v2::Pairing> for Pairing {
    fn from(wire: v2::Pairing) -> Self {
        Self { code: wire.code, secret: wire.secret, expires_at: Timestamp(wire.expires_at) }
    }
}

impl From<Paired> for v2::Paired {
    fn from(paired: Paired) -> Self {
        Self { org: raw(paired.org.0), name: paired.name, token: paired.token }
    }
}

impl TryFrom<v2::Paired> for Paired {
    type Error = crate::Error;
    fn try_from(wire: v2::Paired) -> Result<Self> {
        Ok(Self { org: OrgId(id(&wire.org, "paired.org")?), name: wire.name, token: wire.token })
    }
}

impl From<Approved> for v2::ApprovedPairing {
    fn from(approved: Approved) -> Self {
        Self { name: approved.name, owner: approved.owner, host: approved.host }
    }
}

impl From<v2::ApprovedPairing> for Approved {
    fn from(wire: v2::ApprovedPairing) -> Self {
        Self { name: wire.name, owner: wire.owner, host: wire.host }
    }
}

impl From<&Machine> for v2::Machine {
    fn from(machine: &Machine) -> Self {
        Self {
            name: machine.name.clone(),
            owner: machine.owner.clone(),
            key: raw(machine.key.0),
            offers: machine.offers.clone(),
            created_at: machine.created_at.0,
            seen_at: machine.seen_at.map(|at| at.0),
            revoked_at: machine.revoked_at.map(|at| at.0),
            expires_at: machine.expires_at.map(|at| at.0),
        }
    }
}

impl OfOrg for v2::Machine {
    type Model = Machine;
    fn into_model(self, org: OrgId) -> Result<Machine> {
        Ok(Machine {
            org,
            name: self.name,
            owner: self.owner,
            key: KeyId(id(&self.key, "machine.key")?),
            offers: self.offers,
            created_at: Timestamp(self.created_at),
            seen_at: some_time(self.seen_at),
            revoked_at: some_time(self.revoked_at),
            expires_at: some_time(self.expires_at),
        })
    }
}
