//! What model calls cost: a dated table of list prices, and integer arithmetic over it.
//!
//! The table ([`PriceTable`]) has the format of [genai-prices](https://github.com/pydantic/genai-prices). A price that
//! is not in the table is unknown and not zero: the cost is `None` then.

mod table;

use crate::message::{Cost, CostBasis, Usage};
use flovyn_core::clock::Timestamp;
use std::sync::{Arc, OnceLock};
use table::{Document, Rates};

/// Prices of models by provider.
///
/// ```
/// use flovyn_core::clock::Timestamp;
/// use flovyn_toolkit::message::Usage;
/// use flovyn_toolkit::pricing::PriceTable;
///
/// let usage = Usage { input: 1_000, output: 200, ..Usage::default() };
/// let now = Timestamp(1_795_000_000_000_000);
/// let cost = PriceTable::builtin().cost("anthropic", "claude-haiku-4-5", &usage, now).expect("its price is known");
/// assert_eq!(cost.amount_micros, 2_000);
/// assert_eq!(PriceTable::builtin().cost("anthropic", "claude-next", &usage, now), None);
/// ```
#[derive(Debug, Clone)]
pub struct PriceTable {
    version: String,
    // They are searched in this order. A table that overrides another one comes before it.
    documents: Vec<Document>,
}

/// Why a table of prices cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the table of prices {name} cannot be read: {reason}; it has to be JSON in the format of genai-prices")]
pub struct PriceTableError {
    name: String,
    reason: String,
}

impl PriceTable {
    /// The table that this version was built with.
    pub fn builtin() -> Arc<PriceTable> {
        static BUILTIN: OnceLock<Arc<PriceTable>> = OnceLock::new();
        BUILTIN
            .get_or_init(|| {
                let table = Self::parse("of this build", include_str!("prices.json"));
                Arc::new(table.expect("the table is part of the build, and a test reads it"))
            })
            .clone()
    }

    /// The built-in table, overridden by the table at the path in the environment variable `FLOVYN_PRICES`.
    ///
    /// # Errors
    ///
    /// The file does not exist or is not a table.
    pub fn from_env() -> Result<Arc<Self>, PriceTableError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with variables from a function.
    ///
    /// # Errors
    ///
    /// As of [`from_env`](Self::from_env).
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Arc<Self>, PriceTableError> {
        let path = variable("FLOVYN_PRICES").filter(|path| !path.trim().is_empty());
        path.map_or_else(
            || Ok(Self::builtin()),
            |path| Self::builtin().overridden_by(std::path::Path::new(&path)).map(Arc::new),
        )
    }

    /// Reads a table: an object of `version` and `providers`, or the bare array of providers that genai-prices publishes.
    /// `name` is named in errors, and is the version if the table has none.
    ///
    /// A clause of `match` that is not one of `equals`, `starts_with`, `ends_with`, `contains`, `or` and `and` never
    /// matches. A price with a constraint other than a `start_date` is never used.
    ///
    /// # Errors
    ///
    /// The text is not JSON of this form.
    pub fn parse(name: &str, json: &str) -> Result<Self, PriceTableError> {
        let failed = |error: serde_json::Error| PriceTableError { name: name.to_owned(), reason: error.to_string() };
        let value: serde_json::Value = serde_json::from_str(json).map_err(failed)?;
        let document = match value {
            serde_json::Value::Array(_) => {
                Document { version: name.to_owned(), providers: serde_json::from_value(value).map_err(failed)? }
            }
            _ => serde_json::from_value(value).map_err(failed)?,
        };
        Ok(Self { version: document.version.clone(), documents: vec![document] })
    }

    /// Reads a table from a file, and overrides this one with it. This table still has the prices that the other one
    /// lacks.
    ///
    /// # Errors
    ///
    /// The file does not exist or is not a table.
    pub fn overridden_by(&self, path: &std::path::Path) -> Result<Self, PriceTableError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| PriceTableError { name: name.clone(), reason: error.to_string() })?;
        let mut over = Self::parse(&name, &text)?;
        over.documents.extend(self.documents.iter().cloned());
        Ok(over)
    }

    /// The date or the name of the table. Each cost that is computed from it names it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What a call costs at list price. `None` if the table has no price for the model, or for one of the counts that
    /// are not zero.
    pub fn cost(&self, provider: &str, model: &str, usage: &Usage, at: Timestamp) -> Option<Cost> {
        let (document, rates) =
            self.documents.iter().find_map(|document| Some((document, document.rates(provider, model, at)?)))?;
        Some(Cost {
            amount_micros: amount(rates, usage)?,
            currency: "USD".to_owned(),
            basis: CostBasis::Table,
            table_version: Some(document.version.clone()),
        })
    }
}

/// The cost in millionths of a dollar. Each count of tokens is multiplied with its price per million tokens, and the
/// sum is rounded, half up. Rounding each product instead would give another sum.
fn amount(rates: &Rates, usage: &Usage) -> Option<u64> {
    let long = usage.cache_write_1h.min(usage.cache_write);
    let prompt = usage.prompt();
    let bucket = |tokens: u64, rate: Option<u64>| match (tokens, rate) {
        (0, _) => Some(0),
        (_, rate) => Some(u128::from(tokens) * u128::from(rate?)),
    };
    let at = |price: &Option<table::Price>| price.as_ref().map(|price| price.at(prompt));
    // If the table has no price for cached reads, they cost as much as other prompt tokens: such providers give no
    // discount.
    let read = at(&rates.cache_read_mtok).or(at(&rates.input_mtok));
    let write = at(&rates.cache_write_mtok).or(at(&rates.input_mtok));
    let sum = bucket(usage.input, at(&rates.input_mtok))?
        + bucket(usage.cache_read, read)?
        + bucket(usage.cache_write - long, write)?
        + bucket(long, at(&rates.cache_write_1h_mtok).or(write))?
        + bucket(usage.output, at(&rates.output_mtok))?;
    u64::try_from((sum + 500_000) / 1_000_000).ok()
}

#[cfg(test)]
mod tests;
