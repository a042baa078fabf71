//! Checkpoints: each ends the run's segment. Tasks of this protocol are detached, so that none keeps a checkpoint from being made.

use super::leased_run::{CommitPlan, MAX_CONFLICTS, too_many_conflicts};
use super::{Adapter, Caller, convert};
use flovyn_core::error::{Code, Error, Kind};
use flovyn_core::id::EntryId;
use flovyn_core::model::{BatchEnd, Cursor, NewCheckpoint, PageRequest};
use flovyn_proto::v1;
use flovyn_server::protocol::checkpoint_id;
use flovyn_server::protocol::to_status;
use std::collections::BTreeMap;
use tonic::Status;

impl Adapter {
    /// The last checkpoint of a run.
    pub(super) async fn latest_checkpoint(
        &self,
        caller: &Caller,
        wire: v1::GetCheckpointRequest,
    ) -> Result<v1::GetCheckpointResponse, Status> {
        let run = self.run(caller, &wire.agent_execution_id).await?;
        if run.segment == 0 {
            return Ok(v1::GetCheckpointResponse { checkpoint: None });
        }
        // On every backend, the cursor of a page of checkpoints is the sequence of the preceding one.
        let after = (run.segment > 1).then(|| Cursor((run.segment - 1).to_string()));
        let page = PageRequest { limit: 1, after };
        let page = self.storage().checkpoints(caller.org, run.new.id, page).await.map_err(to_status)?;
        let Some(checkpoint) = page.items.into_iter().next() else {
            return Ok(v1::GetCheckpointResponse { checkpoint: None });
        };
        let checkpoint = v1::AgentCheckpoint {
            id: checkpoint_id(run.new.id, checkpoint.sequence).to_string(),
            sequence: convert::int(checkpoint.sequence),
            leaf_entry_id: checkpoint.saved.leaves.get("").map(|leaf| leaf.to_string()),
            state: self.bytes(caller.org, &checkpoint.saved.state).await?,
            created_at_ms: convert::millis(checkpoint.created_at),
        };
        Ok(v1::GetCheckpointResponse { checkpoint: Some(checkpoint) })
    }

    /// Stores a checkpoint.
    pub(super) async fn checkpoint(
        &self,
        caller: &Caller,
        wire: v1::SubmitCheckpointRequest,
    ) -> Result<v1::SubmitCheckpointResponse, Status> {
        let leaf = wire.leaf_entry_id.as_deref().filter(|id| !id.is_empty());
        let leaf = leaf.map(|id| convert::uuid(id, "leaf_entry_id").map(EntryId)).transpose()?;
        if let Some(leaf) = leaf {
            self.storage().entry(caller.org, leaf).await.map_err(|error| match error.kind() {
                Kind::NotFound => {
                    let message = format!("leaf_entry_id is {leaf}, and there is no such entry; append it first");
                    to_status(Error::new(Code::InvalidArgument, message))
                }
                _ => to_status(error),
            })?;
        }
        let leaves: BTreeMap<String, EntryId> = leaf.map(|leaf| (String::new(), leaf)).into_iter().collect();
        let state = convert::value(wire.state.clone());
        for _ in 0..MAX_CONFLICTS {
            let leased = self.leased_run(caller, &wire.agent_execution_id).await?;
            let new = NewCheckpoint { state: state.clone(), leaves: leaves.clone(), metadata: "{}".into() };
            if self.commit(&leased, CommitPlan::end(BatchEnd::Checkpoint(new))).await?.is_some() {
                let sequence = leased.run.segment + 1;
                return Ok(v1::SubmitCheckpointResponse {
                    checkpoint_id: checkpoint_id(leased.run.new.id, sequence).to_string(),
                    sequence: convert::int(sequence),
                });
            }
        }
        Err(too_many_conflicts(&wire.agent_execution_id))
    }
}
