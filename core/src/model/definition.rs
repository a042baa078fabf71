//! Predefined agents: what a run of one starts with.

use crate::clock::Timestamp;
use crate::id::{DefinitionId, OrgId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a definition says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionSpec {
    /// Its name in URLs: lower-case letters, digits and `-`, unique per org.
    pub slug: String,
    /// Its name for people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// The agent whose code runs it.
    pub kind: String,
    /// The queue of its runs.
    pub queue: String,
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// Models, as its agent takes them: JSON.
    pub models: Value,
    /// Tools, as its agent takes them: JSON.
    pub tools: Value,
    /// Settings by name; a start may set others.
    pub config: serde_json::Map<String, Value>,
    /// For filters.
    pub metadata: BTreeMap<String, String>,
}

/// A definition as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Tenant.
    pub org: OrgId,
    /// Its id.
    pub id: DefinitionId,
    /// What it says.
    pub spec: DefinitionSpec,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub updated_at: Timestamp,
}
