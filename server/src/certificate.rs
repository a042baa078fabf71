//! The TLS certificate of all listeners: read from files, and read again when the files change.

use flovyn_core::error::{Code, Error, Result};
use flovyn_core::sync::{Mutex, RwLock};
use serde::Deserialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tracing::{info, warn};

/// How often the files are checked: tools that renew certificates send no notice.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The table `[tls]` of a server's file: its certificate and private key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// A file in PEM: the server's certificate, then those between it and what clients trust.
    pub cert: PathBuf,
    /// A file in PEM: the private key.
    pub key: PathBuf,
}

/// The contents of both files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PemFiles {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    fn read_files(&self) -> Result<PemFiles> {
        let read = |file: &Path| std::fs::read(file).map_err(|error| unusable(file, &error));
        Ok(PemFiles { cert: read(&self.cert)?, key: read(&self.key)? })
    }

    fn parse(&self, pem: &PemFiles) -> Result<Arc<CertifiedKey>> {
        let chain = CertificateDer::pem_slice_iter(&pem.cert).collect::<std::result::Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unusable(&self.cert, &error))?;
        if chain.is_empty() {
            return Err(unusable(&self.cert, &"it has no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| unusable(&self.key, &error))?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        certified.map(Arc::new).map_err(|error| unusable(&self.key, &error))
    }
}

fn unusable(file: &Path, why: &dyn Display) -> Error {
    let message = format!("the file {} cannot be used for TLS: {why}; give one in PEM", file.display());
    Error::new(Code::InvalidArgument, message)
}

/// Gives every TLS handshake the current certificate.
#[derive(Debug)]
pub(crate) struct CertificateResolver {
    source: Mutex<(Certificate, PemFiles)>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl CertificateResolver {
    /// Reads the files, and checks them for changes for as long as the resolver lives.
    pub(crate) fn watch(certificate: &Certificate) -> Result<Arc<Self>> {
        let pem = certificate.read_files()?;
        let current = RwLock::new(certificate.parse(&pem)?);
        let certificates = Arc::new(Self { source: Mutex::new((certificate.clone(), pem)), current });
        tokio::spawn(renew(Arc::downgrade(&certificates)));
        Ok(certificates)
    }

    /// Reads the files of `certificate`; new connections use what they hold. Files that cannot be used leave the current
    /// certificate in place. Returns whether the certificate has changed.
    pub(crate) fn reload(&self, certificate: &Certificate) -> Result<bool> {
        let pem = certificate.read_files()?;
        let mut source = self.source.lock();
        if source.1 == pem {
            source.0 = certificate.clone();
            return Ok(false);
        }
        *self.current.write() = certificate.parse(&pem)?;
        *source = (certificate.clone(), pem);
        Ok(true)
    }

    /// The TLS acceptor of connections that speak one of these protocols (ALPN).
    pub(crate) fn acceptor(self: &Arc<Self>, protocols: &[&[u8]]) -> Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(Code::InvalidArgument, format!("connections cannot be encrypted: {error}")))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

/// Checks the files until the resolver is dropped.
async fn renew(certificates: Weak<CertificateResolver>) {
    let mut failures = 0;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(certificates) = certificates.upgrade() else { return };
        let reloaded = tokio::task::spawn_blocking(move || {
            let certificate = certificates.source.lock().0.clone();
            certificates.reload(&certificate)
        });
        failures = match reloaded.await {
            Ok(Ok(renewed)) => {
                if renewed {
                    info!("the certificate was renewed; new connections are shown it");
                }
                0
            }
            Ok(Err(error)) => {
                // One check may fall between the writing of the two files, so only the second failure is logged.
                if failures == 1 {
                    warn!(%error, "the certificate cannot be read again; the one before is shown further");
                }
                failures + 1
            }
            Err(_) => failures,
        };
    }
}
