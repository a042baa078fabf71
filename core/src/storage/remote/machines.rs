//! Machines and their pairing, as calls of a server; and the calls of a machine that has no token yet.

use super::{RemoteStorage, channel};
use crate::error::Result;
use crate::id::OrgId;
use crate::storage::machines::{Approval, Approved, Machine, Machines, Paired, Pairing};
use crate::storage::tls_roots;
use crate::wire::v2::machines_client::MachinesClient;
use crate::wire::{OfOrg, error_of_status, v2};
use async_trait::async_trait;
use tonic::transport::Channel;

/// A server as a machine sees it that is not let in yet.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct PairingClient(MachinesClient<Channel>);

impl PairingClient {
    /// Connects to a server, without a token.
    pub async fn of(url: &str) -> Result<Self> {
        Ok(Self(MachinesClient::new(channel::connect(url, tls_roots::named().as_deref()).await?)))
    }

    /// As [`Machines::request_pairing`].
    pub async fn request_pairing(&self, name: &str, host: &str) -> Result<Pairing> {
        let wire = v2::RequestPairingRequest { name: name.to_owned(), host: host.to_owned() };
        let answer = self.0.clone().request_pairing(wire).await;
        Ok(answer.map_err(|status| error_of_status("ask to be let in", &status))?.into_inner().into())
    }

    /// As [`Machines::collect_pairing`].
    pub async fn collect_pairing(&self, secret: &str) -> Result<Option<Paired>> {
        let wire = v2::CollectPairingRequest { secret: secret.to_owned() };
        let answer = self.0.clone().collect_pairing(wire).await;
        let answer = answer.map_err(|status| error_of_status("collect the machine's key", &status))?;
        answer.into_inner().paired.map(TryInto::try_into).transpose()
    }
}

impl RemoteStorage {
    fn machines_client(&self) -> MachinesClient<super::Line> {
        MachinesClient::new(self.caller().channel)
    }
}

#[async_trait]
impl Machines for RemoteStorage {
    async fn request_pairing(&self, name: &str, host: &str) -> Result<Pairing> {
        let wire = v2::RequestPairingRequest { name: name.to_owned(), host: host.to_owned() };
        let answer = self.machines_client().request_pairing(wire).await;
        Ok(answer.map_err(|status| error_of_status("ask to be let in", &status))?.into_inner().into())
    }

    async fn collect_pairing(&self, secret: &str) -> Result<Option<Paired>> {
        let wire = v2::CollectPairingRequest { secret: secret.to_owned() };
        let answer = self.machines_client().collect_pairing(wire).await;
        let answer = answer.map_err(|status| error_of_status("collect the machine's key", &status))?;
        answer.into_inner().paired.map(TryInto::try_into).transpose()
    }

    /// The server knows who approves it, and when the key ends at the latest.
    async fn approve_pairing(&self, org: OrgId, approval: Approval) -> Result<Approved> {
        let Approval { code, name, owner, .. } = approval;
        let wire = v2::ApprovePairingRequest { code, name, owner };
        let answer = self.machines_client().approve_pairing(self.ask(org, wire)).await;
        Ok(answer.map_err(|status| error_of_status("approve a machine", &status))?.into_inner().into())
    }

    async fn machines(&self, org: OrgId) -> Result<Vec<Machine>> {
        let answer = self.machines_client().list_machines(self.ask(org, v2::Empty {})).await;
        let answer = answer.map_err(|status| error_of_status("list machines", &status))?.into_inner();
        answer.items.into_iter().map(|wire| wire.into_model(org)).collect()
    }

    async fn announce_machine(&self, org: OrgId, name: &str, offers: Option<&str>) -> Result<()> {
        let wire = v2::AnnounceMachineRequest { name: name.to_owned(), offers: offers.map(str::to_owned) };
        let answer = self.machines_client().announce_machine(self.ask(org, wire)).await;
        answer.map(|_| ()).map_err(|status| error_of_status("say that the machine is there", &status))
    }

    async fn revoke_machine(&self, org: OrgId, name: &str, _: &str) -> Result<Machine> {
        let wire = v2::RevokeMachineRequest { name: name.to_owned() };
        let answer = self.machines_client().revoke_machine(self.ask(org, wire)).await;
        answer.map_err(|status| error_of_status("revoke a machine", &status))?.into_inner().into_model(org)
    }
}
