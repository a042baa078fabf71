//! Signals: sent, looked for, taken out of the mailbox.

use super::held::{Held, Step, TRIES, crowded};
use super::{Adapter, Caller, convert, glob};
use crate::grpc::told;
use flovyn_core::Payload;
use flovyn_core::id::{ExecutionId, SignalId};
use flovyn_core::model::{CHILD_SIGNALS, Delivery, NewSignal, OpBody, OpKind, Signal, SignalStored};
use flovyn_proto::v1;
use tonic::Status;

/// Which signals are to be taken.
enum Wanted {
    /// The oldest of a name.
    Next(String),
    /// All whose names are of a pattern.
    All(String),
}

impl Adapter {
    /// Takes signals: by name the oldest one, because a worker keeps only the first it gets; by pattern all there are.
    pub(super) async fn consume(
        &self,
        caller: &Caller,
        wire: v1::ConsumeSignalsRequest,
    ) -> Result<v1::ConsumeSignalsResponse, Status> {
        let wanted = match (wire.signal_pattern, wire.signal_name) {
            (Some(pattern), _) => Wanted::All(pattern),
            (None, Some(name)) => Wanted::Next(name),
            (None, None) => return Err(Status::invalid_argument("neither signal_name nor signal_pattern is given")),
        };
        for _ in 0..TRIES {
            let held = self.held(caller, &wire.agent_execution_id).await?;
            let taken = wanted.of(self.mailbox(&held).await?)?;
            if taken.is_empty() {
                return Ok(v1::ConsumeSignalsResponse::default());
            }
            let mut signals = Vec::with_capacity(taken.len());
            for signal in &taken {
                signals.push(v1::AgentSignal {
                    id: signal.id.to_string(),
                    signal_name: signal.name.clone(),
                    signal_value: self.bytes(caller.org, &signal.payload).await?,
                    created_at_ms: convert::millis(signal.created_at),
                });
            }
            let ids: Vec<SignalId> = taken.iter().map(|signal| signal.id).collect();
            let answer = Payload::of(&ids).map_err(told)?;
            let mut step = Step::of(OpKind::Read, "signals", wanted.key(), OpBody::Read { answer, count: 1 });
            step.consumed = ids;
            if self.commit(&held, step).await?.is_some() {
                return Ok(v1::ConsumeSignalsResponse { signals });
            }
        }
        Err(crowded(&wire.agent_execution_id))
    }

    /// What is in a run's mailbox for its author, oldest first.
    pub(super) async fn mailbox(&self, held: &Held) -> Result<Vec<Signal>, Status> {
        let run = &held.run.new;
        let mut signals = self.unfenced()?.mailbox(run.org, run.id).await.map_err(told)?;
        signals.retain(|signal| !signal.name.starts_with(CHILD_SIGNALS));
        Ok(signals)
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

impl Wanted {
    /// Those that are wanted of a mailbox, as many as a message holds.
    fn of(&self, mailbox: Vec<Signal>) -> Result<Vec<Signal>, Status> {
        let (mut taken, mut size) = (Vec::new(), 0);
        for signal in mailbox.into_iter().filter(|signal| self.takes(&signal.name)) {
            size += signal.payload.size() + signal.name.len() as u64 + 128;
            if !convert::fits(size) {
                if taken.is_empty() {
                    return Err(told(convert::too_large("the signal's value", signal.payload.size())));
                }
                break;
            }
            taken.push(signal);
            if matches!(self, Self::Next(_)) {
                break;
            }
        }
        Ok(taken)
    }

    fn takes(&self, name: &str) -> bool {
        match self {
            Self::Next(wanted) => name == wanted,
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
