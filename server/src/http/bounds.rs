//! Adds the limits of fields and parameters to the OpenAPI document; the numbers are the constants that the server checks.

use crate::service::{BROWSER_SECONDS, KEY_DAYS, KEY_NAME};
use flovyn_core::model::{MAX_ID, MAX_NAME, MAX_PAGE};
use flovyn_core::storage::MAX_METADATA;
use flovyn_core::storage::directory::MAX_SLUG;
use flovyn_core::storage::queues::PERIODS;
use serde_json::{Value, json};

/// The limit of a field or a parameter.
enum Bound {
    /// So many characters. A name is counted in bytes, so one of other letters may be refused that has fewer characters.
    Length(usize, usize),
    /// A number from here on.
    From(f64),
    /// A number between two.
    Between(f64, f64),
    /// The metadata of a run.
    Metadata,
}

use Bound::{Between, From, Length, Metadata};

const NAME: Bound = Length(1, MAX_NAME);
const MAYBE_EMPTY: Bound = Length(0, MAX_NAME);
const ID: Bound = Length(1, MAX_ID);

/// Every field of a request that is bounded: its schema, its name, its bound.
const FIELDS: &[(&str, &str, Bound)] = &[
    ("Start", "kind", NAME),
    ("Start", "id", ID),
    ("Start", "queue", MAYBE_EMPTY),
    ("Start", "metadata", Metadata),
    ("Start", "concurrencyKey", MAYBE_EMPTY),
    ("Start", "concurrencyLimit", From(1.0)),
    ("Start", "timeoutSeconds", From(0.0)),
    ("Start", "delaySeconds", From(0.0)),
    ("Signal", "signalName", MAYBE_EMPTY),
    ("Signal", "idempotencyKey", MAYBE_EMPTY),
    ("TurnRequest", "idempotencyKey", ID),
    ("ForkPoint", "id", ID),
    ("Cancel", "timeoutSeconds", From(0.0)),
    ("CreateBrowserToken", "user", ID),
    ("CreateBrowserToken", "expiresInSeconds", Between(BROWSER_SECONDS.1 as f64, BROWSER_SECONDS.2 as f64)),
    ("CreateKey", "name", Length(1, KEY_NAME)),
    ("CreateKey", "expiresInDays", Between(1.0, KEY_DAYS.1 as f64)),
    ("NewSchedule", "id", ID),
    ("NewSchedule", "kind", NAME),
    ("NewSchedule", "queue", NAME),
    ("NewSchedule", "cron", ID),
    ("NewSchedule", "timezone", MAYBE_EMPTY),
    ("NewSchedule", "metadata", Metadata),
    ("NewSchedule", "concurrencyKey", MAYBE_EMPTY),
    ("NewSchedule", "concurrencyLimit", From(1.0)),
    ("DefinitionBody", "slug", Length(1, MAX_SLUG)),
    ("DefinitionBody", "kind", NAME),
    ("DefinitionBody", "queue", NAME),
    ("QueueLimit", "concurrency", From(1.0)),
    ("Rate", "runs", From(1.0)),
    ("Rate", "seconds", Between(PERIODS.start().as_millis() as f64 / 1e3, PERIODS.end().as_secs() as f64)),
];

/// Every parameter that is bounded, wherever it is taken.
const PARAMETERS: &[(&str, Bound)] = &[("limit", Between(1.0, MAX_PAGE as f64)), ("Idempotency-Key", ID)];

/// Adds the limits to the schemas of the document.
pub(super) fn add_bounds(api: &mut Value) {
    for (schema, field, bound) in FIELDS {
        if let Some(found) = api.pointer_mut(&format!("/components/schemas/{schema}/properties/{field}")) {
            bound.write_to(found);
        }
    }
    let Some(paths) = api["paths"].as_object_mut() else { return };
    let operations = paths.values_mut().filter_map(Value::as_object_mut).flat_map(|item| item.values_mut());
    for parameter in operations.filter_map(|operation| operation["parameters"].as_array_mut()).flatten() {
        if let Some((_, bound)) = PARAMETERS.iter().find(|(name, _)| parameter["name"] == *name) {
            bound.write_to(&mut parameter["schema"]);
        }
    }
}

impl Bound {
    fn write_to(&self, schema: &mut Value) {
        let bounds = match self {
            Length(0, most) => json!({ "maxLength": most }),
            Length(least, most) => json!({ "minLength": least, "maxLength": most }),
            From(least) => json!({ "minimum": number(*least) }),
            Between(least, most) => json!({ "minimum": number(*least), "maximum": number(*most) }),
            Metadata => json!({
                "propertyNames": { "maxLength": MAX_NAME },
                "description": format!("For filters: names and values, {MAX_METADATA} bytes together"),
            }),
        };
        if let (Some(schema), Value::Object(bounds)) = (schema.as_object_mut(), bounds) {
            schema.extend(bounds);
        }
    }
}

/// A whole number is written as one.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 { json!(value as u64) } else { json!(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes;

    #[test]
    fn every_bound_is_of_something_that_is_served() {
        let api = serde_json::to_value(routes().into_openapi()).unwrap();
        for (schema, field, _) in FIELDS {
            let place = format!("/components/schemas/{schema}/properties/{field}");
            let kind = api.pointer(&place).map(|found| found["type"].clone());
            assert!(kind.as_ref().is_some_and(|kind| !kind.is_null()), "{place}: {kind:?}");
        }
    }
}
