//! A real MCP server in a process of its own, this very program: over its pipes, or over streamable HTTP on the loopback.

use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CreateTaskResult,
    DetailedTask, DiscoverResult, ErrorCode, GetTaskParams, GetTaskResult, InputRequiredResult, JsonObject,
    ListPromptsResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, Prompt,
    PromptListChangedNotification, ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter, Task,
    TaskPayload, TaskStatus, Tool, ToolAnnotations, ToolListChangedNotification, UpdateTaskParams,
};
use rmcp::service::{
    PeerRequestOptions, RequestContext, RoleServer, ServiceExt, SubscriptionContext, SubscriptionSink,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where the server leaves its traces.
pub(crate) const FOLDER: &str = "FLOVYN_MCP_TEST_FOLDER";
/// Which protocol it speaks: `stateless`, `handshake`, or `ancient`, which ends when it is asked what it does not know.
pub(crate) const ERA: &str = "FLOVYN_MCP_TEST_ERA";
/// The port it listens on.
pub(crate) const PORT: &str = "FLOVYN_MCP_TEST_PORT";
/// The header without which it answers 401 over HTTP.
pub(crate) const KEY: &str = "Bearer k-0123456789";

/// What it says about the use of its tools, with a character that nobody sees.
const INSTRUCTIONS: &str = "Look for \u{e0041}otters first.";
/// How many tools it has that do nothing.
pub(crate) const FILLERS: usize = 70;
const PAGE: usize = 20;

#[derive(Clone)]
struct Probe {
    folder: PathBuf,
    era: String,
    /// Those who are told when the tools change, in the stateless protocol.
    subscribed: Arc<Mutex<Vec<SubscriptionSink>>>,
}

impl Probe {
    fn of_environment() -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os(FOLDER)?);
        Some(Self { folder, era: std::env::var(ERA).unwrap_or_default(), subscribed: Arc::default() })
    }

    /// Notes a line; how many there are of it.
    fn note(&self, line: &str) -> usize {
        let path = self.folder.join("log");
        let mut log = OpenOptions::new().create(true).append(true).open(&path).expect("a log");
        log.write_all(format!("{line}\n").as_bytes()).expect("it is written");
        noted(&self.folder, line)
    }

    async fn answer(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Answered {
        let arguments = request.arguments.unwrap_or_default();
        let text = |text: String| Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        let structured = |text: &str, value: Value| {
            let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
            result.structured_content = Some(value);
            Ok(result.into())
        };
        match request.name.as_ref() {
            "echo" => {
                let said = arguments["text"].as_str().unwrap_or_default();
                structured(said, json!({ "text": said }))
            }
            "wrong_output" => structured("x", json!({ "text": 3 })),
            "once" => text(format!("done {}", self.note("once"))),
            "many" => text(format!("done {}", self.note("many"))),
            "learns" => {
                fs::write(self.folder.join("learned"), "").expect("it is written");
                let subscribed = self.subscribed.lock().expect("nobody panics").clone();
                for subscribed in subscribed {
                    let _ = subscribed.send(ToolListChangedNotification::default().into()).await;
                    let _ = subscribed.send(PromptListChangedNotification::default().into()).await;
                }
                if self.era != "stateless" {
                    context.peer.notify_tool_list_changed().await.expect("the client is there");
                    context.peer.notify_prompt_list_changed().await.expect("the client is there");
                }
                text("learned".into())
            }
            "long" => {
                let lines = arguments.get("lines").and_then(Value::as_u64).unwrap_or(1);
                let line = |line: u64| format!("line {line} of a long result of a server, with more words\n");
                text((1..=lines).map(line).collect())
            }
            "slow" | "slow_exec" => self.slow(&arguments, context).await,
            "fails" => Ok(CallToolResult::error(vec![ContentBlock::text("the disk is full")]).into()),
            "breaks" => Err(ErrorData::new(ErrorCode(-32_050), format!("no such thing; the key is {KEY}"), None)),
            "dies" => {
                self.note("dies");
                eprintln!("out of luck with {KEY}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                die()
            }
            "dies_twice" => match self.note("dies_twice") {
                1 | 2 => die(),
                times => text(format!("done {times}")),
            },
            "variables" => text(std::env::vars().map(|(name, _)| name).collect::<Vec<_>>().join(" ")),
            "leaves_a_child" => {
                let child = tokio::process::Command::new("sleep").arg("3622").spawn().expect("it starts");
                text(format!("{} {}", std::process::id(), child.id().expect("it runs")))
            }
            "asks" | "asks_safely" if self.era != "stateless" => self.asks(&arguments, &context).await,
            "asks" | "asks_safely" => match request.input_responses {
                None => {
                    let asked = which_branch();
                    let requests = serde_json::from_value(json!({ "branch": asked })).expect("a request");
                    Ok(InputRequiredResult::new(Some(requests), Some("state: \"1\"".to_owned())).into())
                }
                Some(responses) => {
                    let times = self.note("asks");
                    if arguments.contains_key("die") && times == 1 {
                        die();
                    }
                    let state = request.request_state.unwrap_or_default();
                    text(format!("{} {state}", responses["branch"]))
                }
            },
            "asks_much" => match request.input_responses {
                None => {
                    let form = json!({ "type": "object", "required": ["name", "size", "depth"], "properties": {
                        "name": { "type": "string", "title": "Name", "minLength": 3, "description": "As it is on the map." },
                        "size": { "type": "string", "oneOf": [
                            { "const": "s", "title": "Small" }, { "const": "l", "title": "Large" }] },
                        "depth": { "type": "integer", "minimum": 1, "maximum": 5, "default": 2 },
                        "fish": { "type": "boolean" } } });
                    let asked = json!({ "method": "elicitation/create",
                        "params": { "mode": "form", "message": "What lake shall it be?", "requestedSchema": form } });
                    let visit = json!({ "method": "elicitation/create", "params": { "mode": "url", "elicitationId": "1",
                        "message": "Say there who you are.", "url": "https://lake.example/login?state=1" } });
                    let requests = serde_json::from_value(json!({ "lake": asked, "login": visit })).expect("requests");
                    Ok(InputRequiredResult::new(Some(requests), None).into())
                }
                Some(responses) => {
                    self.note("asks_much");
                    text(serde_json::to_string(&responses).expect("JSON"))
                }
            },
            "takes_days" | "asks_in_days" | "fails_in_days" => {
                self.note(&request.name);
                let id = format!("{}-{}", request.name, arguments.get("id").and_then(Value::as_str).unwrap_or("1"));
                fs::write(self.folder.join(&id), "0").expect("it is written");
                Ok(CreateTaskResult::new(self.task(&id)).into())
            }
            "asks_model" => {
                let asked = json!({ "maxTokens": 50, "messages": [
                    { "role": "user", "content": { "type": "text", "text": "What do otters eat?" } }] });
                let said = |answer: &Value| text(answer["content"]["text"].as_str().unwrap_or_default().to_owned());
                match request.input_responses {
                    Some(responses) => said(&responses["m"]),
                    None if self.era == "stateless" => {
                        let asked = json!({ "m": { "method": "sampling/createMessage", "params": asked } });
                        let requests = serde_json::from_value(asked).expect("a request");
                        Ok(InputRequiredResult::new(Some(requests), None).into())
                    }
                    None => {
                        let asked = serde_json::from_value(asked).expect("a request");
                        #[expect(deprecated, reason = "servers of the handshake ask like this")]
                        let answer = context.peer.create_message(asked).await;
                        match answer {
                            Ok(answer) => said(&serde_json::to_value(answer).expect("JSON")),
                            Err(error) => text(format!("refused: {error}")),
                        }
                    }
                }
            }
            "asks_where" => match request.input_responses {
                None => {
                    let form = json!({ "type": "object", "properties": { "branch": { "type": "string" } } });
                    let mut asked = json!({ "where": { "method": "roots/list" } });
                    if arguments.contains_key("branch") {
                        asked["branch"] = json!({ "method": "elicitation/create",
                            "params": { "mode": "form", "message": "Which branch?", "requestedSchema": form } });
                    }
                    let requests = serde_json::from_value(asked).expect("requests");
                    Ok(InputRequiredResult::new(Some(requests), None).into())
                }
                Some(responses) => text(serde_json::to_string(&responses).expect("JSON")),
            },
            "asks_later" => match request.request_state {
                None => Ok(InputRequiredResult::from_request_state("later").into()),
                Some(state) => text(state),
            },
            other => text(format!("this is {other}")),
        }
    }

    /// Asks with a request of its own, as servers of the handshake do: as often as it is to, and only so long. Works for a while
    /// then.
    async fn asks(&self, arguments: &JsonObject, context: &RequestContext<RoleServer>) -> Answered {
        let number = |name: &str| arguments.get(name).and_then(Value::as_u64);
        self.note("asked");
        let mut answers = Vec::new();
        for _ in 0..number("times").unwrap_or(1) {
            let asked = serde_json::from_value(which_branch()).expect("a request");
            let mut options = PeerRequestOptions::no_options();
            options.timeout = number("patience").map(Duration::from_millis);
            let sent = context.peer.send_request_with_option(asked, options).await.expect("the client is there");
            let answer = async {
                let answer = sent.await_response().await;
                // That nobody answers and that the call is called off may come in either order over HTTP.
                if answer.is_err() && !arguments.contains_key("patience") {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
                answer
            };
            let answer = tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    self.note("question called off");
                    return Err(ErrorData::internal_error("called off", None));
                }
                answer = answer => answer,
            };
            answers.push(match answer {
                Ok(answer) => serde_json::to_value(answer).expect("JSON").to_string(),
                Err(error) => format!("no answer: {error}"),
            });
        }
        let times = self.note("asks");
        if arguments.contains_key("die") && times == 1 {
            die();
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(number("ms").unwrap_or(0))) => {}
            () = context.ct.cancelled() => {
                self.note("called off");
                return Err(ErrorData::internal_error("called off", None));
            }
        }
        let text = format!("{} state: \"1\"", answers.join(" "));
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    fn task(&self, id: &str) -> Task {
        let when = "2026-08-01T00:00:00Z";
        Task::new(id, TaskStatus::Working, when, when).with_poll_interval_ms(60).with_status_message("thinking")
    }

    /// The state of a task: it works, asks or fails, and is done the next time.
    fn state(&self, id: &str) -> TaskPayload {
        let file = self.folder.join(id);
        let state = fs::read_to_string(&file).expect("a task of this server");
        match (id.split('-').next(), state.as_str()) {
            (_, "cancelled") => TaskPayload::Cancelled,
            _ if id.ends_with("-forever") => TaskPayload::Working,
            (_, "0") => {
                fs::write(&file, "1").expect("it is written");
                TaskPayload::Working
            }
            (Some("fails_in_days"), _) => {
                let error = json!({ "code": -32_000, "message": format!("the lake is frozen, {KEY}") });
                TaskPayload::Failed { error: error.as_object().cloned().expect("an object") }
            }
            (Some("asks_in_days"), "1") => {
                let form = json!({ "type": "object", "properties": { "branch": { "type": "string" } } });
                let asked = json!({ "branch": { "method": "elicitation/create",
                    "params": { "mode": "form", "message": "Which branch?", "requestedSchema": form } } });
                TaskPayload::InputRequired { input_requests: serde_json::from_value(asked).expect("requests") }
            }
            (_, said) => {
                let result = json!({ "content": [{ "type": "text", "text": format!("done: {said}") }] });
                TaskPayload::Completed { result: result.as_object().cloned().expect("an object") }
            }
        }
    }

    /// Reports `steps` times, `ms` apart; notes when it is called off.
    async fn slow(&self, arguments: &JsonObject, context: RequestContext<RoleServer>) -> Answered {
        let number = |name: &str| arguments.get(name).and_then(Value::as_u64).unwrap_or(1);
        self.note("slow");
        for step in 1..=number("steps") {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(number("ms"))) => {}
                () = context.ct.cancelled() => {
                    self.note("called off");
                    return Err(ErrorData::internal_error("called off", None));
                }
            }
            if let Some(token) = context.meta.get_progress_token() {
                let mut report = ProgressNotificationParam::new(token, step as f64);
                (report.total, report.message) = (Some(number("steps") as f64), Some(format!("step {step}")));
                let _ = context.peer.notify_progress(report).await;
            }
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("slept")]).into())
    }
}

