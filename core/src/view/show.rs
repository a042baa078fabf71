//! How a view is written in each style: the form of its names and moments, and how values of an author are kept apart
//! from the engine's own.

use crate::clock::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The style in which a view is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// JSON for everyone: `camelCase`, moments as RFC 3339.
    Json,
    /// For the Python package: `snake_case`, moments as seconds since 1970.
    Python,
    /// For the TypeScript package: `camelCase`. A moment is written as `{"@": milliseconds}` and a value of an author
    /// as
    /// `{"$": value}`, so that the package never takes a name or value of an author for one of the engine's.
    TypeScript,
}

impl Style {
    /// The name of a field in this style; `name` is the name in Rust.
    pub(crate) fn name(self, name: &str) -> String {
        // Rust writes a name that is one of its keywords with this prefix.
        let name = name.strip_prefix("r#").unwrap_or(name);
        match self {
            Self::Python => name.into(),
            Self::Json | Self::TypeScript => camel(name),
        }
    }
}

/// Turns `snake_case` into `camelCase`.
pub(crate) fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut whole, part| {
        let mut letters = part.chars();
        whole.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        whole + letters.as_str()
    })
}

/// A value that can be part of a view.
pub trait Show {
    /// Its JSON in this style.
    fn show(&self, style: Style) -> Value;
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, format = DateTime))]
pub struct Moment(pub Timestamp);

impl Show for Moment {
    fn show(&self, style: Style) -> Value {
        match style {
            Style::Json => self.0.to_string().into(),
            Style::Python => (self.0.0 as f64 / 1e6).into(),
            Style::TypeScript => serde_json::json!({ "@": self.0.0 as f64 / 1e3 }),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// One of a fixed set of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Word<T>(pub T);

impl<T: Serialize> Show for Word<T> {
    fn show(&self, _: Style) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }
}

/// What an author gave: its names and values stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Opaque(pub Value);

impl Opaque {
    /// The value of a JSON text; null if the text is not JSON.
    pub fn parsed(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }
}

impl Show for Opaque {
    fn show(&self, style: Style) -> Value {
        match (style, &self.0) {
            (Style::TypeScript, Value::Array(_) | Value::Object(_)) => serde_json::json!({ "$": self.0 }),
            (_, plain) => plain.clone(),
        }
    }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Show for $type {
            fn show(&self, _: Style) -> Value {
                (*self).into()
            }
        }
    )*};
}

plain!(bool, i32, u32, u64, f64);

impl Show for String {
    fn show(&self, _: Style) -> Value {
        self.as_str().into()
    }
}

impl Show for Uuid {
    fn show(&self, _: Style) -> Value {
        self.to_string().into()
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self, style: Style) -> Value {
        self.as_ref().map_or(Value::Null, |shown| shown.show(style))
    }
}

impl<T: Show> Show for Vec<T> {
    fn show(&self, style: Style) -> Value {
        self.iter().map(|shown| shown.show(style)).collect()
    }
}

/// The keys are names of an author and are not changed. Do not put moments below them: in TypeScript nobody looks for
/// the mark of a moment there.
impl<T: Show> Show for BTreeMap<String, T> {
    fn show(&self, style: Style) -> Value {
        let fields = self.iter().map(|(name, shown)| (name.clone(), shown.show(style)));
        Opaque(Value::Object(fields.collect())).show(style)
    }
}

/// Declares a view: a struct that can be shown in every style, each field under its own name.
macro_rules! view {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }) => {
        #[derive(Debug, Clone, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        $(#[$about])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $crate::view::Show for $name {
            fn show(&self, style: $crate::view::Style) -> serde_json::Value {
                let mut fields = serde_json::Map::new();
                $(fields.insert(style.name(stringify!($field)), self.$field.show(style));)*
                serde_json::Value::Object(fields)
            }
        }
    };
}

pub(super) use view;

#[cfg(test)]
#[allow(unreachable_pub)]
mod tests {
    use super::*;
    use serde_json::json;

    view! {
        /// A view of all kinds of fields.
        pub struct Sample {
            /// A keyword of Rust's.
            #[cfg_attr(feature = "openapi", schema(value_type = String))]
            pub r#type: Word<crate::model::Status>,
            /// Two words.
            pub created_at: Option<Moment>,
            /// Theirs.
            #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
            pub given: Opaque,
            /// Theirs by name.
            pub by_name: BTreeMap<String, String>,
            /// Ours.
            pub inner: Vec<Inner>,
        }
    }

    view! {
        /// A view within a view.
        pub struct Inner {
            /// None.
            pub ended_at: Option<Moment>,
        }
    }

    fn sample() -> Sample {
        Sample {
            r#type: Word(crate::model::Status::Waiting),
            created_at: Some(Moment(Timestamp(1_700_000_000_250_000))),
            given: Opaque(json!({ "my_key": { "@": 1 } })),
            by_name: BTreeMap::from([("$".into(), "a".into())]),
            inner: vec![Inner { ended_at: None }],
        }
    }

    #[test]
    fn each_host_has_the_same_fields_in_its_own_style() {
        assert_eq!(
            sample().show(Style::Python),
            json!({
                "type": "WAITING", "created_at": 1_700_000_000.25, "given": { "my_key": { "@": 1 } },
                "by_name": { "$": "a" }, "inner": [{ "ended_at": null }],
            })
        );
        assert_eq!(
            sample().show(Style::Json),
            json!({
                "type": "WAITING", "createdAt": "2023-11-14T22:13:20.250Z", "given": { "my_key": { "@": 1 } },
                "byName": { "$": "a" }, "inner": [{ "endedAt": null }],
            })
        );
        assert_eq!(serde_json::to_value(sample()).unwrap(), sample().show(Style::Json));
    }

    #[test]
    fn what_an_author_named_like_a_mark_is_none() {
        assert_eq!(
            sample().show(Style::TypeScript),
            json!({
                "type": "WAITING", "createdAt": { "@": 1_700_000_000_250.0 }, "given": { "$": { "my_key": { "@": 1 } } },
                "byName": { "$": { "$": "a" } }, "inner": [{ "endedAt": null }],
            })
        );
    }
}
