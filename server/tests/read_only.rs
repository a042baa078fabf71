//! A PostgreSQL that takes no writes any more, as a standby after a failover: the server is not ready for as long as it is one.

mod house;

use flovyn_core::testing::postgres::Cluster;
use house::{BASE, House};
use serde_json::json;
use std::time::Duration;

/// Asks until the server is ready, or is not; what it says.
async fn until(house: &House, wanted: u16) -> String {
    for _ in 0..600 {
        let (status, told) = house.ask("GET", "/_/ready", &[], "").await;
        if status == wanted {
            return told.as_str().unwrap_or_default().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("/_/ready never answered {wanted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_has_become_read_only_is_not_ready() {
    // Its own: the settings are those of all.
    let cluster = Cluster::start("").unwrap();
    let house = House::over(&cluster.fresh().unwrap(), tempfile::tempdir().unwrap()).await;
    until(&house, 200).await;
    let read_only = |word: &str| {
        cluster.sql("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {word}")).unwrap();
        cluster.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    };
    read_only("on");
    // The first who writes finds out.
    let start = async || house.ask("POST", BASE, &[], &json!({ "kind": "nobody" }).to_string()).await;
    let mut refused = start().await;
    for _ in 0..100 {
        if refused.0 >= 300 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        refused = start().await;
    }
    assert_eq!((refused.0, &refused.1["code"]), (503, &json!("StorageUnavailable")), "{:#}", refused.1);
    let told = until(&house, 503).await;
    for words in ["taken no writes since", "read-only", "connect to the primary"] {
        assert!(told.contains(words), "{words:?} is missing in {told:?}");
    }
    // What is there can be read meanwhile.
    house.get(BASE).await;
    read_only("off");
    until(&house, 200).await;
    let (status, told) = start().await;
    assert_eq!(status, 201, "{told:#}");
}
