//! Keys of an org.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams};
use crate::service::KeyLifetime;
use axum::http::StatusCode;
use flovyn_core::id::KeyId;
use flovyn_core::model::ApiKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

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

/// Lists keys, oldest first, those that no longer work included.
#[utoipa::path(
    operation_id = "list_keys",
    get, path = "/api-keys", tag = "operators",
    responses((status = 200, body = Items<KeyView>))
)]
pub(super) async fn list(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<KeyView>>, Problem> {
    query.reject_unknown()?;
    let keys = caller.service.keys(caller.org()).await?;
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
    let lifetime = match (body.expires_in_days, body.never_expires) {
        (None, false) => KeyLifetime::Usual,
        (None, true) => KeyLifetime::Unlimited,
        (Some(days), false) => KeyLifetime::Days(days),
        (Some(_), true) => return Err(Problem::invalid("give expiresInDays, or neverExpires alone")),
    };
    let (key, token) = caller.service.create_key(&caller.by, body.name, body.scopes.as_deref(), lifetime).await?;
    Ok((StatusCode::CREATED, axum::Json(CreatedKey { key: view(&key), token })))
}

/// Revokes a key: every server refuses it within five seconds. One that was revoked before stays as it is.
#[utoipa::path(
    operation_id = "revoke_key",
    delete, path = "/api-keys/{keyId}", tag = "operators",
    responses((status = 200, body = KeyView))
)]
pub(super) async fn revoke(caller: Caller) -> Result<axum::Json<KeyView>, Problem> {
    let id = KeyId(caller.parsed("keyId", "id of a key")?);
    Ok(axum::Json(view(&caller.service.revoke_key(&caller.by, id).await?)))
}
