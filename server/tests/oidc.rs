//! Signing in by an issuer of OpenID Connect: who comes in, as what, and that no other word than the issuer's counts.

mod house;

use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flovyn_core::clock::{Clock, SystemClock};
use flovyn_core::error::Code;
use flovyn_core::id::OrgId;
use flovyn_server::{Access, Identity, OidcSettings, ServeOptions, ServerConfig, serve_with};
use house::{House, TOKEN};
use http_body_util::BodyExt;
use hyper::header::{LOCATION, SET_COOKIE};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What an issuer says of whoever comes, and how it signs that.
struct Word {
    /// Beside those that it always says.
    claims: Value,
    header: Value,
    /// The key that it signs with; `published` is the one it shows.
    key: Arc<KeyPair>,
    published: Arc<KeyPair>,
    /// The status of its answer to a code.
    status: StatusCode,
    /// What it says to whoever asks more.
    more: Value,
}

struct Issuer {
    url: String,
    word: Mutex<Word>,
    /// The nonce of the browser that it was last asked for.
    nonce: Mutex<String>,
    codes: Mutex<Vec<BTreeMap<String, String>>>,
}

fn key() -> Arc<KeyPair> {
    Arc::new(KeyPair::generate_for(&PKCS_ED25519).unwrap())
}

impl Issuer {
    /// One that listens.
    async fn open() -> Arc<Self> {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let key = key();
        let header = json!({ "alg": "EdDSA", "kid": "k" });
        let word = Word {
            claims: json!({}),
            header,
            key: key.clone(),
            published: key,
            status: StatusCode::OK,
            more: json!({ "sub": "42" }),
        };
        let issuer = Arc::new(Self { url, word: Mutex::new(word), nonce: Mutex::default(), codes: Mutex::default() });
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(Self::says))
            .route("/keys", get(Self::keys))
            .route("/token", post(Self::token))
            .route("/more", get(Self::more))
            .with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(socket, routes).await });
        issuer
    }

    async fn says(State(issuer): State<Arc<Self>>) -> Json<Value> {
        let url = &issuer.url;
        Json(json!({
            "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"), "userinfo_endpoint": format!("{url}/more"), "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["EdDSA"]
        }))
    }

    async fn keys(State(issuer): State<Arc<Self>>) -> Json<Value> {
        let word = issuer.word.lock().unwrap();
        let public = URL_SAFE_NO_PAD.encode(word.published.der_bytes());
        Json(json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "k", "x": public }] }))
    }

    async fn more(State(issuer): State<Arc<Self>>, headers: axum::http::HeaderMap) -> (StatusCode, Json<Value>) {
        let is_known = headers.get("authorization").is_some_and(|token| token == "Bearer a");
        let more = issuer.word.lock().unwrap().more.clone();
        (if is_known { StatusCode::OK } else { StatusCode::UNAUTHORIZED }, Json(more))
    }

    async fn token(
        State(issuer): State<Arc<Self>>,
        Form(asked): Form<BTreeMap<String, String>>,
    ) -> (StatusCode, Json<Value>) {
        issuer.codes.lock().unwrap().push(asked);
        let word = issuer.word.lock().unwrap();
        if word.status != StatusCode::OK {
            return (word.status, Json(json!({ "error": "invalid_grant" })));
        }
        let now = SystemClock::default().now().0 / 1_000_000;
        let mut claims = json!({
            "iss": issuer.url, "aud": "flovyn", "sub": "42", "iat": now, "exp": now + 300, "nonce": *issuer.nonce.lock().unwrap()
        });
        for (name, value) in word.claims.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&word.header), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(word.key.sign(signed.as_bytes()).unwrap());
        let answer =
            json!({ "access_token": "a", "token_type": "Bearer", "id_token": format!("{signed}.{signature}") });
        (StatusCode::OK, Json(answer))
    }

    /// Says something else from now on.
    fn change(&self, change: impl FnOnce(&mut Word)) {
        change(&mut self.word.lock().unwrap());
    }

    /// What a server is told of it.
    fn settings(&self, rest: &str) -> OidcSettings {
        toml::from_str(&format!(
            "issuer = '{}'\nclient_id = 'flovyn'\nclient_secret = 'hush'\npublic_url = 'http://localhost:8080'\n{rest}",
            self.url
        ))
        .unwrap()
    }
}

