//! The service `Machines`: computers of people that are let in by name.

use super::{Grpc, refused, to_status};
use flovyn_core::wire::v2;
use flovyn_core::wire::v2::machines_server::Machines;
use std::net::IpAddr;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Request, Response, Status};

type RpcResult<T> = Result<Response<T>, Status>;

/// The address of a caller that has no token.
fn peer<T>(request: &Request<T>) -> Option<IpAddr> {
    Some(request.extensions().get::<TcpConnectInfo>()?.remote_addr()?.ip())
}

#[tonic::async_trait]
impl Machines for Grpc {
    async fn request_pairing(&self, request: Request<v2::RequestPairingRequest>) -> RpcResult<v2::Pairing> {
        let from = peer(&request);
        let v2::RequestPairingRequest { name, host } = request.into_inner();
        let pairing = self.service.request_pairing(from, &name, &host).await.map_err(to_status)?;
        Ok(Response::new(pairing.into()))
    }

    async fn collect_pairing(
        &self,
        request: Request<v2::CollectPairingRequest>,
    ) -> RpcResult<v2::CollectPairingResponse> {
        let from = peer(&request);
        let paired = self.service.collect_pairing(from, &request.into_inner().secret).await.map_err(to_status)?;
        Ok(Response::new(v2::CollectPairingResponse { paired: paired.map(Into::into) }))
    }

    async fn approve_pairing(&self, request: Request<v2::ApprovePairingRequest>) -> RpcResult<v2::ApprovedPairing> {
        let by = self.requester(&request)?;
        let v2::ApprovePairingRequest { code, name, owner } = request.into_inner();
        let approved = self.service.approve_pairing(&by, code, name, owner).await.map_err(refused)?;
        Ok(Response::new(approved.into()))
    }

    async fn list_machines(&self, request: Request<v2::Empty>) -> RpcResult<v2::ListMachinesResponse> {
        let machines = self.service.storage.machines(self.org(&request)?).await.map_err(to_status)?;
        Ok(Response::new(v2::ListMachinesResponse { items: machines.iter().map(Into::into).collect() }))
    }

    async fn announce_machine(&self, request: Request<v2::AnnounceMachineRequest>) -> RpcResult<v2::Empty> {
        let (org, who) = (self.org(&request)?, self.identity(&request)?);
        let v2::AnnounceMachineRequest { name, offers } = request.into_inner();
        self.service.announce_machine(&who, org, &name, offers.as_deref()).await.map_err(refused)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn revoke_machine(&self, request: Request<v2::RevokeMachineRequest>) -> RpcResult<v2::Machine> {
        let by = self.requester(&request)?;
        let machine = self.service.revoke_machine(&by, &request.get_ref().name).await.map_err(to_status)?;
        Ok(Response::new((&machine).into()))
    }
}
