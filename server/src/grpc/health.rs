//! `grpc.health.v1`: not serving when the server drains, or when its database has been away for a while.

use super::{AgentsServer, Grpc, WorkerServer};
use crate::extensions::Protocol;
use crate::service::Service;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::server::NamedService;
use tonic_health::ServingStatus::{self, NotServing, Serving};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;
use tracing::warn;

/// How often the backend is checked, and how long it may be away before health reports it.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const OUTAGE_GRACE: Duration = Duration::from_secs(10);
/// How long a server that stops still answers health checks, and keeps the streams of watchers.
const NOT_SERVING_TIME: Duration = Duration::from_millis(500);

/// The names of health checks: the server as a whole, then each service.
fn names(protocols: &[Arc<dyn Protocol>]) -> impl Iterator<Item = &'static str> {
    let own = ["", AgentsServer::<Grpc>::NAME, WorkerServer::<Grpc>::NAME];
    own.into_iter().chain(protocols.iter().flat_map(|protocol| protocol.services().iter().copied()))
}

/// The health service, which reports all as serving, and the reporter that changes that.
pub(super) async fn health_service(
    protocols: &[Arc<dyn Protocol>],
) -> (HealthReporter, HealthServer<impl Health + use<>>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    set_all(&reporter, protocols, Serving).await;
    (reporter, service)
}

/// Checks the database until the server drains, then reports that it is not serving, until it stops.
pub(super) async fn maintain(mut health: HealthReporter, service: &Service) {
    let mut drained = pin!(service.drained());
    let (mut signalled, mut failing_since) = (Serving, None::<Instant>);
    loop {
        let checked = async {
            tokio::time::sleep(CHECK_INTERVAL).await;
            service.check_storage().await
        };
        let status = tokio::select! {
            () = &mut drained => break,
            checked = checked => match checked {
                Ok(()) => {
                    failing_since = None;
                    Serving
                }
                Err(_) if failing_since.get_or_insert_with(Instant::now).elapsed() >= OUTAGE_GRACE => NotServing,
                Err(_) => signalled,
            },
        };
        if status != signalled {
            warn!(?status, "what health says of this server has changed with its database");
            set_all(&health, &service.protocols, status).await;
            signalled = status;
        }
    }
    set_all(&health, &service.protocols, NotServing).await;
    service.stopped().await;
    tokio::time::sleep(NOT_SERVING_TIME).await;
    // Ends the streams of watchers, which would keep the server from stopping.
    for name in names(&service.protocols) {
        health.clear_service_status(name).await;
    }
}

async fn set_all(health: &HealthReporter, protocols: &[Arc<dyn Protocol>], status: ServingStatus) {
    for name in names(protocols) {
        health.set_service_status(name, status).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::options::ServeOptions;
    use crate::shutdown::Shutdown;
    use flovyn_core::clock::SystemClock;
    use flovyn_core::error::{Code, Error, Result};
    use flovyn_core::storage::guarded::{Call, Gate, Guarded};
    use flovyn_core::storage::memory::MemoryStorage;
    use flovyn_core::streaming::Chunks;
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
        let service = Service::over(storage, Chunks::default(), Access::of([]), &ServeOptions::default(), &shutdown);
        let (reporter, served) = health_service(&[]).await;
        let maintained = tokio::spawn(async move { maintain(reporter, &service).await });
        let mut client = HealthClient::new(served);
        for name in names(&[]) {
            let check = HealthCheckRequest { service: name.into() };
            let signalled = client.check(check).await.unwrap().into_inner();
            assert_eq!(signalled.status, Serving as i32, "{name:?}");
        }
        let check = HealthCheckRequest { service: AgentsServer::<Grpc>::NAME.into() };
        let mut watching = client.watch(check).await.unwrap().into_inner();
        let mut next = async || watching.message().await.unwrap().map(|signalled| signalled.status);
        assert_eq!(next().await, Some(Serving as i32));

        // A short outage is not reported.
        gone.store(true, Ordering::Relaxed);
        assert!(tokio::time::timeout(OUTAGE_GRACE, next()).await.is_err());
        gone.store(false, Ordering::Relaxed);
        assert!(tokio::time::timeout(OUTAGE_GRACE, next()).await.is_err());

        let since = Instant::now();
        gone.store(true, Ordering::Relaxed);
        assert_eq!(next().await, Some(NotServing as i32));
        assert!((OUTAGE_GRACE..=OUTAGE_GRACE + CHECK_INTERVAL * 2).contains(&since.elapsed()), "{:?}", since.elapsed());
        gone.store(false, Ordering::Relaxed);
        assert_eq!(next().await, Some(Serving as i32));
        assert!(since.elapsed() <= OUTAGE_GRACE + CHECK_INTERVAL * 4, "{:?}", since.elapsed());

        shutdown.drain();
        assert_eq!(next().await, Some(NotServing as i32));
        assert!(tokio::time::timeout(OUTAGE_GRACE, next()).await.is_err(), "it is told for as long as it is watched");
        shutdown.stop();
        assert_eq!(next().await, None);
        maintained.await.unwrap();
    }
}
