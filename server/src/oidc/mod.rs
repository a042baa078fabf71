//! Signing in by the word of an issuer of OpenID Connect, which says who a person is; the settings say what they may do.
//!
//! The flow is that of an authorization code with PKCE. What a server has to remember of it goes to the browser and comes back, so
//! that any server of an installation can end what another one has begun.

mod settings;
mod transport;

pub use settings::{OidcSettings, Secret};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::Scopes;
use openidconnect::core::{CoreAuthenticationFlow, CoreClient, CoreGenderClaim, CoreIdToken, CoreProviderMetadata};
use openidconnect::{
    AdditionalClaims, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointMaybeSet, EndpointNotSet,
    EndpointSet, IssuerUrl, Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    SubjectIdentifier, TokenResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::Grants;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;
use transport::Transport;

/// Where the issuer sends browsers back to.
pub(crate) const CALLBACK: &str = "/api/session/oidc/callback";
/// Claims of any name.
#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    #[serde(flatten)]
    all: serde_json::Map<String, Value>,
}

impl AdditionalClaims for Claims {}

/// What an issuer says of itself, its keys included, is read again after this time.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// The most characters of an address that a browser is sent to once it is signed in.
const MAX_NEXT: usize = 2_000;

type Known =
    CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointMaybeSet, EndpointMaybeSet>;

/// An issuer, as the settings name it.
pub(crate) struct Oidc {
    settings: OidcSettings,
    grants: Grants,
    issuer: IssuerUrl,
    callback: RedirectUrl,
    transport: Transport,
    /// What the issuer has said of itself, and when.
    known: Mutex<Option<(Instant, Arc<Known>)>>,
}

/// What is to be remembered of a browser that was sent to the issuer.
#[derive(Serialize, Deserialize)]
pub(crate) struct Flow {
    state: String,
    nonce: String,
    verifier: String,
    /// Where it goes once it is signed in.
    pub(crate) next: String,
}

/// Somebody whom the issuer has let in.
pub(crate) struct Person {
    /// As the issuer knows them: an address of mail, a name, or the subject.
    pub(crate) name: String,
    /// What they may do.
    pub(crate) scopes: Scopes,
}

/// Why somebody is not signed in. The console has words for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The issuer did not let them in, or they thought better of it.
    Denied,
    /// They come back too late, twice, or from elsewhere.
    Stale,
    /// The issuer knows them, and they may do nothing here.
    NoGrant,
    /// The issuer can not be asked, or what it says can not be trusted.
    Failed,
}

impl Refused {
    /// As the address of the console's page says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Stale => "stale",
            Self::NoGrant => "no-grant",
            Self::Failed => "failed",
        }
    }
}

impl Oidc {
    /// Reads settings. The issuer is asked when the first person comes.
    ///
    /// Errors: `InvalidArgument` for addresses that are none, and as the settings' own.
    pub(crate) fn new(settings: &OidcSettings) -> Result<Self> {
        let wrong = |setting: &str, value: &str, why: String| {
            Error::new(Code::InvalidArgument, format!("[oidc] {setting} = {value:?}: {why}"))
        };
        let issuer = IssuerUrl::new(settings.issuer.clone());
        let issuer = issuer.map_err(|error| wrong("issuer", &settings.issuer, error.to_string()))?;
        let public = settings.public_url.trim_end_matches('/');
        let callback = RedirectUrl::new(format!("{public}{CALLBACK}"));
        let callback = callback.map_err(|error| wrong("public_url", public, error.to_string()))?;
        for (setting, url) in [("issuer", issuer.url()), ("public_url", callback.url())] {
            let is_own = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
            if url.scheme() != "https" && !(url.scheme() == "http" && is_own) {
                return Err(wrong(
                    setting,
                    url.as_str(),
                    "an address of https is needed, but on this machine".to_owned(),
                ));
            }
        }
        let transport =
            Transport::new().map_err(|error| Error::new(Code::InvalidArgument, format!("[oidc] {error}")))?;
        let grants = settings.grants()?;
        Ok(Self { settings: settings.clone(), grants, issuer, callback, transport, known: Mutex::default() })
    }

    /// Who people sign in with.
    pub(crate) fn label(&self) -> &str {
        let host = || self.issuer.url().host_str().unwrap_or(&self.settings.issuer);
        self.settings.label.as_deref().unwrap_or_else(host)
    }

    /// The organization that people see; that of calls without one, if none.
    pub(crate) fn org(&self) -> &str {
        self.settings.org.as_deref().unwrap_or("default")
    }

