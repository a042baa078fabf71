//! `flovyn chat`: a coding agent in the terminal whose sessions are durable runs.
//!
//! `options` are its words, `session` finds and starts runs, `serving` works for them in this process with the tools of
//! `servers`, `feed` says what happens in them, `pending` what the user is asked; `one_shot` answers a prompt, `interactive`
//! talks in a terminal, which `view` and `screen` draw.

mod approving;
mod cost;
mod feed;
mod field;
mod history;
mod inquiry;
mod interactive;
mod models;
mod one_shot;
mod options;
mod pending;
mod prompt;
mod screen;
mod servers;
mod serving;
mod session;
mod talk;
mod tools;
mod view;

pub use models::Models;
pub use options::{AFTER, Chat, Confinement};
pub use servers::named as servers_of;
pub use serving::{Place, Serving};
pub use tools::{counts, troubles};

use crate::print::{Output, ago};
use crate::{Failed, Result};
use approving::Standing;
use comfy_table::Cell;
use flovyn_toolkit::react::Delivery;
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use interactive::Scene;
use serde_json::{Map, Value, json};
use session::{Session, Store, directory_of, name_of, title_of};
use std::io::{IsTerminal, Read};
use std::path::Path;
use talk::Talk;

/// Sessions that are listed.
const LISTED: usize = 100;

/// Does what the words of `flovyn chat` say.
pub async fn chat(chat: Chat, out: &mut Output) -> Result {
    let directory = std::env::current_dir().and_then(|here| here.canonicalize())?;
    let store = Store::open(chat.db.as_deref()).await?;
    let mut serving = None;
    let done = match chat.list {
        true => list(&store, &chat, &directory, out).await,
        false => answer(&store, chat, &directory, &mut serving, out).await,
    };
    let closed = store.runtime().close().await;
    // After the worker: a call that its server was taken from would have a result that says so.
    if let Some(serving) = serving {
        serving.close().await;
    }
    done.and(closed.map_err(Failed::from))
}

async fn list(store: &Store, chat: &Chat, directory: &Path, out: &mut Output) -> Result {
    let runs = store.list((!chat.all).then_some(directory), LISTED).await?;
    if out.is_json() {
        let line = |run| json!({ "session": name_of(run), "title": title_of(run), "directory": directory_of(run), "status": run.status });
        return runs.iter().map(line).try_for_each(|line| out.value(&line));
    }
    if runs.is_empty() {
        return out.line(
            "no sessions here; `flovyn chat` starts one, `flovyn chat --list --all` shows those of other directories",
        );
    }
    let now = store.runtime().storage().clock().now();
    let rows = runs.iter().map(|run| {
        let mut row = vec![Cell::new(name_of(run)), Cell::new(ago(run.updated_at, now)), Cell::new(title_of(run))];
        if chat.all {
            row.push(Cell::new(directory_of(run)));
        }
        row
    });
    let head = ["SESSION", "CHANGED", "ASKED FIRST", "DIRECTORY"];
    out.table(&head[..if chat.all { 4 } else { 3 }], rows.collect())
}

async fn answer(
    store: &Store,
    chat: Chat,
    directory: &Path,
    serving: &mut Option<Serving>,
    out: &mut Output,
) -> Result {
    let standing = Standing::read(chat.policy())?;
    let models = Models::open(chat.fake.as_ref().map(Option::as_deref))?;
    let servers = servers(store, &chat)?;
    let session = taken_up(store, &chat, directory).await?;
    let model = talk::model_of(store, &models, &chat, session.as_ref().map(|session| &session.input.model))?;
    let place = session.as_ref().and_then(Session::directory).unwrap_or_else(|| directory.to_owned());
    let people = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let converses = people && !chat.print && !out.is_json();
    let prompt = if converses { None } else { prompt_of(&chat)? };
    let missing = || Failed::Usage("there is no prompt; write one behind `flovyn chat`".into());
    if !converses && session.is_none() && prompt.is_none() {
        return Err(missing());
    }
    let passed_over = servers.as_ref().and_then(|_| servers::passed_over(&place, &chat.mcp));
    *serving = servers.map(|servers| {
        let (roots, store, confinement) = (Vec::new(), store.url(), chat.confinement);
        let place = Place { directory: &place, roots, store, confinement, servers };
        // The session's own policy asks; who answers is decided where it is followed.
        Serving::open(place, &models, ApprovalPolicy::allow_all())
    });
    if converses {
        let scene = Scene { store, models: &models, chat: &chat, directory, passed_over };
        return interactive::converse(scene, session, model, standing, serving, out).await;
    }
    passed_over.iter().for_each(|told| eprintln!("{told}"));
    one_shot::opened(serving).await?;
    let Some(session) = session else {
        let prompt = prompt.ok_or_else(missing)?;
        let mut talk = Talk::begin(store, directory, model, &prompt, &standing).await?;
        talk.serve(store, serving.as_ref()).await?;
        return one_shot::answered(&mut talk, false, standing, out).await;
    };
    let (mut talk, history) = Talk::resume(store, &models, &chat, session).await?;
    talk.serve(store, serving.as_ref()).await?;
    if let Some(status) = history.over {
        let message = format!("the session {} has ended ({status}); --fork goes on from it", talk.session.name());
        return Err(Failed::Usage(message));
    }
    match &prompt {
        Some(prompt) => talk.say(prompt, Delivery::NextStep).await?,
        None if history.is_idle => return Err(missing()),
        None => {}
    }
    one_shot::answered(&mut talk, prompt.is_none(), standing, out).await
}

/// The MCP servers of sessions that this process serves; none where the workers of a server serve them.
fn servers(store: &Store, chat: &Chat) -> Result<Option<Map<String, Value>>> {
    match (store.is_served_here(), chat.mcp.first()) {
        (true, _) => servers::named_or_own(&chat.mcp).map(Some),
        (false, None) => Ok(None),
        (false, Some(file)) => Err(Failed::Usage(format!(
            "the workers of {} do the work there, and start MCP servers: flovyn worker {} --mcp {}",
            store.url(),
            store.url(),
            file.display()
        ))),
    }
}

/// The session that is gone on with, or its fork; none for a new one.
async fn taken_up(store: &Store, chat: &Chat, directory: &Path) -> Result<Option<Session>> {
    if let Some(id) = &chat.fork {
        let session = store.find(Some(id), directory).await?;
        return store.fork(&session).await.map(Some);
    }
    match &chat.resume {
        Some(id) => store.find(id.as_deref(), directory).await.map(Some),
        None => Ok(None),
    }
}

/// The prompt, with what comes in by a pipe behind it.
fn prompt_of(chat: &Chat) -> Result<Option<String>> {
    let mut prompt = chat.prompt.clone().unwrap_or_default();
    if !std::io::stdin().is_terminal() {
        let mut piped = String::new();
        std::io::stdin().read_to_string(&mut piped)?;
        if !prompt.is_empty() && !piped.trim().is_empty() {
            prompt.push_str("\n\n");
        }
        prompt.push_str(piped.trim_end());
    }
    Ok((!prompt.trim().is_empty()).then_some(prompt))
}
