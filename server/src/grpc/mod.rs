//! `flovyn.v2` over gRPC: reads messages, asks the storage, writes messages. Decides nothing.

mod agents;
mod links;
mod owners;
mod payloads;
mod streams;
mod worker;

use self::links::Links;
use self::owners::Owners;
use crate::policy::{self, Need};
use crate::request_id::{self, RequestId};
use crate::service::{Act, By, Service};
use crate::{Access, Identity};
use axum::extract::State;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::storage::remote::ORG_HEADER;
use flovyn_core::wire::v2::agents_server::AgentsServer;
use flovyn_core::wire::v2::worker_server::WorkerServer;
use flovyn_core::wire::{MAX_MESSAGE, status_of_error};
use std::fmt::Display;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status};
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

/// What the services share.
#[derive(Clone)]
struct Grpc(Service, Links, Owners);

/// Serves until told to stop.
pub(crate) async fn serve(service: Service, listener: TcpListener, mut stopping: watch::Receiver<bool>) -> Result<()> {
    let grpc = Grpc(service, Links::default(), Owners::default());
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let (health, healthy) = tonic_health::server::health_reporter();
    health.set_serving::<AgentsServer<Grpc>>().await;
    health.set_serving::<WorkerServer<Grpc>>().await;
    let routes = Routes::new(AgentsServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(WorkerServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE))
        .add_service(healthy)
        .add_service(reflection()?)
        .into_axum_router()
        .layer(from_fn_with_state(grpc.0.access.clone(), admit))
        .layer(from_fn(request_id::mark));
    Server::builder()
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(4 << 20)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .add_routes(Routes::from(routes))
        .serve_with_incoming_shutdown(incoming, async move {
            let _ = stopping.wait_for(|stop| *stop).await;
            health.set_not_serving::<AgentsServer<Grpc>>().await;
            health.set_not_serving::<WorkerServer<Grpc>>().await;
        })
        .await
        .map_err(|error| Error::new(Code::StorageUnavailable, format!("the gRPC listener broke: {error}")))
}

impl Grpc {
    /// Who calls, as [`admit`] found out.
    fn identity<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        let identity = request.extensions().get::<Identity>().cloned();
        identity.ok_or_else(|| Status::unauthenticated("nobody was admitted"))
    }

    /// The org of a call that is about to be carried out, which is written down first.
    async fn audit<T>(&self, request: &Request<T>, act: Act, subject: impl Display) -> Result<OrgId, Status> {
        let org = self.org(request)?;
        let by = By { who: self.identity(request)?, request: RequestId::of(request.extensions()) };
        self.0.audit(org, &by, act, subject).await.map_err(told)?;
        Ok(org)
    }

    /// The org of a call.
    fn org<T>(&self, request: &Request<T>) -> Result<OrgId, Status> {
        let identity = self.identity(request)?;
        let named = match request.metadata().get(ORG_HEADER) {
            None => None,
            Some(named) => Some(named.to_str().ok().and_then(|named| named.parse().ok()).ok_or_else(|| {
                Status::invalid_argument(format!("the header {ORG_HEADER} is no id; send the org's UUID"))
            })?),
        };
        identity.org(named).ok_or_else(|| Status::permission_denied("the token is of another org than the call names"))
    }
}

/// Tells tools such as grpcurl what is served.
fn reflection() -> Result<ServerReflectionServer<impl ServerReflection>> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(flovyn_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| Error::new(Code::StorageUnavailable, format!("the services cannot be described: {error}")))
}

/// Lets a call through whose token allows it; nothing else reaches a method.
async fn admit(
    State(access): State<Access>,
    mut request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let header = request.headers().get("authorization").and_then(|header| header.to_str().ok());
    let token = header.and_then(|header| header.strip_prefix("Bearer ")).map(str::to_owned);
    let path = request.uri().path().to_owned();
    match identify(&access, &path, token).await {
        Ok(None) => next.run(request).await,
        Ok(Some(identity)) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(status) => status.into_http(),
    }
}

async fn identify(access: &Access, path: &str, token: Option<String>) -> Result<Option<Identity>, Status> {
    let Some(need) = policy::of_method(path) else {
        return Err(Status::unimplemented(format!("this server has no method {path}")));
    };
    if need == Need::Nothing {
        return Ok(None);
    }
    let Some(token) = token else {
        return Err(Status::unauthenticated("the call has no token; send `authorization: Bearer TOKEN`"));
    };
    let Some(identity) = access.identify(&token).await.map_err(told)? else {
        return Err(Status::unauthenticated("the token is not known here; check FLOVYN_TOKEN"));
    };
    if !need.is_met(identity.scopes()) {
        let why = format!("{path} needs {}; the token has {}", need.told(), identity.scopes());
        return Err(Status::permission_denied(why));
    }
    Ok(Some(identity))
}

/// An error as the status of a call.
fn told(error: Error) -> Status {
    status_of_error(&error)
}
