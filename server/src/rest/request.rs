//! Extractors of requests: the caller and its org, a JSON body, the query parameters of a listing.

use super::problem::Problem;
use super::session;
use crate::listen::Peer;
use crate::policy::{self, Need};
use crate::request_id::RequestId;
use crate::service::{Refusal, Requester, Service, StreamPermit};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Cursor, Execution, MAX_ID, PageRequest};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::str::FromStr;

/// A JSON body may have so many bytes; what is larger is uploaded as a payload.
pub(crate) const MAX_BODY: usize = 4 << 20;

/// The caller of a request, for the org in the path, with the other parameters of the path.
pub(crate) struct Caller {
    pub(crate) service: Service,
    pub(crate) by: Requester,
    path: HashMap<String, String>,
}

impl Caller {
    /// The org.
    pub(crate) fn org(&self) -> OrgId {
        self.by.org
    }

    /// A part of the path.
    pub(crate) fn named(&self, part: &str) -> &str {
        self.path.get(part).map_or("", String::as_str)
    }

    /// A part of the path that is an id or a number.
    pub(super) fn parsed<T: FromStr>(&self, part: &str, what: &str) -> Result<T, Problem> {
        let text = self.named(part);
        text.parse().map_err(|_| Problem::not_found(format!("{text:?} is no {what}; listings name those there are")))
    }

    /// The id of the run that the path names by its UUID or its key.
    pub(crate) fn execution(&self) -> ExecutionId {
        ExecutionId::of_key(self.org(), self.named("id"))
    }

    /// Counts an event stream until the permit is dropped.
    pub(crate) async fn open_stream(&self) -> Result<StreamPermit, Problem> {
        Ok(self.service.open_stream(self.org(), &self.by.who).await?)
    }

    /// The run that the path names.
    pub(crate) async fn run(&self) -> Result<Execution, Problem> {
        let found = self.service.storage.execution(self.org(), self.execution()).await;
        found.map_err(|error| self.about_run(error))
    }

    /// The problem of a call about the run that the path names: where there is none, it says by which name it was looked for.
    pub(super) fn about_run(&self, error: Error) -> Problem {
        Self::about(self.named("id"), error)
    }

    /// The same for a run that something else names.
    pub(super) fn about(id: &str, error: Error) -> Problem {
        if error.code() != Code::ExecutionNotFound {
            return error.into();
        }
        let detail = format!("no run of this org has the id {id:?}; GET /agent-executions lists them");
        Problem::from(Error::new(Code::ExecutionNotFound, detail))
    }
}

impl FromRequestParts<Service> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let (need, rate) = (policy::need_of_route(&parts.method, route), policy::rate_of_route(&parts.method, route));
        let from = parts.extensions.get::<Peer>().and_then(|peer| peer.0);
        let token = session::token(&parts.headers, &parts.uri)?;
        let identity = service.admit(token.as_deref(), from, need, route).await.map_err(refused)?;
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, service).await;
        let Path(path) = path.map_err(|error| Problem::invalid(error.body_text()))?;
        let named = path.get("org").map_or("", String::as_str);
        let org = service.org_named(named).await?;
        // A foreign org and one that does not exist look the same to a caller.
        let org = org.and_then(|org| identity.org(Some(org)));
        let org = org.ok_or_else(|| Problem::not_found(format!("no org {named:?} is open to this token")))?;
        if let Some(rate) = rate {
            service.count(rate, org, &identity).await?;
        }
        if let (Some(need @ (Need::ReadRun | Need::SignalRun)), Some(id)) = (need, path.get("id"))
            && !service.reaches(org, &identity, need, ExecutionId::of_key(org, id)).await?
        {
            return Err(unreachable_run(id));
        }
        let by = Requester { org, who: identity, request: RequestId::of(&parts.extensions) };
        Ok(Self { service: service.clone(), by, path })
    }
}

/// The problem of a token of one run or of one user that asks for another run: it is not said whether there is one.
fn unreachable_run(id: &str) -> Problem {
    let detail = format!("no run that this token is for has the id {id:?}; GET /api/session says what it is for");
    Problem::from(Error::new(Code::ExecutionNotFound, detail))
}

