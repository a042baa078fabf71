//! The state of a run by key: a member of the state in its last checkpoint, or the conversation.

use super::entries;
use super::executions::find_checkpoint;
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use flovyn_core::id::ExecutionId;
use flovyn_core::payload::{Body, Encoding};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The name under which every run has its conversation.
const MESSAGES: &str = "messages";
/// The largest state that is looked into.
const MAX_STATE: u64 = 8 << 20;

/// What a run keeps under a name.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = State)]
pub(super) struct StateView {
    /// What was asked for; null for all of it.
    key: Option<String>,
    /// The state, or its member of that name; null where there is none yet. Of the conversation, the entries.
    #[schema(value_type = serde_json::Value)]
    value: Box<RawValue>,
    /// The checkpoint that keeps it; null before the first, and of the conversation.
    checkpoint_seq: Option<u32>,
    /// Where more of the conversation follows: the `cursor` of `/messages`.
    next_cursor: Option<String>,
}

/// What the last checkpoint of a run keeps. `key` names a member of it; `messages` is the conversation where the state has no
/// member of that name.
#[utoipa::path(
    get, path = "/agent-executions/{id}/state", tag = "runs",
    params(("key" = Option<String>, Query, description = "A member of the state, or `messages`")),
    responses((status = 200, body = StateView))
)]
pub(super) async fn state(caller: Caller, mut query: QueryParams) -> Result<axum::Json<StateView>, Problem> {
    let key = query.get("key")?;
    query.reject_unknown()?;
    let run = caller.run().await?;
    run.check_kept()?;
    let checkpoint_seq = (run.segment > 0).then_some(run.segment);
    let state = match checkpoint_seq {
        Some(sequence) => stored(&caller, run.new.id, sequence).await?,
        None => RawValue::NULL.to_owned(),
    };
    let Some(key) = key else {
        return Ok(axum::Json(StateView { key, value: state, checkpoint_seq, next_cursor: None }));
    };
    // A state need not be an object.
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(state.get()).unwrap_or_default();
    if let Some(value) = members.get(&key) {
        let (key, value) = (Some(key), value.clone());
        return Ok(axum::Json(StateView { key, value, checkpoint_seq, next_cursor: None }));
    }
    if key != MESSAGES {
        let names: Vec<_> = members.keys().map(String::as_str).chain([MESSAGES]).collect();
        let detail = format!("the state of the run has no {key:?}; it has {}", names.join(", "));
        return Err(Problem::not_found(detail));
    }
    let (value, next_cursor) = entries::conversation(&caller).await?;
    Ok(axum::Json(StateView { key: Some(key), value, checkpoint_seq: None, next_cursor }))
}

/// What a checkpoint keeps, as JSON.
async fn stored(caller: &Caller, run: ExecutionId, sequence: u32) -> Result<Box<RawValue>, Problem> {
    let Some(checkpoint) = find_checkpoint(caller, run, sequence).await? else {
        return Ok(RawValue::NULL.to_owned());
    };
    let state = &checkpoint.saved.state;
    if state.encoding != Encoding::Json || state.size() > MAX_STATE {
        let detail = format!(
            "the state has {} bytes and is no JSON or too large to look into; GET …/checkpoints/latest tells where its bytes are",
            state.size()
        );
        return Err(Problem::too_large(detail));
    }
    let bytes = match &state.body {
        Body::Inline(bytes) => bytes.clone(),
        _ => caller.service.storage.read_payload(caller.org(), state).await?,
    };
    let text = String::from_utf8(bytes.to_vec()).ok().and_then(|text| RawValue::from_string(text).ok());
    Ok(text.unwrap_or_else(|| RawValue::NULL.to_owned()))
}
