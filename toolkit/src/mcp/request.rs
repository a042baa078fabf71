//! Requests of the client that are not calls of tools: lists of all pages, resources, prompts. They change nothing, so they
//! are sent again over a new connection when the answer is lost.

use super::call::CallEnvironment;
use super::connection::Connection;
use crate::tools::fault::Fault;
use rmcp::model::{ClientRequest, PaginatedRequestParams, ServerResult};
use rmcp::service::ServiceError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use tokio::time::{Instant, timeout_at};

/// How many entries one list may have, and how many pages.
const MAX_ENTRIES: usize = 1_000;
const MAX_PAGES: usize = 200;

/// Sends a request, and returns the JSON of its result. It takes as long as a call may be silent.
pub(super) async fn request(
    connection: &Connection,
    request: ClientRequest,
    environment: &CallEnvironment,
) -> Result<Value, Fault> {
    tokio::select! {
        answered = send(connection, request) => answered,
        () = environment.stopped() => Err(Fault::stopped()),
    }
}

async fn send(connection: &Connection, request: ClientRequest) -> Result<Value, Fault> {
    let server = &connection.name;
    let deadline = Instant::now() + connection.config.timeout;
    let mut is_again = false;
    loop {
        let live = connection.live().await.map_err(|unavailable| {
            let message = format!("The MCP server {server:?} cannot be used: {}.", unavailable.why);
            Fault::for_model("unavailable", message)
        })?;
        let error = match timeout_at(deadline, live.peer().send_request(request.clone())).await {
            Err(_) => {
                let seconds = connection.config.timeout.as_secs_f64();
                let message = format!("The MCP server {server:?} did not answer within {seconds} seconds.");
                return Err(Fault::for_model("timed_out", message));
            }
            Ok(Ok(ServerResult::InputRequiredResult(_))) => {
                let message = format!("The MCP server {server:?} asks a person first, which only calls of tools may.");
                return Err(Fault::for_model("mcp_error", message));
            }
            Ok(Ok(result)) => return Ok(serde_json::to_value(result).unwrap_or_default()),
            Ok(Err(error)) => error,
        };
        match &error {
            ServiceError::McpError(error) => {
                let (code, message) = (error.code.0, connection.redact(&error.message));
                let message = format!("The MCP server {server:?} answered with the error {code}: {message}");
                return Err(Fault::for_model("mcp_error", message));
            }
            _ if is_again => {
                let why = connection.describe_failure(&error, &live).await;
                return Err(Fault::for_model(
                    "unavailable",
                    format!("The MCP server {server:?} did not answer: {why}."),
                ));
            }
            _ => {
                connection.forget(&live).await;
                is_again = true;
            }
        }
    }
}

/// The entries of all pages of a list that can be read, and what is wrong with the others.
pub(super) async fn entries<T: DeserializeOwned>(
    connection: &Connection,
    field: &str,
    list: impl Fn(PaginatedRequestParams) -> ClientRequest,
    environment: &CallEnvironment,
) -> Result<(Vec<T>, Vec<String>), Fault> {
    let (mut found, mut problems, mut cursors) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut cursor = None;
    loop {
        let page =
            match request(connection, list(PaginatedRequestParams::default().with_cursor(cursor)), environment).await {
                Ok(page) => page,
                Err(Fault::ForModel(_, why)) if !found.is_empty() => {
                    problems.push(format!("its list of {field} is not whole: {why}"));
                    return Ok((found, problems));
                }
                Err(fault) => return Err(fault),
            };
        for entry in page[field].as_array().into_iter().flatten() {
            match serde_json::from_value(entry.clone()) {
                Ok(entry) => found.push(entry),
                Err(error) => problems.push(format!("one of its {field} cannot be read: {error}")),
            }
        }
        cursor = page["nextCursor"].as_str().filter(|next| !next.is_empty()).map(str::to_owned);
        let Some(next) = &cursor else { return Ok((found, problems)) };
        if !cursors.insert(next.clone()) || cursors.len() >= MAX_PAGES || found.len() >= MAX_ENTRIES {
            found.truncate(MAX_ENTRIES);
            problems.push(format!("its list of {field} does not end, and what is behind it is not known"));
            return Ok((found, problems));
        }
    }
}
