//! Messages of a family.

use super::{id, need, raw, some_id, some_raw};
use crate::error::{Error, Result};
use crate::id::{ExecutionId, SignalId};
use crate::model::{MessageBody, NewMessage, SentMessage};
use flovyn_proto::v2;
use v2::send_op::Body as Wire;

impl From<&NewMessage> for v2::SendOp {
    fn from(message: &NewMessage) -> Self {
        let body = match &message.body {
            MessageBody::ToParent { name, payload, is_request } => {
                Wire::Parent(v2::ToParent { name: name.clone(), payload: Some(payload.into()), request: *is_request })
            }
            MessageBody::ToChild { child, name, payload, delivery } => Wire::Child(v2::ToChild {
                child: raw(child.0),
                name: name.clone(),
                payload: Some(payload.into()),
                delivery: v2::Delivery::from(*delivery).into(),
            }),
            MessageBody::Answer { child, request, payload } => Wire::Answer(v2::ToRequest {
                child: raw(child.0),
                request: raw(request.0),
                payload: Some(payload.into()),
            }),
            MessageBody::Stop { child, how } => {
                Wire::Stop(v2::ToStop { child: raw(child.0), how: Some((*how).into()) })
            }
        };
        Self { id: raw(message.id.0), body: Some(body) }
    }
}

impl TryFrom<v2::SendOp> for NewMessage {
    type Error = Error;
    fn try_from(wire: v2::SendOp) -> Result<Self> {
        let body = match need(wire.body, "send.body")? {
            Wire::Parent(to) => MessageBody::ToParent {
                name: to.name,
                payload: need(to.payload, "send.payload")?.try_into()?,
                is_request: to.request,
            },
            Wire::Child(to) => MessageBody::ToChild {
                child: ExecutionId(id(&to.child, "send.child")?),
                delivery: to.delivery().into(),
                name: to.name,
                payload: need(to.payload, "send.payload")?.try_into()?,
            },
            Wire::Answer(to) => MessageBody::Answer {
                child: ExecutionId(id(&to.child, "send.child")?),
                request: SignalId(id(&to.request, "send.request")?),
                payload: need(to.payload, "send.payload")?.try_into()?,
            },
            Wire::Stop(to) => MessageBody::Stop {
                child: ExecutionId(id(&to.child, "send.child")?),
                how: need(to.how, "send.how")?.into(),
            },
        };
        Ok(Self { id: SignalId(id(&wire.id, "send.id")?), body })
    }
}

impl From<SentMessage> for v2::RecordedSend {
    fn from(sent: SentMessage) -> Self {
        Self { id: raw(sent.id.0), child: some_raw(sent.child.map(|child| child.0)), request: sent.is_request }
    }
}

impl TryFrom<v2::RecordedSend> for SentMessage {
    type Error = Error;
    fn try_from(wire: v2::RecordedSend) -> Result<Self> {
        Ok(Self {
            id: SignalId(id(&wire.id, "send.id")?),
            child: some_id(&wire.child, "send.child")?.map(ExecutionId),
            is_request: wire.request,
        })
    }
}
