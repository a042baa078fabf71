//! Costs are exact integers, dated, and absent where nothing is known.

use super::*;

fn at(date: &str) -> Timestamp {
    format!("{date}T12:00:00Z").parse().expect("a moment")
}

fn micros(model: &str, usage: &Usage, date: &str) -> Option<u64> {
    PriceTable::builtin().cost("anthropic", model, usage, at(date)).map(|cost| cost.amount_micros)
}

#[test]
fn the_builtin_table_is_dated_and_says_so_in_each_cost() {
    let table = PriceTable::builtin();
    assert!(table.version().starts_with("20"), "{:?} is no date", table.version());
    let usage = Usage { input: 1, ..Usage::default() };
    let cost = table.cost("openai", "gpt-5", &usage, at("2026-11-22")).expect("a known price");
    assert_eq!(cost.table_version.as_deref(), Some(table.version()));
    assert_eq!((cost.basis, cost.currency.as_str()), (CostBasis::Table, "USD"));
}

#[test]
fn an_unknown_price_is_absent_and_never_zero() {
    let usage = Usage { input: 10, ..Usage::default() };
    for (provider, model) in [("anthropic", "claude-none"), ("nobody", "gpt-5"), ("openai", "gpt-5.4-something")] {
        assert_eq!(PriceTable::builtin().cost(provider, model, &usage, at("2026-11-22")), None, "{provider}/{model}");
    }
    let no_output = PriceTable::parse(
        "t",
        r#"[{"id":"p","models":[{"id":"m","match":{"equals":"m"},"prices":{"input_mtok":1}}]}]"#,
    );
    let no_output = no_output.expect("a table");
    let usage = Usage { input: 1, output: 1, ..Usage::default() };
    assert_eq!(no_output.cost("p", "m", &usage, at("2026-11-22")), None, "a bucket without a price");
}

#[test]
fn each_bucket_has_its_own_price() {
    let usage = Usage {
        input: 1_000,
        cache_read: 10_000,
        cache_write: 3_000,
        cache_write_1h: 1_000,
        output: 500,
        reasoning: 400,
        is_estimate: false,
        cost: None,
    };
    // 1000×1 + 10000×0.1 + 2000×1.25 + 1000×2 + 500×5 dollars per million.
    assert_eq!(micros("claude-haiku-4-5-20251001", &usage, "2026-11-22"), Some(1_000 + 1_000 + 2_500 + 2_000 + 2_500));
}

#[test]
fn fractions_are_rounded_once_for_the_whole_call() {
    let one = |input| Usage { input, ..Usage::default() };
    let cost = |usage: &Usage| {
        PriceTable::builtin()
            .cost("deepseek", "deepseek-v4-flash", usage, at("2026-11-22"))
            .map(|cost| cost.amount_micros)
    };
    assert_eq!(cost(&one(3)), Some(0), "0.42 micros");
    assert_eq!(cost(&one(4)), Some(1), "0.56 micros");
    assert_eq!(cost(&one(1_000_000)), Some(140_000));
}

#[test]
fn long_prompts_and_dates_change_the_price() {
    let short = Usage { input: 200_000, ..Usage::default() };
    let long = Usage { input: 200_001, ..Usage::default() };
    assert_eq!(micros("claude-sonnet-4-5", &short, "2026-11-22"), Some(600_000));
    assert_eq!(micros("claude-sonnet-4-5", &long, "2026-11-22"), Some(1_200_006));
    assert_eq!(micros("claude-sonnet-4-6", &long, "2026-03-12"), Some(1_200_006));
    assert_eq!(micros("claude-sonnet-4-6", &long, "2026-03-13"), Some(600_003));
}

#[test]
fn a_file_overrides_some_prices_and_leaves_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prices.json");
    let text = r#"{"version":"mine","providers":[{"id":"openai","models":[
        {"id":"gpt-5","match":{"equals":"gpt-5"},"prices":{"input_mtok":7,"output_mtok":{"base":1,"tiers":[]}}},
        {"id":"x","match":{"regex":"^o"},"prices":{"input_mtok":1}}]}]}"#;
    std::fs::write(&file, text).expect("written");
    let table = PriceTable::builtin().overridden_by(&file).expect("a table");
    let usage = Usage { input: 1_000_000, ..Usage::default() };
    let cost = |model| {
        table.cost("openai", model, &usage, at("2026-11-22")).map(|cost| (cost.amount_micros, cost.table_version))
    };
    assert_eq!(cost("gpt-5"), Some((7_000_000, Some("mine".into()))));
    assert_eq!(cost("gpt-4.1"), Some((2_000_000, Some(PriceTable::builtin().version().into()))));
    assert_eq!(cost("o9"), None, "a clause that is not understood never matches");
    let error = PriceTable::builtin().overridden_by(&folder.path().join("none.json")).expect_err("no such file");
    assert!(error.to_string().contains("none.json"), "{error}");
}
