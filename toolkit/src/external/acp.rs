//! The Agent Client Protocol, version 1: JSON-RPC over the standard streams. The custom command of a user speaks it as well.
//!
//! Messages are read by hand and not by the protocol's crate: agents in the field speak all its minor versions, and a field
//! or an update that is not known has to be passed over.

mod history;
mod host;
mod updates;

use super::event::{Answer, ExternalEvent, Permission, TurnEnd, TurnEndReason, TurnLog};
use super::process::{Launch, Peer};
use super::protocol::{
    CatchUp, Controls, ExternalAgentProtocol, ExternalSession, Lost, SessionConfig, Snapshot, Spoken,
};
use async_trait::async_trait;
use history::History;
use host::Host;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use updates::Updates;

/// A driver of agents that speak ACP over their standard streams.
#[derive(Debug, Clone)]
pub struct Acp {
    launch: Launch,
}

impl Acp {
    /// A driver that starts this program.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { launch: Launch { program: program.into(), args, ..Launch::default() } }
    }
}

/// The version of the protocol.
const VERSION: u64 = 1;
/// Requests that no method here answers.
const METHOD_NOT_FOUND: i64 = -32601;
/// Requests that could not be carried out.
const INTERNAL_ERROR: i64 = -32603;

#[async_trait]
impl ExternalAgentProtocol for Acp {
    fn name(&self) -> &'static str {
        "acp"
    }

    fn launch(&self, _: &SessionConfig, _: Option<&Snapshot>) -> Launch {
        self.launch.clone()
    }

    fn steers(&self) -> bool {
        false
    }

    async fn start(&self, peer: Peer, config: &SessionConfig) -> Spoken<Box<dyn ExternalSession>> {
        let mut session = AcpSession::greet(peer, config).await?;
        let opened = session.call("session/new", opening(config, None), config.start_timeout).await?;
        let Some(id) = opened["sessionId"].as_str() else {
            return Err(Lost::refused("the external agent has opened a session without an id"));
        };
        session.id = id.to_owned();
        session.choose_model(config, &opened).await?;
        Ok(Box::new(session))
    }

    async fn resume(
        &self,
        peer: Peer,
        config: &SessionConfig,
        snapshot: &Snapshot,
        heard: Option<&TurnLog>,
    ) -> Spoken<(Box<dyn ExternalSession>, CatchUp)> {
        let mut session = AcpSession::greet(peer, config).await?;
        session.id.clone_from(&snapshot.session_id);
        session.sent = snapshot.cursor.as_deref().and_then(|count| count.parse().ok()).unwrap_or(0);
        session.updates.go_on_from(snapshot.cost);
        let params = opening(config, Some(&session.id));
        let mut caught = CatchUp::Unknown;
        if session.abilities["loadSession"] == true {
            session.history = Some(History::default());
            let opened = session.call("session/load", params, config.start_timeout).await?;
            let history = session.history.take().unwrap_or_default();
            if let Some(heard) = heard {
                caught = history.catch_up(heard, session.sent);
            }
            session.choose_model(config, &opened).await?;
        } else if session.abilities["sessionCapabilities"]["resume"].is_object() {
            let opened = session.call("session/resume", params, config.start_timeout).await?;
            session.choose_model(config, &opened).await?;
        } else {
            let message = format!(
                "the external agent {} can neither load nor resume a session, so what it was doing is lost with its process",
                session.agent
            );
            return Err(Lost::refused(message));
        }
        Ok((Box::new(session), caught))
    }
}

/// The parameters that open a session.
fn opening(config: &SessionConfig, id: Option<&str>) -> Value {
    let mut params = json!({ "cwd": config.working_dir, "mcpServers": [] });
    if let Some(id) = id {
        params["sessionId"] = id.into();
    }
    params
}

struct AcpSession {
    peer: Peer,
    id: String,
    /// The agent's name and version.
    agent: String,
    /// What it says that it can do.
    abilities: Value,
    last_request: u64,
    /// The request of the turn that runs.
    prompt: Option<u64>,
    /// How many messages of the user it was sent before the present turn.
    sent: usize,
    ready: VecDeque<ExternalEvent>,
    updates: Updates,
    host: Host,
    /// Where the past of a session that is loaded goes.
    history: Option<History>,
    /// What waits for a permission, by its id.
    asked: BTreeMap<String, OpenRequest>,
}

/// What waits for a permission.
enum OpenRequest {
    /// The agent asks for one of its tool calls.
    Tool { request: Value, call: String, options: Vec<Value> },
    /// It wants the host to change something.
    Host { request: Value, method: String, params: Value },
}

