//! What a server that this command starts offers to pickers: the toolkit's models with their prices and whether the environment has
//! a key for them, and its host tools.

use crate::print::word;
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error, Result};
use flovyn_server::catalog::{Catalog, ListPrices, Model, Tool};
use flovyn_toolkit::catalog::{self, ModelEntry, ToolEntry};
use flovyn_toolkit::pricing::PriceTable;
use flovyn_toolkit::provider::Registry;
use flovyn_toolkit::tools::Toolbox;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The models and tools that this version knows.
///
/// The environment is read at the first request: a server whose users pick elsewhere pays nothing, and one whose
/// environment is wrong still serves everything else.
#[derive(Default)]
pub(crate) struct ToolkitCatalog(OnceLock<Result<Loaded>>);

struct Loaded {
    registry: Registry,
    prices: Arc<PriceTable>,
    tools: Vec<Tool>,
}

impl ToolkitCatalog {
    fn loaded(&self) -> Result<&Loaded> {
        let loaded = self.0.get_or_init(|| Loaded::of(|name| std::env::var(name).ok()));
        loaded.as_ref().map_err(Clone::clone)
    }
}

/// Without what it has loaded: a registry has keys.
impl fmt::Debug for ToolkitCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolkitCatalog").finish_non_exhaustive()
    }
}

impl Catalog for ToolkitCatalog {
    fn models(&self, at: Timestamp) -> Result<Vec<Model>> {
        let loaded = self.loaded()?;
        Ok(catalog::models(&loaded.registry, &loaded.prices, at).into_iter().map(model).collect())
    }

    fn tools(&self) -> Result<Vec<Tool>> {
        Ok(self.loaded()?.tools.clone())
    }
}

impl Loaded {
    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let wrong = |why: String| {
            let message = format!("the environment of the server is wrong: {why}; mend it and start the server again");
            Error::new(Code::InvalidArgument, message)
        };
        Ok(Self {
            registry: Registry::from_variables(&variable).map_err(|error| wrong(error.message))?,
            prices: PriceTable::from_variables(&variable).map_err(|error| wrong(error.to_string()))?,
            tools: catalog::tools(&Toolbox::host()?).into_iter().map(tool).collect(),
        })
    }
}

fn model(ModelEntry { reference, info, is_available, prices }: ModelEntry) -> Model {
    let prices = prices.map(|prices| ListPrices {
        input: prices.input,
        cache_read: prices.cache_read,
        output: prices.output,
        table_version: prices.table_version,
    });
    Model {
        reference,
        provider: info.provider,
        id: info.id,
        name: info.name,
        context_window: info.context_window,
        max_output: info.max_output,
        thinking: word(&info.thinking),
        images: info.images,
        tools: info.tools,
        structured: info.structured,
        temperature: info.temperature,
        is_available,
        prices,
    }
}

fn tool(ToolEntry { definition, source }: ToolEntry) -> Tool {
    Tool {
        name: definition.name,
        description: definition.description,
        input_schema: definition.input_schema,
        effect: word(&definition.effect),
        source: word(&source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::to_value;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);
    const KEY: &str = "sk-or-0123456789";

    fn with(pairs: &'static [(&'static str, &'static str)]) -> ToolkitCatalog {
        let find = |name: &str| pairs.iter().find(|(loaded, _)| *loaded == name).map(|(_, value)| (*value).to_owned());
        ToolkitCatalog(OnceLock::from(Loaded::of(find)))
    }

    #[test]
    fn a_key_makes_its_models_available_and_is_not_shown() {
        let catalog = with(&[("OPENROUTER_API_KEY", KEY)]);
        let models = catalog.models(NOW).unwrap();
        for model in &models {
            let is_local = model.provider == "local";
            assert_eq!(model.is_available, model.provider == "openrouter" || is_local, "{}", model.reference);
        }
        for reference in
            ["openrouter/z-ai/glm-4.7", "openrouter/moonshotai/kimi-k2-thinking", "openrouter/deepseek/deepseek-v3.2"]
        {
            let found = models.iter().find(|model| model.reference == reference).expect(reference);
            assert!(found.is_available, "{found:?}");
        }
        assert!(!serde_json::to_string(&models).unwrap().contains(KEY));
        assert!(!format!("{catalog:?}").contains(KEY));
    }

    /// Names, words and numbers are the toolkit's own.
    #[test]
    fn an_entry_says_what_the_toolkit_says() {
        let catalog = with(&[]);
        let models = catalog.models(NOW).unwrap();
        let known = catalog::models(&Registry::from_variables(|_| None).unwrap(), &PriceTable::builtin(), NOW);
        assert_eq!(models.len(), known.len());
        for (model, known) in models.iter().zip(known) {
            let (model, mut known) = (to_value(model).unwrap(), to_value(known).unwrap());
            for unknown in ["contextWindow", "maxOutput", "prices"] {
                known.as_object_mut().unwrap().entry(unknown).or_insert_with(Default::default);
            }
            assert_eq!(model, known);
        }
        let tools = catalog.tools().unwrap();
        assert_eq!(to_value(&tools).unwrap(), to_value(catalog::tools(&Toolbox::host().unwrap())).unwrap());
    }

    #[test]
    fn a_wrong_environment_is_said_and_costs_the_catalog_alone() {
        for (pairs, name) in [
            (&[("OPENAI_BASE_URL", "nowhere")] as &'static [_], "nowhere"),
            (&[("FLOVYN_PRICES", "/nowhere/prices.json")], "/nowhere/prices.json"),
        ] {
            let refused = with(pairs).models(NOW).unwrap_err();
            assert!(refused.message().contains(name) && refused.message().contains("start the server"), "{refused}");
        }
    }
}
