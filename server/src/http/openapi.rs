//! The OpenAPI document of the routes, and the page that shows it.

use super::{bounds, routes};
use crate::rest::{MAX_BODY, ProblemBody};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use serde_json::{Value, json};
use std::sync::LazyLock;
use utoipa::OpenApi;

const PAGE: &str = include_str!("docs.html");
/// What the page may do: run its own script and read the document beside it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

/// What has a tag.
const TAGGED_TYPES: [&str; 3] = ["application/json", "application/octet-stream", "text/html"];

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let served = routes().into_openapi();
    document(serde_json::to_value(served).unwrap_or_default()).to_string()
});

#[derive(OpenApi)]
#[openapi(components(schemas(ProblemBody)))]
struct Problems;

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, content_type = "application/json")))]
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

/// This document as a page.
#[utoipa::path(get, path = "/docs", tag = "server", responses((status = 200, content_type = "text/html")))]
pub(super) async fn docs() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE))
}

/// The document of what is served, with what holds for all of it.
fn document(mut api: Value) -> Value {
    api["openapi"] = "3.1.0".into();
    api["info"] = json!({
        "title": "Flovyn Agents",
        "version": env!("CARGO_PKG_VERSION"),
        "description": format!("Runs of durable agents: start, watch, steer. A JSON body has at most {MAX_BODY} bytes; larger values are uploaded first."),
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    let problem = serde_json::to_value(Problems::openapi()).unwrap_or_default();
    api["components"]["schemas"]["Problem"] = problem["components"]["schemas"]["Problem"].clone();
    api["components"]["securitySchemes"] = json!({ "bearer": { "type": "http", "scheme": "bearer" } });
    bounds::add_bounds(&mut api);
    let Some(paths) = api["paths"].as_object_mut() else { return api };
    for (path, item) in paths {
        let parts = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parts: Vec<_> = parts.map(path_parameter).collect();
        let of_org = path.starts_with("/api/");
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if method == "get"
                && TAGGED_TYPES.iter().any(|kind| operation["responses"]["200"]["content"].get(kind).is_some())
            {
                let description = "The ETag that If-None-Match says still holds";
                operation["responses"]["304"] = json!({ "description": description });
            }
            let mut parameters = parts.clone();
            parameters.extend(operation["parameters"].as_array().cloned().unwrap_or_default());
            operation["parameters"] = parameters.into();
            for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
                if response["description"].as_str().is_none_or(str::is_empty) {
                    response["description"] = phrase(status).into();
                }
            }
            if of_org {
                operation["security"] = json!([{ "bearer": [] }]);
                let schema = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
                operation["responses"]["default"] =
                    json!({ "description": "Refused or failed", "content": { "application/problem+json": schema } });
            }
        }
    }
    api
}

/// What a status says by itself: the specification wants a word about each.
fn phrase(status: &str) -> &'static str {
    let status = status.parse().ok().and_then(|status| StatusCode::from_u16(status).ok());
    status.and_then(|status| status.canonical_reason()).unwrap_or("An answer")
}

/// A part of a path.
fn path_parameter(name: &str) -> Value {
    let (kind, description) = match name {
        "org" => ("string", "`default`, or the org's id"),
        "id" => ("string", "The run's UUID, or the id it was started with"),
        "definition" => ("string", "The definition's id or slug"),
        "machine" => ("string", "The machine's name"),
        "code" => ("string", "The code that the machine shows"),
        "queue" => ("string", "The queue's name"),
        "schedule" => ("string", "The schedule's id"),
        "seq" => ("integer", "The checkpoint's sequence"),
        "hash" => ("string", "BLAKE3 of the bytes, in hex"),
        _ => ("string", "A UUID"),
    };
    json!({ "name": name, "in": "path", "required": true, "description": description, "schema": { "type": kind } })
}
