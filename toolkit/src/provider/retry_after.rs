//! How long a provider asks to wait before it is asked again, in the headers of a refusal.

use flovyn_core::clock::Timestamp;
use reqwest::header::HeaderMap;
use std::time::{Duration, UNIX_EPOCH};

/// How long the provider asks to wait, in milliseconds: as it says, or else until a limit that is used up is renewed.
pub(super) fn asked_wait(headers: &HeaderMap) -> Option<u64> {
    retry_after(headers).or_else(|| reset_of_limit(headers))
}

/// How long the provider asked to wait, in milliseconds: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Some(millis.max(0.0) as u64);
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Some((seconds.max(0.0) * 1_000.0) as u64);
    }
    // The wait is counted from the date of the response and not from our clock, which may differ from the provider's.
    let at = httpdate::parse_http_date(after).ok()?;
    let now = httpdate::parse_http_date(text("date")?).ok()?;
    Some(at.duration_since(now).map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

/// How long it takes until the limits are renewed that are used up, in milliseconds, in the headers of Anthropic
/// (`anthropic-ratelimit-tokens-reset`, a moment) and of OpenAI (`x-ratelimit-reset-tokens`, a time such as `1m30s`). They
/// say so with refusals and with answers, but only a limit of which nothing remains is waited for.
fn reset_of_limit(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let is_used_up = |name: &str| text(name).is_some_and(|left| left.parse() == Ok(0.0));
    let now = text("date").and_then(|date| httpdate::parse_http_date(date).ok());
    let until = |moment: &str| {
        let at = moment.parse::<Timestamp>().ok()?;
        let at = UNIX_EPOCH + Duration::from_micros(u64::try_from(at.0).ok()?);
        Some(at.duration_since(now?).unwrap_or_default())
    };
    let waits = ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().flat_map(|limit| {
        let anthropic = Some(format!("anthropic-ratelimit-{limit}-reset"))
            .filter(|_| is_used_up(&format!("anthropic-ratelimit-{limit}-remaining")))
            .and_then(|name| until(text(&name)?));
        let openai = Some(format!("x-ratelimit-reset-{limit}"))
            .filter(|_| is_used_up(&format!("x-ratelimit-remaining-{limit}")))
            .and_then(|name| time_of(text(&name)?));
        [anthropic, openai]
    });
    waits.flatten().max().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// A time such as `6m0s`, `1.5s`, `20ms` or `1h2m3s`.
fn time_of(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|letter: char| letter.is_ascii_alphabetic())?);
        let length = behind.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(length);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = behind;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn waits_are_read_in_each_form() {
        assert_eq!(retry_after(&headers(&[("retry-after", "2")])), Some(2_000));
        assert_eq!(retry_after(&headers(&[("retry-after", "0.5")])), Some(500));
        assert_eq!(retry_after(&headers(&[("retry-after-ms", "250"), ("retry-after", "9")])), Some(250));
        let date = ("date", "Sun, 22 Nov 2026 07:00:00 GMT");
        assert_eq!(retry_after(&headers(&[date, ("retry-after", "Sun, 22 Nov 2026 07:00:30 GMT")])), Some(30_000));
        assert_eq!(retry_after(&headers(&[date, ("retry-after", "Sun, 22 Nov 2026 06:00:00 GMT")])), Some(0));
        assert_eq!(retry_after(&headers(&[("retry-after", "soon")])), None);
        assert_eq!(retry_after(&headers(&[("retry-after", "-3")])), Some(0));
    }

    #[test]
    fn limits_that_are_used_up_say_when_they_are_renewed() {
        let date = ("date", "Sun, 22 Nov 2026 07:00:00 GMT");
        let anthropic = |left| {
            headers(&[
                date,
                ("anthropic-ratelimit-requests-remaining", "7"),
                ("anthropic-ratelimit-requests-reset", "2026-11-22T09:00:00Z"),
                ("anthropic-ratelimit-input-tokens-remaining", left),
                ("anthropic-ratelimit-input-tokens-reset", "2026-11-22T07:00:45Z"),
            ])
        };
        assert_eq!(reset_of_limit(&anthropic("0")), Some(45_000));
        assert_eq!(reset_of_limit(&anthropic("100")), None, "nothing is used up");
        for (reset, millis) in
            [("6m0s", 360_000), ("1.5s", 1_500), ("20ms", 20), ("1h2m3s", 3_723_000), ("1d", 86_400_000)]
        {
            let limit = headers(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", reset)]);
            assert_eq!(reset_of_limit(&limit), Some(millis), "{reset}");
        }
        for reset in ["soon", "", "3", "-1s", "9w"] {
            let limit = headers(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", reset)]);
            assert!(reset_of_limit(&limit).unwrap_or_default() == 0, "{reset:?}");
        }
    }
}
