//! Sessions: durable runs of the built-in agent, each in a queue of its own so that two terminals do not share their work.

use super::external::{self, ExternalAgent, is_external};
use crate::print::short;
use crate::target::is_url;
use crate::{Failed, Result};
use flovyn_core::Payload;
use flovyn_core::client::{Client, Handle, StartOptions};
use flovyn_core::error::{Code, Error};
use flovyn_core::model::{Execution, ExecutionFilter, ForkFrom, PageRequest};
use flovyn_core::runtime::{Backend, Runtime, parse_url};
use flovyn_toolkit::config::home;
use flovyn_toolkit::react::{AgentInput, KIND};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The metadata that has the directory of a session.
const DIRECTORY: &str = "directory";
/// The metadata that has the agent of others that it is with.
const AGENT: &str = "agent";
/// The metadata that has its first prompt.
const TITLE: &str = "title";
/// Letters of a session's name.
const NAME: usize = 8;
/// Characters of its title.
const TITLE_LENGTH: usize = 80;

/// Where sessions are kept.
pub(super) struct Store {
    runtime: Runtime,
    url: String,
    served_here: bool,
}

/// A session that exists.
#[derive(Clone)]
pub(super) struct Session {
    /// The run.
    pub handle: Handle,
    /// Its input.
    pub input: AgentInput,
    /// The queue of its workers.
    pub queue: String,
    /// The agent of others that it is with; the built-in one where there is none.
    pub agent: Option<ExternalAgent>,
}

impl Store {
    /// Opens the store of `--db`, `FLOVYN_URL` or the user's own file; makes a file that is not there.
    pub(super) async fn open(named: Option<&str>) -> Result<Self> {
        let url =
            match named.map(str::to_owned).or_else(|| std::env::var("FLOVYN_URL").ok().filter(|url| !url.is_empty())) {
                Some(url) if is_url(&url) => url,
                Some(file) => format!("sqlite:{file}"),
                None => {
                    let home = home()?;
                    std::fs::create_dir_all(&home).map_err(|error| {
                        let message =
                            format!("the folder {} cannot be made: {error}; name a file with --db", home.display());
                        Error::new(Code::StorageUnavailable, message)
                    })?;
                    format!("sqlite:{}", home.join("chat.db").display())
                }
            };
        let served_here = !matches!(parse_url(&url)?, Backend::Server { .. });
        Ok(Self { runtime: Runtime::open(&url).await?, url, served_here })
    }

    /// The backend.
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Its URL, also for the names of folders.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether this process serves the sessions; else the workers of a server do.
    pub(super) fn is_served_here(&self) -> bool {
        self.served_here
    }

    /// A client of it.
    pub(super) fn client(&self) -> Client {
        self.runtime.client()
    }

    /// Starts a session.
    pub(super) async fn start(
        &self,
        directory: &Path,
        input: AgentInput,
        agent: Option<ExternalAgent>,
    ) -> Result<Session> {
        let name = fresh_name();
        let queue = if self.served_here { format!("chat-{name}") } else { "default".to_owned() };
        let mut metadata = BTreeMap::from([
            (DIRECTORY.to_owned(), directory.display().to_string()),
            (TITLE.to_owned(), short(&input.user_prompt, TITLE_LENGTH)),
        ]);
        metadata.extend(agent.as_ref().map(|agent| (AGENT.to_owned(), agent.text().to_owned())));
        let kind = agent.as_ref().map_or_else(|| KIND.to_owned(), ExternalAgent::kind);
        let options = StartOptions { id: Some(name), queue: Some(queue.clone()), metadata, ..StartOptions::default() };
        let handle = self.client().start(&kind, Payload::of(&input)?, options).await?;
        Ok(Session { handle, input, queue, agent })
    }

