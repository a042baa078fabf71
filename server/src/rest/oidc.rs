//! How a browser signs in by the word of an issuer of OpenID Connect: there, and back with a code.

use super::problem::{Problem, ProblemBody};
use super::request::QueryParams;
use crate::listen::Peer;
use crate::oidc::{CALLBACK, Flow, Oidc, Refused};
use crate::service::Service;
use crate::session::FlowCookie;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error};
use serde::Serialize;
use std::net::IpAddr;
use tracing::warn;
use utoipa::ToSchema;

/// The ways in.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SignInMethods {
    /// Always: a key signs in by `POST /api/session`.
    token: bool,
    /// The issuer, if the server has one.
    oidc: Option<OidcMethod>,
}

/// An issuer of OpenID Connect.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OidcMethod {
    /// As people know it.
    label: String,
    /// Where a browser goes to sign in; with `next`, the path of a page, it comes back to that.
    href: &'static str,
}

/// Where a browser begins.
const BEGIN: &str = "/api/session/oidc";

/// How a browser can be signed in. Needs no token.
#[utoipa::path(
    operation_id = "sign_in_methods",
    get, path = "/api/session/methods", tag = "server",
    responses((status = 200, body = SignInMethods))
)]
pub(crate) async fn methods(State(service): State<Service>) -> axum::Json<SignInMethods> {
    let oidc = service.oidc.as_ref().map(|oidc| OidcMethod { label: oidc.label().to_owned(), href: BEGIN });
    axum::Json(SignInMethods { token: true, oidc })
}

/// Sends a browser to the issuer, which sends it back to the callback. Needs no token.
#[utoipa::path(
    operation_id = "sign_in_by_oidc",
    get, path = "/api/session/oidc", tag = "server",
    params(("next" = Option<String>, Query, description = "The path of the page to come back to; `/` without one")),
    responses(
        (status = 303, description = "To the issuer, or to the page for signing in with `#refused=` and why"),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn begin(
    State(service): State<Service>,
    mut query: QueryParams,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let oidc = oidc(&service)?;
    let next = query.get("next")?.unwrap_or_default();
    query.reject_unknown()?;
    let (to, flow) = match oidc.begin(&next).await {
        Ok(begun) => begun,
        Err(refused) => return Ok(refuse(oidc, refused, &headers, &uri)),
    };
    let cookie = flow.write().and_then(|flow| FlowCookie::of(&flow, CALLBACK, oidc.is_encrypted(), &headers, &uri));
    Ok(sent_on(&to, [cookie]))
}

/// Where the issuer sends a browser back to. It is signed in, and sent on to the page that it wanted.
#[utoipa::path(
    operation_id = "oidc_callback",
    get, path = "/api/session/oidc/callback", tag = "server",
    params(
        ("code" = Option<String>, Query), ("state" = Option<String>, Query),
        ("error" = Option<String>, Query, description = "Why the issuer lets nobody in")
    ),
    responses(
        (status = 303, description = "To the page, or to that for signing in with `#refused=` and why"),
        (status = "default", description = "Refused or failed", content_type = "application/problem+json", body = ProblemBody)
    )
)]
pub(crate) async fn callback(
    State(service): State<Service>,
    peer: Option<Extension<Peer>>,
    mut query: QueryParams,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let oidc = oidc(&service)?;
    let from = peer.and_then(|Extension(peer)| peer.0);
    // An issuer may add parameters of its own.
    let (code, state, error) = (query.get("code")?, query.get("state")?, query.get("error")?);
    if let Some(error) = error {
        warn!(%error, "the issuer lets nobody in");
        return Ok(refuse(oidc, Refused::Denied, &headers, &uri));
    }
    let flow = FlowCookie::read(&headers, &uri).and_then(|flow| Flow::read(&flow));
    let (Some(code), Some(state), Some(flow)) = (code, state, flow) else {
        return Ok(refuse(oidc, Refused::Stale, &headers, &uri));
    };
    match sign_in(&service, oidc, from, &flow, (&state, code), &headers, &uri).await? {
        Ok(response) => Ok(response),
        Err(refused) => Ok(refuse(oidc, refused, &headers, &uri)),
    }
}

async fn sign_in(
    service: &Service,
    oidc: &Oidc,
    from: Option<IpAddr>,
    flow: &Flow,
    (state, code): (&str, String),
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Result<Response, Refused>, Problem> {
    // Who makes up codes makes this server ask the issuer.
    if let Some(ip) = from {
        service.throttle.check_auth_failures(ip)?;
    }
    let person = match oidc.end(flow, state, code, service.storage.clock().now()).await {
        Ok(person) => person,
        Err(refused) => {
            if let Some(ip) = from {
                service.throttle.record_auth_failure(ip);
            }
            return Ok(Err(refused));
        }
    };
    let (_, session) = service.sign_in_person(from, oidc, person).await?;
    let session = session.cookie_over(oidc.is_encrypted(), headers, uri, oidc.lasts());
    Ok(Ok(sent_on(&flow.next, [session, forgotten(oidc, headers, uri)])))
}

fn oidc(service: &Service) -> Result<&Oidc, Problem> {
    let missing = "this server has no issuer of OpenID Connect; sign in with a key, or write [oidc] in its file";
    service.oidc.as_deref().ok_or_else(|| Problem::from(Error::new(Code::NotFound, missing)))
}

/// Sends a browser to the page for signing in, which has words for why.
fn refuse(oidc: &Oidc, why: Refused, headers: &HeaderMap, uri: &Uri) -> Response {
    sent_on(&format!("/sign-in#refused={}", why.word()), [forgotten(oidc, headers, uri)])
}

fn forgotten(oidc: &Oidc, headers: &HeaderMap, uri: &Uri) -> Option<HeaderValue> {
    FlowCookie::of("", CALLBACK, oidc.is_encrypted(), headers, uri)
}

fn sent_on(to: &str, cookies: impl IntoIterator<Item = Option<HeaderValue>>) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    if let Ok(to) = HeaderValue::from_str(to) {
        headers.insert(header::LOCATION, to);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for cookie in cookies.into_iter().flatten() {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}
