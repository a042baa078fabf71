//! The port for predefined agents.

use super::directory::check_slug;
use crate::error::{Code, Error, Result};
use crate::id::{DefinitionId, OrgId};
use crate::model::{Definition, DefinitionSpec, Page, PageRequest, check_kind, check_name};
use async_trait::async_trait;

/// The most bytes of a definition as JSON.
const MAX: usize = 256 << 10;

/// Predefined agents of orgs. A run has a copy of its definition, as it was when the run started.
#[async_trait]
pub trait Definitions: Send + Sync {
    /// Makes a definition.
    ///
    /// Errors: `AlreadyExists` if the org has a definition with this slug; `InvalidArgument` for an invalid slug, a
    /// missing kind or queue, and more than 256 KiB.
    async fn create_definition(&self, org: OrgId, spec: DefinitionSpec) -> Result<Definition>;

    /// The definition with an id or a slug. `NotFound` if the org has none.
    async fn definition(&self, org: OrgId, name: &str) -> Result<Definition>;

    /// The definitions of an org, by slug.
    async fn definitions(&self, org: OrgId, page: PageRequest) -> Result<Page<Definition>>;

    /// Replaces a definition. Runs that have started keep the old one. Errors as those of both above.
    async fn replace_definition(&self, org: OrgId, id: DefinitionId, spec: DefinitionSpec) -> Result<Definition>;

    /// Removes a definition. Its runs stay. `NotFound` if the org has none with this id.
    async fn delete_definition(&self, org: OrgId, id: DefinitionId) -> Result<()>;
}

/// The text of a definition for its row. Refuses an invalid definition.
pub(super) fn text_of(spec: &DefinitionSpec) -> Result<String> {
    let wrong = |message: String| Err(Error::new(Code::InvalidArgument, message));
    if let Err(error) = check_slug(&spec.slug) {
        return Err(Error::new(Code::InvalidArgument, error.message().replace("an organization", "a definition")));
    }
    if spec.kind.is_empty() || spec.queue.is_empty() {
        return wrong("a definition needs the kind of the agent that runs it, and a queue; name them".into());
    }
    check_kind("the agent's kind", &spec.kind)?;
    check_name("the queue", &spec.queue)?;
    let text = serde_json::to_string(spec)
        .map_err(|error| Error::new(Code::NotSerializable, format!("the definition has no JSON form: {error}")))?;
    if text.len() > MAX {
        return wrong(format!("a definition has at most {MAX} bytes as JSON, but {} were given", text.len()));
    }
    Ok(text)
}

/// The error for a slug that is taken.
pub(super) fn taken(slug: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("the slug {slug:?} is taken by another definition; choose another"))
        .with("slug", slug)
}
