//! An agent that is made of the types of the protocol's own crate: what it is sent has to parse there, and what it says is
//! written there. It does the same for every prompt: a text, a call that it asks permission for, files and a command by its
//! host, a text. A session is a file of the folder FAKE_DIR, a line for each message.

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, CreateTerminalRequest, InitializeRequest,
    InitializeResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    PermissionOption, PermissionOptionKind, PromptRequest, PromptResponse, ReadTextFileRequest, ReleaseTerminalRequest,
    RequestPermissionOutcome, RequestPermissionRequest, SessionId, SessionNotification, SessionUpdate, StopReason,
    TerminalOutputRequest, TextContent, ToolCall, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::{Agent, Client, Error, Result, Stdio, on_receive_notification, on_receive_request};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::var_os("FAKE_DIR").ok_or_else(Error::internal_error)?);
    let cancelled = Arc::new(AtomicBool::new(false));
    let (folder, stop) = (Arc::new(folder), cancelled.clone());
    let loaded = folder.clone();
    Agent
        .v1()
        .on_receive_request(
            async move |request: InitializeRequest, responder, _: ConnectionTo<Client>| {
                let abilities = AgentCapabilities::new().load_session(true);
                responder.respond(InitializeResponse::new(request.protocol_version).agent_capabilities(abilities))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _: ConnectionTo<Client>| {
                assert!(request.cwd.is_absolute() && request.mcp_servers.is_empty());
                responder.respond(NewSessionResponse::new("otters"))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, client: ConnectionTo<Client>| {
                let lines = fs::read_to_string(loaded.join("otters")).map_err(Error::into_internal_error)?;
                for line in lines.lines() {
                    let update = match line.strip_prefix("user ") {
                        Some(text) => SessionUpdate::UserMessageChunk(chunk(text)),
                        None => SessionUpdate::AgentMessageChunk(chunk(line)),
                    };
                    client.send_notification(SessionNotification::new(request.session_id.clone(), update))?;
                }
                responder.respond(LoadSessionResponse::new())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client: ConnectionTo<Client>| {
                cancelled.store(false, Ordering::Release);
                let turn = Turn { client: client.clone(), session: request.session_id.clone(), folder: folder.clone() };
                let cancelled = cancelled.clone();
                // What it waits for comes by this loop.
                client.spawn(async move {
                    turn.run(&request).await?;
                    let is_cancelled = cancelled.load(Ordering::Acquire);
                    let reason = if is_cancelled { StopReason::Cancelled } else { StopReason::EndTurn };
                    responder.respond(PromptResponse::new(reason))
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |_: CancelNotification, _: ConnectionTo<Client>| {
                stop.store(true, Ordering::Release);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

struct Turn {
    client: ConnectionTo<Client>,
    session: SessionId,
    folder: Arc<PathBuf>,
}

impl Turn {
    fn update(&self, update: SessionUpdate) -> Result<()> {
        self.client.send_notification(SessionNotification::new(self.session.clone(), update))
    }

    fn say(&self, text: &str) -> Result<()> {
        self.keep(text)?;
        self.update(SessionUpdate::AgentMessageChunk(chunk(text)))
    }

    fn keep(&self, line: &str) -> Result<()> {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.folder.join("otters"));
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(Error::into_internal_error)
    }

    async fn run(&self, request: &PromptRequest) -> Result<()> {
        let Some(ContentBlock::Text(text)) = request.prompt.first() else { return Err(Error::invalid_params()) };
        self.keep(&format!("user {}", text.text))?;
        self.say("I look.")?;
        let command = json!({"command": "rm build"});
        let call = ToolCall::new("call-1", "Remove the build").kind(ToolKind::Execute).status(ToolCallStatus::Pending);
        self.update(SessionUpdate::ToolCall(call.raw_input(command)))?;
        let options = vec![
            PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce),
            PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce),
        ];
        let asked = ToolCallUpdate::new("call-1", ToolCallUpdateFields::new());
        let asked = RequestPermissionRequest::new(self.session.clone(), asked, options);
        let said = self.client.send_request(asked).block_task().await?.outcome;
        let is_allowed = matches!(&said, RequestPermissionOutcome::Selected(option) if &*option.option_id.0 == "yes");
        let status = if is_allowed { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let mut found = "nothing".to_owned();
        if is_allowed {
            found = self.found().await?;
        }
        let fields = ToolCallUpdateFields::new().status(status).content(vec![found.as_str().into()]);
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("call-1", fields)))?;
        self.say(&format!("I found {found}."))
    }

    /// What the host reads of a file that it has written, and what a command of it prints.
    async fn found(&self) -> Result<String> {
        let path = std::env::current_dir().map_err(Error::into_internal_error)?.join("found.txt");
        let session = || self.session.clone();
        let written = WriteTextFileRequest::new(session(), &*path, "otters\nseals\n");
        self.client.send_request(written).block_task().await?;
        let read = ReadTextFileRequest::new(session(), &*path).line(1).limit(1);
        let read = self.client.send_request(read).block_task().await?.content;
        let command = CreateTerminalRequest::new(session(), "tail").args(vec!["-n1".to_owned(), name(&path)]);
        let terminal = self.client.send_request(command).block_task().await?.terminal_id;
        let ended = WaitForTerminalExitRequest::new(session(), terminal.clone());
        let exit = self.client.send_request(ended).block_task().await?.exit_status.exit_code;
        let output = TerminalOutputRequest::new(session(), terminal.clone());
        let output = self.client.send_request(output).block_task().await?.output;
        self.client.send_request(ReleaseTerminalRequest::new(session(), terminal)).block_task().await?;
        Ok(format!("{} and {} ({exit:?})", read.trim(), output.trim()))
    }
}

fn name(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
