//! Organizations and keys.

use super::Factory;
use super::rig::{Rig, refused};
use crate::error::Code;
use crate::id::{ExecutionId, KeyId, OrgId};
use crate::model::{
    CancelMode, Cancellation, NewExecution, NewKey, OrgLimits, Organization, PageRequest, TokenHash, fresh_token,
};
use crate::payload::Payload;
use crate::storage::directory::NARROW_KEPT;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn new(org: OrgId, name: &str, scopes: &str, token: &str) -> NewKey {
    let (name, actor) = (name.to_owned(), "a test".to_owned());
    let scopes = scopes.parse().expect("scopes");
    NewKey { org, name, scopes, expires_in: Some(HOUR), not_after: None, hash: TokenHash::of(token), actor }
}

/// An organization has one name and keeps its id.
pub async fn an_organization_has_a_name(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().server_side().unwrap();
    let made = directory.create_organization("otters", "me").await.unwrap();
    assert_eq!(directory.create_organization("otters", "me").await.unwrap(), made);
    let default = directory.create_organization("default", "me").await.unwrap();
    assert_eq!(default.id, OrgId::DEFAULT);
    assert_eq!(directory.organizations().await.unwrap(), [default, made]);
    for wrong in ["", "Otters", "-a", "a b", &"x".repeat(64)] {
        assert_eq!(refused(directory.create_organization(wrong, "me").await), Code::InvalidArgument, "{wrong}");
    }
}

/// An organization is renamed, limited and removed; what was never made, and the one of calls that name none, is not.
pub async fn an_organization_changes_and_ends(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().server_side().unwrap();
    let own = directory.create_organization("otters", "me").await.unwrap();
    let other = directory.create_organization("seals", "me").await.unwrap();
    let nobody = OrgId(rig.uuid());
    assert_eq!(refused(directory.rename_organization(own.id, "seals", "me").await), Code::AlreadyExists);
    assert_eq!(refused(directory.rename_organization(own.id, "default", "me").await), Code::AlreadyExists);
    assert_eq!(refused(directory.rename_organization(own.id, "No Slug", "me").await), Code::InvalidArgument);
    assert_eq!(refused(directory.rename_organization(OrgId::DEFAULT, "x", "me").await), Code::InvalidArgument);
    assert_eq!(refused(directory.rename_organization(nobody, "x", "me").await), Code::NotFound);
    let renamed = directory.rename_organization(own.id, "sea-otters", "me").await.unwrap();
    assert_eq!((renamed.id, renamed.name.as_str()), (own.id, "sea-otters"));
    assert_eq!(directory.rename_organization(own.id, "sea-otters", "me").await.unwrap(), renamed);

    let limits = OrgLimits { create: Some(7), streams: Some(2), ..OrgLimits::default() };
    let limited = directory.limit_organization(own.id, limits, "me").await.unwrap();
    assert_eq!(limited, Organization { limits, ..renamed });
    assert_eq!(refused(directory.limit_organization(nobody, limits, "me").await), Code::NotFound);
    assert_eq!(directory.organization(own.id).await.unwrap(), Some(limited.clone()));
    assert_eq!(directory.organization(nobody).await.unwrap(), None);
    assert_eq!(directory.organizations().await.unwrap(), [limited, other.clone()]);

    assert_eq!(refused(directory.delete_organization(OrgId::DEFAULT, "me").await), Code::InvalidArgument);
    assert_eq!(refused(directory.delete_organization(nobody, "me").await), Code::NotFound);
    let token = fresh_token();
    directory.create_key(new(own.id, "ci", "member", &token)).await.unwrap();
    let mut run = NewExecution::new(ExecutionId(rig.uuid()), "agent", Payload::of(&"input").unwrap()).unwrap();
    let foreign = NewExecution { org: other.id, ..run.clone() };
    run.org = own.id;
    rig.storage.create_execution(foreign).await.unwrap();
    let id = rig.storage.create_execution(run).await.unwrap().execution.new.id;
    assert_eq!(refused(directory.delete_organization(own.id, "me").await), Code::InvalidTransition);
    assert!(directory.key_of(TokenHash::of(&token)).await.unwrap().unwrap().revoked_at.is_none());
    let cancel = Cancellation { mode: CancelMode::Hard, grace: Duration::ZERO };
    rig.storage.request_cancel(own.id, id, cancel).await.unwrap();
    directory.delete_organization(own.id, "me").await.unwrap();
    assert_eq!(refused(rig.storage.execution(own.id, id).await), Code::ExecutionNotFound);
    assert_eq!(directory.key_of(TokenHash::of(&token)).await.unwrap(), None);
    assert_eq!(directory.audit(own.id, PageRequest::default()).await.unwrap().items, []);
    assert_eq!(directory.organizations().await.unwrap(), std::slice::from_ref(&other));
    let last = directory.audit(OrgId::DEFAULT, PageRequest::default()).await.unwrap().items.remove(0);
    assert_eq!((last.action.as_str(), last.subject.as_str()), ("organization.deleted", "sea-otters"));
    // The other's run is as it was, and the name is free.
    assert!(rig.storage.execution(other.id, id).await.is_ok());
    assert_ne!(directory.create_organization("sea-otters", "me").await.unwrap().id, own.id);
}