type Answered = Result<CallToolResponse, ErrorData>;

fn which_branch() -> Value {
    let form = json!({ "type": "object", "properties": { "branch": { "type": "string" } }, "required": ["branch"] });
    json!({ "method": "elicitation/create",
        "params": { "mode": "form", "message": "Which branch?", "requestedSchema": form } })
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).expect("it can be killed");
    unreachable!("it is dead")
}

/// How often a line was noted in a folder.
pub(crate) fn noted(folder: &Path, line: &str) -> usize {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.lines().filter(|found| *found == line).count()
}

/// Its tools. Once it has learned something there is one more, and `many` is gone.
fn tools(has_learned: bool) -> Vec<Tool> {
    let any = json!({ "type": "object" });
    let text = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"], "additionalProperties": false });
    // References to itself have to hold wherever the schema is put.
    let output = json!({ "type": "object", "properties": { "text": { "$ref": "#/$defs/text" } }, "$defs": { "text": { "type": "string" } } });
    let object = |schema: &Value| Arc::new(schema.as_object().expect("an object").clone());
    let reads = ToolAnnotations::new().read_only(true);
    let tool = |name: &'static str, schema: &Value| Tool::new(name, format!("Does {name}."), object(schema));
    let mut tools = vec![
        tool("echo", &text).with_annotations(reads.clone()).with_raw_output_schema(object(&output)),
        tool("wrong_output", &any).with_annotations(reads.clone()).with_raw_output_schema(object(&output)),
        tool("once", &any),
        tool("many", &any).with_annotations(ToolAnnotations::new().idempotent(true)),
        tool("learns", &any),
        tool("long", &any).with_annotations(reads.clone()),
        tool("slow", &any).with_annotations(reads.clone()),
        tool("slow_exec", &any),
        tool("fails", &any),
        tool("breaks", &any),
        tool("dies", &any),
        tool("dies_twice", &any).with_annotations(ToolAnnotations::new().idempotent(true)),
        tool("variables", &any).with_annotations(reads),
        tool("leaves_a_child", &any),
        tool("asks", &any),
        tool("asks_safely", &any).with_annotations(ToolAnnotations::new().idempotent(true)),
        tool("asks_much", &any),
        tool("asks_later", &any),
        tool("asks_where", &any),
        tool("asks_model", &any),
        tool("takes_days", &any),
        tool("asks_in_days", &any),
        tool("fails_in_days", &any),
        tool("a/b", &any),
        tool("a.b", &any),
        tool("a_b", &any),
        tool("no_schema", &json!({ "type": 7 })),
    ];
    if has_learned {
        tools.retain(|tool| tool.name != "many");
        tools.push(tool("learned", &any));
    }
    tools.extend((0..FILLERS).map(|number| Tool::new(format!("filler_{number:02}"), "", object(&any))));
    tools
}

