//! How a browser is let in: by the link that works once, by a key; what its cookie may do, for whom, and until when.

mod house;

use flovyn_core::id::OrgId;
use flovyn_core::model::{NewKey, TokenHash, fresh_token};
use flovyn_server::{Access, Identity, ServeOptions, ServerConfig, serve_with};
use house::{BASE, House, TOKEN};
use http_body_util::BodyExt;
use hyper::header::SET_COOKIE;
use serde_json::{Value, json};

/// A server that knows one token by itself, and the keys of its store.
async fn open() -> House {
    let house = House::open().await;
    let storage = house.runtime.storage().clone();
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]).and_keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve_with(storage, house.runtime.chunks().clone(), config, ServeOptions::default()).await.unwrap();
    House { serving, ..house }
}

/// What a browser gets: the status, the cookie that is set, the body.
async fn browser(
    house: &House,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> (u16, Option<String>, Value) {
    let mut all = vec![("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    all.retain(|(name, _)| !headers.iter().any(|(given, _)| given == name));
    all.extend(headers);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = house.raw(method, path, &all, body).await;
    let cookie = answer.headers().get(SET_COOKIE).map(|cookie| cookie.to_str().unwrap().to_owned());
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, cookie, serde_json::from_slice(&body).unwrap_or_default())
}

/// What a browser sends back of a cookie.
fn sent(cookie: &str) -> String {
    cookie.split(';').next().unwrap().to_owned()
}

fn code(link: &str) -> String {
    link.split_once("#code=").expect("the code stands where no server sees it").1.to_owned()
}

#[tokio::test]
async fn a_link_lets_one_browser_in_once() {
    let house = open().await;
    assert_eq!(house.serving.sign_in_link("guessed").await.unwrap(), None);
    let link = house.serving.sign_in_link(TOKEN).await.unwrap().unwrap();
    let body = json!({ "code": code(&link) });
    let (status, cookie, who) = browser(&house, "POST", "/api/session", &[], body.clone()).await;
    assert_eq!((status, &who["org"]), (200, &json!("default")), "{who:#}");
    let cookie = cookie.unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(TOKEN) && !who.to_string().contains("fk_"), "{cookie} {who}");
    let cookie = sent(&cookie);
    let signed_in = [("cookie", &cookie[..])];
    assert_eq!(browser(&house, "GET", "/api/session", &signed_in, Value::Null).await.2, who);
    let start = json!({ "kind": "nobody", "input": 1 });
    assert_eq!(browser(&house, "POST", BASE, &signed_in, start).await.0, 201);
    let (status, cookie_again, problem) = browser(&house, "POST", "/api/session", &[], body).await;
    assert_eq!((status, cookie_again), (401, None));
    assert!(problem["detail"].as_str().unwrap().contains("used before"), "{problem:#}");
    // It shows among the keys, and ends with the session.
    let keys = browser(&house, "GET", "/api/orgs/default/api-keys", &signed_in, Value::Null).await.2;
    assert_eq!((&keys["items"][0]["name"], keys["items"].as_array().unwrap().len()), (&json!("browser session"), 1));
    let (status, forgotten, _) = browser(&house, "DELETE", "/api/session", &signed_in, Value::Null).await;
    assert!(status == 204 && forgotten.unwrap().contains("Max-Age=0"));
    assert_eq!(browser(&house, "GET", "/api/session", &signed_in, Value::Null).await.0, 401);
    assert_eq!(browser(&house, "DELETE", "/api/session", &[], Value::Null).await.0, 204, "nobody is signed in");
}

#[tokio::test]
async fn a_key_signs_in_as_itself_and_stays_when_the_browser_goes() {
    let house = open().await;
    let (token, directory) = (fresh_token(), house.runtime.storage().server_side().unwrap());
    let (org, name, hash) = (OrgId::DEFAULT, "viewer".to_owned(), TokenHash::of(&token));
    let (scopes, actor) = ("viewer".parse().unwrap(), "a test".to_owned());
    let new = NewKey { org, name, scopes, expires_in: None, not_after: None, hash, actor };
    let key = directory.create_key(new).await.unwrap();
    let (status, cookie, who) = browser(&house, "POST", "/api/session", &[], json!({ "token": token })).await;
    assert_eq!((status, &who["name"]), (200, &json!(format!("key {}", key.id))));
    let cookie = sent(&cookie.unwrap());
    let signed_in = [("cookie", &cookie[..])];
    assert_eq!(browser(&house, "GET", BASE, &signed_in, Value::Null).await.0, 200);
    let start = json!({ "kind": "nobody", "input": 1 });
    assert_eq!(browser(&house, "POST", BASE, &signed_in, start).await.0, 403, "no more than the key");
    assert_eq!(browser(&house, "DELETE", "/api/session", &signed_in, Value::Null).await.0, 204);
    assert_eq!(directory.keys(OrgId::DEFAULT).await.unwrap()[0].revoked_at, None);
    // The token of the server itself stays with it.
    let (_, cookie, _) = browser(&house, "POST", "/api/session", &[], json!({ "token": TOKEN })).await;
    assert!(!cookie.unwrap().contains(TOKEN));
}

#[tokio::test]
async fn a_page_of_another_origin_does_nothing_with_a_cookie() {
    let house = open().await;
    let link = house.serving.sign_in_link(TOKEN).await.unwrap().unwrap();
    let body = json!({ "code": code(&link) });
    let cross = ("sec-fetch-site", "cross-site");
    assert_eq!(browser(&house, "POST", "/api/session", &[cross], body.clone()).await.0, 403, "no foreign sign-in");
    let (_, cookie, _) = browser(&house, "POST", "/api/session", &[], body).await;
    let cookie = sent(&cookie.unwrap());
    let start = json!({ "kind": "nobody", "input": 1 });
    for site in ["cross-site", "same-site"] {
        let foreign = [("cookie", &cookie[..]), ("sec-fetch-site", site)];
        for (method, path) in [("POST", BASE), ("GET", BASE), ("DELETE", "/api/session"), ("GET", "/api/session")] {
            let (status, set, problem) = browser(&house, method, path, &foreign, start.clone()).await;
            assert_eq!(
                (status, set, &problem["code"]),
                (403, None, &json!("PermissionDenied")),
                "{site} {method} {path}"
            );
        }
    }
    // A program with a token of its own is asked nothing of this.
    let bearer = format!("Bearer {TOKEN}");
    let program = [("authorization", &bearer[..]), ("sec-fetch-site", "cross-site")];
    assert_eq!(browser(&house, "POST", BASE, &program, start).await.0, 201);
}

#[tokio::test]
async fn what_is_no_sign_in_is_refused_in_words() {
    let house = open().await;
    for (body, status, word) in [
        (json!({}), 400, "one of them"),
        (json!({ "code": "a", "token": "b" }), 400, "one of them"),
        (json!({ "password": "a" }), 400, "password"),
        (json!({ "code": "" }), 401, "used before"),
        (json!({ "token": "guessed" }), 401, "not known"),
        (json!({ "token": fresh_token() }), 401, "not known"),
    ] {
        let (found, cookie, problem) = browser(&house, "POST", "/api/session", &[], body.clone()).await;
        assert_eq!((found, cookie), (status, None), "{body}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{body}: {problem:#}");
    }
    let name = format!("flovyn_session_{}", house.serving.http().port());
    for value in ["", "x", "\"", "made.", ";;;=", "=", TOKEN.repeat(1_000).as_str()] {
        let cookie = format!("{name}={value}");
        let (status, _, _) = browser(&house, "GET", "/api/session", &[("cookie", &cookie)], Value::Null).await;
        assert_eq!(status, 401, "{cookie:?}");
    }
}
