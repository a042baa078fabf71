//! The forms of values that `docs/values.md` tells of, as types of serde write and read them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Deserialize)]
struct Vector {
    name: String,
    json: String,
    rust: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Fast,
}

#[derive(Serialize, Deserialize)]
struct Order {
    at: String,
    lines: Vec<Line>,
    tags: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    price: String,
    sku: String,
}

fn written<T: Serialize + DeserializeOwned>(json: &str) -> serde_json::Result<String> {
    serde_json::to_string(&serde_json::from_str::<T>(json)?)
}

fn again(vector: &Vector) -> serde_json::Result<String> {
    let json = vector.json.as_str();
    match vector.rust.as_deref().unwrap_or("Value") {
        "Value" => written::<Value>(json),
        "String" => written::<String>(json),
        "Mode" => written::<Mode>(json),
        "Order" => written::<Order>(json),
        "PathBuf" => written::<PathBuf>(json),
        "u32" => written::<u32>(json),
        "i64" => written::<i64>(json),
        "i128" => written::<i128>(json),
        "f64" => written::<f64>(json),
        "(i64, String)" => written::<(i64, String)>(json),
        "BTreeSet<i64>" => written::<BTreeSet<i64>>(json),
        "BTreeSet<String>" => written::<BTreeSet<String>>(json),
        "BTreeMap<String, String>" => written::<BTreeMap<String, String>>(json),
        "BTreeMap<String, Vec<String>>" => written::<BTreeMap<String, Vec<String>>>(json),
        other => panic!("{}: this test knows no type {other}", vector.name),
    }
}

#[test]
fn types_of_serde_write_the_forms_of_values() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("values.json")).expect("the vectors are JSON");
    assert!(vectors.len() > 30);
    for vector in &vectors {
        let again = again(vector).unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        assert_eq!(again, vector.json, "{}", vector.name);
    }
}
