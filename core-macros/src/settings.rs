//! What stands in the brackets of `#[task(…)]` and `#[agent(…)]`.

use proc_macro2::TokenStream;
use quote::quote;
use std::collections::HashSet;
use std::time::Duration;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token, Type};

/// Which of the two macros is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Task,
    Agent,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Task => "#[task]",
            Self::Agent => "#[agent]",
        }
    }

    /// The settings that it has.
    fn known(self) -> &'static [&'static str] {
        match self {
            Self::Task => &[
                "name",
                "aliases",
                "definition",
                "description",
                "schema",
                "queue",
                "retries",
                "no_retry",
                "timeout",
                "heartbeat_timeout",
                "deadline",
                "at_most_once",
                "detached",
                "options",
            ],
            Self::Agent => &[
                "name",
                "aliases",
                "definition",
                "description",
                "schema",
                "state",
                "migrate",
                "version",
                "tags",
                "timeout",
                "cancellable",
                "on_divergence",
                "on_error",
            ],
        }
    }
}

/// The settings of a definition.
#[derive(Default)]
pub(crate) struct Settings {
    pub name: Option<LitStr>,
    pub definition: Option<Ident>,
    pub description: Option<LitStr>,
    pub state: Option<Type>,
    schema: bool,
    /// Methods of the trait that are written as they are.
    methods: Vec<TokenStream>,
    /// The options of a task that the settings begin with.
    options: Option<Expr>,
    /// What is set in them.
    set: Vec<TokenStream>,
}

/// A setting before it is understood.
struct Setting {
    name: Ident,
    value: Option<Value>,
}

enum Value {
    Expr(Expr),
    Type(Type),
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.call(Ident::parse_any)?;
        if !input.peek(Token![=]) {
            return Ok(Self { name, value: None });
        }
        input.parse::<Token![=]>()?;
        let value = if name == "state" { Value::Type(input.parse()?) } else { Value::Expr(input.parse()?) };
        Ok(Self { name, value: Some(value) })
    }
}

impl Settings {
    pub(crate) fn parse(tokens: TokenStream, kind: Kind) -> Result<Self> {
        let given = syn::parse::Parser::parse2(Punctuated::<Setting, Token![,]>::parse_terminated, tokens)?;
        let (mut settings, mut seen) = (Self::default(), HashSet::new());
        for setting in given {
            let name = setting.name.to_string();
            if !kind.known().contains(&name.as_str()) {
                let (word, known) = (kind.word(), kind.known().join(", "));
                return Err(Error::new(setting.name.span(), format!("{word} has no {name:?}; it has {known}")));
            }
            if !seen.insert(name.clone()) {
                return Err(Error::new(setting.name.span(), format!("{name} is set twice")));
            }
            settings.take(setting, kind)?;
        }
        if seen.contains("at_most_once") && seen.contains("retries") {
            let message =
                "a task that is at_most_once is never started twice, so it has no retries; leave one of them out";
            return Err(Error::new(proc_macro2::Span::call_site(), message));
        }
        Ok(settings)
    }

