//! The catalogue for pickers: models with their prices and whether this server's environment has a key for them, and host tools.

use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error, Result};
use flovyn_toolkit::catalog::{self, ModelEntry, ToolEntry};
use flovyn_toolkit::pricing::PriceTable;
use flovyn_toolkit::provider::Registry;
use flovyn_toolkit::tools::Toolbox;
use std::sync::{Arc, OnceLock};

/// The models and tools that this version knows. Clones share it.
///
/// The environment is read at the first request: a server whose users pick elsewhere pays nothing, and one whose
/// environment is wrong still serves everything else.
#[derive(Clone, Default)]
pub(crate) struct Catalog(Arc<OnceLock<Result<Loaded>>>);

struct Loaded {
    registry: Registry,
    prices: Arc<PriceTable>,
    tools: Vec<ToolEntry>,
}

impl Catalog {
    /// All models, by reference, with the list prices of a moment.
    ///
    /// Errors: `InvalidArgument` for an environment with a wrong address or table of prices.
    pub(crate) fn models(&self, at: Timestamp) -> Result<Vec<ModelEntry>> {
        let loaded = self.loaded()?;
        Ok(catalog::models(&loaded.registry, &loaded.prices, at))
    }

    /// The host tools, by name.
    ///
    /// Errors: as of [`models`](Self::models).
    pub(crate) fn tools(&self) -> Result<Vec<ToolEntry>> {
        Ok(self.loaded()?.tools.clone())
    }

    fn loaded(&self) -> Result<&Loaded> {
        let loaded = self.0.get_or_init(|| Loaded::of(|name| std::env::var(name).ok()));
        loaded.as_ref().map_err(Clone::clone)
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
            tools: catalog::tools(&Toolbox::host()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);
    const KEY: &str = "sk-or-0123456789";

    fn with(pairs: &'static [(&'static str, &'static str)]) -> Catalog {
        let find = |name: &str| pairs.iter().find(|(loaded, _)| *loaded == name).map(|(_, value)| (*value).to_owned());
        Catalog(Arc::new(OnceLock::from(Loaded::of(find))))
    }

    #[test]
    fn a_key_makes_its_models_available_and_is_not_shown() {
        let models = with(&[("OPENROUTER_API_KEY", KEY)]).models(NOW).unwrap();
        for model in &models {
            let is_local = model.info.provider == "local";
            assert_eq!(model.is_available, model.info.provider == "openrouter" || is_local, "{}", model.reference);
        }
        for reference in
            ["openrouter/z-ai/glm-4.7", "openrouter/moonshotai/kimi-k2-thinking", "openrouter/deepseek/deepseek-v3.2"]
        {
            let found = models.iter().find(|model| model.reference == reference).expect(reference);
            assert!(found.is_available, "{found:?}");
        }
        assert!(!serde_json::to_string(&models).unwrap().contains(KEY));
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
