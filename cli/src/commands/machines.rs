//! `flovyn machines`: the computers that may work for an organization by name.

use super::keys::actor;
use crate::Result;
use crate::args::Words;
use crate::print::{Output, ago, moment};
use crate::target::Target;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use flovyn_core::storage::machines::{Approval, Machine, machine_queue};
use serde_json::{Map, Value, json};

#[derive(Debug, Subcommand)]
pub(crate) enum Machines {
    /// List machines, oldest first
    #[command(override_usage = "flovyn machines list [URL] [OPTIONS]")]
    List(List),
    /// Let in the computer that shows this code
    #[command(override_usage = "flovyn machines approve [URL] <CODE> [OPTIONS]")]
    Approve(Approve),
    /// Let a machine in no more: its key ends, and what it holds is given back
    #[command(override_usage = "flovyn machines revoke [URL] <NAME>")]
    Revoke(Words),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    words: Words,
    /// Also those that were revoked
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    words: Words,
    /// Another name than the computer asks for
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Whose machine it is; you without it
    #[arg(long, value_name = "PERSON")]
    owner: Option<String>,
}

/// Lists machines, lets one in, revokes one.
pub(super) async fn machines(command: Machines, out: &mut Output) -> Result {
    match command {
        Machines::List(args) => list(args, out).await,
        Machines::Approve(args) => approve(args, out).await,
        Machines::Revoke(args) => revoke(args, out).await,
    }
}

async fn list(args: List, out: &mut Output) -> Result {
    let target = Target::parse(args.words.words, &[])?;
    let runtime = target.open().await?;
    let storage = runtime.storage();
    let (machines, now) = (storage.machines(storage.org()).await?, storage.clock().now());
    let shown: Vec<_> = machines.iter().filter(|machine| args.all || machine.is_live(now)).collect();
    if out.is_json() {
        return out.value(&json!({ "items": shown.iter().map(|machine| view(machine)).collect::<Vec<_>>() }));
    }
    if shown.is_empty() {
        return out.line("there are no machines; `flovyn daemon pair` on a computer begins to enrol it");
    }
    let state = |machine: &Machine| match (machine.revoked_at, machine.seen_at) {
        (Some(at), _) => format!("revoked {}", ago(at, now)),
        (None, _) if !machine.is_live(now) => "its key has ended".to_owned(),
        (None, Some(at)) => ago(at, now),
        (None, None) => "never".to_owned(),
    };
    let rows = shown.iter().map(|machine| {
        vec![
            Cell::new(&machine.name),
            Cell::new(&machine.owner),
            Cell::new(state(machine)),
            Cell::new(words(machine, "kinds")),
            Cell::new(words(machine, "workspaces")),
        ]
    });
    out.table(&["MACHINE", "OWNER", "SEEN", "AGENTS", "WORKSPACES"], rows.collect())
}

async fn approve(args: Approve, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["CODE"])?;
    let code = target.word("the CODE that the computer shows")?;
    let runtime = target.open().await?;
    let storage = runtime.storage();
    let approval = Approval { code, name: args.name, owner: args.owner, actor: actor(), not_after: None };
    let approved = storage.approve_pairing(storage.org(), approval).await?;
    if out.is_json() {
        let queue = machine_queue(&approved.name);
        let facts = json!({ "name": approved.name, "owner": approved.owner, "host": approved.host, "queue": queue });
        return out.value(&facts);
    }
    let (name, host, owner) = (&approved.name, &approved.host, &approved.owner);
    out.line(&format!("{name} is let in: {host}, of {owner}. Runs reach it by Local(\"{name}\")."))
}

async fn revoke(args: Words, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words, &["NAME"])?;
    let name = target.word("the machine's NAME")?;
    let runtime = target.open().await?;
    let storage = runtime.storage();
    let machine = storage.revoke_machine(storage.org(), &name, &actor()).await?;
    if out.is_json() {
        return out.value(&view(&machine));
    }
    out.line(&format!("{name} is revoked; servers refuse it within 5 s"))
}

/// A list of what a machine offers, for people.
fn words(machine: &Machine, of: &str) -> String {
    let words = offers(machine).remove(of);
    let words = words.as_ref().and_then(Value::as_array).into_iter().flatten();
    words.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

fn offers(machine: &Machine) -> Map<String, Value> {
    serde_json::from_str(&machine.offers).unwrap_or_default()
}

fn view(machine: &Machine) -> Value {
    json!({
        "name": machine.name,
        "owner": machine.owner,
        "key": machine.key,
        "offers": offers(machine),
        "createdAt": moment(machine.created_at),
        "seenAt": machine.seen_at.map(moment),
        "revokedAt": machine.revoked_at.map(moment),
        "expiresAt": machine.expires_at.map(moment),
    })
}
