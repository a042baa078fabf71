//! Sums the usage and cost of the model calls of a turn.

use flovyn_toolkit::message::Usage;
use serde_json::{Value, json};

/// Sums of model calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    calls: u64,
    prompt: u64,
    cached: u64,
    written: u64,
    output: u64,
    micros: u64,
    /// The price of a call was not known.
    unpriced: bool,
}

impl Tally {
    /// Counts a call. The cost of a call without usage is unknown.
    pub(super) fn add(&mut self, usage: Option<&Usage>) {
        self.calls += 1;
        let Some(usage) = usage else {
            self.unpriced = true;
            return;
        };
        self.prompt += usage.prompt();
        self.cached += usage.cache_read;
        self.written += usage.cache_write;
        self.output += usage.output;
        match usage.cost_micros() {
            Some(micros) => self.micros += micros,
            None => self.unpriced = true,
        }
    }

    /// Counts what another counted.
    pub(super) fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.written += other.written;
        self.output += other.output;
        self.micros += other.micros;
        self.unpriced |= other.unpriced;
    }

    /// Whether no model was called.
    pub(super) fn is_empty(&self) -> bool {
        self.calls == 0
    }

    /// Millionths of a US dollar; none where the price of a call is not known.
    pub(super) fn cost_micros(&self) -> Option<u64> {
        (!self.unpriced).then_some(self.micros)
    }

    /// The dollars for people; none where nobody knows them.
    pub(super) fn cost(&self) -> Option<String> {
        self.cost_micros().map(|micros| format!("${}", dollars(micros)))
    }

    /// For people: tokens in and out, and dollars or that they are not known.
    pub(super) fn line(&self) -> String {
        let cached = if self.cached > 0 { format!(" ({} cached)", grouped(self.cached)) } else { String::new() };
        format!(
            "{} tokens in{cached}, {} out · {}",
            grouped(self.prompt),
            grouped(self.output),
            self.cost().unwrap_or_else(|| "cost unknown".to_owned())
        )
    }

    /// Tokens by the names of Anthropic's wire, which readers of event streams know.
    pub(super) fn usage(&self) -> Value {
        json!({
            "input_tokens": self.prompt - self.cached - self.written,
            "cache_creation_input_tokens": self.written,
            "cache_read_input_tokens": self.cached,
            "output_tokens": self.output,
        })
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "calls": self.calls,
            "inputTokens": self.prompt,
            "cachedTokens": self.cached,
            "outputTokens": self.output,
            "costMicros": self.cost_micros(),
        })
    }
}

/// Dollars with as many places as say something.
fn dollars(micros: u64) -> String {
    let places = if micros >= 1_000_000 { 2 } else { 4 };
    format!("{:.places$}", micros as f64 / 1e6)
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let head = digits.len() % 3;
    let mut out = digits[..head].to_owned();
    for group in digits.as_bytes()[head..].chunks(3) {
        if !out.is_empty() {
            out.push(',');
        }
        out.extend(group.iter().map(|digit| char::from(*digit)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_toolkit::message::{Cost, CostBasis};

    #[test]
    fn what_is_not_known_is_not_free() {
        let mut tally = Tally::default();
        let cost = Cost { amount_micros: 12_300, currency: "USD".into(), basis: CostBasis::Table, table_version: None };
        let priced = Usage { input: 1_200, cache_read: 34_000, output: 56, cost: Some(cost), ..Usage::default() };
        tally.add(Some(&priced));
        assert_eq!(tally.line(), "35,200 tokens in (34,000 cached), 56 out · $0.0123");
        let mut sum = Tally::default();
        sum.merge(&tally);
        sum.add(Some(&Usage { output: 1, ..Usage::default() }));
        assert_eq!(sum.line(), "35,200 tokens in (34,000 cached), 57 out · cost unknown");
        assert_eq!(sum.json()["costMicros"], Value::Null);
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!((dollars(1_234_567), dollars(5)), ("1.23".to_owned(), "0.0000".to_owned()));
    }
}
