//! The registry: finds a model by `provider/model`, with the properties that are known of it.

use super::{
    Api, Endpoint, ErrorKind, Fallback, HttpProvider, ModelError, ModelInfo, Provider, Quirks, RetryPolicy, Retrying,
};
use crate::pricing::PriceTable;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The providers of a program, and the models of them that are known.
///
/// ```no_run
/// use flovyn_toolkit::message::Message;
/// use flovyn_toolkit::provider::{ModelRequest, Registry};
///
/// # async fn run() -> Result<(), flovyn_toolkit::provider::ModelError> {
/// let models = Registry::from_env()?;
/// let model = models.resolve("anthropic/claude-sonnet-5-5")?;
/// let answer = model.provider.generate(&ModelRequest::new(&model.info.id, vec![Message::user("Hello")])).await?;
/// println!("{}", answer.text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    providers: BTreeMap<String, KnownModel>,
}

#[derive(Clone)]
struct KnownModel {
    // An error says what is missing, such as a key. It is returned when one of the provider's models is asked for.
    provider: Result<Arc<dyn Provider>, ModelError>,
    models: Vec<ModelInfo>,
    unknown: ModelInfo,
}

/// A model that can be asked: its provider, and its properties.
#[derive(Clone)]
pub struct Model {
    /// The provider to send requests to. They have to name [`ModelInfo::id`].
    pub provider: Arc<dyn Provider>,
    /// The properties of the model.
    pub info: ModelInfo,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The providers of the catalogue, with keys and addresses from the environment.
    ///
    /// `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `OPENROUTER_API_KEY`, `DEEPSEEK_API_KEY`, `ZAI_API_KEY`,
    /// `MOONSHOT_API_KEY` and `LOCAL_API_KEY` hold the keys. The same names with `_BASE_URL` hold addresses, if they
    /// are not the providers' own. `FLOVYN_PRICES` is the path of a table whose prices replace the built-in ones. A
    /// provider without a key cannot be asked, unless its address was given: a server of one's own may want no key.
    ///
    /// # Errors
    ///
    /// An address is not a URL, or the table of prices cannot be read.
    pub fn from_env() -> Result<Self, ModelError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with variables from a function.
    ///
    /// # Errors
    ///
    /// As of [`from_env`](Self::from_env).
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ModelError> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let prices = prices(variable)?;
        let mut registry = Self::new();
        for spec in &catalog().providers {
            let given = variable(&spec.base_url_env);
            let mut endpoint = spec.endpoint(given.as_deref());
            endpoint.prices = prices.clone();
            if let Some(key) = variable(&spec.key_env) {
                endpoint = endpoint.key(key);
            }
            if endpoint.key.is_some() || spec.key_optional || given.is_some() {
                registry.add(spec.api, endpoint)?;
            } else {
                let message = format!("no key for {:?}; set {} to one", spec.name, spec.key_env);
                let provider = Err(ModelError::new(ErrorKind::Unauthorized, message));
                registry.know(&spec.name, provider, &endpoint);
            }
        }
        Ok(registry)
    }

    /// Adds a provider that is called over HTTP. It replaces a provider of the same name.
    ///
    /// # Errors
    ///
    /// The address is not a URL.
    pub fn add(&mut self, api: Api, endpoint: Endpoint) -> Result<(), ModelError> {
        let name = endpoint.provider.clone();
        let provider: Arc<dyn Provider> = Arc::new(HttpProvider::new(api, endpoint.clone())?);
        self.know(&name, Ok(provider), &endpoint);
        Ok(())
    }

    /// Adds a provider of the program's own and its known models. It replaces a provider of the same name.
    pub fn add_provider(&mut self, provider: Arc<dyn Provider>, models: Vec<ModelInfo>) {
        let name = provider.name().to_owned();
        let endpoint = Endpoint::new(&name, "").models(models);
        self.know(&name, Ok(provider), &endpoint);
    }

    fn know(&mut self, name: &str, provider: Result<Arc<dyn Provider>, ModelError>, endpoint: &Endpoint) {
        let models = endpoint.models.iter().map(|model| endpoint.model(&model.id)).collect();
        let unknown = endpoint.unknown_model.clone();
        self.providers.insert(name.to_owned(), KnownModel { provider, models, unknown });
    }

    /// Finds a model by `provider/model`. The id of the model may contain slashes. The provider has to be known; the
    /// model does not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownModel`] if there is no such provider, [`ErrorKind::Unauthorized`] if there is no key for it.
    pub fn resolve(&self, reference: &str) -> Result<Model, ModelError> {
        let unknown = |what: String| {
            let names: Vec<_> = self.providers.keys().map(String::as_str).collect();
            let message = format!("{what}; write provider/model with one of {}", names.join(", "));
            ModelError::new(ErrorKind::UnknownModel, message)
        };
        let Some((provider, id)) = reference.split_once('/').filter(|(_, id)| !id.is_empty()) else {
            return Err(unknown(format!("{reference:?} names no provider and model")));
        };
        let Some(known) = self.providers.get(provider) else {
            return Err(unknown(format!("{reference:?}: there is no provider {provider:?}")));
        };
        let info = known.models.iter().find(|model| model.id == id).cloned().unwrap_or_else(|| ModelInfo {
            provider: provider.to_owned(),
            id: id.to_owned(),
            name: id.to_owned(),
            ..known.unknown.clone()
        });
        Ok(Model { provider: known.provider.clone()?, info })
    }

    /// Finds several models and makes one of them: each is asked with the retries of the policy, and when one fails,
    /// the next is asked. The properties are those of the first.
    ///
    /// # Errors
    ///
    /// There is no reference, or one of them cannot be resolved.
    pub fn resolve_with(&self, references: &[&str], policy: RetryPolicy) -> Result<Model, ModelError> {
        let mut choices = Vec::with_capacity(references.len());
        let mut first = None;
        for reference in references {
            let model = self.resolve(reference)?;
            let provider: Arc<dyn Provider> = Arc::new(Retrying::new(model.provider, policy));
            first.get_or_insert_with(|| model.info.clone());
            choices.push((provider, model.info.id));
        }
        let mut choices = choices.into_iter();
        match (first, choices.next(), choices.len()) {
            (Some(info), Some((provider, _)), 0) => Ok(Model { provider, info }),
            (Some(info), Some(primary), _) => Ok(Model { provider: Arc::new(Fallback::new(primary, choices)), info }),
            _ => Err(ModelError::new(ErrorKind::UnknownModel, "no model was given; name at least one")),
        }
    }

    /// The known models of all providers that can be asked, by provider, in the order of the catalogue.
    pub fn models(&self) -> Vec<ModelInfo> {
        self.providers.values().filter(|known| known.provider.is_ok()).flat_map(|known| known.models.clone()).collect()
    }

    /// Whether a provider can be asked.
    pub(super) fn can_ask(&self, provider: &str) -> bool {
        self.providers.get(provider).is_some_and(|known| known.provider.is_ok())
    }

    /// The names of the providers that can be asked.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.providers.iter().filter(|(_, known)| known.provider.is_ok()).map(|(name, _)| name.as_str())
    }
}

