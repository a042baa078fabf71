//! The origins of other people's front ends: their pages may call the server from a browser, with a token (CORS). The cookie of
//! the console stays the server's own: no answer allows a browser to send it from elsewhere.

use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use flovyn_core::error::{Code, Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// How long a browser need not ask again what it may send.
const ASKED_FOR: Duration = Duration::from_secs(600);

/// The origins that are allowed beside the server's own. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins(Arc<[HeaderValue]>);

impl Origins {
    /// Reads them.
    ///
    /// Errors: `InvalidArgument` for one that no browser sends.
    pub(crate) fn parse(origins: &[String]) -> Result<Self> {
        origins.iter().map(|origin| parse(origin)).collect::<Result<_>>().map(Self)
    }

    /// Whether pages of an origin may call.
    pub(super) fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    }

    /// Answers what browsers ask before a call, and says of each answer whose pages may read it; nothing without origins.
    pub(super) fn layer(&self) -> Option<CorsLayer> {
        let layer = CorsLayer::new()
            .allow_origin(AllowOrigin::list(self.0.iter().cloned()))
            .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([
                header::ETAG,
                header::LOCATION,
                header::RETRY_AFTER,
                HeaderName::from_static("x-request-id"),
            ])
            .allow_private_network(true)
            .max_age(ASKED_FOR);
        (!self.0.is_empty()).then_some(layer)
    }
}

/// An origin as browsers write it: scheme, host and a port that is not the scheme's own.
fn parse(origin: &str) -> Result<HeaderValue> {
    let wrong = || {
        let message = format!(
            "{origin:?} is no origin; write one as browsers send it, such as https://app.example.com or http://localhost:3000 \
             (cors_origins, --cors-origin)"
        );
        Error::new(Code::InvalidArgument, message)
    };
    let uri: Uri = origin.parse().map_err(|_| wrong())?;
    let (Some(scheme @ ("http" | "https")), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(wrong()) };
    // What a pattern or a foreign alphabet looks like would match no page.
    if !host.starts_with('[') && !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Err(wrong());
    }
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = uri.port_u16().filter(|port| *port != usual).map(|port| format!(":{port}")).unwrap_or_default();
    let sent = format!("{scheme}://{}{port}", host.to_ascii_lowercase());
    if origin != sent {
        return Err(wrong());
    }
    sent.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for origin in
            ["https://app.example.com", "http://localhost:3000", "http://[::1]:8080", "https://xn--bcher-kva.example"]
        {
            assert!(Origins::parse(&[origin.to_owned()]).unwrap().allow(origin), "{origin}");
        }
        for wrong in [
            "*",
            "null",
            "",
            "app.example.com",
            "https://",
            "https://App.example.com",
            "https://app.example.com/",
            "https://app.example.com/chat",
            "https://app.example.com:443",
            "http://localhost:80",
            "http://localhost:",
            "https://user@app.example.com",
            "https://*.example.com",
            "ftp://app.example.com",
            "https://bücher.example",
        ] {
            let refused = Origins::parse(&[wrong.to_owned()]);
            assert!(refused.is_err_and(|error| error.message().contains("http://localhost:3000")), "{wrong}");
        }
        assert!(Origins::default().layer().is_none());
    }
}