/// The problem of a caller that is not let in.
pub(crate) fn refused(refusal: Refusal) -> Problem {
    let unknown = |detail| Problem::from(Error::new(Code::Unauthenticated, detail));
    match refusal {
        Refusal::NoToken => unknown("send a token: `Authorization: Bearer TOKEN`"),
        Refusal::UnknownToken => unknown("the token is not known here; check FLOVYN_TOKEN"),
        Refusal::NotAllowed { needs, scopes } => Problem::denied(format!("this needs {needs}; the token has {scopes}")),
        Refusal::Failed(error) => error.into(),
    }
}

/// The key under which a caller may repeat a request.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=MAX_ID).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(Problem::invalid(format!("an Idempotency-Key has 1 to {MAX_ID} visible ASCII characters"))),
    }
}

/// A JSON body; an empty one counts as `{}`.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Service> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
        let bytes = Bytes::from_request(request, service).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(format!(
                "the body is over the limit of {MAX_BODY} bytes; send large values by PUT /payloads, then by reference"
            )),
            _ => Problem::invalid(error.body_text()),
        })?;
        if !bytes.is_empty() && !kind.as_deref().is_some_and(is_json) {
            let detail = "the body is not declared as JSON; send `Content-Type: application/json`";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, detail));
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let read = serde_json::from_slice(text);
        read.map(Self).map_err(|error| Problem::invalid(format!("the body is not as asked for: {error}")))
    }
}

fn is_json(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind == b"application/json" || (kind.starts_with(b"application/") && kind.ends_with(b"+json"))
}

/// Query parameters. Handlers take out those they know; the rest is rejected.
pub(crate) struct QueryParams(Vec<(String, String)>);

impl FromRequestParts<Service> for QueryParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, service).await;
        query.map(|Query(pairs)| Self(pairs)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

impl QueryParams {
    /// Every value of a parameter.
    pub(super) fn get_all(&mut self, name: &str) -> Vec<String> {
        self.0.extract_if(.., |(given, _)| given == name).map(|(_, value)| value).collect()
    }

    /// The single value of a parameter.
    pub(crate) fn get(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match &mut self.get_all(name)[..] {
            [] => Ok(None),
            [value] => Ok(Some(std::mem::take(value))),
            _ => Err(Problem::invalid(format!("the parameter {name:?} is given twice; give it once"))),
        }
    }

    /// The single value of a parameter that has two names.
    pub(super) fn get_either(&mut self, name: &str, also: &str) -> Result<Option<String>, Problem> {
        match (self.get(name)?, self.get(also)?) {
            (Some(_), Some(_)) => {
                Err(Problem::invalid(format!("the parameters {name:?} and {also:?} are the same; give one of them")))
            }
            (given, other) => Ok(given.or(other)),
        }
    }

    /// The single value of a parameter, parsed.
    pub(crate) fn parse<T: FromStr>(&mut self, name: &str, what: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.get(name)? else { return Ok(None) };
        let read = text.parse().map(Some);
        read.map_err(|_| Problem::invalid(format!("the parameter {name}={text} is not {what}")))
    }

    /// The parameters whose name starts with a prefix, by the rest of their names.
    pub(super) fn prefixed(&mut self, prefix: &str) -> Vec<(String, String)> {
        let taken = self.0.extract_if(.., |(name, _)| name.starts_with(prefix));
        taken.map(|(name, value)| (name[prefix.len()..].to_owned(), value)).collect()
    }

    /// The page of a listing.
    pub(super) fn page(&mut self) -> Result<PageRequest, Problem> {
        let limit = self.parse("limit", "a number from 1 to 1,000")?.unwrap_or(PageRequest::default().limit);
        Ok(PageRequest { limit, after: self.get("cursor")?.map(Cursor) })
    }

    /// Rejects the remaining parameters: a misspelt filter would be ignored silently.
    pub(crate) fn reject_unknown(&self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Problem::invalid(format!("the parameter {name:?} means nothing here; leave it out")))
            }
        }
    }
}
