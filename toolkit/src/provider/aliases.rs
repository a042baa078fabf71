//! Short names of models, and the model that is asked where none is named: the newest of the catalogue, at a provider that can be
//! asked.

use super::registry::{ProviderSpec, catalog};
use super::{Registry, catalogued};
use globset::Glob;

/// A short name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAlias {
    /// The name, such as `sonnet`.
    pub name: String,
    /// What it stands for, as `provider/model`.
    pub reference: String,
    /// Whether that can be asked.
    pub is_available: bool,
}

/// The variables of the environment that hold the keys of the catalogue's providers, by provider.
pub fn key_variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    catalog().providers.iter().filter(|spec| !spec.key_optional).map(|spec| (spec.name.as_str(), spec.key_env.as_str()))
}

impl Registry {
    /// The short names, by name. Where several providers have one, that of the first that can be asked counts.
    pub fn aliases(&self) -> Vec<ModelAlias> {
        let mut aliases: Vec<ModelAlias> = Vec::new();
        for spec in &catalog().providers {
            for (name, pattern) in &spec.aliases {
                let Ok(pattern) = Glob::new(pattern).map(|glob| glob.compile_matcher()) else { continue };
                let Some(model) = spec.models.iter().find(|model| pattern.is_match(&model.id)) else { continue };
                let reference = format!("{}/{}", spec.name, model.id);
                let alias = ModelAlias { name: name.clone(), reference, is_available: self.can_ask(&spec.name) };
                match aliases.iter_mut().find(|known| known.name == *name) {
                    None => aliases.push(alias),
                    Some(known) if !known.is_available && alias.is_available => *known = alias,
                    Some(_) => {}
                }
            }
        }
        aliases.sort_by(|one, two| one.name.cmp(&two.name));
        aliases
    }

    /// What a name stands for, as `provider/model`: a short name, or the id of a model of the catalogue without its provider.
    /// None if it is neither; a reference with its provider needs no expansion.
    pub fn expand(&self, name: &str) -> Option<String> {
        let alias = self.aliases().into_iter().find(|alias| alias.name.eq_ignore_ascii_case(name));
        if let Some(alias) = alias {
            return Some(alias.reference);
        }
        let has = |spec: &&ProviderSpec| spec.models.iter().any(|model| model.id == name);
        let providers = || catalog().providers.iter().filter(has);
        let spec = providers().find(|spec| self.can_ask(&spec.name)).or_else(|| providers().next())?;
        Some(format!("{}/{name}", spec.name))
    }

    /// The model that is asked where none is named: that of the first provider of the catalogue that can be asked, else the
    /// first model of another provider. None where nothing can be asked.
    pub fn default_model(&self) -> Option<String> {
        let usual = catalog().providers.iter().filter(|spec| self.can_ask(&spec.name));
        let usual = usual.filter_map(|spec| Some(format!("{}/{}", spec.name, spec.default.as_ref()?))).next();
        usual.or_else(|| self.models().first().map(|model| model.reference()))
    }

    /// The short name or reference that is most like a name that is none.
    pub fn similar(&self, name: &str) -> Option<String> {
        let mut known: Vec<_> = self.aliases().into_iter().map(|alias| alias.name).collect();
        known.extend(catalogued().into_iter().flat_map(|model| [model.reference(), model.id]));
        let scored = known.into_iter().map(|known| (strsim::jaro_winkler(name, &known), known));
        scored.filter(|(score, _)| *score > 0.85).max_by(|one, two| one.0.total_cmp(&two.0)).map(|(_, known)| known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &'static [&'static str]) -> Registry {
        let variable = |name: &str| variables.contains(&name).then(|| "k".to_owned());
        Registry::from_variables(variable).expect("a registry")
    }

    #[test]
    fn a_short_name_is_the_newest_of_whoever_can_be_asked() {
        let none = with(&[]);
        for (name, reference) in [
            ("sonnet", "anthropic/claude-sonnet-5-5"),
            ("Opus", "anthropic/claude-opus-5-5"),
            ("haiku", "anthropic/claude-haiku-5-5"),
            ("gpt", "openai/gpt-5.5"),
            ("gpt-mini", "openai/gpt-5.4-mini"),
            ("glm", "openrouter/z-ai/glm-4.7"),
            ("claude-opus-5", "anthropic/claude-opus-5"),
        ] {
            assert_eq!(none.expand(name).as_deref(), Some(reference), "{name}");
        }
        assert_eq!(none.expand("anthropic/claude-opus-5"), None);
        assert_eq!(none.expand("nothing"), None);
        assert_eq!(with(&["ZAI_API_KEY"]).expand("glm").as_deref(), Some("zai/glm-5.3"));
        assert_eq!(none.similar("sonet").as_deref(), Some("sonnet"));
        assert_eq!(none.similar("xyz"), None);
    }

    #[test]
    fn a_model_is_chosen_by_the_key_that_is_there() {
        for (variables, wanted) in [
            (&[][..], None),
            (&["ANTHROPIC_API_KEY", "OPENAI_API_KEY"][..], Some("anthropic/claude-sonnet-5-5")),
            (&["OPENAI_API_KEY", "MOONSHOT_API_KEY"][..], Some("openai/gpt-5.5")),
            (&["MOONSHOT_API_KEY"][..], Some("moonshotai/kimi-k3")),
        ] {
            assert_eq!(with(variables).default_model().as_deref(), wanted, "{variables:?}");
        }
    }

    /// The numbers of an id, for comparing versions.
    fn version(id: &str) -> Vec<u32> {
        id.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    }

    #[test]
    fn the_first_model_of_a_family_is_its_newest_and_defaults_exist() {
        let models = catalogued();
        for spec in &catalog().providers {
            if let Some(default) = &spec.default {
                assert!(spec.models.iter().any(|model| model.id == *default), "{}: {default}", spec.name);
            }
            for (name, pattern) in &spec.aliases {
                let pattern = Glob::new(pattern).expect("a pattern").compile_matcher();
                let family: Vec<_> = spec.models.iter().filter(|model| pattern.is_match(&model.id)).collect();
                let newest = family.iter().map(|model| version(&model.id)).max();
                assert_eq!(family.first().map(|model| version(&model.id)), newest, "{} of {}", name, spec.name);
                assert!(!models.iter().any(|model| model.id == *name), "{name} is an id too");
            }
        }
    }
}