    /// How long people stay signed in.
    pub(crate) fn lasts(&self) -> Duration {
        Duration::from_secs(u64::from(self.settings.hours) * 3_600)
    }

    /// Whether browsers reach this server over TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.callback.url().scheme() == "https"
    }

    /// Where a browser is sent to, and what has to be remembered of it.
    pub(crate) async fn begin(&self, next: &str) -> std::result::Result<(String, Flow), Refused> {
        let known = self.known(false).await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut request =
            known.authorize_url(CoreAuthenticationFlow::AuthorizationCode, CsrfToken::new_random, Nonce::new_random);
        for scope in &self.settings.scopes {
            request = request.add_scope(Scope::new(scope.clone()));
        }
        let (url, state, nonce) = request.set_pkce_challenge(challenge).url();
        let flow = Flow {
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
            next: inner_address(next),
        };
        Ok((url.to_string(), flow))
    }

    /// Who has come back from the issuer with a code.
    pub(crate) async fn end(
        &self,
        flow: &Flow,
        state: &str,
        code: String,
        now: Timestamp,
    ) -> std::result::Result<Person, Refused> {
        // Nobody learns the state of another browser, so there is nothing to learn from how long this takes.
        if flow.state != state {
            return Err(Refused::Stale);
        }
        let known = self.known(false).await?;
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            warn!(issuer = %self.settings.issuer, %error, "{what}");
            Refused::Failed
        };
        let exchange = known.exchange_code(AuthorizationCode::new(code));
        let exchange = exchange.map_err(|error| failed("the issuer has no address for tokens", &error))?;
        let verifier = PkceCodeVerifier::new(flow.verifier.clone());
        let answer = exchange.set_pkce_verifier(verifier).request_async(&self.transport).await;
        let answer = answer.map_err(|error| failed("the issuer took no code of a sign-in", &Chain(&error)))?;
        let token =
            answer.id_token().ok_or_else(|| failed("the issuer said nothing of who signs in", &"no id_token"))?;
        let mut verified = verify(&known, token, &flow.nonce, now);
        if verified.is_err() {
            // It may sign with a key that it did not have when it was last asked.
            verified = verify(&*self.known(true).await?, token, &flow.nonce, now);
        }
        let mut claims =
            verified.map_err(|error| failed("what the issuer says of who signs in can not be trusted", &error))?;
        // Many an issuer says no more than the subject in the token, and the rest to whoever asks.
        let subject =
            claims.get("sub").and_then(Value::as_str).map(|subject| SubjectIdentifier::new(subject.to_owned()));
        if let Ok(request) = known.user_info(answer.access_token().clone(), subject) {
            let more = request.request_async::<Claims, _, CoreGenderClaim>(&self.transport).await;
            let more = more.map_err(|error| failed("the issuer says nothing more of who signs in", &Chain(&error)))?;
            add_missing(&mut claims, serde_json::to_value(&more).unwrap_or_default());
        }
        let scopes = self.grants.of(&groups(&claims, &self.settings.claim)).ok_or(Refused::NoGrant)?;
        Ok(Person { name: name(&claims), scopes })
    }

    /// What the issuer says of itself; a moment old at most if `again`.
    async fn known(&self, again: bool) -> std::result::Result<Arc<Known>, Refused> {
        let mut known = self.known.lock().await;
        let age = if again { Duration::from_secs(1) } else { KNOWN_FOR };
        if let Some((_, known)) = known.as_ref().filter(|(since, _)| since.elapsed() < age) {
            return Ok(known.clone());
        }
        let found = match CoreProviderMetadata::discover_async(self.issuer.clone(), &self.transport).await {
            Ok(found) => found,
            Err(error) => {
                warn!(issuer = %self.settings.issuer, error = %Chain(&error), "the issuer does not say what it can do");
                // People go on signing in by what it said before.
                return known.as_ref().map(|(_, known)| known.clone()).ok_or(Refused::Failed);
            }
        };
        let (id, secret) =
            (ClientId::new(self.settings.client_id.clone()), self.settings.secret().map(ClientSecret::new));
        let client = CoreClient::from_provider_metadata(found, id, secret).set_redirect_uri(self.callback.clone());
        let client = Arc::new(client);
        *known = Some((Instant::now(), client.clone()));
        Ok(client)
    }
}

