//! Protection of a server on loopback: it answers only requests whose Host is a name of this machine, or a public name of a
//! proxy on this machine, and that come from no page, a page of its own or one of an allowed origin. Foreign web pages could
//! otherwise make a browser send requests to it (DNS rebinding, CSRF).

use super::Origins;
use crate::rest::Problem;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// What is allowed beside the names and pages of this machine. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// The public names.
    names: Arc<[String]>,
    origins: Origins,
}

impl Hosts {
    /// These names too, with or without a port, and pages of these origins.
    pub(crate) fn public(names: &[String], origins: Origins) -> Self {
        Self { names: names.iter().map(|name| host(name).to_ascii_lowercase()).collect(), origins }
    }

    /// The reason to refuse a request, if there is one.
    fn rejection(&self, headers: &HeaderMap, uri: &Uri) -> Option<String> {
        let header = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let called = header(header::HOST).or_else(|| Some(uri.authority()?.to_string())).unwrap_or_default();
        if !is_loopback(&called) && !self.is_public(&called) {
            let name = host(&called);
            return Some(format!(
                "the host {called:?} is not this machine; call 127.0.0.1 or localhost, or, where a proxy on this machine is called \
                 that, start the server with --public-host {name} (in its file: public_hosts = [{name:?}])"
            ));
        }
        let origin = header(header::ORIGIN)?;
        // A proxy may send its own name as Host, or that of this machine.
        let own = origin.split_once("://").is_some_and(|(scheme, origin)| {
            matches!(scheme, "http" | "https") && (origin == called || self.is_public(origin))
        });
        (!own && !self.origins.allow(&origin)).then(|| {
            let name = origin.split_once("://").map_or(&origin[..], |(_, rest)| host(rest));
            format!(
                "the origin {origin:?} is not this server's; only its own pages may call it, those of a proxy on this machine that \
                 --public-host {name} names (in the server's file: public_hosts), and those of another front end that --cors-origin \
                 names (cors_origins)"
            )
        })
    }

    fn is_public(&self, authority: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host(authority)))
    }
}

/// Refuses requests that a foreign web page can make a browser send: with a name that was rebound to this machine, or with a
/// foreign origin.
pub(super) async fn loopback_only(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    match hosts.rejection(request.headers(), request.uri()) {
        None => next.run(request).await,
        Some(detail) => Problem::denied(detail).into_response(),
    }
}

/// An authority without its port.
fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Whether an authority names this machine.
fn is_loopback(authority: &str) -> bool {
    let host = host(authority);
    matches!(host, "127.0.0.1" | "[::1]") || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: &str) -> HeaderMap {
        let host = (header::HOST, host.parse().unwrap());
        let origin = (!origin.is_empty()).then(|| (header::ORIGIN, origin.parse().unwrap()));
        HeaderMap::from_iter([host].into_iter().chain(origin))
    }

    #[test]
    fn what_a_foreign_page_can_send_is_told_apart() {
        for own in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:8080"] {
            assert!(is_loopback(own), "{own}");
        }
        for other in ["", "evil.example", "localhost.evil.example:8080", "127.0.0.1.nip.io", "127.0.0.1@evil:80"] {
            assert!(!is_loopback(other), "{other}");
        }
        let rejection = |origin: &str| Hosts::default().rejection(&headers("localhost:8080", origin), &Uri::default());
        assert_eq!(
            (rejection("http://localhost:8080"), rejection("https://localhost:8080"), rejection("")),
            (None, None, None)
        );
        for other in ["null", "http://localhost:3000", "ftp://localhost:8080", "http://evil.example"] {
            assert!(rejection(other).is_some(), "{other}");
        }
    }

    #[test]
    fn a_proxy_of_this_machine_is_called_by_its_names_alone() {
        let hosts =
            Hosts::public(&["Agents.example.com:443".to_owned(), "other.example.com".to_owned()], Origins::default());
        let rejection = |host: &str, origin: &str| hosts.rejection(&headers(host, origin), &Uri::default());
        for (host, origin) in [
            ("agents.example.com", ""),
            ("AGENTS.EXAMPLE.COM:8443", "https://agents.example.com"),
            ("127.0.0.1:8080", "https://other.example.com"),
            ("localhost:8080", "http://localhost:8080"),
        ] {
            assert_eq!(rejection(host, origin), None, "{host} {origin}");
        }
        for (host, origin) in [
            ("evil.example.com", ""),
            ("example.com", ""),
            ("agents.example.com.evil.example", ""),
            ("agents.example.com", "https://evil.example.com"),
            ("127.0.0.1:8080", "null"),
        ] {
            let detail = rejection(host, origin).unwrap_or_else(|| panic!("{host} {origin} is answered"));
            assert!(detail.contains("--public-host"), "{detail}");
        }
    }
}
