//! What model calls cost: a dated table of list prices, and integer arithmetic over it.
//!
//! Owns the table ([`PriceTable`]) in the format of [genai-prices](https://github.com/pydantic/genai-prices). A price that is
//! not in the table is unknown, which is not zero: the cost is then `None`.

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
    // Looked through in this order: what overrides comes first.
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

    /// The built-in table, below the one whose path a variable of the environment holds: `FLOVYN_PRICES`.
    ///
    /// # Errors
    ///
    /// The file is not there or is no table.
    pub fn from_env() -> Result<Arc<Self>, PriceTableError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with the variables that a function knows.
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
    /// `name` is told in errors and is the version where the table has none.
    ///
    /// Clauses of `match` that are none of `equals`, `starts_with`, `ends_with`, `contains`, `or` and `and` never match, and
    /// prices with a constraint other than a `start_date` never hold.
    ///
    /// # Errors
    ///
    /// The text is no such JSON.
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

    /// Reads a table from a file and puts it over this one: what it does not price is still priced by this one.
    ///
    /// # Errors
    ///
    /// The file is not there or is no table.
    pub fn overridden_by(&self, path: &std::path::Path) -> Result<Self, PriceTableError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| PriceTableError { name: name.clone(), reason: error.to_string() })?;
        let mut over = Self::parse(&name, &text)?;
        over.documents.extend(self.documents.iter().cloned());
        Ok(over)
    }

    /// The date or name of the table, which costs carry.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What a call costs at list price; `None` where the model, or a bucket that the call filled, has no price.
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

/// Millionths of a dollar, rounded half up once. A bucket is `tokens × micros per million tokens`.
fn amount(rates: &Rates, usage: &Usage) -> Option<u64> {
    let long = usage.cache_write_1h.min(usage.cache_write);
    let prompt = usage.prompt();
    let bucket = |tokens: u64, rate: Option<u64>| match (tokens, rate) {
        (0, _) => Some(0),
        (_, rate) => Some(u128::from(tokens) * u128::from(rate?)),
    };
    let at = |price: &Option<table::Price>| price.as_ref().map(|price| price.at(prompt));
    // Without a price of its own, a cached read is a plain read: so the providers without a discount charge it.
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