/// The models of the built-in catalogue, also those that cannot be asked.
pub fn catalogued() -> Vec<ModelInfo> {
    let named = |spec: &ProviderSpec, model: &ModelInfo| ModelInfo { provider: spec.name.clone(), ..model.clone() };
    catalog().providers.iter().flat_map(|spec| spec.models.iter().map(move |model| named(spec, model))).collect()
}

#[derive(Deserialize)]
pub(super) struct Catalog {
    pub(super) providers: Vec<ProviderSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProviderSpec {
    pub(super) name: String,
    api: Api,
    base_url: String,
    base_url_env: String,
    pub(super) key_env: String,
    #[serde(default)]
    pub(super) key_optional: bool,
    #[serde(default)]
    quirks: Quirks,
    #[serde(default)]
    unknown_model: ModelInfo,
    /// The model that is asked where none is named.
    #[serde(default)]
    pub(super) default: Option<String>,
    /// Short names, and the pattern of the ids that each stands for: the first model that fits is meant.
    #[serde(default)]
    pub(super) aliases: BTreeMap<String, String>,
    /// The newest first, within a family.
    pub(super) models: Vec<ModelInfo>,
}

/// The table of prices of a program. An error is given in the form of an error of a model call.
pub(crate) fn prices(variable: impl Fn(&str) -> Option<String>) -> Result<Arc<PriceTable>, ModelError> {
    PriceTable::from_variables(variable).map_err(|error| ModelError::new(ErrorKind::InvalidRequest, error.to_string()))
}

impl ProviderSpec {
    fn endpoint(&self, base_url: Option<&str>) -> Endpoint {
        let mut endpoint = Endpoint::new(&self.name, base_url.unwrap_or(&self.base_url));
        endpoint.quirks = self.quirks.clone();
        endpoint.models.clone_from(&self.models);
        endpoint.unknown_model = self.unknown_model.clone();
        endpoint
    }
}

impl Endpoint {
    /// The endpoint of a provider of the catalogue, without a key, at its own address or at another one. None if the
    /// catalogue has no provider of this name.
    pub fn catalogued(name: &str, base_url: Option<&str>) -> Option<(Api, Self)> {
        let spec = catalog().providers.iter().find(|spec| spec.name == name)?;
        Some((spec.api, spec.endpoint(base_url)))
    }

