//! Predefined agents: the settings with which a run of one starts.

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
    /// Its models, as JSON in the form that its agent takes.
    pub models: Value,
    /// Its tools, as JSON in the form that its agent takes.
    pub tools: Value,
    /// Settings by name. A start may replace them.
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
