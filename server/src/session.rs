//! The cookie by which a browser that has signed in sends its token, and which requests it counts for.

use axum::http::{HeaderMap, HeaderValue, Uri, header};
use cookie::{Cookie, SameSite};
use std::time::Duration;

/// How the cookie is called on a server's usual port. A browser sends the cookies of one port of a host to all others, so the
/// name says the port.
const NAME: &str = "flovyn_session";
/// The same for a browser that is on its way to being signed in by an issuer.
const FLOW: &str = "flovyn_sign_in";
/// Marks a token that was made for the browser: it ends when the browser signs out.
const MADE: &str = "made.";

/// What a browser is signed in with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The token.
    pub(crate) token: String,
    /// Whether it was made for this browser: nobody else has it.
    pub(crate) is_own: bool,
}

impl Session {
    /// What the cookie of a request says.
    pub(crate) fn of(headers: &HeaderMap, uri: &Uri) -> Option<Self> {
        let found = found(&name(NAME, headers, uri), headers)?;
        Some(match found.strip_prefix(MADE) {
            Some(token) => Self { token: token.to_owned(), is_own: true },
            None => Self { token: found, is_own: false },
        })
    }

    /// The cookie of a browser that has signed in. It goes to nobody but this server, no script reads it, and no other site makes
    /// a browser send it.
    pub(crate) fn cookie(&self, headers: &HeaderMap, uri: &Uri, lasts: Duration) -> Option<HeaderValue> {
        self.cookie_over(is_encrypted(headers), headers, uri, lasts)
    }

    /// The same where it is known otherwise whether the browser has come over TLS.
    pub(crate) fn cookie_over(
        &self,
        is_encrypted: bool,
        headers: &HeaderMap,
        uri: &Uri,
        lasts: Duration,
    ) -> Option<HeaderValue> {
        let made = if self.is_own { MADE } else { "" };
        let value = format!("{made}{}", self.token);
        written(Cookie::build((name(NAME, headers, uri), value)), is_encrypted, lasts)
    }

    /// The cookie that makes a browser forget what it was signed in with.
    pub(crate) fn forgotten(headers: &HeaderMap, uri: &Uri) -> Option<HeaderValue> {
        written(Cookie::build((name(NAME, headers, uri), "")), is_encrypted(headers), Duration::ZERO)
    }
}

/// What is remembered of a browser while it is at the issuer of OpenID Connect. Unlike a session it comes along when the issuer
/// sends the browser back, and to that address alone.
pub(crate) struct FlowCookie;

impl FlowCookie {
    /// The cookie that holds it; without a value the one that makes the browser forget it.
    pub(crate) fn of(
        value: &str,
        path: &'static str,
        is_encrypted: bool,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Option<HeaderValue> {
        let seconds = if value.is_empty() { 0 } else { 600 };
        let cookie = Cookie::build((name(FLOW, headers, uri), value)).path(path).http_only(true);
        let cookie = cookie.same_site(SameSite::Lax).secure(is_encrypted);
        cookie.max_age(cookie::time::Duration::seconds(seconds)).build().to_string().parse().ok()
    }

    /// What the browser brings back.
    pub(crate) fn read(headers: &HeaderMap, uri: &Uri) -> Option<String> {
        found(&name(FLOW, headers, uri), headers)
    }
}

/// The value of a cookie that a request has.
fn found(name: &str, headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let found = cookies.flat_map(Cookie::split_parse).flatten().find(|cookie| cookie.name() == name)?;
    Some(found.value().to_owned())
}

fn is_encrypted(headers: &HeaderMap) -> bool {
    headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

fn written(cookie: cookie::CookieBuilder<'_>, is_encrypted: bool, lasts: Duration) -> Option<HeaderValue> {
    let cookie = cookie.path("/").http_only(true).same_site(SameSite::Strict).secure(is_encrypted);
    let cookie = cookie.max_age(cookie::time::Duration::try_from(lasts).ok()?).build();
    cookie.to_string().parse().ok()
}

fn name(of: &str, headers: &HeaderMap, uri: &Uri) -> String {
    match called(headers, uri).rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{of}_{port}")
        }
        _ => of.to_owned(),
    }
}

/// The host that a request was sent to, with its port.
fn called(headers: &HeaderMap, uri: &Uri) -> String {
    let host = headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    host.or_else(|| Some(uri.authority()?.to_string())).unwrap_or_default()
}

/// Whether a page of another origin has made the browser send a request. Browsers say so of every request to a host that they
/// trust (`Sec-Fetch-Site`), and name the origin of all that change something.
pub(crate) fn is_foreign(headers: &HeaderMap, uri: &Uri) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    authority.is_none_or(|authority| !authority.eq_ignore_ascii_case(&called(headers, uri)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let parsed =
            |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap());
        all.iter().map(parsed).collect()
    }

    #[test]
    fn a_cookie_says_what_it_was_made_of() {
        let uri = Uri::default();
        let hour = Duration::from_secs(3_600);
        for is_own in [true, false] {
            let session = Session { token: "fk_0a_1b".into(), is_own };
            let sent = headers(&[("host", "localhost:8080"), ("origin", "http://localhost:8080")]);
            let cookie = session.cookie(&sent, &uri, hour).unwrap().to_str().unwrap().to_owned();
            assert!(cookie.starts_with("flovyn_session_8080=") && !cookie.contains("Secure"), "{cookie}");
            for word in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=3600"] {
                assert!(cookie.contains(word), "{cookie} lacks {word}");
            }
            let back = format!("other=1; {}", cookie.split(';').next().unwrap());
            assert_eq!(Session::of(&headers(&[("host", "localhost:8080"), ("cookie", &back)]), &uri), Some(session));
            assert_eq!(Session::of(&headers(&[("host", "localhost:8081"), ("cookie", &back)]), &uri), None);
        }
        let sent = headers(&[("host", "agents.example.com"), ("origin", "https://agents.example.com")]);
        let cookie = Session { token: "t".into(), is_own: false }.cookie(&sent, &uri, hour).unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.starts_with("flovyn_session=t;") && cookie.contains("Secure"), "{cookie}");
        assert!(Session::forgotten(&sent, &uri).unwrap().to_str().unwrap().contains("Max-Age=0"));
    }

    #[test]
    fn a_request_of_a_foreign_page_is_told_apart() {
        let foreign = |all: &[(&str, &str)]| is_foreign(&headers(all), &Uri::default());
        assert!(!foreign(&[("host", "localhost:8080")]));
        for site in ["same-origin", "none"] {
            assert!(!foreign(&[("host", "localhost:8080"), ("sec-fetch-site", site)]), "{site}");
        }
        for site in ["same-site", "cross-site", "", "Same-Origin"] {
            let sent = [("host", "localhost:8080"), ("sec-fetch-site", site), ("origin", "http://localhost:8080")];
            assert!(foreign(&sent), "{site}");
        }
        for (origin, is_foreign) in [
            ("http://10.0.0.1:8080", false),
            ("https://10.0.0.1:8080", false),
            ("http://10.0.0.1:3000", true),
            ("http://10.0.0.1", true),
            ("null", true),
            ("http://evil.example", true),
        ] {
            assert_eq!(foreign(&[("host", "10.0.0.1:8080"), ("origin", origin)]), is_foreign, "{origin}");
        }
    }
}
