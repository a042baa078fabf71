//! `flovyn orgs`: the organizations of a database, on the database itself.

use super::keys::{actor, directory, find};
use crate::args::{Confirmed, LimitOrg, Orgs, Words};
use crate::print::{Output, ago, moment};
use crate::target::Target;
use crate::{Failed, Result};
use comfy_table::Cell;
use flovyn_core::error::{Code, Error};
use flovyn_core::model::{OrgLimits, Organization};
use serde_json::{Value, json};

/// Makes, lists, renames, limits or removes organizations.
pub(super) async fn orgs(command: Orgs, out: &mut Output) -> Result {
    match command {
        Orgs::Create(words) => create(words, out).await,
        Orgs::List(words) => list(words, out).await,
        Orgs::Rename(words) => rename(words, out).await,
        Orgs::Limit(args) => limit(args, out).await,
        Orgs::Delete(args) => delete(args, out).await,
    }
}

async fn create(words: Words, out: &mut Output) -> Result {
    let mut target = Target::parse(words.words, &["NAME"])?;
    let name = target.word("the NAME of the organization")?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    if directory.organizations().await?.iter().any(|org| org.name == name) {
        let message = format!("there is an organization {name:?} already; flovyn orgs list shows it");
        return Err(Error::new(Code::AlreadyExists, message).into());
    }
    let created = directory.create_organization(&name, &actor()).await?;
    print_organization(&created, "is there; flovyn keys create --org makes keys of it", out)
}

async fn list(words: Words, out: &mut Output) -> Result {
    let runtime = Target::parse(words.words, &[])?.open().await?;
    let organizations = directory(&runtime)?.organizations().await?;
    if out.is_json() {
        return out.value(&json!({ "items": organizations.iter().map(view).collect::<Vec<_>>() }));
    }
    if organizations.is_empty() {
        return out.line("no organization was made; calls that name none are of `default`");
    }
    let now = runtime.storage().clock().now();
    let row = |org: &Organization| {
        vec![Cell::new(&org.name), Cell::new(org.id), Cell::new(ago(org.created_at, now)), Cell::new(limits(org))]
    };
    out.table(&["NAME", "ID", "MADE", "LIMITS"], organizations.iter().map(row).collect())
}

async fn rename(words: Words, out: &mut Output) -> Result {
    let mut target = Target::parse(words.words, &["NAME", "NEW"])?;
    let (name, new) = (target.word("the NAME of the organization")?, target.word("its NEW name")?);
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let renamed = directory.rename_organization(find(directory, &name).await?, &new, &actor()).await?;
    print_organization(&renamed, &format!("is the name of what was {name}"), out)
}

async fn limit(args: LimitOrg, out: &mut Output) -> Result {
    let LimitOrg { words, create, signal, poll, streams } = args;
    let mut target = Target::parse(words.words, &["NAME"])?;
    let name = target.word("the NAME of the organization")?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let org = find(directory, &name).await?;
    // That of calls that name none may be limited before anybody has made it.
    if name == "default" {
        directory.create_organization(&name, &actor()).await?;
    }
    let limited = directory.limit_organization(org, OrgLimits { create, signal, poll, streams }, &actor()).await?;
    let limits = limits(&limited);
    print_organization(&limited, &format!("has these limits within 5 s: {limits}"), out)
}

async fn delete(args: Confirmed, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["NAME"])?;
    let name = target.word("the NAME of the organization")?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let org = find(directory, &name).await?;
    if !args.yes {
        let message = format!("{name} and all it has would be gone for good; add --yes to remove it");
        return Err(Failed::Usage(message));
    }
    directory.delete_organization(org, &actor()).await?;
    if out.is_json() {
        return out.value(&json!({ "id": org, "name": name, "deleted": true }));
    }
    out.line(&format!("{name} is gone with all it had"))
}

fn print_organization(org: &Organization, what: &str, out: &mut Output) -> Result {
    if out.is_json() {
        return out.value(&view(org));
    }
    out.line(&format!("{} {what}", org.name))
}

fn limits(org: &Organization) -> String {
    let OrgLimits { create, signal, poll, streams } = org.limits;
    let all = [("starts/s", create), ("signals/s", signal), ("polls/s", poll), ("streams", streams)];
    let set: Vec<_> = all.iter().filter_map(|(what, max)| Some(format!("{} {what}", (*max)?))).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}

fn view(org: &Organization) -> Value {
    json!({ "id": org.id, "name": org.name, "createdAt": moment(org.created_at), "limits": org.limits })
}
