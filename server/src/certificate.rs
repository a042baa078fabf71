//! The certificate of the doors: read from files, shown to whoever connects, read again when the files have changed.

use flovyn_core::error::{Code, Error, Result};
use parking_lot::{Mutex, RwLock};
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

/// How often the files are looked at: whoever renews certificates tells nobody.
const LOOK: Duration = Duration::from_secs(5);

/// The table `[tls]` of a server's file: what it shows and how it proves it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// A file in PEM: the server's certificate, then those between it and what clients trust.
    pub cert: PathBuf,
    /// A file in PEM: the private key.
    pub key: PathBuf,
}

/// What both files hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Text {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    fn text(&self) -> Result<Text> {
        let read = |file: &Path| std::fs::read(file).map_err(|error| unusable(file, &error));
        Ok(Text { cert: read(&self.cert)?, key: read(&self.key)? })
    }

    /// What is shown, of files that hold this.
    fn shown(&self, text: &Text) -> Result<Arc<CertifiedKey>> {
        let chain = CertificateDer::pem_slice_iter(&text.cert).collect::<std::result::Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unusable(&self.cert, &error))?;
        if chain.is_empty() {
            return Err(unusable(&self.cert, &"it has no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&text.key).map_err(|error| unusable(&self.key, &error))?;
        let shown = CertifiedKey::from_der(chain, key, &ring::default_provider());
        shown.map(Arc::new).map_err(|error| unusable(&self.key, &error))
    }
}

fn unusable(file: &Path, why: &dyn Display) -> Error {
    let message = format!("the file {} cannot be used for TLS: {why}; give one in PEM", file.display());
    Error::new(Code::InvalidArgument, message)
}

/// What a server shows, at all its doors.
#[derive(Debug)]
pub(crate) struct Papers {
    of: Mutex<(Certificate, Text)>,
    shown: RwLock<Arc<CertifiedKey>>,
}

impl Papers {
    /// Reads the files, and goes on looking at them for as long as it lives.
    pub(crate) fn of(certificate: &Certificate) -> Result<Arc<Self>> {
        let text = certificate.text()?;
        let shown = RwLock::new(certificate.shown(&text)?);
        let papers = Arc::new(Self { of: Mutex::new((certificate.clone(), text)), shown });
        tokio::spawn(renew(Arc::downgrade(&papers)));
        Ok(papers)
    }

    /// Reads files again, or others, and shows what they hold to whoever connects from now on. Where they cannot be used what
    /// was shown before is shown further. Tells whether something else is shown.
    pub(crate) fn read(&self, certificate: &Certificate) -> Result<bool> {
        let text = certificate.text()?;
        let mut of = self.of.lock();
        if of.1 == text {
            of.0 = certificate.clone();
            return Ok(false);
        }
        *self.shown.write() = certificate.shown(&text)?;
        *of = (certificate.clone(), text);
        Ok(true)
    }

    /// How connections are encrypted that speak one of these protocols.
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

impl ResolvesServerCert for Papers {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().clone())
    }
}

/// Looks at the files until nobody shows them any more.
async fn renew(papers: Weak<Papers>) {
    let mut failed = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(papers) = papers.upgrade() else { return };
        let read = tokio::task::spawn_blocking(move || {
            let certificate = papers.of.lock().0.clone();
            papers.read(&certificate)
        });
        failed = match read.await {
            Ok(Ok(renewed)) => {
                if renewed {
                    info!("the certificate was renewed; new connections are shown it");
                }
                0
            }
            Ok(Err(error)) => {
                // One look may fall between the writing of the two files.
                if failed == 1 {
                    warn!(%error, "the certificate cannot be read again; the one before is shown further");
                }
                failed + 1
            }
            Err(_) => failed,
        };
    }
}