impl ServerHandler for Probe {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_prompts()
                .enable_prompts_list_changed()
                .enable_tasks()
                .build(),
        )
        .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era.as_str() {
            "stateless" => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            _ => Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_06_18)),
        }
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        match self.era.as_str() {
            "stateless" => {
                let versions = self.supported_protocol_versions().into_owned();
                Ok(DiscoverResult::from_server_info(versions, self.get_info()))
            }
            "ancient" => std::process::exit(1),
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "server/discover", None)),
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.subscribed.lock().expect("nobody panics").push(context.sink().clone());
        context.cancelled().await;
        Ok(())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let start = request.and_then(|request| request.cursor?.parse().ok()).unwrap_or(0);
        let all = tools(self.folder.join("learned").exists());
        let next_cursor = (start + PAGE < all.len()).then(|| (start + PAGE).to_string());
        let tools = all.into_iter().skip(start).take(PAGE).collect();
        Ok(ListToolsResult { tools, next_cursor, ..ListToolsResult::default() })
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let learned = self.folder.join("learned").exists().then_some("taught");
        let prompts = ["greet"].into_iter().chain(learned).map(|name| Prompt::new(name, None::<&str>, None));
        Ok(ListPromptsResult { prompts: prompts.collect(), ..ListPromptsResult::default() })
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let id = request.task_id;
        Ok(GetTaskResult::new(DetailedTask::new(self.task(&id), self.state(&id))))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let answers = serde_json::to_string(&request.input_responses).expect("JSON");
        fs::write(self.folder.join(request.task_id), answers).expect("it is written");
        Ok(())
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        fs::write(self.folder.join(request.task_id), "cancelled").expect("it is written");
        self.note("task called off");
        Ok(())
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Answered {
        self.answer(request, context).await
    }
}

