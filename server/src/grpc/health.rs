//! What `grpc.health.v1` says of this server: that it is to be called, or that it ends or has had no database for a while.

use super::v1::V1;
use super::{AgentDispatchServer, AgentsServer, Grpc, TaskExecutionServer, WorkerLifecycleServer, WorkerServer};
use crate::http::answers;
use crate::service::Service;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;
use tonic::server::NamedService;
use tonic_health::ServingStatus::{self, NotServing, Serving};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;
use tracing::warn;

/// How often the backend is looked at, and for how long it may be away before callers are told.
const LOOK: Duration = Duration::from_secs(5);
const AWAY: Duration = Duration::from_secs(10);
/// How long a server that ends says so to those who ask, and keeps the streams of those who watch.
const TOLD: Duration = Duration::from_millis(500);

/// Whom callers ask about: the server as a whole, then each service.
const NAMES: [&str; 6] = [
    "",
    AgentsServer::<Grpc>::NAME,
    WorkerServer::<Grpc>::NAME,
    AgentDispatchServer::<V1>::NAME,
    TaskExecutionServer::<V1>::NAME,
    WorkerLifecycleServer::<V1>::NAME,
];

/// The service, which says that all is served, and what changes that.
pub(super) async fn open() -> (HealthReporter, HealthServer<impl Health>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    tell(&reporter, Serving).await;
    (reporter, service)
}

/// Keeps health true until the server is told to end, and says that it ends: at once, and to those who watch until it stops.
pub(super) async fn keep(mut health: HealthReporter, service: &Service) {
    let mut drained = pin!(service.drained());
    let (mut signalled, mut away) = (Serving, None::<Instant>);
    loop {
        let looked = async {
            tokio::time::sleep(LOOK).await;
            answers(service).await
        };
        let status = tokio::select! {
            () = &mut drained => break,
            looked = looked => match looked {
                Ok(()) => {
                    away = None;
                    Serving
                }
                Err(_) if away.get_or_insert_with(Instant::now).elapsed() >= AWAY => NotServing,
                Err(_) => signalled,
            },
        };
        if status != signalled {
            warn!(?status, "what health says of this server has changed with its database");
            tell(&health, status).await;
            signalled = status;
        }
    }
    tell(&health, NotServing).await;
    service.stopped().await;
    tokio::time::sleep(TOLD).await;
    // Whoever watches would hold the server.
    for name in NAMES {
        health.clear_service_status(name).await;
    }
}

async fn tell(health: &HealthReporter, status: ServingStatus) {
    for name in NAMES {
        health.set_service_status(name, status).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown::Shutdown;
    use crate::{Access, ServeOptions};
    use flovyn_core::clock::SystemClock;
    use flovyn_core::error::{Code, Error, Result};
    use flovyn_core::storage::guarded::{Call, Gate, Guarded};
    use flovyn_core::storage::memory::MemoryStorage;
    use flovyn_core::streaming::Chunks;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    /// Loses every call while it is set.
    struct Gone(Arc<AtomicBool>);

    impl Gate for Gone {
        async fn pass<T: Send>(&self, _: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(Error::new(Code::StorageUnavailable, "it is gone")),
                false => body.await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_is_away_for_long_and_an_end_are_told() {
        let gone = Arc::new(AtomicBool::new(false));
        let storage = Arc::new(MemoryStorage::new(Arc::new(SystemClock::default())));
        let storage = Arc::new(Guarded::over(storage, Gone(gone.clone())));
        let shutdown = Shutdown::default();
        let service = crate::service(storage, Chunks::default(), Access::of([]), &ServeOptions::default(), &shutdown);
        let (reporter, served) = open().await;
        let kept = tokio::spawn(async move { keep(reporter, &service).await });
        let mut client = HealthClient::new(served);
        for name in NAMES {
            let asked = HealthCheckRequest { service: name.into() };
            let signalled = client.check(asked).await.unwrap().into_inner();
            assert_eq!(signalled.status, Serving as i32, "{name:?}");
        }
        let asked = HealthCheckRequest { service: NAMES[1].into() };
        let mut watching = client.watch(asked).await.unwrap().into_inner();
        let mut next = async || watching.message().await.unwrap().map(|signalled| signalled.status);
        assert_eq!(next().await, Some(Serving as i32));

        // Away for a moment: nothing is told.
        gone.store(true, Ordering::Relaxed);
        assert!(tokio::time::timeout(AWAY, next()).await.is_err());
        gone.store(false, Ordering::Relaxed);
        assert!(tokio::time::timeout(AWAY, next()).await.is_err());

        let since = Instant::now();
        gone.store(true, Ordering::Relaxed);
        assert_eq!(next().await, Some(NotServing as i32));
        assert!((AWAY..=AWAY + LOOK * 2).contains(&since.elapsed()), "{:?}", since.elapsed());
        gone.store(false, Ordering::Relaxed);
        assert_eq!(next().await, Some(Serving as i32));
        assert!(since.elapsed() <= AWAY + LOOK * 4, "{:?}", since.elapsed());

        shutdown.drain();
        assert_eq!(next().await, Some(NotServing as i32));
        assert!(tokio::time::timeout(AWAY, next()).await.is_err(), "it is told for as long as it is watched");
        shutdown.stop();
        assert_eq!(next().await, None);
        kept.await.unwrap();
    }
}