impl AcpSession {
    async fn greet(peer: Peer, config: &SessionConfig) -> Spoken<Self> {
        let mut session = Self {
            host: Host::new(config.environment.clone(), peer.outbox().clone()),
            peer,
            id: String::new(),
            agent: "acp".to_owned(),
            abilities: Value::Null,
            last_request: 0,
            prompt: None,
            sent: 0,
            ready: VecDeque::new(),
            updates: Updates::default(),
            history: None,
            asked: BTreeMap::new(),
        };
        let greeting = json!({
            "protocolVersion": VERSION,
            "clientCapabilities": { "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true },
            "clientInfo": { "name": "flovyn", "title": "Flovyn", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = session.call("initialize", greeting, config.start_timeout).await?;
        let word = |field: &str| answer["agentInfo"][field].as_str();
        if let Some(name) = word("name") {
            session.agent = format!("acp {name} {}", word("version").unwrap_or("")).trim_end().to_owned();
        }
        if answer["protocolVersion"].as_u64() != Some(VERSION) {
            let message = format!(
                "the external agent {} speaks version {} of ACP; version {VERSION} is needed",
                session.agent, answer["protocolVersion"]
            );
            return Err(Lost::refused(message));
        }
        session.abilities = answer["agentCapabilities"].clone();
        Ok(session)
    }

    /// Chooses the model, where one was named.
    async fn choose_model(&mut self, config: &SessionConfig, opened: &Value) -> Spoken<()> {
        let Some(model) = &config.model else { return Ok(()) };
        let options = opened["configOptions"].as_array().into_iter().flatten();
        let Some(option) = options.into_iter().find(|option| option["category"] == "model") else {
            let message = format!("the external agent {} does not let others choose its model", self.agent);
            return Err(Lost::refused(message));
        };
        let params = json!({ "sessionId": self.id, "configId": option["id"], "value": model });
        self.call("session/set_config_option", params, config.start_timeout).await.map(drop)
    }

    fn request(&mut self, method: &str, params: Value) -> Spoken<u64> {
        self.last_request += 1;
        let id = self.last_request;
        self.peer.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    /// Makes a request and waits for its answer; what comes meanwhile is kept.
    async fn call(&mut self, method: &str, params: Value, limit: Duration) -> Spoken<Value> {
        let id = self.request(method, params)?;
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let record = match self.peer.next_within(left).await {
                Err(Lost::Died(_)) if left.is_zero() => return Err(self.peer.silent(limit)),
                record => record?,
            };
            match is_answer(&record) && record["id"] == id {
                false => self.on_record(record)?,
                true if record.get("error").is_some() => {
                    let message = format!("the external agent refused {method}: {}", error_text(&record["error"]));
                    return Err(Lost::refused(message));
                }
                true => return Ok(record["result"].clone()),
            }
        }
    }

    fn reply(&self, request: &Value, result: Value) -> Spoken<()> {
        self.peer.send(&json!({ "jsonrpc": "2.0", "id": request, "result": result }))
    }

    fn on_record(&mut self, mut record: Value) -> Spoken<()> {
        if is_answer(&record) {
            if self.prompt.is_some_and(|prompt| record["id"] == prompt) {
                self.prompt = None;
                self.end_turn(&record);
            }
            return Ok(());
        }
        let (request, params) = (record["id"].take(), record["params"].take());
        match (record["method"].as_str().unwrap_or_default(), request.is_null()) {
            ("session/update", _) => {
                let events = self.updates.read(&params["update"]);
                match &mut self.history {
                    Some(history) => history.take(&params["update"], events),
                    None => self.ready.extend(events),
                }
                Ok(())
            }
            (_, true) => Ok(()),
            ("session/request_permission", _) => self.on_permission(request, &params),
            ("fs/read_text_file", _) => {
                self.host.read(request, params);
                Ok(())
            }
            (method @ ("fs/write_text_file" | "terminal/create"), _) => {
                self.on_change(request, method.to_owned(), params)
            }
            (method, _) if method.starts_with("terminal/") => {
                self.host.terminal(request, method, &params);
                Ok(())
            }
            (method, _) => {
                let message = format!("Flovyn has no method {method:?}");
                let error = json!({ "code": METHOD_NOT_FOUND, "message": message });
                self.peer.send(&json!({ "jsonrpc": "2.0", "id": request, "error": error }))
            }
        }
    }

    fn end_turn(&mut self, record: &Value) {
        let failed = record.get("error").map(error_text);
        if failed.is_none() {
            self.ready.extend(self.updates.turn_usage(&record["result"], &self.agent));
        }
        let reason = match record["result"]["stopReason"].as_str() {
            _ if failed.is_some() => TurnEndReason::Error,
            Some("max_tokens") => TurnEndReason::Length,
            Some("max_turn_requests") => TurnEndReason::MaxTurns,
            Some("refusal") => TurnEndReason::Refusal,
            Some("cancelled") => TurnEndReason::Interrupted,
            _ => TurnEndReason::End,
        };
        self.sent += 1;
        self.ready.push_back(ExternalEvent::Cursor(self.sent.to_string()));
        self.ready.push_back(ExternalEvent::TurnEnd(TurnEnd { reason, message: failed }));
    }

    fn on_permission(&mut self, request: Value, params: &Value) -> Spoken<()> {
        let call = &params["toolCall"];
        let (events, asked) = self.updates.asked(call);
        self.ready.extend(events);
        let options = params["options"].as_array().cloned().unwrap_or_default();
        let id = request.to_string();
        let kept = OpenRequest::Tool { request, call: asked.id.clone(), options };
        self.asked.insert(id.clone(), kept);
        self.ready.push_back(ExternalEvent::Permission(Permission {
            id,
            name: asked.name,
            effect: asked.effect,
            arguments: asked.arguments,
        }));
        Ok(())
    }

    /// The agent wants the host to change something. Within a tool call that was allowed it is done at once.
    fn on_change(&mut self, request: Value, method: String, params: Value) -> Spoken<()> {
        if self.updates.has_allowed_call() {
            self.host.change(request, &method, params);
            return Ok(());
        }
        let (name, effect, arguments) = host::as_tool(&method, &params);
        let id = format!("host-{request}");
        self.asked.insert(id.clone(), OpenRequest::Host { request, method, params });
        self.ready.push_back(ExternalEvent::Permission(Permission { id, name: name.to_owned(), effect, arguments }));
        Ok(())
    }
}

#[async_trait]
impl ExternalSession for AcpSession {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            session_id: self.id.clone(),
            cursor: Some(self.sent.to_string()),
            agent: self.agent.clone(),
            cost: self.updates.booked_cost(),
            ..Snapshot::default()
        }
    }

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    async fn send_message(&mut self, text: &str) -> Spoken<()> {
        let prompt = json!({ "sessionId": self.id, "prompt": [{ "type": "text", "text": text }] });
        self.updates.begin_turn();
        self.prompt = Some(self.request("session/prompt", prompt)?);
        Ok(())
    }

    async fn next(&mut self) -> Spoken<ExternalEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let record = self.peer.next().await?;
            self.on_record(record)?;
        }
    }

