//! The models that are available, and the choice of one: those of the environment, or a scripted one in this process.

use crate::Result;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::config::{ProviderDescription, registry};
use flovyn_toolkit::fake_llm::{FakeLlm, Script};
use flovyn_toolkit::message::ModelError;
use flovyn_toolkit::provider::{Api, Registry, catalogued};
use flovyn_toolkit::react::ModelChoice;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The name of the scripted model.
pub(super) const FAKE: &str = "fake/scripted";
/// Its script, where the user gives none.
const SCRIPT: &str = include_str!("fake.toml");

/// The models of this process. A scripted one lives as long as this.
pub(crate) struct Models {
    registry: Registry,
    fake: Option<FakeLlm>,
}

impl Models {
    /// The models whose keys are in the environment; with `fake` also the scripted one, which is then the default.
    pub(crate) fn open(fake: Option<Option<&Path>>) -> Result<Self> {
        let Some(script) = fake else { return Ok(Self { registry: registry(&BTreeMap::new())?, fake: None }) };
        let script = match script {
            Some(file) => Script::from_file(file),
            None => Script::from_toml(SCRIPT),
        };
        let script = script.map_err(|error| Error::new(Code::InvalidArgument, error.to_string()))?;
        let fake = FakeLlm::start(script).map_err(|error| {
            Error::new(Code::InvalidArgument, format!("the scripted model cannot be served on 127.0.0.1: {error}"))
        })?;
        let provider = ProviderDescription {
            api: Some(Api::AnthropicMessages),
            base_url: Some(fake.url()),
            ..ProviderDescription::default()
        };
        let registry = registry(&BTreeMap::from([("fake".to_owned(), provider)]))?;
        Ok(Self { registry, fake: Some(fake) })
    }

    /// All available models.
    pub(crate) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Chooses a model: the named one, else that of the session, else the scripted one, else the first available one.
    pub(crate) fn choose(&self, named: Option<&str>, session: Option<&ModelChoice>) -> Result<ModelChoice> {
        let session = session.map(ToString::to_string);
        let first = || self.registry.models().first().map(|model| model.reference());
        let fake = self.fake.as_ref().map(|_| FAKE.to_owned());
        let chosen = named.map(str::to_owned).or(session).or(fake).or_else(first);
        let Some(chosen) = chosen else { return Err(self.no_model().into()) };
        match self.registry.resolve(&chosen) {
            Ok(_) => Ok(ModelChoice::parse(&chosen)),
            Err(_) if chosen.starts_with("fake/") => {
                let message =
                    format!("the session speaks to the scripted model {chosen}; add --fake, or another --model");
                Err(Error::new(Code::InvalidArgument, message).into())
            }
            Err(error) => Err(model_error(error).into()),
        }
    }

    /// The error where no model is available.
    fn no_model(&self) -> Error {
        let references: Vec<_> = catalogued().iter().map(|model| (model.provider.clone(), model.reference())).collect();
        let mut seen = BTreeSet::new();
        let missing = references.iter().filter(|(provider, _)| seen.insert(provider.clone()));
        let lines = missing.filter_map(|(_, reference)| self.registry.resolve(reference).err());
        let lines: Vec<_> = lines.map(|error| format!("  {}", error.message)).collect();
        let message = format!(
            "no model can be asked, for no key is set:\n{}\nOr name a server of your own with LOCAL_BASE_URL and --model \
             local/NAME, or see how it works without a model: flovyn chat --fake",
            lines.join("\n")
        );
        Error::new(Code::InvalidArgument, message)
    }
}

fn model_error(error: ModelError) -> Error {
    Error::new(Code::InvalidArgument, error.message)
}