/// A server whose people sign in by an issuer.
async fn open(oidc: Option<OidcSettings>) -> House {
    let house = House::open().await;
    let storage = house.runtime.storage().clone();
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]).and_keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let options = ServeOptions { oidc, ..ServeOptions::default() };
    let serving = serve_with(storage, house.runtime.chunks().clone(), config, options).await.unwrap();
    House { serving, ..house }
}

/// Where a browser is sent, what it is to remember, and what it is shown.
async fn browse(house: &House, path: &str, cookie: &str) -> (u16, String, Vec<String>, Value) {
    let headers = [("sec-fetch-site", "cross-site"), ("cookie", cookie)];
    let answer = house.raw("GET", path, &headers, "").await;
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
    let to = answer.headers().get(LOCATION).map(text).unwrap_or_default();
    let cookies = answer.headers().get_all(SET_COOKIE).iter().map(text).collect();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, to, cookies, serde_json::from_slice(&body).unwrap_or_default())
}

fn sent(cookie: &str) -> &str {
    cookie.split(';').next().unwrap()
}

/// A parameter of an address.
fn parameter(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let found = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("{name} of {url}"));
    found.to_owned()
}

impl Issuer {
    /// Sends a browser there, and gives the state and what the browser remembers.
    async fn begin(&self, house: &House, next: &str) -> (String, String) {
        let (status, to, cookies, _) = browse(house, &format!("/api/session/oidc?next={next}"), "").await;
        assert!(status == 303 && to.starts_with(&format!("{}/authorize?", self.url)), "{status} {to}");
        assert_eq!(
            (parameter(&to, "code_challenge_method"), parameter(&to, "response_type")),
            ("S256".into(), "code".into())
        );
        assert_eq!(parameter(&to, "redirect_uri"), "http%3A%2F%2Flocalhost%3A8080%2Fapi%2Fsession%2Foidc%2Fcallback");
        *self.nonce.lock().unwrap() = parameter(&to, "nonce");
        let cookie = &cookies[0];
        assert!(
            cookie.contains("HttpOnly")
                && cookie.contains("SameSite=Lax")
                && cookie.contains("Path=/api/session/oidc/callback")
        );
        (parameter(&to, "state"), sent(cookie).to_owned())
    }

    /// The whole way of a browser: where it ends, and the cookie of its session.
    async fn sign_in(&self, house: &House) -> (String, Option<String>) {
        let (state, cookie) = self.begin(house, "%2Fruns%2F1").await;
        let (status, to, cookies, problem) =
            browse(house, &format!("/api/session/oidc/callback?code=c&state={state}"), &cookie).await;
        assert_eq!(status, 303, "{problem}");
        let session = cookies.iter().find(|cookie| cookie.starts_with("flovyn_session"));
        (to, session.map(|cookie| sent(cookie).to_owned()))
    }
}

