//! Predefined agents: how they are made, found, replaced and removed.

use super::Factory;
use super::rig::{AGENT, ORG, Rig, refused};
use crate::error::Code;
use crate::id::{DefinitionId, OrgId};
use crate::model::{DefinitionSpec, PageRequest};
use serde_json::json;
use std::time::Duration;

fn spec(slug: &str) -> DefinitionSpec {
    DefinitionSpec {
        slug: slug.into(),
        name: "Otters".into(),
        description: Some("knows otters".into()),
        kind: AGENT.into(),
        queue: "default".into(),
        system_prompt: Some("You know otters.".into()),
        models: json!([{ "provider": "fake", "modelId": "m" }]),
        tools: json!(["search"]),
        config: [("maxTurns".to_owned(), json!(7))].into_iter().collect(),
        metadata: [("team".to_owned(), "rivers".to_owned())].into(),
    }
}

/// A definition is found by its id and its slug until it is removed; other orgs never see it.
pub async fn a_definition_is_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let definitions = rig.keeper().server_side().unwrap();
    let made = definitions.create_definition(ORG, spec("otters")).await.unwrap();
    assert_eq!((&made.spec, made.created_at, made.updated_at), (&spec("otters"), rig.now(), rig.now()));
    for name in ["otters".to_owned(), made.id.to_string()] {
        assert_eq!(definitions.definition(ORG, &name).await.unwrap(), made);
    }
    let other = OrgId(rig.uuid());
    assert_eq!(refused(definitions.definition(other, "otters").await), Code::NotFound);
    assert_eq!(refused(definitions.delete_definition(other, made.id).await), Code::NotFound);
    assert_eq!(refused(definitions.replace_definition(other, made.id, spec("x")).await), Code::NotFound);
    definitions.create_definition(other, spec("otters")).await.unwrap();
    assert_eq!(refused(definitions.create_definition(ORG, spec("otters")).await), Code::AlreadyExists);

    for slug in ["seals", "beavers"] {
        definitions.create_definition(ORG, spec(slug)).await.unwrap();
    }
    let page = |limit, after| definitions.definitions(ORG, PageRequest { limit, after });
    let first = page(2, None).await.unwrap();
    let slugs = |page: &crate::model::Page<_>| -> Vec<String> {
        page.items.iter().map(|item: &crate::model::Definition| item.spec.slug.clone()).collect()
    };
    assert_eq!(slugs(&first), ["beavers", "otters"]);
    assert_eq!(slugs(&page(2, first.next).await.unwrap()), ["seals"]);

    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(refused(definitions.replace_definition(ORG, made.id, spec("seals")).await), Code::AlreadyExists);
    let changed = DefinitionSpec { system_prompt: None, ..spec("sea-otters") };
    let replaced = definitions.replace_definition(ORG, made.id, changed.clone()).await.unwrap();
    assert_eq!((&replaced.spec, replaced.created_at, replaced.updated_at), (&changed, made.created_at, rig.now()));
    assert_eq!(definitions.definition(ORG, "sea-otters").await.unwrap(), replaced);
    assert_eq!(refused(definitions.definition(ORG, "otters").await), Code::NotFound);
    assert_eq!(definitions.replace_definition(ORG, made.id, changed).await.unwrap(), replaced);

    definitions.delete_definition(ORG, made.id).await.unwrap();
    assert_eq!(refused(definitions.delete_definition(ORG, made.id).await), Code::NotFound);
    assert_eq!(refused(definitions.definition(ORG, "sea-otters").await), Code::NotFound);
}

/// What makes no definition is refused.
pub async fn a_definition_has_a_form(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let definitions = rig.keeper().server_side().unwrap();
    let large = json!("x".repeat(300 << 10));
    for wrong in [
        spec(""),
        spec("Otters"),
        spec("a b"),
        DefinitionSpec { kind: String::new(), ..spec("a") },
        DefinitionSpec { queue: String::new(), ..spec("a") },
        DefinitionSpec { tools: large, ..spec("a") },
    ] {
        assert_eq!(refused(definitions.create_definition(ORG, wrong.clone()).await), Code::InvalidArgument);
        let id = DefinitionId(rig.uuid());
        assert_eq!(refused(definitions.replace_definition(ORG, id, wrong).await), Code::InvalidArgument);
    }
}
