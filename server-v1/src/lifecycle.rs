//! The service `WorkerLifecycle`: registration and heartbeats of workers.

use super::{V1, convert, workers};
use flovyn_core::id::WorkerId;
use flovyn_core::storage::unfenced::Serves;
use flovyn_proto::v1;
use flovyn_proto::v1::worker_lifecycle_server::WorkerLifecycle;
use flovyn_server::protocol::to_status;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl WorkerLifecycle for V1 {
    async fn register_worker(
        &self,
        request: Request<v1::WorkerRegistrationRequest>,
    ) -> Result<Response<v1::WorkerRegistrationResponse>, Status> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        let peer = request.remote_addr();
        let wire = request.into_inner();
        let id = workers::registered(caller.org, &wire.worker_name);
        let agents = wire.agents.into_iter().map(|agent| agent.kind).collect();
        let tasks = wire.tasks.into_iter().map(|task| task.kind).collect();
        self.unfenced()?.enroll(caller.org, id, Serves { agents, tasks, known_as: None }).await.map_err(to_status)?;
        self.workers.remember_peer(caller.org, peer, id);
        Ok(Response::new(v1::WorkerRegistrationResponse {
            worker_id: id.to_string(),
            success: true,
            error: None,
            workflow_conflicts: Vec::new(),
            task_conflicts: Vec::new(),
        }))
    }

    async fn send_heartbeat(&self, request: Request<v1::WorkerHeartbeatRequest>) -> Result<Response<()>, Status> {
        let caller = self.caller(&request)?;
        let worker = WorkerId(convert::uuid(&request.get_ref().worker_id, "worker_id")?);
        self.workers.remember_peer(caller.org, request.remote_addr(), worker);
        self.renew_leases(caller.org, worker).await?;
        Ok(Response::new(()))
    }
}
