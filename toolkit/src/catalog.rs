//! The catalogue for pickers: models with their list prices and tools with their schemas, as JSON.
//!
//! Models come from the table that this version was built with and from a [`Registry`]; tools from a [`Toolbox`]. No provider is
//! called.

use crate::message::Usage;
use crate::pricing::PriceTable;
use crate::provider::{ModelInfo, Registry, catalogued};
use crate::tools::{ToolDefinition, Toolbox};
use flovyn_core::clock::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// So many tokens are priced: few enough for the price of ordinary prompts, and enough that nothing is lost in rounding.
const PRICED: u64 = 100_000;
const MILLION: u64 = 1_000_000;

/// A model to pick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEntry {
    /// `provider/model`, which agents take.
    pub reference: String,
    /// What is known of it.
    #[serde(flatten)]
    pub info: ModelInfo,
    /// Whether it can be asked: its provider has a key.
    pub is_available: bool,
    /// Its list prices, where they are known; unknown is not free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<ListPrices>,
}

/// List prices in millionths of a US dollar per million tokens, for prompts of ordinary length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPrices {
    /// Of tokens sent.
    pub input: u64,
    /// Of tokens sent that the provider had cached.
    pub cache_read: u64,
    /// Of tokens generated.
    pub output: u64,
    /// The date or name of the table.
    pub table_version: String,
}

/// A tool to pick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolEntry {
    /// As models see it.
    #[serde(flatten)]
    pub definition: ToolDefinition,
    /// Where it runs.
    pub source: ToolSource,
}

/// Where a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolSource {
    /// In the worker.
    Host,
    /// At an MCP server.
    Mcp,
}

/// All models that this version knows and all that a registry has, in the order of their references.
pub fn models(registry: &Registry, prices: &PriceTable, at: Timestamp) -> Vec<ModelEntry> {
    let available: BTreeSet<_> = registry.providers().collect();
    let known = catalogued().into_iter().chain(registry.models());
    let known: BTreeMap<_, _> = known.map(|info| (info.reference(), info)).collect();
    let entry = |(reference, info): (String, ModelInfo)| ModelEntry {
        is_available: available.contains(info.provider.as_str()),
        prices: list_prices(&info, prices, at),
        reference,
        info,
    };
    known.into_iter().map(entry).collect()
}

/// All tools of a toolbox, in the order of their names.
pub fn tools(toolbox: &Toolbox) -> Vec<ToolEntry> {
    let entry = |definition: ToolDefinition| {
        let source = if definition.name.starts_with("mcp__") { ToolSource::Mcp } else { ToolSource::Host };
        ToolEntry { definition, source }
    };
    toolbox.definitions().into_iter().map(entry).collect()
}

fn list_prices(info: &ModelInfo, prices: &PriceTable, at: Timestamp) -> Option<ListPrices> {
    let per_million = |usage: Usage| {
        let cost = prices.cost(&info.provider, &info.id, &usage, at)?;
        Some((cost.amount_micros * (MILLION / PRICED), cost.table_version))
    };
    let (input, version) = per_million(Usage { input: PRICED, ..Usage::default() })?;
    let (cache_read, _) = per_million(Usage { cache_read: PRICED, ..Usage::default() })?;
    let (output, _) = per_million(Usage { output: PRICED, ..Usage::default() })?;
    Some(ListPrices { input, cache_read, output, table_version: version.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::to_value;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn models_are_offered_with_prices_and_whether_they_can_be_asked() {
        let key = |name: &str| (name == "ANTHROPIC_API_KEY").then(|| "k".to_owned());
        let registry = Registry::from_variables(key).expect("a registry");
        let all = models(&registry, &PriceTable::builtin(), NOW);
        let find = |reference: &str| all.iter().find(|entry| entry.reference == reference).expect(reference);
        let haiku = find("anthropic/claude-haiku-4-5");
        let prices = haiku.prices.as_ref().expect("its prices are known");
        assert_eq!(
            (haiku.is_available, prices.input, prices.cache_read, prices.output),
            (true, 1_000_000, 100_000, 5_000_000)
        );
        for reference in
            ["openrouter/z-ai/glm-4.7", "openrouter/moonshotai/kimi-k2-thinking", "openrouter/deepseek/deepseek-v3.2"]
        {
            assert!(!find(reference).is_available, "{reference} has no key");
        }
        let written = to_value(haiku).expect("JSON");
        assert_eq!(
            (&written["reference"], &written["provider"], &written["isAvailable"]),
            (&"anthropic/claude-haiku-4-5".into(), &"anthropic".into(), &true.into())
        );
        assert!(all.is_sorted_by_key(|entry| &entry.reference));
        let unpriced = models(&registry, &PriceTable::parse("empty", "[]").expect("a table"), NOW);
        assert!(unpriced.iter().all(|entry| entry.prices.is_none()), "unknown is not free");
    }

    #[test]
    fn tools_are_offered_with_their_schemas() {
        let all = tools(&Toolbox::host().expect("the host tools"));
        let written = to_value(&all).expect("JSON");
        assert_eq!(
            (&written[0]["name"], &written[0]["effect"], &written[0]["source"]),
            (&"bash".into(), &"exec".into(), &"host".into())
        );
        assert_eq!(written[0]["inputSchema"]["type"], "object");
        assert_eq!(all.len(), 11);
    }
}