/// A key is found by its token, works for its time, and ends when it is revoked; other orgs never see it.
pub async fn a_key_lives_and_ends(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().server_side().unwrap();
    let (own, other) = (OrgId(rig.uuid()), OrgId(rig.uuid()));
    let token = fresh_token();
    let key = directory.create_key(new(own, "ci", "member worker:gpu", &token)).await.unwrap();
    assert_eq!(
        (key.scopes.to_string().as_str(), key.expires_at),
        ("exec:read exec:write exec:signal worker:gpu", Some(rig.now().after(HOUR)))
    );
    assert!(key.is_live(rig.now()) && !key.is_live(rig.now().after(HOUR)));
    // It ends with the key that makes it, however long the way to the store was.
    for (not_after, expires_at) in [(HOUR / 2, HOUR / 2), (HOUR * 2, HOUR)] {
        let made = new(OrgId(rig.uuid()), "ci", "viewer", &fresh_token());
        let made = NewKey { not_after: Some(rig.now().after(not_after)), ..made };
        assert_eq!(directory.create_key(made).await.unwrap().expires_at, Some(rig.now().after(expires_at)));
    }
    assert_eq!(directory.key_of(TokenHash::of(&token)).await.unwrap(), Some(key.clone()));
    assert_eq!(directory.key_of(TokenHash::of("fk_guessed")).await.unwrap(), None);
    rig.clock.advance(Duration::from_secs(1));
    let second = directory.create_key(new(own, "console", "viewer", &fresh_token())).await.unwrap();
    assert_eq!(directory.keys(own).await.unwrap(), [key.clone(), second]);
    assert_eq!(directory.keys(other).await.unwrap(), []);
    assert_eq!(refused(directory.revoke_key(other, key.id, "me").await), Code::NotFound);
    assert_eq!(refused(directory.revoke_key(own, KeyId(rig.uuid()), "me").await), Code::NotFound);
    let revoked = directory.revoke_key(own, key.id, "me").await.unwrap();
    assert_eq!((revoked.revoked_at, revoked.is_live(rig.now())), (Some(rig.now()), false));
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(directory.revoke_key(own, key.id, "me").await.unwrap(), revoked);
    assert_eq!(directory.key_of(TokenHash::of(&token)).await.unwrap(), Some(revoked));
}

/// Keys of one run or of one user are listed for an hour after their end, and then removed as the next one is made.
pub async fn a_narrow_key_is_removed_after_its_end(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().server_side().unwrap();
    let (own, other) = (OrgId(rig.uuid()), OrgId(rig.uuid()));
    let run = format!("run:{}:read", rig.uuid());
    let mut made = Vec::new();
    for (org, scopes) in
        [(own, run.as_str()), (own, "user:ann:speak"), (own, "viewer user:ann:read"), (other, "user:ann:read")]
    {
        rig.clock.advance(Duration::from_secs(1));
        made.push(directory.create_key(new(org, "a page", scopes, &fresh_token())).await.unwrap());
    }
    rig.clock.advance(HOUR + NARROW_KEPT - Duration::from_secs(2));
    let second = directory.create_key(new(own, "a page", &run, &fresh_token())).await.unwrap();
    assert_eq!(directory.keys(own).await.unwrap(), [made[1].clone(), made[2].clone(), second.clone()]);
    assert_eq!(directory.keys(other).await.unwrap(), made[3..]);
    rig.clock.advance(HOUR);
    directory.create_key(new(own, "a person", "member", &fresh_token())).await.unwrap();
    assert_eq!(directory.keys(own).await.unwrap().len(), 4, "other keys remove none");
}

/// What is done to an org stands in its audit, newest first, page by page, and in no other's.
pub async fn what_is_done_is_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().server_side().unwrap();
    let own = directory.create_organization("otters", "ann").await.unwrap().id;
    directory.create_organization("otters", "ben").await.unwrap();
    let key = directory.create_key(new(own, "ci", "viewer", &fresh_token())).await.unwrap().id;
    rig.clock.advance(Duration::from_secs(1));
    directory.revoke_key(own, key, "ann").await.unwrap();
    directory.revoke_key(own, key, "ben").await.unwrap();
    directory.record(own, "cy", "execution.cancel", "run 7").await.unwrap();
    directory.record(OrgId(rig.uuid()), "dan", "execution.cancel", "run 8").await.unwrap();
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = directory.audit(own, PageRequest { limit: 3, after }).await.unwrap();
        rows.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let told: Vec<_> = rows.iter().map(|row| (row.actor.as_str(), row.action.as_str(), row.subject.as_str())).collect();
    let key = key.to_string();
    let expected = [
        ("cy", "execution.cancel", "run 7"),
        ("ann", "key.revoked", &key),
        ("a test", "key.created", &key),
        ("ann", "organization.created", "otters"),
    ];
    assert_eq!(told, expected);
    assert!(rows.is_sorted_by(|a, b| a.number > b.number && a.at >= b.at));
    let sealed = |at: usize| rows[at].seal.is_some() && rows[at].follows(own, rows.get(at + 1));
    assert!((0..rows.len()).all(sealed), "{rows:?}");
    assert_eq!((rows[0].at, rows[3].at.after(Duration::from_secs(1))), (rig.now(), rig.now()));

    // Also what is done at the same time stands one after the other.
    let many = (0..20).map(|number| {
        let run = format!("run {number}");
        async move { directory.record(own, "eve", "execution.cancel", &run).await }
    });
    futures::future::try_join_all(many).await.unwrap();
    let rows = directory.audit(own, PageRequest { limit: 100, after: None }).await.unwrap().items;
    assert!(rows.len() == 24 && (0..24).all(|at| rows[at].follows(own, rows.get(at + 1))), "{rows:?}");
}
