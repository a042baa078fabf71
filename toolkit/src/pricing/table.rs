//! The form of a table: providers, patterns for the ids of models, prices with tiers and dates.

use flovyn_core::clock::Timestamp;
use serde::{Deserialize, Deserializer};

/// A table in one file.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Document {
    pub(super) version: String,
    pub(super) providers: Vec<ProviderPrices>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ProviderPrices {
    id: String,
    models: Vec<ModelPrices>,
}

#[derive(Debug, Clone, Deserialize)]
struct ModelPrices {
    id: String,
    r#match: Match,
    prices: Prices,
}

/// A pattern for the ids of a model.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Match {
    Equals(String),
    StartsWith(String),
    EndsWith(String),
    Contains(String),
    Or(Vec<Match>),
    And(Vec<Match>),
    #[serde(untagged)]
    Other(serde::de::IgnoredAny),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Prices {
    Always(Box<Rates>),
    Since(Vec<Dated>),
}

#[derive(Debug, Clone, Deserialize)]
struct Dated {
    constraint: Option<Constraint>,
    prices: Rates,
}

#[derive(Debug, Clone, Deserialize)]
struct Constraint {
    start_date: Option<String>,
}

/// The prices of one model at one time.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rates {
    pub(super) input_mtok: Option<Price>,
    pub(super) cache_read_mtok: Option<Price>,
    pub(super) cache_write_mtok: Option<Price>,
    pub(super) cache_write_1h_mtok: Option<Price>,
    pub(super) output_mtok: Option<Price>,
}

/// A price in millionths of a dollar per million tokens. It may be another one for long prompts.
#[derive(Debug, Clone)]
pub(super) struct Price {
    base: u64,
    tiers: Vec<(u64, u64)>,
}

impl Price {
    /// The price of each token of a call whose prompt has this many tokens.
    pub(super) fn at(&self, prompt: u64) -> u64 {
        self.tiers.iter().filter(|(start, _)| prompt > *start).max().map_or(self.base, |(_, price)| *price)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Flat(f64),
            Tiered { base: f64, tiers: Vec<Tier> },
        }
        #[derive(Deserialize)]
        struct Tier {
            start: u64,
            price: f64,
        }
        // Prices in dollars have only a few decimals, so nothing is lost here, and all arithmetic after this is with
        // integers.
        let micros = |dollars: f64| (dollars * 1e6).round() as u64;
        Ok(match Written::deserialize(deserializer)? {
            Written::Flat(dollars) => Self { base: micros(dollars), tiers: Vec::new() },
            Written::Tiered { base, tiers } => Self {
                base: micros(base),
                tiers: tiers.into_iter().map(|tier| (tier.start, micros(tier.price))).collect(),
            },
        })
    }
}

impl Match {
    fn takes(&self, model: &str) -> bool {
        match self {
            Self::Equals(text) => model == text,
            Self::StartsWith(text) => model.starts_with(text.as_str()),
            Self::EndsWith(text) => model.ends_with(text.as_str()),
            Self::Contains(text) => model.contains(text.as_str()),
            Self::Or(any) => any.iter().any(|clause| clause.takes(model)),
            Self::And(all) => all.iter().all(|clause| clause.takes(model)),
            Self::Other(_) => false,
        }
    }
}

impl Document {
    /// The prices of a model at a time. A model with exactly this id is preferred to one whose pattern matches.
    pub(super) fn rates(&self, provider: &str, model: &str, at: Timestamp) -> Option<&Rates> {
        let models = &self.providers.iter().find(|known| known.id == provider)?.models;
        let exact = models.iter().find(|known| known.id == model);
        let found = exact.or_else(|| models.iter().find(|known| known.r#match.takes(model)))?;
        match &found.prices {
            Prices::Always(rates) => Some(rates),
            Prices::Since(dated) => {
                // A time in RFC 3339 begins with the date, and dates in this form can be compared as texts.
                let now = at.to_string();
                let holds = |dated: &&Dated| match &dated.constraint {
                    None => true,
                    Some(constraint) => constraint.start_date.as_deref().is_some_and(|start| start <= now.as_str()),
                };
                dated.iter().rfind(holds).map(|dated| &dated.prices)
            }
        }
    }
}