#[tokio::test]
async fn a_person_whom_the_issuer_knows_comes_in() {
    let issuer = Issuer::open().await;
    let house =
        open(Some(issuer.settings("everyone = 'viewer'\nlabel = 'Example'\n[grants]\nops = 'keys audit:read'"))).await;
    let methods =
        house.raw("GET", "/api/session/methods", &[], "").await.into_body().collect().await.unwrap().to_bytes();
    let methods: Value = serde_json::from_slice(&methods).unwrap();
    assert_eq!(methods, json!({ "token": true, "oidc": { "label": "Example", "href": "/api/session/oidc" } }));
    issuer.change(|word| word.claims = json!({ "email": "ann@example.com", "groups": ["ops"] }));
    let (to, session) = issuer.sign_in(&house).await;
    assert_eq!(to, "/runs/1");
    let cookie = session.expect("a session");
    let headers = [("sec-fetch-site", "same-origin"), ("cookie", &cookie[..])];
    let ask = async |path: &str| {
        let body = house.raw("GET", path, &headers, "").await.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&body).unwrap()
    };
    let who = ask("/api/session").await;
    assert_eq!((&who["scopes"], &who["org"]), (&json!("exec:read keys audit:read"), &json!("default")), "{who}");
    let keys = ask("/api/orgs/default/api-keys").await;
    assert_eq!(keys["items"][0]["name"], "browser session of ann@example.com");
    let audit = ask("/api/orgs/default/audit").await;
    assert_eq!(audit["items"][0]["actor"], "oidc ann@example.com");
    // The code was given back with what proves that it is the browser's, and by whom.
    let codes = issuer.codes.lock().unwrap().clone();
    assert!(codes[0]["code"] == "c" && codes[0]["code_verifier"].len() >= 43, "{codes:?}");
}

#[tokio::test]
async fn only_the_word_of_the_issuer_counts() {
    let issuer = Issuer::open().await;
    let house = open(Some(issuer.settings("[grants]\nops = 'member'"))).await;
    let ops = json!({ "groups": "ops" });
    let with = |name: &str, value: Value| {
        let mut claims = ops.clone();
        claims[name] = value;
        claims
    };
    let right = |word: &mut Word, claims: Value| {
        *word = Word {
            claims,
            header: json!({ "alg": "EdDSA", "kid": "k" }),
            key: word.published.clone(),
            published: word.published.clone(),
            status: StatusCode::OK,
            more: json!({ "sub": "42" }),
        };
    };
    for (why, claims, refused) in [
        ("another issuer", with("iss", json!("http://127.0.0.1:9")), "failed"),
        ("for somebody else", with("aud", json!("other")), "failed"),
        ("of another browser", with("nonce", json!("n")), "failed"),
        ("it has ended", with("exp", json!(1)), "failed"),
        ("of no group", json!({ "groups": ["staff"] }), "no-grant"),
        ("of none at all", json!({}), "no-grant"),
    ] {
        issuer.change(|word| right(word, claims));
        assert_eq!(issuer.sign_in(&house).await, (format!("/sign-in#refused={refused}"), None), "{why}");
    }
    issuer.change(|word| {
        right(word, ops.clone());
        word.header = json!({ "alg": "none" });
    });
    assert_eq!(issuer.sign_in(&house).await.1, None, "nobody has signed it");
    issuer.change(|word| {
        right(word, ops.clone());
        word.key = key();
    });
    assert_eq!(issuer.sign_in(&house).await.1, None, "somebody else has signed it");
    issuer.change(|word| {
        right(word, ops.clone());
        word.status = StatusCode::BAD_REQUEST;
    });
    assert_eq!(issuer.sign_in(&house).await.1, None, "the code is none of the issuer's");
    issuer.change(|word| {
        right(word, ops.clone());
        word.more = json!({ "sub": "43", "groups": "ops" });
    });
    assert_eq!(issuer.sign_in(&house).await.1, None, "what it says is of somebody else");
    issuer.change(|word| {
        right(word, json!({}));
        word.more = json!({ "sub": "42", "groups": ["ops"], "email": "ann@example.com" });
    });
    assert!(issuer.sign_in(&house).await.1.is_some(), "the groups are told to whoever asks");
    issuer.change(|word| {
        right(word, json!({ "groups": [] }));
        word.more = json!({ "sub": "42", "groups": ["ops"] });
    });
    assert_eq!(issuer.sign_in(&house).await.1, None, "what is signed goes before what is told");
    issuer.change(|word| right(word, ops.clone()));
    assert!(issuer.sign_in(&house).await.1.is_some(), "the same in order");
    // A new key of the issuer is asked for as soon as something is signed with it; the server has asked a moment ago at most.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    issuer.change(|word| {
        word.key = key();
        word.published = word.key.clone();
    });
    assert!(issuer.sign_in(&house).await.1.is_some(), "by its new key");
}

