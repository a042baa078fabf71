//! Machines: how they are let in, found and revoked, and children that are not let in.

use super::Factory;
use super::rig::{ORG, Rig, json, refused};
use crate::error::Code;
use crate::id::OrgId;
use crate::model::{BatchEnd, ChildEnd, FactKind, Failure, NewKey, OpBody, PageRequest, TokenHash, fresh_token};
use crate::storage::machines::{Approval, MAX_OFFERS, PAIRING_TIME, choose};
use std::time::Duration;

fn approval(code: &str) -> Approval {
    Approval { code: code.to_owned(), name: None, owner: None, actor: "ann".into(), not_after: None }
}

/// A machine is let in by a code and a secret, once each, and is there until it is revoked; other orgs never see it.
pub async fn a_machine_is_let_in_and_revoked(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let store = rig.keeper();
    let other = OrgId(rig.uuid());
    let pairing = store.request_pairing("laptop", "otter.local\n").await.unwrap();
    assert_eq!(pairing.expires_at, rig.now().after(PAIRING_TIME));
    assert!(store.collect_pairing(&pairing.secret).await.unwrap().is_none(), "nobody has approved it");
    assert_eq!(refused(store.collect_pairing("fp_guessed").await), Code::NotFound);
    assert_eq!(refused(store.approve_pairing(ORG, approval("BBBB-BBBB")).await), Code::NotFound);
    let owned = Approval { owner: Some("Ann".into()), ..approval(&pairing.code.to_lowercase()) };
    let approved = store.approve_pairing(ORG, owned).await.unwrap();
    assert_eq!((&*approved.name, &*approved.owner, &*approved.host), ("laptop", "Ann", "otter.local"));
    assert_eq!(refused(store.approve_pairing(ORG, approval(&pairing.code)).await), Code::NotFound, "once");
    let paired = store.collect_pairing(&pairing.secret).await.unwrap().expect("its key");
    assert_eq!((paired.org, &*paired.name), (ORG, "laptop"));
    assert_eq!(refused(store.collect_pairing(&pairing.secret).await), Code::NotFound, "once");

    let directory = store.server_side().unwrap();
    let key = directory.key_of(TokenHash::of(&paired.token)).await.unwrap().unwrap();
    assert_eq!((key.org, key.scopes.to_string().as_str()), (ORG, "worker:machine/laptop"));
    let machine = store.machines(ORG).await.unwrap().remove(0);
    assert_eq!((&*machine.name, &*machine.owner, machine.key, machine.seen_at), ("laptop", "Ann", key.id, None));
    assert!(machine.is_live(rig.now()) && machine.offers.contains("otter.local"));
    assert_eq!(store.machines(other).await.unwrap(), []);

    rig.clock.advance(Duration::from_secs(1));
    store.announce_machine(ORG, "laptop", Some(r#"{"kinds":["react-agent"]}"#)).await.unwrap();
    store.announce_machine(ORG, "laptop", None).await.unwrap();
    store.announce_machine(other, "laptop", Some("{}")).await.unwrap();
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_OFFERS));
    for wrong in ["", "[]", "otters", &long] {
        assert_eq!(refused(store.announce_machine(ORG, "laptop", Some(wrong)).await), Code::InvalidArgument);
    }
    let seen = store.machines(ORG).await.unwrap().remove(0);
    assert_eq!((seen.seen_at, seen.offers.as_str()), (Some(rig.now()), r#"{"kinds":["react-agent"]}"#));

    assert_eq!(refused(store.announce_machine(ORG, "a\0b", None).await), Code::InvalidArgument);
    for (org, name) in [(other, "laptop"), (ORG, "a\0b"), (ORG, "")] {
        assert_eq!(refused(store.revoke_machine(org, name, "me").await), Code::NotFound);
    }
    assert_eq!(store.revoke_machine(ORG, "laptop", "me").await.unwrap().revoked_at, Some(rig.now()));
    assert_eq!(refused(store.revoke_machine(ORG, "laptop", "me").await), Code::NotFound);
    let key = directory.key_of(TokenHash::of(&paired.token)).await.unwrap().unwrap();
    assert!(!key.is_live(rig.now()), "its key ends with it");
    let told = directory.audit(ORG, PageRequest::default()).await.unwrap().items;
    let acts: Vec<_> = told.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(acts, ["key.revoked", "machine.revoked", "machine.paired", "key.created", "machine.approved"]);
}

/// A name is of one machine at a time, and free again when that or its key is revoked; a pairing ends by itself.
pub async fn a_machine_has_a_name(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (store, other) = (rig.keeper(), OrgId(rig.uuid()));
    for wrong in ["", "a/b", "-a", "a b", &"x".repeat(64)] {
        assert_eq!(refused(store.request_pairing(wrong, "").await), Code::InvalidArgument, "{wrong}");
    }
    let first = store.request_pairing("laptop", "").await.unwrap();
    let second = store.request_pairing("laptop", "").await.unwrap();
    assert_ne!((&first.code, &first.secret), (&second.code, &second.secret));
    store.approve_pairing(ORG, approval(&first.code)).await.unwrap();
    let clash = store.approve_pairing(ORG, approval(&second.code)).await.unwrap_err();
    assert!(clash.code() == Code::AlreadyExists && clash.message().contains("\"laptop\""), "{clash}");
    store.collect_pairing(&first.secret).await.unwrap().unwrap();
    assert_eq!(refused(store.approve_pairing(ORG, approval(&second.code)).await), Code::AlreadyExists);
    let of = |name: Option<&str>, owner: Option<&str>| Approval {
        name: name.map(str::to_owned),
        owner: owner.map(str::to_owned),
        ..approval(&second.code)
    };
    for wrong in [of(Some("a b"), None), of(None, Some("a\0b")), of(None, Some(&"x".repeat(501)))] {
        assert_eq!(refused(store.approve_pairing(ORG, wrong).await), Code::InvalidArgument);
    }
    let renamed = Approval { name: Some("desktop".into()), ..approval(&second.code) };
    assert_eq!(store.approve_pairing(ORG, renamed).await.unwrap().name, "desktop");
    let foreign = store.request_pairing("laptop", "").await.unwrap();
    store.approve_pairing(other, approval(&foreign.code)).await.unwrap();
    assert_eq!(store.collect_pairing(&foreign.secret).await.unwrap().unwrap().org, other);

    // What was approved is not collected for ever.
    let late = store.request_pairing("late", "").await.unwrap();
    rig.clock.advance(PAIRING_TIME);
    assert_eq!(refused(store.collect_pairing(&second.secret).await), Code::NotFound);
    assert_eq!(refused(store.approve_pairing(ORG, approval(&late.code)).await), Code::NotFound);

    let machine = store.machines(ORG).await.unwrap().remove(0);
    let directory = store.server_side().unwrap();
    directory.revoke_key(ORG, machine.key, "me").await.unwrap();
    let machine = store.machines(ORG).await.unwrap().remove(0);
    assert!(!machine.is_live(rig.now()), "a machine ends with its key");
    let told = choose(std::slice::from_ref(&machine), "laptop", rig.now()).unwrap_err();
    assert!(told.code() == Code::NotFound && told.message().contains("was revoked"), "{told}");
    let again = store.request_pairing("laptop", "").await.unwrap();
    let until = Approval { not_after: Some(rig.now().after(Duration::from_secs(60))), ..approval(&again.code) };
    store.approve_pairing(ORG, until).await.unwrap();
    store.collect_pairing(&again.secret).await.unwrap().unwrap();
    let machines = store.machines(ORG).await.unwrap();
    let live: Vec<_> = machines.iter().map(|machine| machine.is_live(rig.now())).collect();
    assert_eq!((machines.len(), live), (2, vec![false, true]));
    let end = rig.now().after(Duration::from_secs(60));
    assert!(!machines[1].is_live(end), "its key does not outlive the one it was approved with");
    let key = NewKey {
        org: ORG,
        name: "machine laptop".into(),
        scopes: "worker:machine/laptop".parse().unwrap(),
        expires_in: None,
        not_after: None,
        hash: TokenHash::of(&fresh_token()),
        actor: "me".into(),
    };
    directory.create_key(key).await.unwrap();
    assert_eq!(store.machines(ORG).await.unwrap().len(), 2, "a key alone is no machine");
}

/// A child that whoever passes the commit on does not let in is not started: its op is told why, and the run goes on.
pub async fn family_15_a_child_without_a_machine_is_told(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let to = |mut op: crate::model::NewOp, queue: &str| {
        if let OpBody::Child(child) = &mut op.body {
            child.queue = queue.into();
        }
        op
    };
    let (gone, unnamed, there) = (parent.child(json(&1)), parent.child(json(&2)), parent.child(json(&3)));
    let sequence = gone.sequence;
    let ops = vec![to(gone, "machine/gone"), to(unnamed, "machine/"), to(there, "machine/there")];
    let batch = parent.batch(ops, BatchEnd::Continue);
    let mut request = parent.request(batch);
    request.refused = vec![(sequence, Failure::new(Code::NotFound, "NotFound", "no machine is called gone"))];
    let answer = rig.keeper().commit(request).await.unwrap();
    let refusals: Vec<_> = answer
        .facts
        .iter()
        .filter_map(|fact| match &fact.kind {
            FactKind::Signal(signal) => Some(ChildEnd::result(&signal.payload, "child").expect_err("a refusal")),
            _ => None,
        })
        .collect();
    let told: Vec<_> = refusals.iter().map(|failure| (failure.code, failure.message.as_str())).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], (Code::NotFound, "no machine is called gone"));
    assert!(told[1].0 == Code::InvalidArgument && told[1].1.contains("no machine was named"), "{told:?}");
    assert_eq!(rig.execution(parent.id).await.new.queue, "default");
}
