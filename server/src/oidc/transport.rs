//! Requests to an issuer: in the open or over TLS as its address says, bounded in time and size, and never sent on elsewhere.

use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse, http};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An answer has to be there within this time.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What an issuer says of itself has a few kilobytes.
const MAX_ANSWER: usize = 1 << 20;

/// Why an issuer could not be asked.
#[derive(Debug)]
pub(super) struct Unreachable(String);

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// Who asks issuers.
pub(super) struct Transport(reqwest::Client);

impl<'c> AsyncHttpClient<'c> for Transport {
    type Error = Unreachable;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Unreachable>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

impl Transport {
    /// One that trusts the certificates of the file that `FLOVYN_CA` names, or those that the machine trusts.
    pub(super) fn new() -> Result<Self, Unreachable> {
        let named = std::env::var("FLOVYN_CA").ok().filter(|file| !file.is_empty());
        let trusted = match named {
            Some(file) => {
                let read = CertificateDer::pem_file_iter(&file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                read.map_err(|error| Unreachable(format!("{file} of FLOVYN_CA: {error}")))?
            }
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted);
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Unreachable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Where an issuer sends on to may be anywhere, this machine's own network included.
        let client =
            reqwest::Client::builder().tls_backend_preconfigured(tls).redirect(reqwest::redirect::Policy::none());
        client.timeout(TIMEOUT).build().map(Self).map_err(|error| Unreachable(error.to_string()))
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Unreachable> {
        let whole = |error: reqwest::Error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            Unreachable(format!("{error}{source}"))
        };
        let request = reqwest::Request::try_from(request).map_err(whole)?;
        let mut answer = self.0.execute(request).await.map_err(whole)?;
        let mut response = http::Response::new(Vec::new());
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        while let Some(part) = answer.chunk().await.map_err(whole)? {
            if response.body().len() + part.len() > MAX_ANSWER {
                return Err(Unreachable(format!("the answer has over {MAX_ANSWER} bytes")));
            }
            response.body_mut().extend_from_slice(&part);
        }
        Ok(response)
    }
}