    /// The names of the catalogue's providers.
    pub fn catalogue() -> Vec<&'static str> {
        catalog().providers.iter().map(|spec| spec.name.as_str()).collect()
    }
}

pub(super) fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| {
        serde_json::from_str(include_str!("catalog.json"))
            .expect("the catalogue is part of the build, and a test reads it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&'static str, &'static str)]) -> Registry {
        let variable =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Registry::from_variables(variable).expect("a registry")
    }

    #[test]
    fn models_are_found_by_provider_and_id() {
        let registry = with(&[("OPENROUTER_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]);
        for (reference, name) in [
            ("openrouter/z-ai/glm-4.7", "GLM 4.7"),
            ("openrouter/moonshotai/kimi-k2-thinking", "Kimi K2 Thinking"),
            ("openrouter/deepseek/deepseek-v3.2", "DeepSeek 3.2"),
            ("anthropic/claude-opus-5-5", "Claude Opus 5.5"),
        ] {
            let model = registry.resolve(reference).expect(reference);
            assert_eq!((model.info.name.as_str(), model.info.reference().as_str()), (name, reference));
            assert!(model.info.can_think() && model.info.context_window.is_some());
        }
        let unheard = registry.resolve("anthropic/claude-next").expect("its provider is known");
        assert_eq!((unheard.info.id.as_str(), unheard.info.images), ("claude-next", true));
    }

    #[test]
    fn what_is_missing_is_said() {
        let registry = with(&[]);
        let error = |reference| registry.resolve(reference).err().expect("no such model");
        assert_eq!(error("claude").kind, ErrorKind::UnknownModel);
        assert!(error("nobody/x").message.contains("openrouter"), "{}", error("nobody/x"));
        assert_eq!(error("openai/gpt-5").kind, ErrorKind::Unauthorized);
        assert!(error("openai/gpt-5").message.contains("OPENAI_API_KEY"));
        assert_eq!(registry.providers().collect::<Vec<_>>(), ["local"]);
        assert!(registry.models().is_empty());
    }

    #[test]
    fn an_address_of_ones_own_needs_no_key() {
        let registry = with(&[("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/")]);
        assert_eq!(
            registry.resolve("anthropic/claude-opus-5").expect("no key is needed").provider.api(),
            "anthropic-messages"
        );
        let wrong = Registry::from_variables(|name| (name == "OPENAI_BASE_URL").then(|| "nowhere".to_owned()));
        assert_eq!(wrong.err().map(|error| error.kind), Some(ErrorKind::InvalidRequest));
    }

    #[test]
    fn the_catalogue_is_sound() {
        let models = catalogued();
        assert!(models.len() > 20);
        for model in &models {
            assert!(model.context_window > model.max_output && !model.name.is_empty(), "{}", model.reference());
        }
        let providers: std::collections::BTreeSet<_> = models.iter().map(|model| model.provider.as_str()).collect();
        assert!(
            ["anthropic", "deepseek", "moonshotai", "openai", "openrouter", "zai"]
                .iter()
                .all(|name| providers.contains(name))
        );
    }
}