#[tokio::test]
async fn who_comes_back_from_elsewhere_is_sent_to_the_beginning() {
    let issuer = Issuer::open().await;
    let house = open(Some(issuer.settings("everyone = 'member'"))).await;
    let (state, cookie) = issuer.begin(&house, "%2F%2Fevil.example").await;
    let (_, others) = issuer.begin(&house, "").await;
    for (path, cookie, refused) in [
        (format!("?code=c&state={state}"), "", "stale"),
        (format!("?code=c&state={state}"), &others[..], "stale"),
        ("?code=c&state=guessed".to_owned(), &cookie, "stale"),
        (format!("?state={state}"), &cookie, "stale"),
        ("?error=access_denied&error_description=no".to_owned(), &cookie, "denied"),
    ] {
        let (status, to, cookies, _) = browse(&house, &format!("/api/session/oidc/callback{path}"), cookie).await;
        assert_eq!((status, to), (303, format!("/sign-in#refused={refused}")), "{path}");
        assert!(cookies.iter().all(|cookie| cookie.contains("Max-Age=0")), "{cookies:?}");
    }
    assert!(issuer.codes.lock().unwrap().is_empty(), "the issuer was asked of none of them");
    *issuer.nonce.lock().unwrap() = String::new();
    let (state, cookie) = issuer.begin(&house, "%2F%2Fevil.example").await;
    let (_, to, _, _) =
        browse(&house, &format!("/api/session/oidc/callback?code=c&state={state}&session_state=x"), &cookie).await;
    assert_eq!(to, "/", "to no other host");
}

/// Whoever makes up codes makes the server ask the issuer: after some of them it does not any more.
#[tokio::test]
async fn an_issuer_that_is_away_lets_nobody_in() {
    let house = {
        let gone = Issuer::open().await;
        let mut settings = gone.settings("everyone = 'viewer'");
        settings.issuer = "http://127.0.0.1:9".to_owned();
        open(Some(settings)).await
    };
    let (status, to, _, _) = browse(&house, "/api/session/oidc?next=/runs", "").await;
    assert_eq!((status, to.as_str()), (303, "/sign-in#refused=failed"));
    let without = open(None).await;
    let (status, _, _, problem) = browse(&without, "/api/session/oidc", "").await;
    assert!(status == 404 && problem["detail"].as_str().unwrap().contains("[oidc]"), "{problem}");
}

#[tokio::test]
async fn settings_that_can_be_nobodys_are_refused_at_the_start() {
    let issuer = Issuer::open().await;
    let house = House::open().await;
    type Change = fn(&mut OidcSettings);
    let wrong: [(&str, Change); 4] = [
        ("issuer", |settings| settings.issuer = "login".to_owned()),
        ("https", |settings| settings.issuer = "http://login.example.com".to_owned()),
        ("public_url", |settings| settings.public_url = "ftp://localhost".to_owned()),
        ("everyone", |settings| settings.everyone = None),
    ];
    for (names, change) in wrong {
        let mut settings = issuer.settings("everyone = 'viewer'");
        change(&mut settings);
        let config =
            ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access: Access::of([]) };
        let options = ServeOptions { oidc: Some(settings), ..ServeOptions::default() };
        let started =
            serve_with(house.runtime.storage().clone(), house.runtime.chunks().clone(), config, options).await;
        let Err(refused) = started else { panic!("{names}") };
        assert!(refused.code() == Code::InvalidArgument && refused.message().contains(names), "{refused}");
    }
}
