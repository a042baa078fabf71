//! `flovyn.v2` over gRPC: reads messages, asks the storage, writes messages. Decides nothing. Other protocols are served beside it.

mod agents;
mod commit_memory;
mod health;
mod hint_streams;
mod lost_leases;
mod machines;
mod payloads;
mod streams;
mod worker;

use self::commit_memory::CommitMemory;
use self::hint_streams::HintStreams;
pub use self::streams::ResponseStream;
use crate::access::Identity;
use crate::extensions::Protocol;
use crate::faults;
use crate::limits::retry_after;
use crate::listen::ListenerCloser;
use crate::policy::Need;
use crate::request_id::{self, RequestId};
use crate::service::{Refusal, Requester, Service};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::storage::remote::ORG_HEADER;
use flovyn_core::sync::Mutex;
use flovyn_core::wire::v2::agents_server::AgentsServer;
use flovyn_core::wire::v2::machines_server::MachinesServer;
use flovyn_core::wire::v2::worker_server::WorkerServer;
use flovyn_core::wire::{MAX_MESSAGE, status_of_error};
use futures::future::join3;
use futures::{Stream, StreamExt, stream};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tonic::{Request, Status};
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

/// Calls at a time on one connection; a client with more waits.
const STREAMS: u32 = 1_024;
/// Bytes of the headers of a call.
const HEADERS: u32 = 16 << 10;
/// How long a connection to a draining server lives before it gets GOAWAY: its first calls are answered.
const DRAINING_CONNECTION_AGE: Duration = Duration::from_millis(500);
/// How long the handshakes of the last connections may take.
const LAST_HANDSHAKES: Duration = Duration::from_secs(1);

/// The state that the gRPC services share.
#[derive(Clone)]
struct Grpc {
    service: Service,
    hint_streams: HintStreams,
    commit_memory: CommitMemory,
}

/// Serves connections until the server stops, and then the calls in flight. When the server drains, its connections get GOAWAY at
/// once, which cuts no call; connections that are opened after that get it a moment later.
pub(crate) async fn serve<C>(
    service: Service,
    connections: impl Stream<Item = std::io::Result<C>> + Send + Unpin,
    closer: ListenerCloser,
) -> Result<()>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let grpc = Grpc { service, hint_streams: HintStreams::default(), commit_memory: CommitMemory::default() };
    let protocols = grpc.service.protocols.clone();
    let (health, healthy) = health::health_service(&protocols).await;
    let agents = AgentsServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE);
    let routes = Routes::new(agents.max_encoding_message_size(MAX_MESSAGE))
        .add_service(WorkerServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(MachinesServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE));
    let routes = protocols
        .iter()
        .fold(routes, |routes, protocol| protocol.add_to(routes, &grpc.service))
        .add_service(healthy)
        .add_service(reflection(&protocols)?)
        .into_axum_router()
        .layer(from_fn(contain_grpc))
        .layer(from_fn_with_state(grpc.service.clone(), admit))
        .layer(from_fn_with_state(grpc.service.clone(), count_calls))
        .layer(from_fn(request_id::mark));
    // Two servers read from it, and either may be the one that sees its end.
    let connections = Mutex::new(connections.fuse());
    let next = || stream::poll_fn(|cx| connections.lock().poll_next_unpin(cx));
    let before_drain = protocol().add_routes(Routes::from(routes.clone()));
    let before_drain = before_drain.serve_with_incoming_shutdown(next(), grpc.service.drained());
    let while_draining = async {
        grpc.service.drained().await;
        let stop = async {
            grpc.service.stopped().await;
            closer.close();
            tokio::time::sleep(LAST_HANDSHAKES).await;
        };
        let while_draining =
            protocol().max_connection_age(DRAINING_CONNECTION_AGE).add_routes(Routes::from(routes.clone()));
        while_draining.serve_with_incoming_shutdown(next(), stop).await
    };
    let ((), before_drain, while_draining) =
        join3(health::maintain(health, &grpc.service), before_drain, while_draining).await;
    before_drain
        .and(while_draining)
        .map_err(|error| Error::new(Code::StorageUnavailable, format!("the gRPC listener broke: {error}")))
}

/// The limits of every connection.
fn protocol() -> Server {
    Server::builder()
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(4 << 20)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .max_concurrent_streams(Some(STREAMS))
        .http2_max_header_list_size(Some(HEADERS))
}

impl Grpc {
    /// The caller of a request.
    fn identity<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        identity(request)
    }

    /// The caller, its org and the id of its request.
    fn requester<T>(&self, request: &Request<T>) -> Result<Requester, Status> {
        let (org, who) = (self.org(request)?, self.identity(request)?);
        Ok(Requester { org, who, request: RequestId::of(request.extensions()) })
    }

    /// Resolves when a caller's stream must end, with its last status: none where the server stops, since the client goes on with
    /// another server.
    fn ended(&self, who: &Identity) -> impl Future<Output = Option<Status>> + Send + 'static {
        let (stopped, lapsed) = (self.service.stopped(), self.service.access.until_revoked(who));
        async {
            tokio::select! {
                () = stopped => None,
                () = lapsed => Some(Status::unauthenticated("the key was revoked or has expired; send another token")),
            }
        }
    }

    /// The org of a call.
    fn org<T>(&self, request: &Request<T>) -> Result<OrgId, Status> {
        org(request)
    }
}