/// The claims of a token that the issuer has signed, for this server, in this flow, and that has not ended by the store's clock.
fn verify(known: &Known, token: &CoreIdToken, nonce: &str, now: Timestamp) -> std::result::Result<Value, String> {
    let time = openidconnect_time(now);
    let verifier = known.id_token_verifier().set_time_fn(move || time);
    token.claims(&verifier, &Nonce::new(nonce.to_owned())).map_err(|error| Chain(&error).to_string())?;
    // The library gives the claims that it knows; which one names the groups, the settings say.
    let text = token.to_string();
    let claims = text.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    claims.and_then(|claims| serde_json::from_slice(&claims).ok()).ok_or_else(|| "its claims are no JSON".to_owned())
}

fn openidconnect_time(now: Timestamp) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp_micros(now.0).unwrap_or_default()
}

/// What is signed goes before what is told to whoever asks.
fn add_missing(claims: &mut Value, more: Value) {
    if let (Value::Object(claims), Value::Object(more)) = (claims, more) {
        for (name, value) in more {
            claims.entry(name).or_insert(value);
        }
    }
}

/// The groups of a claim: a text or texts, of itself or within others (`realm_access.roles`).
fn groups<'a>(claims: &'a Value, claim: &str) -> Vec<&'a str> {
    let found = claims.get(claim).or_else(|| claims.pointer(&format!("/{}", claim.replace('.', "/"))));
    match found {
        Some(Value::String(group)) => vec![group],
        Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// What a person is called in the audit and among the keys. An address of mail counts unless the issuer says that it has not
/// been verified.
fn name(claims: &Value) -> String {
    let text = |claim: &str| claims.get(claim).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mail = text("email").filter(|_| claims.get("email_verified") != Some(&Value::Bool(false)));
    let name = mail.or_else(|| text("preferred_username")).or_else(|| text("sub")).unwrap_or("somebody");
    name.chars().filter(|character| !character.is_control()).take(100).collect()
}

/// The address of a page of this server; `/` for any other.
fn inner_address(next: &str) -> String {
    let is_inner = next.starts_with('/')
        && !next[1..].starts_with(['/', '\\'])
        && next.len() <= MAX_NEXT
        && next.chars().all(|character| character.is_ascii_graphic());
    if is_inner { next } else { "/" }.to_owned()
}

impl Flow {
    /// As it goes to the browser.
    pub(crate) fn write(&self) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).ok()?))
    }

    /// As it comes back.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let flow: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        Some(Self { next: inner_address(&flow.next), ..flow })
    }
}

/// An error with what it comes from.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_browser_is_sent_to_pages_of_this_server_alone() {
        for inner in ["/", "/runs/1?tab=tree#x", "/runs/a%20b"] {
            assert_eq!(inner_address(inner), inner);
        }
        let long = format!("/{}", "a".repeat(MAX_NEXT));
        for outer in ["", "runs", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "/ä", &long] {
            assert_eq!(inner_address(outer), "/", "{outer:?}");
        }
    }

    #[test]
    fn groups_are_found_where_issuers_put_them() {
        let claims = json!({ "groups": ["a", 1, "b"], "role": "admin", "realm_access": { "roles": ["x"] }, "https://e.org/g": ["y"] });
        for (claim, found) in [
            ("groups", vec!["a", "b"]),
            ("role", vec!["admin"]),
            ("realm_access.roles", vec!["x"]),
            ("https://e.org/g", vec!["y"]),
            ("none", vec![]),
            ("realm_access", vec![]),
        ] {
            assert_eq!(groups(&claims, claim), found, "{claim}");
        }
    }

    #[test]
    fn a_person_has_a_name() {
        for (claims, called) in [
            (json!({ "sub": "1", "email": "ann@example.com" }), "ann@example.com"),
            (json!({ "sub": "1", "email": "ann@example.com", "email_verified": false }), "1"),
            (json!({ "sub": "1", "email": "", "preferred_username": "an\u{7}n" }), "ann"),
            (json!({}), "somebody"),
        ] {
            assert_eq!(name(&claims), called);
        }
    }

    #[test]
    fn what_a_browser_brings_back_is_not_believed() {
        let flow = |next: &str| Flow { state: "s".into(), nonce: "n".into(), verifier: "v".into(), next: next.into() };
        assert_eq!(Flow::read(&flow("/runs").write().unwrap()).unwrap().next, "/runs");
        assert_eq!(Flow::read(&flow("//evil.example").write().unwrap()).unwrap().next, "/");
        for wrong in ["", "?", "e30", &URL_SAFE_NO_PAD.encode("[]")] {
            assert!(Flow::read(wrong).is_none(), "{wrong}");
        }
    }
}
