//! The canonical form of JSON, of which digests are taken: RFC 8785, but with whole numbers kept exact.
//!
//! RFC 8785 reads every number as a double, so two whole numbers beyond 2^53 may get the same form. Two steps whose
//! inputs differ only in such a number, the id of an order for instance, would then be taken for one step. This form
//! writes such a number with all of its decimal digits. All other values are written as the RFC says.

use crate::error::{Code, Error, Result};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The largest whole number up to which doubles are exact.
const EXACT: u64 = 1 << 53;
/// How many digits that number has. A number with fewer digits is exact.
const DIGITS: usize = 16;

/// The canonical form of a JSON text: keys are sorted, numbers have their shortest form, and there is no white space.
pub(crate) fn canonical_json(text: &[u8]) -> Result<Vec<u8>> {
    // This also refuses text that is nested too deeply, so that `write` can recurse safely.
    let value: serde_json::Value = serde_json::from_slice(text).map_err(invalid)?;
    if !has_long_number(text) {
        return plain(&value);
    }
    let raw: &RawValue = serde_json::from_slice(text).map_err(invalid)?;
    let mut out = Vec::with_capacity(text.len());
    write(raw.get(), &mut out)?;
    Ok(out)
}

fn has_long_number(text: &[u8]) -> bool {
    let mut run = 0;
    text.iter().any(|byte| {
        run = if byte.is_ascii_digit() { run + 1 } else { 0 };
        run == DIGITS
    })
}

fn write(text: &str, out: &mut Vec<u8>) -> Result<()> {
    let text = text.trim_ascii();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(invalid)?;
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push(b'{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                out.extend(plain(&name)?);
                out.push(b':');
                write(value.get(), out)?;
            }
            out.push(b'}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(invalid)?;
            out.push(b'[');
            for (place, item) in items.into_iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(item.get(), out)?;
            }
            out.push(b']');
        }
        _ if is_beyond_doubles(text) => out.extend(text.as_bytes()),
        _ => out.extend(plain(&serde_json::from_str::<serde_json::Value>(text).map_err(invalid)?)?),
    }
    Ok(())
}

/// Whether a literal is a whole number that a double may not hold exactly.
fn is_beyond_doubles(literal: &str) -> bool {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole && (digits.len() > DIGITS || digits.parse::<u64>().is_ok_and(|number| number > EXACT))
}

fn plain<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json_canonicalizer::to_vec(value).map_err(invalid)
}

fn invalid(error: serde_json::Error) -> Error {
    Error::new(Code::NotSerializable, format!("a value is not JSON: {error}")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        String::from_utf8(canonical_json(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn whole_numbers_stay_exact() {
        for number in
            ["9007199254740993", "-9007199254740993", "18446744073709551617", "123456789012345678901234567890"]
        {
            assert_eq!(canonical(number), number);
            let nested = format!("{{\"b\":[1, {number}],\"a\": \"x\"}}");
            assert_eq!(canonical(&nested), format!("{{\"a\":\"x\",\"b\":[1,{number}]}}"));
        }
        assert_ne!(canonical("9007199254740992"), canonical("9007199254740993"));
    }

    #[test]
    fn all_else_is_as_the_rfc_says() {
        // The second text of each pair takes the way of long numbers.
        for (text, form) in [
            (r#"{"b":1.0,"a":1e2}"#, r#"{"a":100,"b":1}"#),
            (
                r#"{"\ud83d\ude00":1,"\ufb33":2,"x":"1234567890123456"}"#,
                "{\"x\":\"1234567890123456\",\"\u{1f600}\":1,\"\u{fb33}\":2}",
            ),
            ("[0.50000000000000000, 1e30, 9007199254740992.0, -0]", "[0.5,1e+30,9007199254740992,0]"),
        ] {
            assert_eq!(canonical(text), form);
        }
        assert!(canonical_json(b"{1234567890123456").is_err());
        let deep = format!("{}12345678901234567{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(canonical_json(deep.as_bytes()).is_err());
    }
}
