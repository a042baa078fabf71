//! Tokens for browsers: of one run or of one user, and short-lived.

use super::problem::Problem;
use super::request::{Caller, Json};
use axum::http::StatusCode;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{Scope, USER, is_user};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A token to be made: of a run or of a user.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateBrowserToken {
    /// The run, by its UUID or the id it was started with; what it spawns and hands off to belongs to it.
    run: Option<String>,
    /// The user: all runs whose metadata has this `user`, and what they spawn. No space and no comma.
    user: Option<String>,
    /// What may be done: `read` without it, or `speak`, which sends signals too: messages and answers.
    #[serde(default)]
    access: Reach,
    /// Seconds that it works: 900 without it, 60 to 86,400.
    expires_in_seconds: Option<u32>,
}

#[derive(Deserialize, ToSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schema(as = BrowserAccess)]
enum Reach {
    #[default]
    Read,
    Speak,
}

/// A token that was made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BrowserToken {
    /// By which `DELETE …/api-keys/{keyId}` ends it before its time.
    id: Uuid,
    /// Shown this once.
    token: String,
    /// What it allows.
    scopes: String,
    /// When it ends; no later than the key with which it was made.
    expires_at: Option<String>,
}

/// Makes a token for somebody's browser, which sees one run or the runs of one user, and nothing else. It is for pages that call
/// this server themselves; whoever makes it needs `exec:read`, and to let it speak `exec:signal` or `exec:write`.
#[utoipa::path(
    operation_id = "create_browser_token",
    post, path = "/browser-tokens", tag = "operators", request_body = CreateBrowserToken,
    responses((status = 201, body = BrowserToken))
)]
pub(super) async fn create(
    caller: Caller,
    Json(body): Json<CreateBrowserToken>,
) -> Result<(StatusCode, axum::Json<BrowserToken>), Problem> {
    let speaks = body.access == Reach::Speak;
    let scope = match (body.run, body.user) {
        (Some(id), None) => {
            let run = ExecutionId::of_key(caller.org(), &id);
            let found = caller.service.storage.execution(caller.org(), run).await;
            found.map_err(|error| Caller::about(&id, error))?;
            Scope::Run { run, speaks }
        }
        (None, Some(user)) if is_user(&user) => Scope::User { user, speaks },
        (None, Some(user)) => {
            return Err(Problem::invalid(format!(
                "the user {user:?} can not be named in a scope; start runs with a metadata.{USER} of 1 to 200 characters, none of \
                 them a space or a comma"
            )));
        }
        _ => return Err(Problem::invalid("give `run` or `user`, one of them")),
    };
    let (key, token) = caller.service.create_browser_token(&caller.by, scope, body.expires_in_seconds).await?;
    let made = BrowserToken {
        id: key.id.0,
        token,
        scopes: key.scopes.to_string(),
        expires_at: key.expires_at.map(|at| at.to_string()),
    };
    Ok((StatusCode::CREATED, axum::Json(made)))
}
