//! Machines of an org, and how a computer is let in as one.

use super::executions::Items;
use super::problem::{Problem, ProblemBody};
use super::request::{Caller, Json, QueryParams};
use crate::access::bearer;
use crate::listen::Peer;
use crate::service::Service;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OrgId;
use flovyn_core::storage::machines::Machine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

/// A machine: a computer that was let in by name. Its worker serves the queue `machine/NAME`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Machine)]
pub(super) struct MachineView {
    name: String,
    /// Whose it is, as who approved it says.
    owner: String,
    /// The id of its key.
    key: Uuid,
    /// What it offers, as it says: `host`, `version`, `kinds`, `workspaces`, ….
    #[schema(value_type = Object)]
    offers: Map<String, Value>,
    /// Whether it may work: neither it nor its key was revoked, and its key has not expired.
    live: bool,
    created_at: String,
    /// Its last sign of life, to ten seconds; null before the first.
    seen_at: Option<String>,
    revoked_at: Option<String>,
    /// When its key ends; null: never.
    expires_at: Option<String>,
}

fn view(machine: &Machine, now: Timestamp) -> MachineView {
    MachineView {
        name: machine.name.clone(),
        owner: machine.owner.clone(),
        key: machine.key.0,
        offers: serde_json::from_str(&machine.offers).unwrap_or_default(),
        live: machine.is_live(now),
        created_at: machine.created_at.to_string(),
        seen_at: machine.seen_at.map(|at| at.to_string()),
        revoked_at: machine.revoked_at.map(|at| at.to_string()),
        expires_at: machine.expires_at.map(|at| at.to_string()),
    }
}

/// Lists machines, oldest first, those that were revoked included.
#[utoipa::path(
    operation_id = "list_machines",
    get, path = "/machines", tag = "machines",
    responses((status = 200, body = Items<MachineView>))
)]
pub(super) async fn list(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<MachineView>>, Problem> {
    query.reject_unknown()?;
    let storage = &caller.service.storage;
    let (machines, now) = (storage.machines(caller.org()).await?, storage.clock().now());
    Ok(axum::Json(Items { items: machines.iter().map(|machine| view(machine, now)).collect(), next_cursor: None }))
}

/// Revokes a machine with its key; what it held is free at once, and its name too.
#[utoipa::path(
    operation_id = "revoke_machine",
    delete, path = "/machines/{machine}", tag = "machines",
    responses((status = 200, body = MachineView))
)]
pub(super) async fn revoke(caller: Caller) -> Result<axum::Json<MachineView>, Problem> {
    let machine = caller.service.revoke_machine(&caller.by, caller.named("machine")).await?;
    Ok(axum::Json(view(&machine, caller.service.storage.clock().now())))
}

/// How a machine is approved.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Approve {
    /// Another name than the machine asked for.
    name: Option<String>,
    /// Whose machine it is; the name of the caller's key without it.
    owner: Option<String>,
}

/// A machine that was approved; it has its key once it has collected it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ApprovedMachine)]
pub(super) struct ApprovedView {
    name: String,
    owner: String,
    /// What the computer said of itself, and the address it asked from.
    host: String,
}

/// Approves the code that a machine shows, for this org.
#[utoipa::path(
    operation_id = "approve_machine",
    post, path = "/machines/pairings/{code}/approve", tag = "machines", request_body = Approve,
    responses((status = 200, body = ApprovedView))
)]
pub(super) async fn approve(caller: Caller, Json(body): Json<Approve>) -> Result<axum::Json<ApprovedView>, Problem> {
    let code = caller.named("code").to_owned();
    let approved = caller.service.approve_pairing(&caller.by, code, body.name, body.owner).await?;
    Ok(axum::Json(ApprovedView { name: approved.name, owner: approved.owner, host: approved.host }))
}

/// A computer that asks to be let in.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RequestPairing {
    /// The name it wants: 1 to 63 letters, digits, `-`, `_` and `.`.
    name: String,
    /// What it says of itself to whoever approves it.
    #[serde(default)]
    host: String,
}

/// A pairing that has begun.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Pairing)]
pub(crate) struct PairingView {
    /// For the person who approves it.
    #[schema(example = "BCDF-GHJK")]
    code: String,
    /// For the machine alone.
    secret: String,
    expires_at: String,
}

/// How a pairing stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PairingState)]
pub(crate) struct PairingStateView {
    /// `waiting`, or `paired`: then the rest is there, this once.
    #[schema(example = "waiting")]
    state: &'static str,
    name: Option<String>,
    /// The org's id, `default` for that of calls that name none.
    org: Option<String>,
    token: Option<String>,
}

/// Asks to be let in as a machine: a code for a person, and a secret for the machine, both for ten minutes. Needs no token; an
/// address may ask ten times a minute.
#[utoipa::path(
    operation_id = "request_pairing",
    post, path = "/machines/pairings", tag = "machines", request_body = RequestPairing,
    responses(
        (status = 201, body = PairingView),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn request(
    State(service): State<Service>,
    peer: Option<Extension<Peer>>,
    Json(body): Json<RequestPairing>,
) -> Result<(StatusCode, axum::Json<PairingView>), Problem> {
    let from = peer.and_then(|Extension(peer)| peer.0);
    let pairing = service.request_pairing(from, &body.name, &body.host).await?;
    let expires_at = pairing.expires_at.to_string();
    let view = PairingView { code: pairing.code, secret: pairing.secret, expires_at };
    Ok((StatusCode::CREATED, axum::Json(view)))
}

/// How a pairing stands, for the machine, which sends its secret as a bearer token. Once it is approved, the answer has the
/// machine's token, and the secret ends.
#[utoipa::path(
    operation_id = "collect_pairing",
    get, path = "/machines/pairings", tag = "machines", security(("bearer" = [])),
    responses(
        (status = 200, body = PairingStateView),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn collect(
    State(service): State<Service>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<axum::Json<PairingStateView>, Problem> {
    let missing =
        || Error::new(Code::Unauthenticated, "send the secret of the pairing: `Authorization: Bearer SECRET`");
    let secret = bearer(&headers).ok_or_else(missing)?;
    let from = peer.and_then(|Extension(peer)| peer.0);
    let Some(paired) = service.collect_pairing(from, secret).await? else {
        return Ok(axum::Json(PairingStateView { state: "waiting", name: None, org: None, token: None }));
    };
    let org = if paired.org == OrgId::DEFAULT { "default".to_owned() } else { paired.org.to_string() };
    let (name, token) = (Some(paired.name), Some(paired.token));
    Ok(axum::Json(PairingStateView { state: "paired", name, org: Some(org), token }))
}
