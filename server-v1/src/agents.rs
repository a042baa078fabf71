//! The service `AgentDispatch`: each call is passed to the file that implements it.

use super::leased_run::LeasedRun;
use super::suspend::{failure, is_transport_failure};
use super::{Adapter, V1, convert};
use flovyn_core::id::ExecutionId;
use flovyn_core::model::BatchEnd;
use flovyn_proto::v1;
use flovyn_proto::v1::agent_dispatch_server::AgentDispatch;
use flovyn_server::protocol::{ResponseStream, to_status};
use tonic::{Request, Response, Status, Streaming};

type RpcResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl AgentDispatch for V1 {
    type GetEntriesStream = ResponseStream<v1::AgentEntryChunk>;

    async fn poll_agent(&self, request: Request<v1::PollAgentRequest>) -> RpcResult<v1::PollAgentResponse> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        let peer = request.remote_addr();
        Ok(Response::new(Adapter::poll_agent(self, &caller, peer, request.into_inner()).await?))
    }

    async fn get_entries(&self, request: Request<v1::GetEntriesRequest>) -> RpcResult<Self::GetEntriesStream> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.entries(&caller, request.into_inner()).await?))
    }

    async fn append_entry(&self, request: Request<v1::AppendEntryRequest>) -> RpcResult<v1::AppendEntryResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.append(&caller, request.into_inner()).await?))
    }

    async fn get_latest_checkpoint(
        &self,
        request: Request<v1::GetCheckpointRequest>,
    ) -> RpcResult<v1::GetCheckpointResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.latest_checkpoint(&caller, request.into_inner()).await?))
    }

    async fn submit_checkpoint(
        &self,
        request: Request<v1::SubmitCheckpointRequest>,
    ) -> RpcResult<v1::SubmitCheckpointResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.checkpoint(&caller, request.into_inner()).await?))
    }

    async fn schedule_agent_task(
        &self,
        request: Request<Streaming<v1::ScheduleAgentTaskChunk>>,
    ) -> RpcResult<v1::ScheduleAgentTaskResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.schedule(&caller, request.into_inner()).await?))
    }

    async fn get_agent_task_result(
        &self,
        request: Request<v1::GetAgentTaskResultRequest>,
    ) -> RpcResult<v1::GetAgentTaskResultResponse> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let run = self.run(&caller, &wire.agent_execution_id).await?;
        let v1::TaskResultEntry { status, output, error, .. } = self.result(&run, wire.task_execution_id).await?;
        Ok(Response::new(v1::GetAgentTaskResultResponse { status, output, error }))
    }

    async fn get_agent_task_results(
        &self,
        request: Request<v1::GetAgentTaskResultsRequest>,
    ) -> RpcResult<v1::GetAgentTaskResultsResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.results(&caller, request.into_inner()).await?))
    }

    async fn get_agent_task_count(
        &self,
        request: Request<v1::GetAgentTaskCountRequest>,
    ) -> RpcResult<v1::GetAgentTaskCountResponse> {
        let caller = self.caller(&request)?;
        let run = self.run(&caller, &request.get_ref().agent_execution_id).await?;
        let count = self.scheduled(&run).await?.len();
        let task_count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(Response::new(v1::GetAgentTaskCountResponse { task_count }))
    }

    async fn cancel_agent_task(
        &self,
        request: Request<v1::CancelAgentTaskRequest>,
    ) -> RpcResult<v1::CancelAgentTaskResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.cancel(&caller, request.into_inner()).await?))
    }

    async fn complete_agent(&self, request: Request<v1::CompleteAgentRequest>) -> RpcResult<()> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let end = BatchEnd::Complete(convert::value(wire.output));
        self.finish(&caller, &wire.agent_execution_id, end).await?;
        Ok(Response::new(()))
    }

    async fn fail_agent(&self, request: Request<v1::FailAgentRequest>) -> RpcResult<()> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let id = wire.agent_execution_id.clone();
        if is_transport_failure(wire.failure_type.as_deref(), &wire.error) {
            let LeasedRun { run, lease } = self.leased_run(&caller, &id).await?;
            self.storage().release(caller.org, run.new.id, lease).await.map_err(to_status)?;
        } else {
            self.finish(&caller, &id, BatchEnd::Fail(failure(wire))).await?;
        }
        Ok(Response::new(()))
    }

    async fn suspend_agent(&self, request: Request<v1::SuspendAgentRequest>) -> RpcResult<()> {
        let caller = self.caller(&request)?;
        self.suspend(&caller, request.into_inner()).await?;
        Ok(Response::new(()))
    }

    async fn resume_agent(&self, request: Request<v1::ResumeAgentRequest>) -> RpcResult<v1::ResumeAgentResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.resume(&caller, request.into_inner()).await?))
    }

    async fn signal_agent(&self, request: Request<v1::SignalAgentRequest>) -> RpcResult<v1::SignalAgentResponse> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let to = ExecutionId(convert::uuid(&wire.agent_execution_id, "agent_execution_id")?);
        let stored =
            self.signal(&caller, to, wire.signal_name, convert::value(wire.signal_value)).await.map_err(to_status)?;
        let signal_id = stored.id.to_string();
        Ok(Response::new(v1::SignalAgentResponse { signal_id, agent_resumed: stored.resumed }))
    }

    async fn consume_signals(
        &self,
        request: Request<v1::ConsumeSignalsRequest>,
    ) -> RpcResult<v1::ConsumeSignalsResponse> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.consume(&caller, request.into_inner()).await?))
    }

    async fn has_signal(&self, request: Request<v1::HasSignalRequest>) -> RpcResult<v1::HasSignalResponse> {
        let caller = self.caller(&request)?;
        let wire = request.into_inner();
        let leased = self.leased_run(&caller, &wire.agent_execution_id).await?;
        let has_signal = self.mailbox(&leased).await?.iter().any(|signal| signal.name == wire.signal_name);
        Ok(Response::new(v1::HasSignalResponse { has_signal }))
    }

    async fn stream_agent_data(
        &self,
        request: Request<Streaming<v1::StreamAgentDataRequest>>,
    ) -> RpcResult<v1::StreamAgentDataResponse> {
        let caller = self.caller(&request)?;
        let mut stream = request.into_inner();
        let mut acknowledged = true;
        while let Some(wire) = stream.message().await? {
            acknowledged &= self.publish_agent_preview(&caller, wire).await?;
        }
        Ok(Response::new(v1::StreamAgentDataResponse { acknowledged }))
    }

    async fn spawn_child_agent(
        &self,
        request: Request<v1::SpawnChildAgentRequest>,
    ) -> RpcResult<v1::SpawnChildAgentResponse> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        Ok(Response::new(self.spawn(&caller, request.into_inner()).await?))
    }

    async fn send_parent_signal(
        &self,
        request: Request<v1::SendParentSignalRequest>,
    ) -> RpcResult<v1::SendParentSignalResponse> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        Ok(Response::new(self.signal_parent(&caller, request.into_inner()).await?))
    }

    async fn send_child_signal(
        &self,
        request: Request<v1::SendChildSignalRequest>,
    ) -> RpcResult<v1::SendChildSignalResponse> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        Ok(Response::new(self.signal_child(&caller, request.into_inner()).await?))
    }

    async fn poll_child_events(
        &self,
        request: Request<v1::PollChildEventsRequest>,
    ) -> RpcResult<v1::PollChildEventsResponse> {
        let caller = self.caller_of(&request, &request.get_ref().org_id).await?;
        Ok(Response::new(self.child_events(&caller, request.into_inner()).await?))
    }
}
