//! Signals: sent, looked for, consumed from the mailbox.

use super::child_news::as_sent;
use super::leased_run::{CommitPlan, LeasedRun, MAX_CONFLICTS, too_many_conflicts};
use super::{Adapter, Caller, convert, glob};
use flovyn_core::Payload;
use flovyn_core::id::{ExecutionId, SignalId};
use flovyn_core::model::{Delivery, NewSignal, OpBody, OpKind, Signal, SignalStored};
use flovyn_proto::v1;
use flovyn_server::protocol::to_status;
use tonic::Status;

/// Which signals a call consumes.
enum SignalSelector {
    /// The oldest with this name.
    Next(String),
    /// All whose names match this pattern.
    All(String),
}

impl Adapter {
    /// Consumes signals: by name only the oldest, because a worker keeps only the first it gets; by pattern all.
    pub(super) async fn consume(
        &self,
        caller: &Caller,
        wire: v1::ConsumeSignalsRequest,
    ) -> Result<v1::ConsumeSignalsResponse, Status> {
        let selector = match (wire.signal_pattern, wire.signal_name) {
            (Some(pattern), _) => SignalSelector::All(pattern),
            (None, Some(name)) => SignalSelector::Next(name),
            (None, None) => return Err(Status::invalid_argument("neither signal_name nor signal_pattern is given")),
        };
        for _ in 0..MAX_CONFLICTS {
            let leased = self.leased_run(caller, &wire.agent_execution_id).await?;
            let selected = selector.select(self.mailbox(&leased).await?)?;
            if selected.is_empty() {
                return Ok(v1::ConsumeSignalsResponse::default());
            }
            let mut signals = Vec::with_capacity(selected.len());
            for signal in &selected {
                signals.push(v1::AgentSignal {
                    id: signal.id.to_string(),
                    signal_name: signal.name.clone(),
                    signal_value: self.bytes(caller.org, &signal.payload).await?,
                    created_at_ms: convert::millis(signal.created_at),
                });
            }
            let ids: Vec<SignalId> = selected.iter().map(|signal| signal.id).collect();
            let answer = Payload::of(&ids).map_err(to_status)?;
            let mut plan = CommitPlan::op(OpKind::Read, "signals", selector.key(), OpBody::Read { answer, count: 1 });
            plan.consumed = ids;
            if self.commit(&leased, plan).await?.is_some() {
                return Ok(v1::ConsumeSignalsResponse { signals });
            }
        }
        Err(too_many_conflicts(&wire.agent_execution_id))
    }

    /// The signals in a run's mailbox, oldest first, without those that the engine sends itself; what a child tells it as the
    /// child has named it.
    pub(super) async fn mailbox(&self, leased: &LeasedRun) -> Result<Vec<Signal>, Status> {
        let run = &leased.run.new;
        let signals = self.unfenced()?.mailbox(run.org, run.id).await.map_err(to_status)?;
        Ok(signals.into_iter().filter_map(as_sent).collect())
    }

    /// Sends a signal.
    pub(super) async fn signal(
        &self,
        caller: &Caller,
        to: ExecutionId,
        name: String,
        value: Payload,
    ) -> Result<SignalStored, flovyn_core::Error> {
        let signal = NewSignal {
            org: caller.org,
            execution: to,
            id: SignalId::fresh(),
            name,
            payload: value,
            delivery: Delivery::NextStep,
            idempotency_key: None,
        };
        self.storage().store_signal(signal).await
    }
}

impl SignalSelector {
    /// The selected signals of a mailbox, as many as fit into a message.
    fn select(&self, mailbox: Vec<Signal>) -> Result<Vec<Signal>, Status> {
        let (mut selected, mut size) = (Vec::new(), 0);
        for signal in mailbox.into_iter().filter(|signal| self.selects(&signal.name)) {
            size += signal.payload.size() + signal.name.len() as u64 + 128;
            if !convert::fits(size) {
                if selected.is_empty() {
                    return Err(to_status(convert::too_large("the signal's value", signal.payload.size())));
                }
                break;
            }
            selected.push(signal);
            if matches!(self, Self::Next(_)) {
                break;
            }
        }
        Ok(selected)
    }

    fn selects(&self, name: &str) -> bool {
        match self {
            Self::Next(selector) => name == selector,
            Self::All(pattern) => glob::matches(pattern, name),
        }
    }

    fn key(&self) -> &str {
        match self {
            Self::Next(name) => name,
            Self::All(pattern) => pattern,
        }
    }
}