    async fn answer(&mut self, id: &str, answer: &Answer) -> Spoken<()> {
        match self.asked.remove(id) {
            None => Ok(()),
            Some(OpenRequest::Tool { request, call, options }) => {
                let kinds: &[&str] = match answer {
                    Answer::Allow => &["allow_once", "allow_always"],
                    Answer::Deny(_) => &["reject_once", "reject_always"],
                    Answer::Withdrawn => &[],
                };
                let chosen = kinds.iter().find_map(|kind| options.iter().find(|option| option["kind"] == **kind));
                if *answer == Answer::Allow && chosen.is_some() {
                    self.updates.allow(&call);
                }
                let outcome = match chosen {
                    Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
                    None => json!({ "outcome": "cancelled" }),
                };
                self.reply(&request, json!({ "outcome": outcome }))
            }
            Some(OpenRequest::Host { request, method, params }) => match answer {
                Answer::Allow => {
                    self.host.change(request, &method, params);
                    Ok(())
                }
                Answer::Deny(reason) => {
                    let said = reason.as_ref().map_or_else(String::new, |reason| format!(" They said: {reason}"));
                    let error =
                        json!({ "code": INTERNAL_ERROR, "message": format!("The user did not allow this.{said}") });
                    self.peer.send(&json!({ "jsonrpc": "2.0", "id": request, "error": error }))
                }
                Answer::Withdrawn => {
                    let error = json!({ "code": INTERNAL_ERROR, "message": "The turn was ended." });
                    self.peer.send(&json!({ "jsonrpc": "2.0", "id": request, "error": error }))
                }
            },
        }
    }

    fn waits_for_host(&self) -> bool {
        self.host.is_busy()
    }

    fn controls(&self) -> Controls {
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": self.id } });
        let interrupt = Arc::new(move || vec![cancel.clone()]);
        Controls { outbox: self.peer.outbox().clone(), interrupt, steer: None }
    }
}

/// Whether a record answers a request.
fn is_answer(record: &Value) -> bool {
    record.get("method").is_none() && record.get("id").is_some()
}

/// The text of a JSON-RPC error.
fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("it said no more");
    match &error["data"] {
        Value::Null => message.to_owned(),
        Value::String(data) => format!("{message}: {data}"),
        data => format!("{message}: {data}"),
    }
}
