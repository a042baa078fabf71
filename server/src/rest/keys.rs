//! Keys of an org. A key with the scope `keys` may create and revoke others, but never gives more than it has itself.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams};
use axum::http::StatusCode;
use flovyn_core::error::Code;
use flovyn_core::id::KeyId;
use flovyn_core::model::{ApiKey, NewKey, Scopes, TokenHash, fresh_token};
use flovyn_core::storage::Directory;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(86_400);
/// The longest name of a key, in characters.
pub(super) const KEY_NAME: usize = 200;
/// Days that a key works where nothing is said, and at most.
pub(super) const DAYS: (u32, u32) = (90, 365);
/// What a key may do where nothing is said.
const SCOPES: &str = "member,worker";

/// A key. Its token is shown when it is made, and never again.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyView {
    id: Uuid,
    name: String,
    /// What it allows, separated by spaces.
    scopes: String,
    created_at: String,
    /// When it stops working; null: never.
    expires_at: Option<String>,
    revoked_at: Option<String>,
}

fn view(key: &ApiKey) -> KeyView {
    KeyView {
        id: key.id.0,
        name: key.name.clone(),
        scopes: key.scopes.to_string(),
        created_at: key.created_at.to_string(),
        expires_at: key.expires_at.map(|at| at.to_string()),
        revoked_at: key.revoked_at.map(|at| at.to_string()),
    }
}

/// A key to be made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateKey {
    /// What people call it: 1 to 200 characters.
    name: String,
    /// Roles or scopes, separated by commas or spaces; `member,worker` without it. None that the caller's own key lacks.
    scopes: Option<String>,
    /// Days that it works: 90 without it, at most 365.
    expires_in_days: Option<u32>,
    /// It works until it is revoked.
    #[serde(default)]
    never_expires: bool,
}

/// A key that was made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreatedKey {
    #[serde(flatten)]
    key: KeyView,
    /// Shown this once: the store keeps a hash of it.
    token: String,
}

fn directory(caller: &Caller) -> Result<&dyn Directory, Problem> {
    let missing = || Problem::not_found("this server keeps no keys; its backend knows nobody");
    caller.service.storage.directory().ok_or_else(missing)
}

/// Lists keys, oldest first, those that no longer work included.
#[utoipa::path(
    operation_id = "list_keys",
    get, path = "/api-keys", tag = "operators",
    responses((status = 200, body = Items<KeyView>))
)]
pub(super) async fn list(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<KeyView>>, Problem> {
    query.reject_unknown()?;
    let keys = directory(&caller)?.keys(caller.org()).await?;
    Ok(axum::Json(Items { items: keys.iter().map(view).collect(), next_cursor: None }))
}

/// Makes a key.
#[utoipa::path(
    operation_id = "create_key",
    post, path = "/api-keys", tag = "operators", request_body = CreateKey,
    responses((status = 201, body = CreatedKey))
)]
pub(super) async fn create(
    caller: Caller,
    Json(body): Json<CreateKey>,
) -> Result<(StatusCode, axum::Json<CreatedKey>), Problem> {
    if !(1..=KEY_NAME).contains(&body.name.chars().count()) {
        return Err(Problem::invalid(format!("the name of a key has 1 to {KEY_NAME} characters")));
    }
    let scopes: Scopes = body.scopes.as_deref().unwrap_or(SCOPES).parse()?;
    if !caller.by.who.scopes().cover(&scopes) {
        let detail = format!(
            "a key gives no more than it has: {scopes} was asked for, the caller has {}",
            caller.by.who.scopes()
        );
        return Err(Problem::denied(detail));
    }
    let expires_in = match (body.expires_in_days, body.never_expires) {
        (None, true) => None,
        (days, false) if (1..=DAYS.1).contains(&days.unwrap_or(DAYS.0)) => Some(DAY * days.unwrap_or(DAYS.0)),
        _ => {
            let max = DAYS.1;
            return Err(Problem::invalid(format!("give expiresInDays from 1 to {max}, or neverExpires alone")));
        }
    };
    let expires_in = limit_to_creator(&caller, expires_in, body.expires_in_days.is_none() && !body.never_expires)?;
    let token = fresh_token();
    let (org, hash, actor) = (caller.org(), TokenHash::of(&token), caller.by.to_string());
    let not_after = caller.by.who.expires_at();
    let key = directory(&caller)?
        .create_key(NewKey { org, name: body.name, scopes, expires_in, not_after, hash, actor })
        .await?;
    Ok((StatusCode::CREATED, axum::Json(CreatedKey { key: view(&key), token })))
}

/// How long a key lives that a key makes: what leaks shall not outlive the day on which it ends. `is_left_open` tells that
/// nobody asked for a time.
fn limit_to_creator(
    caller: &Caller,
    requested: Option<Duration>,
    is_left_open: bool,
) -> Result<Option<Duration>, Problem> {
    let Some(end) = caller.by.who.expires_at() else { return Ok(requested) };
    let remaining = end.since(caller.service.storage.clock().now());
    if requested.is_some_and(|requested| requested <= remaining) {
        return Ok(requested);
    }
    if is_left_open {
        return Ok(Some(remaining));
    }
    let detail =
        format!("a key makes none that outlives it, and this one ends at {end}: give fewer expiresInDays, or none");
    Err(Problem::denied(detail))
}

/// Revokes a key: every server refuses it within five seconds. One that was revoked before stays as it is.
#[utoipa::path(
    operation_id = "revoke_key",
    delete, path = "/api-keys/{keyId}", tag = "operators",
    responses((status = 200, body = KeyView))
)]
pub(super) async fn revoke(caller: Caller) -> Result<axum::Json<KeyView>, Problem> {
    let id = KeyId(caller.parsed("keyId", "id of a key")?);
    let revoked = directory(&caller)?.revoke_key(caller.org(), id, &caller.by.to_string()).await;
    let key = revoked.map_err(|error| match error.code() {
        Code::NotFound => Problem::not_found(format!("no key of this org has the id {id}")),
        _ => error.into(),
    })?;
    Ok(axum::Json(view(&key)))
}
