//! `flovyn keys` and `flovyn migrate`: commands for operators, on the database itself.

use crate::args::{CreateKey, Keys, Migrate, OfOrg, RevokeKey};
use crate::print::{Output, ago, moment};
use crate::target::Target;
use crate::{Failed, Result};
use comfy_table::Cell;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{KeyId, OrgId};
use flovyn_core::model::{ApiKey, NewKey, TokenHash, fresh_token};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::ServerSide;
use serde_json::{Value, json};

/// Makes, lists or revokes keys.
pub(super) async fn keys(command: Keys, out: &mut Output) -> Result {
    match command {
        Keys::Create(args) => create(args, out).await,
        Keys::List(args) => list(args, out).await,
        Keys::Revoke(args) => revoke(args, out).await,
    }
}

/// Brings a database to this version's schema, and makes it if it is not there.
pub(super) async fn migrate(args: Migrate, out: &mut Output) -> Result {
    let target = Target::parse(args.words.words, &[])?;
    let runtime = Runtime::open(target.url()).await?;
    directory(&runtime)?;
    let db = runtime.storage().describe();
    runtime.close().await?;
    if out.is_json() {
        return out.value(&json!({ "db": db, "schema": "current" }));
    }
    out.line(&format!("{db} has this version's schema"))
}

async fn create(args: CreateKey, out: &mut Output) -> Result {
    let target = Target::parse(args.words.words, &[])?;
    let scopes = args.scopes.join(" ").parse()?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let org = match args.org.as_str() {
        "default" => directory.create_organization("default", &actor()).await?.id,
        named => find(directory, named).await?,
    };
    let token = fresh_token();
    let expires_in = if args.never_expires { None } else { Some(args.expires) };
    let new = NewKey {
        org,
        name: args.name,
        scopes,
        expires_in,
        not_after: None,
        hash: TokenHash::of(&token),
        actor: actor(),
    };
    let key = directory.create_key(new).await?;
    if out.is_json() {
        let mut value = view(&key);
        value["token"] = json!(token);
        return out.value(&value);
    }
    out.line(&token)?;
    let until = key.expires_at.map_or_else(|| "for ever".to_owned(), |at| format!("until {}", moment(at)));
    let note = format!("key {} of {}: {}, {until}. It is shown this once.", key.id, args.org, key.scopes);
    out.line(&out.dim(&note))
}

async fn list(args: OfOrg, out: &mut Output) -> Result {
    let target = Target::parse(args.words.words, &[])?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let org = find(directory, &args.org).await?;
    let keys = directory.keys(org).await?;
    if out.is_json() {
        return out.value(&json!({ "items": keys.iter().map(view).collect::<Vec<_>>() }));
    }
    if keys.is_empty() {
        return out.line(&format!("{} has no keys", args.org));
    }
    let now = runtime.storage().clock().now();
    let state = |key: &ApiKey| match (key.revoked_at, key.expires_at) {
        (Some(at), _) => format!("revoked {}", ago(at, now)),
        (None, Some(at)) if at <= now => format!("expired {}", ago(at, now)),
        (None, Some(at)) => format!("until {}", moment(at)),
        (None, None) => "for ever".to_owned(),
    };
    let rows = keys.iter().map(|key| {
        vec![
            Cell::new(key.id),
            Cell::new(&key.name),
            Cell::new(&key.scopes),
            Cell::new(ago(key.created_at, now)),
            Cell::new(state(key)),
        ]
    });
    out.table(&["KEY", "NAME", "SCOPES", "MADE", "WORKS"], rows.collect())
}

async fn revoke(args: RevokeKey, out: &mut Output) -> Result {
    let mut target = Target::parse(args.of.words.words, &["KEY"])?;
    let word = target.word("the KEY's id")?;
    let id: KeyId =
        word.parse().map_err(|_| Failed::Usage(format!("{word:?} is no id of a key; flovyn keys list names them")))?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let org = find(directory, &args.of.org).await?;
    let key = directory.revoke_key(org, id, &actor()).await?;
    if out.is_json() {
        return out.value(&view(&key));
    }
    out.line(&format!("{} ({}) is revoked; servers refuse it within 5 s", key.name, key.id))
}

pub(super) fn directory(runtime: &Runtime) -> Result<&dyn ServerSide> {
    Ok(runtime.storage().server_side()?)
}

/// The organization of a name; that of calls that name none is always there.
pub(super) async fn find(directory: &dyn ServerSide, name: &str) -> Result<OrgId> {
    if name == "default" {
        return Ok(OrgId::DEFAULT);
    }
    let organizations = directory.organizations().await?;
    if let Some(org) = organizations.iter().find(|org| org.name == name) {
        return Ok(org.id);
    }
    let known: Vec<_> = organizations.into_iter().map(|org| org.name).collect();
    let message = format!(
        "there is no organization {name:?}; known are: {}; flovyn orgs create makes one",
        if known.is_empty() { "none but default".to_owned() } else { known.join(", ") }
    );
    Err(Error::new(Code::NotFound, message).into())
}

/// Who did it, for the audit.
pub(crate) fn actor() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("USERNAME")).unwrap_or_else(|_| "unknown".to_owned());
    format!("{user} by the flovyn command")
}

fn view(key: &ApiKey) -> Value {
    json!({
        "id": key.id,
        "org": key.org,
        "name": key.name,
        "scopes": key.scopes.to_string(),
        "createdAt": moment(key.created_at),
        "expiresAt": key.expires_at.map(moment),
        "revokedAt": key.revoked_at.map(moment),
    })
}
