//! How a browser signs in and out, and who it is.

use super::problem::{Problem, ProblemBody};
use super::request::{Json, refused};
use crate::access::{Identity, bearer};
use crate::listen::Peer;
use crate::policy::Need;
use crate::service::{SESSION_LIFETIME, Service, SignIn};
use crate::session::{Session, is_foreign};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flovyn_core::id::OrgId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// With what a browser signs in: one of the two.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SignInBody {
    /// The code of a link; it works once.
    code: Option<String>,
    /// A key.
    token: Option<String>,
}

/// Who is signed in.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// The org's id, `default` for that of calls that name none.
    org: String,
    /// As the audit calls the caller.
    name: String,
    /// What is allowed, separated by spaces.
    scopes: String,
    /// When the key ends; null: never.
    expires_at: Option<String>,
}

fn view(who: &Identity) -> SessionView {
    let org = who.own_org().filter(|org| *org != OrgId::DEFAULT);
    SessionView {
        org: org.map_or_else(|| "default".to_owned(), |org| org.to_string()),
        name: who.name().to_string(),
        scopes: who.scopes().to_string(),
        expires_at: who.expires_at().map(|at| at.to_string()),
    }
}

/// Signs a browser in with a key or with the code of a link. The answer sets a cookie that no script reads; the token is never
/// shown. `flovyn dev` prints such a link.
#[utoipa::path(
    operation_id = "sign_in",
    post, path = "/api/session", tag = "server", request_body = SignInBody,
    responses(
        (status = 200, body = SessionView),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn sign_in(
    State(service): State<Service>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    uri: Uri,
    Json(body): Json<SignInBody>,
) -> Result<Response, Problem> {
    if is_foreign(&headers, &uri) {
        return Err(foreign());
    }
    let with = match (&body.code, &body.token) {
        (Some(code), None) => SignIn::Code(code),
        (None, Some(token)) => SignIn::Token(token.trim()),
        _ => return Err(Problem::invalid("give `code` or `token`, one of them")),
    };
    let from = peer.and_then(|Extension(peer)| peer.0);
    let (who, session) = service.sign_in(from, with).await?;
    let cookie = session.cookie(&headers, &uri, SESSION_LIFETIME);
    Ok((cookies(cookie), axum::Json(view(&who))).into_response())
}

/// Who the caller is, by its cookie or its token.
#[utoipa::path(
    operation_id = "session",
    get, path = "/api/session", tag = "server", security(("bearer" = [])),
    responses(
        (status = 200, body = SessionView),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn current(
    State(service): State<Service>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<axum::Json<SessionView>, Problem> {
    let from = peer.and_then(|Extension(peer)| peer.0);
    let token = token(&headers, &uri)?;
    let who = service.admit(token.as_deref(), from, Some(Need::Token), "session").await.map_err(refused)?;
    Ok(axum::Json(view(&who)))
}

/// Signs the browser out: it forgets its key, which ends where it was made for this browser alone.
#[utoipa::path(
    operation_id = "sign_out",
    delete, path = "/api/session", tag = "server",
    responses(
        (status = 204, description = "It is signed out, or was not signed in"),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn sign_out(
    State(service): State<Service>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    if is_foreign(&headers, &uri) {
        return Err(foreign());
    }
    if let Some(session) = Session::of(&headers, &uri) {
        service.sign_out(&session).await?;
    }
    Ok((StatusCode::NO_CONTENT, cookies(Session::forgotten(&headers, &uri))).into_response())
}

/// The token of a request: that of its header, else that of a browser's cookie.
pub(super) fn token(headers: &HeaderMap, uri: &Uri) -> Result<Option<String>, Problem> {
    if let Some(token) = bearer(headers) {
        return Ok(Some(token.to_owned()));
    }
    match Session::of(headers, uri) {
        Some(_) if is_foreign(headers, uri) => Err(foreign()),
        session => Ok(session.map(|session| session.token)),
    }
}

fn foreign() -> Problem {
    Problem::denied(
        "a page of another origin sent this, and a browser's sign-in counts for the server's own pages alone; where a proxy gives \
         this server another name than browsers call it by, let it pass Host on",
    )
}

fn cookies(cookie: Option<HeaderValue>) -> HeaderMap {
    cookie.map(|cookie| (header::SET_COOKIE, cookie)).into_iter().collect()
}