    /// Finds the session of an id, else the last one of a directory.
    pub(super) async fn find(&self, id: Option<&str>, directory: &Path) -> Result<Session> {
        let id = match id.filter(|id| !id.is_empty()) {
            Some(id) => id.to_owned(),
            None => match self.list(Some(directory), 1).await?.first() {
                Some(run) => name_of(run),
                None => {
                    let message = format!("there is no session of {} in {}", directory.display(), self.url);
                    return Err(Failed::Usage(format!("{message}; `flovyn chat --list --all` shows those of others")));
                }
            },
        };
        let handle = self.client().handle(&id).await.map_err(|error| match error.code() {
            Code::ExecutionNotFound => Failed::Usage(format!(
                "there is no session {id:?} in {}; `flovyn chat --list` shows them. A prompt comes before --resume",
                self.url
            )),
            _ => error.into(),
        })?;
        self.open_session(handle).await
    }

    async fn open_session(&self, handle: Handle) -> Result<Session> {
        let run = handle.describe().await?;
        let named = run.new.metadata.get(AGENT).filter(|_| is_external(&run.new.kind));
        if run.new.kind != KIND && named.is_none() {
            let message = format!("{} is a run of the agent {:?} and no chat", name_of(&run), run.new.kind);
            return Err(Failed::Usage(format!("{message}; `flovyn chat --list` shows those")));
        }
        let storage = self.runtime.storage();
        let input = flovyn_core::storage::stored::fetch(storage, self.client().org(), &run.new.input).await?.parse()?;
        let agent = named.map(|named| ExternalAgent::named(named)).transpose()?;
        Ok(Session { handle, input, queue: run.new.queue, agent })
    }

    /// Starts a session that shares another's conversation.
    pub(super) async fn fork(&self, session: &Session) -> Result<Session> {
        self.fork_from(session, ForkFrom::Latest).await
    }

    /// Starts a session that shares another's conversation up to a point.
    pub(super) async fn fork_from(&self, session: &Session, from: ForkFrom) -> Result<Session> {
        let name = fresh_name();
        self.open_session(session.handle.fork(from, Some(&name), None, None).await?).await
    }

    /// Sessions, newest first: those of a directory, or all.
    pub(super) async fn list(&self, directory: Option<&Path>, limit: usize) -> Result<Vec<Execution>> {
        let metadata = directory.map(|directory| (DIRECTORY.to_owned(), directory.display().to_string()));
        let mut runs = Vec::new();
        for kind in std::iter::once(KIND.to_owned()).chain(external::kinds()) {
            let metadata = metadata.clone().into_iter().collect();
            let filter = ExecutionFilter { kind: Some(kind.clone()), metadata, ..ExecutionFilter::default() };
            let found = self.client().runs(filter, PageRequest { limit, after: None }).await?.items;
            // Runs of such agents that no chat has started are none of its sessions.
            runs.extend(found.into_iter().filter(|run| kind == KIND || run.new.metadata.contains_key(AGENT)));
        }
        runs.sort_by_key(|run| std::cmp::Reverse(run.created_at));
        runs.truncate(limit);
        Ok(runs)
    }
}

impl Session {
    /// Its name for people.
    pub(super) fn name(&self) -> String {
        self.handle.key().map_or_else(|| self.handle.id().to_string(), str::to_owned)
    }

    /// The directory of its tools, where it names one.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        self.input.working_directory.as_ref().map(PathBuf::from)
    }
}

/// The name of a session's run.
pub(super) fn name_of(run: &Execution) -> String {
    run.new.key.clone().unwrap_or_else(|| run.new.id.to_string())
}

/// The first prompt of a session.
pub(super) fn title_of(run: &Execution) -> &str {
    run.new.metadata.get(TITLE).map_or("", String::as_str)
}

/// The directory of a session.
pub(super) fn directory_of(run: &Execution) -> &str {
    run.new.metadata.get(DIRECTORY).map_or("", String::as_str)
}

fn fresh_name() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..NAME].to_owned()
}
