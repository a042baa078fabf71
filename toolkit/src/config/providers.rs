//! Providers of a configuration: those of the catalogue with another key or address, or custom ones.

use crate::provider::{Api, Endpoint, ModelError, Registry, prices};
use flovyn_core::error::{Code, Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// A provider. One of the catalogue's needs no `api` and no `baseUrl`. Its `Debug` form shows no key and no header's value.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ProviderDescription {
    /// The wire it speaks.
    pub api: Option<Api>,
    /// Its address, as its own clients take it.
    pub base_url: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// The variable that holds its key, in place of `key`.
    pub key_variable: Option<String>,
    /// More headers to send.
    pub headers: BTreeMap<String, String>,
    /// Whether it can force answers of models that are not known into the form of a JSON Schema.
    pub structured: bool,
    /// Whether models that are not known take images.
    pub images: bool,
}

impl fmt::Debug for ProviderDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderDescription")
            .field("api", &self.api)
            .field("base_url", &self.base_url)
            .field("key", &self.key.as_ref().map(|_| "…"))
            .field("key_variable", &self.key_variable)
            .field("headers", &self.headers.keys())
            .field("structured", &self.structured)
            .field("images", &self.images)
            .finish()
    }
}

/// The providers of the environment, and these beside them or in their place.
///
/// # Errors
///
/// `INVALID_ARGUMENT`: one of them is incomplete, its variable is not set, or its address is none.
pub fn registry(providers: &BTreeMap<String, ProviderDescription>) -> Result<Registry> {
    let refused = |error: ModelError| Error::new(Code::InvalidArgument, error.message);
    let variable = |name: &str| std::env::var(name).ok();
    let mut registry = Registry::from_variables(variable).map_err(refused)?;
    let prices = prices(variable).map_err(refused)?;
    for (name, config) in providers {
        let invalid = |what: String| Error::new(Code::InvalidArgument, format!("the provider {name:?}: {what}"));
        let (api, mut endpoint) = config.endpoint(name).map_err(invalid)?;
        if let Some(key) = config.found_key().map_err(invalid)? {
            endpoint = endpoint.key(key);
        }
        endpoint.headers.extend(config.headers.clone());
        endpoint.unknown_model.structured |= config.structured;
        endpoint.unknown_model.images |= config.images;
        endpoint.prices = prices.clone();
        registry.add(api, endpoint).map_err(|error| invalid(error.message))?;
    }
    Ok(registry)
}

impl ProviderDescription {
    fn endpoint(&self, name: &str) -> Result<(Api, Endpoint), String> {
        let known = Endpoint::catalogued(name, self.base_url.as_deref());
        match (self.api, &self.base_url, known) {
            (None, _, Some(known)) => Ok(known),
            (Some(api), Some(base_url), _) => Ok((api, Endpoint::new(name, base_url))),
            (Some(_), None, _) => {
                Err("it has an \"api\" and no \"baseUrl\"; give both, or neither for one that is known".into())
            }
            (None, _, None) => Err(format!(
                "it is none of those that are known ({}), so give its \"api\" (anthropic-messages, openai-chat or \
                 openai-responses) and its \"baseUrl\"",
                Endpoint::catalogue().join(", ")
            )),
        }
    }

    fn found_key(&self) -> Result<Option<String>, String> {
        match (&self.key, &self.key_variable) {
            (Some(_), Some(_)) => Err("it has a \"key\" and a \"keyVariable\"; leave one out".into()),
            (key, None) => Ok(key.clone()),
            (None, Some(variable)) => {
                let found = std::env::var(variable).ok().filter(|key| !key.trim().is_empty());
                found.map(Some).ok_or_else(|| format!("the variable {variable} is not set; set it to its key"))
            }
        }
    }
}
