//! What pickers are shown is what the program that started the server offers, and nothing of the server's own.

use crate::house::{House, TOKEN};
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_server::catalog::{Catalog, ListPrices, Model, Tool};
use flovyn_server::{Access, Extensions, Identity, ServeOptions, ServerConfig, serve_with};
use serde_json::json;
use std::sync::Arc;

/// Two models, one of which nothing is known of but its name, and one tool; or an environment that is wrong.
#[derive(Debug)]
struct Offered {
    is_wrong: bool,
}

fn model(id: &str) -> Model {
    Model {
        reference: format!("acme/{id}"),
        provider: "acme".into(),
        id: id.into(),
        name: id.to_uppercase(),
        context_window: None,
        max_output: None,
        thinking: "none".into(),
        images: false,
        tools: true,
        structured: false,
        temperature: true,
        is_available: false,
        prices: None,
    }
}

impl Offered {
    fn check(&self) -> Result<()> {
        let wrong = || Error::new(Code::InvalidArgument, "the variable ACME is wrong");
        if self.is_wrong { Err(wrong()) } else { Ok(()) }
    }
}

impl Catalog for Offered {
    fn models(&self, at: Timestamp) -> Result<Vec<Model>> {
        self.check()?;
        let prices = ListPrices { input: 3, cache_read: 1, output: 9, table_version: format!("before {at}") };
        let large = Model { context_window: Some(200_000), prices: Some(prices), ..model("large") };
        Ok(vec![large, model("small")])
    }

    fn tools(&self) -> Result<Vec<Tool>> {
        self.check()?;
        let (name, description) = ("weigh".to_owned(), "Weighs an otter".to_owned());
        let input_schema = json!({ "type": "object", "properties": { "otter": { "type": "string" } } });
        Ok(vec![Tool { name, description, input_schema, effect: "read".into(), source: "host".into() }])
    }
}

async fn offering(house: House, is_wrong: bool) -> House {
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let extensions = Extensions { catalog: Arc::new(Offered { is_wrong }), ..Extensions::default() };
    let (storage, chunks) = (house.runtime.storage().clone(), house.runtime.chunks().clone());
    let serving = serve_with(storage, chunks, config, ServeOptions { extensions, ..ServeOptions::default() });
    House { serving: serving.await.unwrap(), ..house }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_to_pick_is_listed() {
    let house = House::open().await;
    for list in ["models", "tools"] {
        let nothing = house.get(&format!("/api/orgs/default/{list}")).await;
        assert_eq!(nothing, json!({ "items": [], "nextCursor": null }), "{list}");
    }
    let house = offering(house, false).await;
    let models = house.get("/api/orgs/default/models").await;
    let (large, small) = (&models["items"][0], &models["items"][1]);
    assert_eq!((&large["reference"], &large["contextWindow"]), (&json!("acme/large"), &json!(200_000)), "{large:#}");
    let prices = &large["prices"];
    assert_eq!((&prices["input"], &prices["cacheRead"], &prices["output"]), (&json!(3), &json!(1), &json!(9)));
    let version = prices["tableVersion"].as_str().unwrap();
    assert!(version.starts_with("before 20"), "the catalogue is asked for the prices of now: {version}");
    let all = json!({
        "reference": "acme/small", "provider": "acme", "id": "small", "name": "SMALL", "contextWindow": null,
        "maxOutput": null, "thinking": "none", "images": false, "tools": true, "structured": false,
        "temperature": true, "isAvailable": false, "prices": null,
    });
    assert_eq!(*small, all);
    let tools = house.get("/api/orgs/default/tools").await;
    let weigh = &tools["items"][0];
    assert_eq!((&weigh["name"], &weigh["effect"], &weigh["source"]), (&json!("weigh"), &json!("read"), &json!("host")));
    assert_eq!(weigh["inputSchema"]["properties"]["otter"]["type"], "string");
    for list in [&models, &tools] {
        assert_eq!(list["nextCursor"], json!(null));
    }
    let (status, problem) = house.ask("GET", "/api/orgs/default/models?provider=x", &[], "").await;
    assert_eq!(status, 400, "{problem:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_environment_is_the_fault_of_the_server() {
    let house = offering(House::open().await, true).await;
    for list in ["models", "tools"] {
        let (status, problem) = house.ask("GET", &format!("/api/orgs/default/{list}"), &[], "").await;
        assert_eq!((status, &problem["code"]), (500, &json!("InvalidArgument")), "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains("ACME"), "{problem:#}");
    }
}
