//! Organizations and keys.

use super::Factory;
use super::rig::{Rig, refused};
use crate::error::Code;
use crate::id::{KeyId, OrgId};
use crate::model::{NewKey, PageRequest, TokenHash, fresh_token};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn new(org: OrgId, name: &str, scopes: &str, token: &str) -> NewKey {
    let (name, actor) = (name.to_owned(), "a test".to_owned());
    let scopes = scopes.parse().expect("scopes");
    NewKey { org, name, scopes, expires_in: Some(HOUR), hash: TokenHash::of(token), actor }
}

/// An organization has one name and keeps its id.
pub async fn an_organization_has_a_name(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().directory().expect("the store knows who may call");
    let made = directory.create_organization("otters", "me").await.unwrap();
    assert_eq!(directory.create_organization("otters", "me").await.unwrap(), made);
    let default = directory.create_organization("default", "me").await.unwrap();
    assert_eq!(default.id, OrgId::DEFAULT);
    assert_eq!(directory.organizations().await.unwrap(), [default, made]);
    for wrong in ["", "Otters", "-a", "a b", &"x".repeat(64)] {
        assert_eq!(refused(directory.create_organization(wrong, "me").await), Code::InvalidArgument, "{wrong}");
    }
}

/// A key is found by its token, works for its time, and ends when it is revoked; other orgs never see it.
pub async fn a_key_lives_and_ends(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().directory().expect("the store knows who may call");
    let (own, other) = (OrgId(rig.uuid()), OrgId(rig.uuid()));
    let token = fresh_token();
    let key = directory.create_key(new(own, "ci", "member worker:gpu", &token)).await.unwrap();
    assert_eq!(
        (key.scopes.to_string().as_str(), key.expires_at),
        ("exec:read exec:write exec:signal worker:gpu", Some(rig.now().after(HOUR)))
    );
    assert!(key.is_live(rig.now()) && !key.is_live(rig.now().after(HOUR)));
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

/// What is done to an org stands in its audit, newest first, page by page, and in no other's.
pub async fn what_is_done_is_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let directory = rig.keeper().directory().expect("the store knows who may call");
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
