//! Child runs: started, signalled, and asked how they ended.

use super::{Adapter, Caller, convert};
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error, Kind};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Definition, Execution, NewExecution, Status as RunStatus};
use flovyn_core::storage::machines::check_task;
use flovyn_proto::v1;
use flovyn_server::protocol::DEFINITION;
use flovyn_server::protocol::to_status;
use std::collections::BTreeMap;
use tonic::Status;

impl Adapter {
    /// Starts a child of a run that a worker advances.
    pub(super) async fn spawn(
        &self,
        caller: &Caller,
        wire: v1::SpawnChildAgentRequest,
    ) -> Result<v1::SpawnChildAgentResponse, Status> {
        if !["", "REMOTE", "LOCAL"].contains(&wire.mode.to_uppercase().as_str()) {
            return Err(Status::invalid_argument(format!("mode is {:?}; give REMOTE or LOCAL", wire.mode)));
        }
        if wire.agent_kind.is_empty() {
            return Err(Status::invalid_argument("agent_kind is empty; name the agent to run"));
        }
        let parent = self.leased_run(caller, &wire.parent_execution_id).await?.run;
        let input = convert::value(wire.input);
        let mut new = NewExecution::new(ExecutionId::fresh(), wire.agent_kind, input).map_err(to_status)?;
        new.org = caller.org;
        let template = self.template(caller.org, wire.template_slug.as_deref()).await?;
        let (definition, preset) = template.map(|found| (found.id.to_string(), found.spec.queue)).unzip();
        let queue = wire.queue.filter(|queue| !queue.is_empty()).or(preset);
        new.queue = queue.unwrap_or_else(|| parent.new.queue.clone());
        check_task(&parent.new.queue, &new.queue).map_err(to_status)?;
        new.limits.budget = wire.max_budget_tokens.map(|tokens| format!("{tokens} tokens"));
        new.traceparent = parent.new.traceparent;
        new.metadata = [
            ("mode", Some(wire.mode.to_uppercase()).filter(|mode| !mode.is_empty())),
            ("template", wire.template_slug),
            (DEFINITION, definition),
            ("systemPrompt", wire.system_prompt),
            ("model", wire.model),
            ("tools", (!wire.tools.is_empty()).then(|| wire.tools.join(","))),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<BTreeMap<_, _>>();
        let child = self.unfenced()?.spawn(parent.new.id, new).await.map_err(to_status)?.execution;
        Ok(v1::SpawnChildAgentResponse {
            child_execution_id: child.new.id.to_string(),
            status: child.status.as_str().into(),
        })
    }

    /// The predefined agent with this slug, if there is one.
    async fn template(&self, org: OrgId, slug: Option<&str>) -> Result<Option<Definition>, Status> {
        let Some(slug) = slug.filter(|slug| !slug.is_empty()) else { return Ok(None) };
        match self.unfenced()?.definition(org, slug).await {
            Ok(definition) => Ok(Some(definition)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(to_status(error)),
        }
    }

    /// A child of a run.
    pub(super) async fn child(&self, org: OrgId, parent: ExecutionId, id: ExecutionId) -> Result<Execution, Status> {
        let child = self.storage().execution(org, id).await.map_err(to_status)?;
        if child.parent == Some(parent) {
            return Ok(child);
        }
        let message = format!("the run {parent} has spawned no run {id}");
        Err(to_status(Error::new(Code::ExecutionNotFound, message).with("execution", id)))
    }

    /// Sends a signal from a run to the one that spawned it.
    pub(super) async fn signal_parent(
        &self,
        caller: &Caller,
        wire: v1::SendParentSignalRequest,
    ) -> Result<v1::SendParentSignalResponse, Status> {
        let child = self.run(caller, &wire.child_execution_id).await?;
        let parent = child.parent.ok_or_else(|| {
            let message = format!("the run {} was spawned by no other", child.new.id);
            to_status(Error::new(Code::InvalidArgument, message))
        })?;
        let delivered = self.deliver(caller, parent, wire.signal_name, convert::value(wire.payload)).await?;
        Ok(v1::SendParentSignalResponse { delivered })
    }

    /// Sends a signal from a run to one that it has spawned.
    pub(super) async fn signal_child(
        &self,
        caller: &Caller,
        wire: v1::SendChildSignalRequest,
    ) -> Result<v1::SendChildSignalResponse, Status> {
        let parent = self.run(caller, &wire.parent_execution_id).await?;
        let child = ExecutionId(convert::uuid(&wire.child_execution_id, "child_execution_id")?);
        let child = self.child(caller.org, parent.new.id, child).await?;
        let delivered = self.deliver(caller, child.new.id, wire.signal_name, convert::value(wire.payload)).await?;
        Ok(v1::SendChildSignalResponse { delivered })
    }

    /// Sends a signal; returns false where its receiver has ended.
    async fn deliver(&self, caller: &Caller, to: ExecutionId, name: String, value: Payload) -> Result<bool, Status> {
        match self.signal(caller, to, name, value).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Code::ExecutionClosed => Ok(false),
            Err(error) => Err(to_status(error)),
        }
    }

    /// One event for each child that has ended, in the order asked; a repeated call returns them again.
    pub(super) async fn child_events(
        &self,
        caller: &Caller,
        wire: v1::PollChildEventsRequest,
    ) -> Result<v1::PollChildEventsResponse, Status> {
        let parent = self.run(caller, &wire.parent_execution_id).await?;
        let (mut events, mut size) = (Vec::new(), 0);
        for child_id in wire.child_execution_ids {
            let id = ExecutionId(convert::uuid(&child_id, "child_execution_ids")?);
            let child = self.child(caller.org, parent.new.id, id).await?;
            let (event_type, output, error) = match child.status {
                RunStatus::Completed => {
                    let output = child.output.unwrap_or_else(Payload::null);
                    size += output.size();
                    if !convert::fits(size) {
                        return Err(to_status(convert::too_large("what the children answered together", size)));
                    }
                    ("completed", Some(self.bytes(caller.org, &output).await?), None)
                }
                RunStatus::Failed => ("failed", None, Some(convert::message(child.failure.as_ref()))),
                RunStatus::Cancelled => ("failed", None, Some("the run was cancelled".to_owned())),
                _ => continue,
            };
            events.push(v1::ChildEventInfo {
                child_execution_id: child_id,
                event_type: event_type.into(),
                output,
                error,
                signal_name: None,
                signal_payload: None,
            });
        }
        Ok(v1::PollChildEventsResponse { events })
    }
}
