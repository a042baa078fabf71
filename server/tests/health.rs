//! What every gRPC server is expected to have: health, which needs no token, and reflection, which does.

use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::runtime::Runtime;
use flovyn_server::{Access, Identity, ServerConfig, serve};
use futures::stream;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ListServiceResponse, ServerReflectionRequest};

const TOKEN: &str = "health";

fn services() -> ServerReflectionRequest {
    ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) }
}

async fn listed(channel: Channel, token: Option<&str>) -> std::result::Result<ListServiceResponse, tonic::Status> {
    let mut request = Request::new(stream::iter([services()]));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    }
    let mut answers = ServerReflectionClient::new(channel).server_reflection_info(request).await?.into_inner();
    match answers.message().await?.and_then(|answer| answer.message_response) {
        Some(MessageResponse::ListServicesResponse(listed)) => Ok(listed),
        other => panic!("asked for services, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_for_everybody_and_reflection_for_callers() -> Result<()> {
    let house = Runtime::open("memory:").await?;
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve(house.storage().clone(), house.chunks().clone(), config).await?;
    let channel = Channel::from_shared(serving.url()).expect("a URL").connect().await.expect("it listens");

    for service in ["flovyn.v2.Agents", "flovyn.v2.Worker", ""] {
        let asked = HealthCheckRequest { service: service.into() };
        let told = HealthClient::new(channel.clone()).check(asked).await.expect("it answers").into_inner();
        assert_eq!(told.status(), ServingStatus::Serving, "{service:?}");
    }

    assert_eq!(listed(channel.clone(), None).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(listed(channel.clone(), Some("guessed")).await.unwrap_err().code(), Code::Unauthenticated);
    let names: Vec<_> = listed(channel, Some(TOKEN)).await.expect("a caller may").service;
    let names: Vec<_> = names.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"flovyn.v2.Agents") && names.contains(&"flovyn.v2.Worker"), "{names:?}");
    serving.stop().await
}
