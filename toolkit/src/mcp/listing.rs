//! The list of a server's tools: all its pages, within bounds. A tool or a page that cannot be used costs itself alone.

use super::connection::{Connection, LiveConnection};
use super::parsing::{EXECUTION_FIELD, TASK_SUPPORT};
use rmcp::model::{ClientRequest, ErrorCode, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::ServiceError;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::{Instant, timeout_at};

/// How many tools one server may have.
const MAX_TOOLS: usize = 2_000;
/// How many pages the list of one server may have.
const MAX_PAGES: usize = 500;

struct Page {
    tools: Vec<Tool>,
    problems: Vec<String>,
    next: Option<String>,
}

/// Lists all tools of a server, and the problems of tools that cannot be used. The whole list takes no longer than a call may.
/// The connection then knows them.
pub(super) async fn tools_of(connection: &Connection) -> Result<(Vec<Tool>, Vec<String>), String> {
    let _listing = connection.tool_list.listing();
    let listed = list(connection).await;
    connection.tool_list.settle(&listed, || connection.remembered());
    if let Ok((tools, _)) = &listed {
        connection.remember(tools);
    }
    listed
}

async fn list(connection: &Connection) -> Result<(Vec<Tool>, Vec<String>), String> {
    let live = connection.live().await;
    connection.tool_list.begin();
    let live = live.map_err(|unavailable| unavailable.why)?;
    let deadline = Instant::now() + connection.config.timeout;
    let (mut tools, mut problems) = (BTreeMap::<String, Tool>::new(), Vec::<String>::new());
    let (mut order, mut cursors) = (Vec::new(), BTreeSet::new());
    let mut cursor = None;
    let unended = |what: String| format!("its list of tools does not end: {what}, and what is behind it is not known");
    let problem = loop {
        let page = match timeout_at(deadline, page(&live, cursor)).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => {
                if order.is_empty() && has_none(&error, &live) {
                    break None;
                }
                let why = connection.describe_failure(&error, &live).await;
                break Some(format!("it did not list {} tools: {why}", all_or_more(order.len())));
            }
            Err(_) => {
                let longest = connection.config.timeout;
                break Some(format!("it did not list {} tools within {longest:?}", all_or_more(order.len())));
            }
        };
        problems.extend(page.problems.iter().map(|problem| connection.redact(problem)));
        for tool in page.tools {
            let name = tool.name.to_string();
            match tools.get(&name) {
                None => {
                    order.push(name.clone());
                    tools.insert(name, tool);
                }
                // A tool that is listed twice is added once.
                Some(first) if *first == tool => {}
                Some(_) => problems.push(format!("its tool {name:?} is listed twice, and the first of them is used")),
            }
        }
        if order.len() > MAX_TOOLS {
            let left_out = order.split_off(MAX_TOOLS);
            let first = left_out.first().map(String::as_str).unwrap_or_default();
            break Some(format!("it lists more than {MAX_TOOLS} tools; those from {first:?} on are left out"));
        }
        cursor = page.next.filter(|next| !next.is_empty());
        match &cursor {
            None => break None,
            Some(next) if !cursors.insert(next.clone()) => break Some(unended("a page comes again".into())),
            Some(_) if cursors.len() >= MAX_PAGES => {
                break Some(unended(format!("it has more than {MAX_PAGES} pages")));
            }
            Some(_) => {}
        }
    };
    match problem {
        Some(problem) if order.is_empty() && problems.is_empty() => return Err(problem),
        problem => problems.extend(problem),
    }
    Ok((order.iter().filter_map(|name| tools.remove(name)).collect(), problems))
}

fn all_or_more(known: usize) -> &'static str {
    if known == 0 { "its" } else { "all of its" }
}

/// Whether an error only says that the server has no tools. Such servers have resources or prompts.
fn has_none(error: &ServiceError, live: &LiveConnection) -> bool {
    matches!(error, ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND)
        && live.peer().peer_info().is_some_and(|info| info.capabilities.tools.is_none())
}

async fn page(live: &LiveConnection, cursor: Option<String>) -> Result<Page, ServiceError> {
    let parameters = PaginatedRequestParams::default().with_cursor(cursor);
    // The library's own method may answer with the list that was there before the server said that it has changed.
    let request = ListToolsRequest::with_param(parameters);
    let page = match live.peer().send_request(ClientRequest::ListToolsRequest(request)).await? {
        ServerResult::ListToolsResult(page) => Page { tools: page.tools, problems: Vec::new(), next: page.next_cursor },
        // One invalid tool makes the library reject the whole list; the other tools can still be used.
        answer => {
            let answer = serde_json::to_value(answer).unwrap_or_default();
            lenient_page(&answer).ok_or(ServiceError::UnexpectedResponse)?
        }
    };
    Ok(page.named())
}

impl Page {
    /// The page without the tools that have no name, which nobody could call.
    fn named(mut self) -> Self {
        let listed = self.tools.len();
        self.tools.retain(|tool| !tool.name.trim().is_empty());
        let nameless = "its tool \"\" is left out, for it has no name".to_owned();
        self.problems.extend(std::iter::repeat_n(nameless, listed - self.tools.len()));
        self
    }
}

fn lenient_page(answer: &Value) -> Option<Page> {
    let next = answer.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    let mut page = Page { tools: Vec::new(), problems: Vec::new(), next };
    for listed in answer.get("tools")?.as_array()? {
        let mut repaired = listed.clone();
        if let Some(fields) = repaired.as_object_mut() {
            // Some servers list tools without parameters like this.
            if fields.get("inputSchema").is_none_or(Value::is_null) {
                fields.insert("inputSchema".into(), json!({ "type": "object" }));
            }
            let task_support = fields.get("execution").and_then(|execution| execution.get(EXECUTION_FIELD)).cloned();
            // What only describes a tool is not worth the tool.
            for name in DESCRIPTIVE {
                if fields.get(*name).is_some_and(|value| !describes(name, value)) {
                    fields.remove(*name);
                }
            }
            if let Some(task_support) = task_support {
                let meta = fields.entry("_meta").or_insert_with(|| json!({}));
                meta[TASK_SUPPORT] = task_support;
            }
        }
        match serde_json::from_value(repaired) {
            Ok(tool) => page.tools.push(tool),
            Err(error) => {
                let name = listed.get("name").and_then(Value::as_str).unwrap_or_default();
                page.problems.push(format!("its tool {name:?} is left out, for it cannot be read: {error}"));
            }
        }
    }
    Some(page)
}

/// The fields of a tool that a call does not need.
const DESCRIPTIVE: &[&str] = &["title", "description", "icons", "execution", "_meta", "outputSchema"];

/// Whether a descriptive field has the form that the library reads.
fn describes(name: &str, value: &Value) -> bool {
    match name {
        "title" | "description" => value.is_string(),
        "outputSchema" | "_meta" => value.is_object(),
        // The other fields have many forms, and nothing here shows them.
        _ => false,
    }
}
