//! `flovyn backup`, on a database that is in use.

mod house;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::runtime::Runtime;
use house::{flovyn, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_is_copied_to_a_file_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = format!("sqlite:{}", folder.join("agents.db").display());
    let runtime = Runtime::open(&url).await.unwrap();
    let start = || async { runtime.client().start("agent", Payload::null(), StartOptions::default()).await.unwrap() };
    start().await;
    let made = json(folder, &["backup", &url, "copy.db"]);
    assert_eq!(made["bytes"], std::fs::metadata(folder.join("copy.db")).unwrap().len());
    start().await;
    let again = flovyn(folder, &["backup", &url, "copy.db"]).output().unwrap();
    let told = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.code() == Some(1) && told.contains("there is a file already"), "{told}");
    runtime.close().await.unwrap();
    let count = |file: &str| json(folder, &["runs", "list", file])["items"].as_array().unwrap().len();
    assert_eq!((count(&url), count("sqlite:copy.db")), (2, 1));
}