/// The caller of a request: [`admit`] has authenticated it.
///
/// Errors: `UNAUTHENTICATED` for a request that was not let in.
pub fn identity<T>(request: &Request<T>) -> Result<Identity, Status> {
    let identity = request.extensions().get::<Identity>().cloned();
    identity.ok_or_else(|| Status::unauthenticated("nobody was admitted"))
}

/// The org of a request.
///
/// Errors: `PERMISSION_DENIED` where it names one that is not its caller's.
pub fn org<T>(request: &Request<T>) -> Result<OrgId, Status> {
    let identity = identity(request)?;
    resolve_org(&identity, request.metadata().get(ORG_HEADER).map(|named| named.as_encoded_bytes()))
}

/// The org of a call, whether the caller names one in the header or not.
fn resolve_org(identity: &Identity, named: Option<&[u8]>) -> Result<OrgId, Status> {
    let parse = |named: &[u8]| std::str::from_utf8(named).ok()?.parse().ok();
    let wrong = || Status::invalid_argument(format!("the header {ORG_HEADER} is no id; send the org's UUID"));
    let named = named.map(|named| parse(named).ok_or_else(wrong)).transpose()?;
    identity.org(named).ok_or_else(|| Status::permission_denied("the token is of another org than the call names"))
}

/// Tells tools such as grpcurl what is served.
fn reflection(protocols: &[Arc<dyn Protocol>]) -> Result<ServerReflectionServer<impl ServerReflection + use<>>> {
    let described = tonic_reflection::server::Builder::configure();
    protocols
        .iter()
        .fold(described, |described, protocol| described.register_encoded_file_descriptor_set(protocol.descriptors()))
        .register_encoded_file_descriptor_set(flovyn_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| Error::new(Code::StorageUnavailable, format!("the services cannot be described: {error}")))
}

/// Authenticates and authorizes a call; no other call reaches a method.
async fn admit(
    State(service): State<Service>,
    mut request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let header = request.headers().get("authorization").and_then(|header| header.to_str().ok());
    let token = header.and_then(|header| header.strip_prefix("Bearer ")).map(str::to_owned);
    let path = request.uri().path().to_owned();
    let named = request.headers().get(ORG_HEADER).cloned();
    let from = request.extensions().get::<TcpConnectInfo>().and_then(|peer| Some(peer.remote_addr()?.ip()));
    match identify(&service, &path, token, from, named).await {
        Ok(None) => next.run(request).await,
        Ok(Some(identity)) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(status) => status.into_http(),
    }
}

async fn identify(
    service: &Service,
    path: &str,
    token: Option<String>,
    from: Option<IpAddr>,
    named: Option<HeaderValue>,
) -> Result<Option<Identity>, Status> {
    let Some(need) = service.need_of_method(path) else {
        return Err(Status::unimplemented(format!("this server has no method {path}")));
    };
    if need == Need::Nothing {
        return Ok(None);
    }
    let admitted = service.admit(token.as_deref(), from, Some(need), path).await;
    let identity = admitted.map_err(|refusal| match refusal {
        Refusal::NoToken => Status::unauthenticated("the call has no token; send `authorization: Bearer TOKEN`"),
        Refusal::UnknownToken => Status::unauthenticated("the token is not known here; check FLOVYN_TOKEN"),
        Refusal::NotAllowed { needs, scopes } => {
            Status::permission_denied(format!("{path} needs {needs}; the token has {scopes}"))
        }
        Refusal::Failed(error) => to_status(error),
    })?;
    if let Some(rate) = service.rate_of_method(path) {
        let org = resolve_org(&identity, named.as_ref().map(HeaderValue::as_bytes))?;
        service.count(rate, org, &identity).await.map_err(to_status)?;
    }
    Ok(Some(identity))
}

/// Answers a call whose code panics.
async fn contain_grpc(request: axum::extract::Request, next: Next) -> axum::response::Response {
    faults::contained(request, next, |fault| status_of_error(&fault).into_http()).await
}

/// Counts the answers by method. One that fails after it began counts as `Ok`.
async fn count_calls(
    State(service): State<Service>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let path = request.uri().path();
    let is_known = path.starts_with("/flovyn.") && service.need_of_method(path).is_some();
    let method = if is_known { path.trim_start_matches('/').to_owned() } else { "other".to_owned() };
    let answer = next.run(request).await;
    let status = answer.headers().get("grpc-status");
    let code = status.map_or(tonic::Code::Ok, |code| tonic::Code::from_bytes(code.as_bytes()));
    service.metrics.answered(method, format!("{code:?}"));
    answer
}

/// The gRPC status of an error of a check of access. Where the token allows too little, clients add which one they have sent, and
/// where; they leave alone what has a code of its own.
fn refused(error: Error) -> Status {
    match error.code() {
        Code::PermissionDenied => Status::permission_denied(error.message()),
        _ => to_status(error),
    }
}

/// The gRPC status of an error.
pub fn to_status(error: Error) -> Status {
    faults::log_hidden(&error);
    let mut status = status_of_error(&error);
    if let Some(seconds) = retry_after(&error) {
        status.metadata_mut().insert("retry-after", seconds.into());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_call_and_tells_nothing() {
        let response = faults::tests::answer_to_a_panic(|app| app.layer(from_fn(contain_grpc))).await;
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::Internal);
        assert!(!status.message().contains("secret"), "{status}");
    }
}
