//! The models that are available, and the choice of one: those of the environment, or a scripted one in this process.

use crate::Result;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::config::{ProviderDescription, registry};
use flovyn_toolkit::fake_llm::{FakeLlm, Script};
use flovyn_toolkit::message::ModelError;
use flovyn_toolkit::provider::{Api, ErrorKind, ModelInfo, Registry, catalogued, key_variables};
use flovyn_toolkit::react::ModelChoice;
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the scripted model.
pub(super) const FAKE: &str = "fake/scripted";
/// Its script, where the user gives none.
const SCRIPT: &str = include_str!("fake.toml");
/// Variables that hold keys elsewhere, and what is to be said of each.
const OTHER_VARIABLES: [(&str, &str); 9] = [
    ("ANTHROPIC_AUTH_TOKEN", "set ANTHROPIC_API_KEY to an API key instead"),
    ("CLAUDE_API_KEY", "set ANTHROPIC_API_KEY to it"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "it belongs to a subscription; set ANTHROPIC_API_KEY to an API key"),
    ("OPENAI_KEY", "set OPENAI_API_KEY to it"),
    ("OPENROUTER_KEY", "set OPENROUTER_API_KEY to it"),
    ("GEMINI_API_KEY", "OpenRouter has Google's models: --model openrouter/google/…"),
    ("GOOGLE_API_KEY", "OpenRouter has Google's models: --model openrouter/google/…"),
    ("MISTRAL_API_KEY", "OpenRouter has Mistral's models: --model openrouter/mistralai/…"),
    ("XAI_API_KEY", "OpenRouter has xAI's models: --model openrouter/x-ai/…"),
];

/// The models of this process. A scripted one lives as long as this.
pub(crate) struct Models {
    registry: Registry,
    fake: Option<FakeLlm>,
    /// Short names of the user's own.
    aliases: BTreeMap<String, String>,
}

impl Models {
    /// The models whose keys are in the environment; with `fake` also the scripted one, which is then the default.
    pub(crate) fn open(fake: Option<Option<&Path>>) -> Result<Self> {
        let aliases = BTreeMap::new();
        let Some(script) = fake else { return Ok(Self { registry: registry(&BTreeMap::new())?, fake: None, aliases }) };
        let script = match script {
            Some(file) => Script::from_file(file),
            None => Script::from_toml(SCRIPT),
        };
        let script = script.map_err(|error| Error::new(Code::InvalidArgument, error.to_string()))?;
        let fake = FakeLlm::start_unrecorded(script).map_err(|error| {
            Error::new(Code::InvalidArgument, format!("the scripted model cannot be served on 127.0.0.1: {error}"))
        })?;
        let provider = ProviderDescription {
            api: Some(Api::AnthropicMessages),
            base_url: Some(fake.url()),
            ..ProviderDescription::default()
        };
        let registry = registry(&BTreeMap::from([("fake".to_owned(), provider)]))?;
        Ok(Self { registry, fake: Some(fake), aliases })
    }

    /// With short names of the user's own, which go before those of the catalogue.
    pub(super) fn with_aliases(self, aliases: BTreeMap<String, String>) -> Self {
        Self { aliases, ..self }
    }

    /// All available models.
    pub(crate) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// The tokens that a model can take; none where nobody knows.
    pub(super) fn window(&self, model: &ModelChoice) -> Option<u64> {
        let known = self.registry.resolve(&model.to_string()).ok().map(|model| model.info);
        let is_meant = |info: &ModelInfo| info.provider == model.provider && info.id == model.model_id;
        known.or_else(|| catalogued().into_iter().find(is_meant))?.context_window
    }

    /// What a name stands for: a reference, a short name or an id of the catalogue. Nothing is said about keys.
    pub(crate) fn named(&self, name: &str) -> String {
        // A short name of the user's own may stand for another one of the catalogue.
        let name = self.aliases.get(name).map_or(name, String::as_str);
        if name.contains('/') {
            return name.to_owned();
        }
        self.registry.expand(name).unwrap_or_else(|| name.to_owned())
    }

    /// Chooses a model: the named one, else that of the session, else the scripted one, else that of the settings, else the
    /// usual one of the first provider that can be asked.
    pub(crate) fn choose(
        &self,
        named: Option<&str>,
        session: Option<&ModelChoice>,
        settings: Option<&str>,
    ) -> Result<ModelChoice> {
        let session = session.map(ToString::to_string);
        let fake = self.fake.as_ref().map(|_| FAKE.to_owned());
        let chosen = named.map(|name| self.named(name)).or(session).or(fake);
        let usual = || settings.map(|name| self.named(name)).or_else(|| self.registry.default_model());
        let chosen = chosen.or_else(usual);
        let Some(chosen) = chosen else { return Err(self.no_model().into()) };
        match self.registry.resolve(&chosen) {
            Ok(_) => Ok(ModelChoice::parse(&chosen)),
            Err(_) if chosen.starts_with("fake/") => {
                let message =
                    format!("the session speaks to the scripted model {chosen}; add --fake, or another --model");
                Err(Error::new(Code::InvalidArgument, message).into())
            }
            Err(error) => Err(self.unavailable(&chosen, error).into()),
        }
    }

    /// The error of a model that cannot be asked: what is missing, what was found, and what can be asked instead.
    fn unavailable(&self, chosen: &str, error: ModelError) -> Error {
        let mut message = format!("{chosen} cannot be asked: {}", error.message);
        let similar = self.registry.similar(chosen).filter(|_| error.kind == ErrorKind::UnknownModel);
        if let Some(similar) = similar {
            message.push_str(&format!(". Did you mean {similar}?"));
        }
        if error.kind == ErrorKind::Unauthorized {
            found().iter().for_each(|line| message.push_str(&format!("\n  {line}")));
            if let Some(other) = self.registry.default_model() {
                message.push_str(&format!("\nCan be asked: --model {other}"));
            }
        }
        Error::new(Code::InvalidArgument, message)
    }

    /// The error where no model is available.
    fn no_model(&self) -> Error {
        let mut lines: Vec<_> =
            key_variables().map(|(provider, variable)| format!("{variable} for {provider}")).collect();
        lines.extend(found());
        let message = format!(
            "no model can be asked, for no key is set. Set one of\n  {}\nOr name a server of your own with LOCAL_BASE_URL and \
             --model local/NAME, or see how it works without a model: flovyn chat --fake",
            lines.join("\n  ")
        );
        Error::new(Code::InvalidArgument, message)
    }
}

/// What was found in the environment that looks like a key and is not used.
fn found() -> Vec<String> {
    let value = |name: &str| std::env::var(name).ok();
    let empty = key_variables().filter(|(_, variable)| value(variable).is_some_and(|value| value.trim().is_empty()));
    let empty = empty.map(|(_, variable)| format!("Found: {variable} is set, but empty"));
    let others = OTHER_VARIABLES.iter().filter(|(name, _)| value(name).is_some_and(|value| !value.trim().is_empty()));
    empty.chain(others.map(|(name, what)| format!("Found: {name} is set, which is not read; {what}"))).collect()
}