    fn take(&mut self, Setting { name, value }: Setting, kind: Kind) -> Result<()> {
        let word = name.to_string();
        match (word.as_str(), value) {
            ("schema", None) => self.schema = true,
            ("at_most_once", None) => {
                self.set.push(quote! { options.side_effects = ::flovyn_core::model::SideEffects::AtMostOnce; });
            }
            ("detached", None) => self.set.push(quote! { options.detached = true; }),
            ("schema" | "at_most_once" | "detached", Some(_)) => {
                return Err(Error::new(name.span(), format!("{word} stands alone, without a value")));
            }
            (_, None) => return Err(Error::new(name.span(), format!("{word} has a value: `{word} = …`"))),
            (_, Some(Value::Type(state))) => self.state = Some(state),
            (_, Some(Value::Expr(value))) => self.set(&word, value, kind)?,
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Expr, kind: Kind) -> Result<()> {
        match name {
            "name" => {
                let text = text(&value)?;
                if text.value().is_empty() {
                    return Err(Error::new_spanned(text, "a name that is recorded cannot be empty"));
                }
                self.name = Some(text);
            }
            "description" => self.description = Some(text(&value)?),
            "definition" => self.definition = Some(identifier(&value)?),
            "options" => self.options = Some(value),
            "aliases" | "tags" => {
                let (method, texts) = (Ident::new(name, proc_macro2::Span::call_site()), texts(&value)?);
                self.methods.push(quote! { fn #method(&self) -> &[&str] { &[#(#texts),*] } });
            }
            "queue" => {
                let queue = text(&value)?;
                self.methods.push(quote! {
                    fn queue(&self) -> ::core::option::Option<&str> { ::core::option::Option::Some(#queue) }
                });
            }
            "version" => self.methods.push(quote! {
                fn version(&self) -> ::core::option::Option<::std::string::String> {
                    ::core::option::Option::Some(::std::string::ToString::to_string(&#value))
                }
            }),
            "cancellable" => self.methods.push(quote! { fn cancellable(&self) -> bool { #value } }),
            "migrate" => {
                let migrate = path(&value)?;
                self.methods.push(quote! {
                    fn migrate(&self, __old: ::flovyn_core::__private::Value) -> ::flovyn_core::Result<Self::State> {
                        #migrate(__old).map_err(::flovyn_core::Error::other)
                    }
                });
            }
            "on_divergence" => self.policy(name, "OnDivergence", &value, &["continue", "fail", "pause"])?,
            "on_error" => self.policy(name, "OnError", &value, &["fail", "pause"])?,
            "retries" => self.set.push(quote! { options.retry.retries = #value; }),
            "no_retry" => {
                let types = texts(&value)?;
                self.set.push(quote! {
                    options.retry.no_retry = ::std::vec![#(::std::string::String::from(#types)),*];
                });
            }
            _ => {
                let limit = duration(&value)?;
                if kind == Kind::Agent {
                    self.methods.push(quote! {
                        fn timeout(&self) -> ::core::option::Option<::core::time::Duration> {
                            ::core::option::Option::Some(#limit)
                        }
                    });
                } else {
                    let field = Ident::new(name, proc_macro2::Span::call_site());
                    self.set.push(quote! { options.#field = ::core::option::Option::Some(#limit); });
                }
            }
        }
        Ok(())
    }

    fn policy(&mut self, name: &str, of: &str, value: &Expr, known: &[&str]) -> Result<()> {
        let given = text(value)?;
        let word = given.value();
        if !known.contains(&word.as_str()) {
            return Err(Error::new_spanned(given, format!("{name} is one of {}", known.join(", "))));
        }
        let variant = Ident::new(&(word[..1].to_uppercase() + &word[1..]), given.span());
        let (method, of) = (Ident::new(name, given.span()), Ident::new(of, given.span()));
        self.methods.push(quote! {
            fn #method(&self) -> ::flovyn_core::agent::#of { ::flovyn_core::agent::#of::#variant }
        });
        Ok(())
    }

    /// The methods of the trait that the settings ask for.
    pub(crate) fn methods(&self, input: &TokenStream, output: &TokenStream) -> TokenStream {
        let Self { methods, options, set, schema, .. } = self;
        let begun = match options {
            Some(options) => quote! { #options },
            None => quote! { <::flovyn_core::model::TaskOptions as ::core::default::Default>::default() },
        };
        let options = (options.is_some() || !set.is_empty()).then(|| {
            quote! {
                #[allow(unused_mut)]
                fn options(&self) -> ::flovyn_core::model::TaskOptions {
                    let mut options = #begun;
                    #(#set)*
                    options
                }
            }
        });
        let schemas = schema.then(|| {
            quote! {
                fn input_schema(&self) -> ::core::option::Option<::flovyn_core::__private::Value> {
                    ::core::option::Option::Some(::flovyn_core::__private::schema_of::<#input>())
                }

                fn output_schema(&self) -> ::core::option::Option<::flovyn_core::__private::Value> {
                    ::core::option::Option::Some(::flovyn_core::__private::schema_of::<#output>())
                }
            }
        });
        quote! { #(#methods)* #options #schemas }
    }
}

fn text(value: &Expr) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(Error::new_spanned(other, "write a text in quotes")),
    }
}

fn texts(value: &Expr) -> Result<Vec<LitStr>> {
    match value {
        Expr::Array(array) => array.elems.iter().map(text).collect(),
        other => Err(Error::new_spanned(other, "write texts in brackets: [\"a\", \"b\"]")),
    }
}

fn path(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) => Ok(path.path.clone()),
        other => Err(Error::new_spanned(other, "write the name of a function")),
    }
}

fn identifier(value: &Expr) -> Result<Ident> {
    let found = path(value)?;
    found.get_ident().cloned().ok_or_else(|| Error::new_spanned(value, "write one name, such as `FetchPage`"))
}

/// A time: a text such as `"30s"`, or any expression that is a `Duration`.
fn duration(value: &Expr) -> Result<TokenStream> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else {
        if matches!(value, Expr::Lit(_)) {
            return Err(Error::new_spanned(value, TIME));
        }
        return Ok(quote! { #value });
    };
    let Some(time) = time(&text.value()) else { return Err(Error::new_spanned(text, TIME)) };
    let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
    Ok(quote! { ::core::time::Duration::new(#seconds, #nanoseconds) })
}

const TIME: &str = "write a time with its unit, such as \"250ms\", \"30s\", \"5m\", \"2h\" or \"1d\"";

fn time(text: &str) -> Option<Duration> {
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let known =
            [("250ms", 250), ("30s", 30_000), ("1.5 s", 1_500), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)];
        for (text, milliseconds) in known {
            assert_eq!(time(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["30", "", "s", "30 years", "-1s"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
