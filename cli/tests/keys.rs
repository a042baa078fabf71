//! Keys and the server they open, through the command as an operator uses it.

mod house;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::{Code, Error};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use house::{flovyn, json, serve};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

fn refused(folder: &Path, args: &[&str]) -> (i32, String) {
    let output = flovyn(folder, args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

async fn start(url: &str, token: &str) -> Result<(), Error> {
    let options = RemoteOptions { token: Some(token.to_owned()) };
    let runtime = Runtime::over(Arc::new(RemoteStorage::connect(url, options).await?));
    let started = runtime.client().start("agent", Payload::null(), StartOptions::default()).await;
    runtime.close().await?;
    started.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_the_audit_that_was_changed_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    json(folder, &["orgs", "create", "otters"]);
    let key = json(folder, &["keys", "create", "--name", "ci", "--org", "otters"]);
    json(folder, &["keys", "revoke", key["id"].as_str().unwrap(), "--org", "otters"]);
    let audit = json(folder, &["audit", "--org", "otters", "--limit", "1"]);
    let newest = &audit["items"][0];
    assert_eq!((&audit["rows"], &audit["broken"], &newest["action"]), (&3.into(), &Value::Null, &"key.revoked".into()));
    assert_eq!((&audit["seal"], newest["seal"].as_str().map(str::len)), (&newest["seal"], Some(64)));

    let file = rusqlite::Connection::open(folder.join("agents.db")).unwrap();
    let changed = file.execute("UPDATE audit SET subject = 'another' WHERE action = 'key.created'", []).unwrap();
    assert_eq!(changed, 1);
    let (code, told) = refused(folder, &["audit", "--org", "otters"]);
    assert!(code == 1 && told.contains("row 2 of the audit does not follow"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_its_org_for_its_scopes_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    json(folder, &["orgs", "create", "otters"]);
    let member = json(folder, &["keys", "create", "--name", "ci", "--org", "otters"]);
    let viewer = json(folder, &["keys", "create", "--name", "screen", "--org", "otters", "--scopes", "viewer"]);
    let token = |key: &Value| key["token"].as_str().unwrap().to_owned();
    let server = serve(folder, "sqlite:agents.db", 0);
    let url = &server.grpc;

    start(url, &token(&member)).await.unwrap();
    let denied = start(url, &token(&viewer)).await.unwrap_err();
    assert!(denied.message().contains("exec:write"), "{denied}");
    for stranger in ["fk_guessed", &token(&member).replace("fk_", "fk_0")] {
        let refused = start(url, stranger).await.unwrap_err();
        assert!(refused.message().contains("FLOVYN_TOKEN"), "{refused}");
    }

    let listed = json(folder, &["keys", "list", "--org", "otters"]);
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ci", "screen"]);
    assert!(!listed.to_string().contains(&token(&member)), "a token is shown once");

    let revoked = json(folder, &["keys", "revoke", member["id"].as_str().unwrap(), "--org", "otters"]);
    assert!(revoked["revokedAt"].is_string());
    let gone = async {
        while start(url, &token(&member)).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), gone).await.expect("a revoked key is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_are_made_renamed_limited_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    // A typo makes none.
    assert_eq!(refused(folder, &["keys", "create", "--name", "x", "--org", "oters"]).0, 1);
    assert_eq!(json(folder, &["orgs", "list"])["items"], serde_json::json!([]));
    let made = json(folder, &["orgs", "create", "otters"]);
    let (code, told) = refused(folder, &["orgs", "create", "otters"]);
    assert!(code == 1 && told.contains("AlreadyExists"), "{told}");
    let limited = json(folder, &["orgs", "limit", "otters", "--create", "2"]);
    assert_eq!((&limited["id"], &limited["limits"]["create"]), (&made["id"], &2.into()));
    let renamed = json(folder, &["orgs", "rename", "otters", "seals"]);
    assert_eq!((&renamed["id"], &renamed["limits"]), (&made["id"], &limited["limits"]));
    let member = json(folder, &["keys", "create", "--name", "ci", "--org", "seals"]);
    let token = member["token"].as_str().unwrap();

    let server = serve(folder, "sqlite:agents.db", 0);
    let mut refusals = Vec::new();
    for _ in 0..20 {
        refusals.extend(start(&server.grpc, token).await.err().map(|error| error.code()));
    }
    assert!(!refusals.is_empty() && refusals.iter().all(|code| *code == Code::RateLimited), "{refusals:?}");
    assert_eq!(refused(folder, &["orgs", "delete", "seals"]).0, 2, "nothing is removed without a word");
    let (code, told) = refused(folder, &["orgs", "delete", "seals", "--yes"]);
    assert!(code == 1 && told.contains("have not ended"), "{told}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, told) = refused(folder, &["keys", "list"]);
    assert!(code == 1 && told.contains("no database"), "{told}");
    json(folder, &["migrate"]);
    for (args, word) in [
        (&["keys", "create", "--name", "x", "--scopes", "root"][..], "viewer"),
        (&["keys", "create", "--name", "x", "--org", "oters"], "flovyn orgs create"),
        (&["orgs", "create", "No Slug"], "lower-case"),
        (&["orgs", "delete", "default", "--yes"], "stays"),
        (&["keys", "list", "--org", "nobody"], "nobody"),
        (&["keys", "revoke", "0194b3a0-0000-7000-8000-000000000000"], "no key"),
        (&["server", "--config", "nowhere.toml"], "nowhere.toml"),
    ] {
        let (code, told) = refused(folder, args);
        assert!(code == 1 && told.contains(word), "{args:?}: {told}");
    }
    for args in [&["keys", "create", "--name", "x", "--expires", "10y"][..], &["keys", "revoke", "seven"], &["server"]]
    {
        assert_eq!(refused(folder, args).0, 2, "{args:?}");
    }
}

#[test]
fn a_server_without_a_database_says_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("flovyn.toml"), "grpc = \"127.0.0.1:0\"\n").unwrap();
    let output =
        flovyn(folder.path(), &["server", "--config", "flovyn.toml"]).env_remove("FLOVYN_DB").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(Code::InvalidArgument.as_str()) && told.contains("FLOVYN_DB"), "{told}");
}