/// Serves on standard input and on descriptor 3: the standard output is the test harness's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the server process that the other tests start"]
async fn on_pipes() {
    let Some(probe) = Probe::of_environment() else { return };
    let output = OpenOptions::new().write(true).open("/dev/fd/3").expect("descriptor 3 is open");
    let transport = (tokio::io::stdin(), tokio::fs::File::from_std(output));
    let running = probe.serve(transport).await.expect("it is served");
    let _ = running.waiting().await;
    std::process::exit(0);
}

/// Serves over streamable HTTP until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the server process that the other tests start"]
async fn over_http() {
    let Some(probe) = Probe::of_environment() else { return };
    let port = std::env::var(PORT).expect("a port");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("the port is free");
    let address = listener.local_addr().expect("an address").to_string();
    let written = probe.folder.join("address.new");
    fs::write(&written, address).expect("it is written");
    let mut config = StreamableHttpServerConfig::default();
    config.sse_keep_alive = Some(Duration::from_millis(200));
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.sse_retry = Some(Duration::from_millis(100));
    let served = probe.clone();
    let service = StreamableHttpService::new(move || Ok(served.clone()), Arc::new(sessions), config);
    fs::rename(&written, probe.folder.join("address")).expect("it is renamed");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let service = service.clone();
        let guarded = service_fn(move |request: Request<Incoming>| {
            let service = service.clone();
            async move {
                if request.headers().get("authorization").is_none_or(|given| given != KEY) {
                    let refused = Response::builder().status(401).header("www-authenticate", "Bearer");
                    return refused.body(BoxBody::default());
                }
                Ok(service.handle(request).await)
            }
        });
        tokio::spawn(async move {
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), guarded).await;
        });
    }
}
