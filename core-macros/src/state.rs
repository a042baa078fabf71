//! What `derive(AgentState)` writes.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Result};

/// How an update joins a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reducer {
    Replace,
    Append,
    Merge,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "the state of an agent is a struct with named fields"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "the fields of a state need names: an update speaks of them"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a state has no type parameters: what a checkpoint saved must be read back as the same type",
        ));
    }
    let (vis, state, update) = (&input.vis, &input.ident, format_ident!("{}Update", input.ident));
    let mut declared = Vec::new();
    let mut absent = Vec::new();
    let mut setters = Vec::new();
    let mut joins = Vec::new();
    for field in &fields.named {
        let Some(name) = &field.ident else { continue };
        let (ty, field_vis) = (&field.ty, &field.vis);
        let reducer = reducer_of(field)?;
        let docs = reducer.docs(name);
        declared.push(quote! { #[doc = #docs] #field_vis #name: ::core::option::Option<#ty> });
        absent.push(quote! { #name: ::core::option::Option::None });
        setters.push(setter(field_vis, name, ty, &docs, reducer));
        let join = reducer.join(name);
        joins.push(quote! { if let ::core::option::Option::Some(update) = update.#name { #join } });
    }
    let update_docs = format!("A change to a [`{state}`]: fields that are `None` stay as they are.");
    Ok(quote! {
        impl ::flovyn_core::agent::AgentState for #state {}

        #[doc = #update_docs]
        #[must_use = "an update changes nothing until it is given to `reduce`"]
        #vis struct #update { #(#declared,)* }

        impl ::core::default::Default for #update {
            fn default() -> Self {
                Self { #(#absent,)* }
            }
        }

        #[allow(dead_code)]
        impl #update {
            /// An update that changes nothing.
            #vis fn new() -> Self {
                ::core::default::Default::default()
            }

            #(#setters)*
        }

        impl ::flovyn_core::agent::Reduce for #state {
            type Update = #update;

            fn reduce(&mut self, update: #update) {
                #(#joins)*
            }
        }
    })
}

fn setter(vis: &syn::Visibility, name: &Ident, ty: &syn::Type, docs: &str, reducer: Reducer) -> TokenStream {
    let again = match reducer {
        Reducer::Replace => quote! { self.#name = ::core::option::Option::Some(value.into()); },
        _ => {
            let join = match reducer {
                Reducer::Append => quote! { ::flovyn_core::agent::Append::append(kept, value.into()) },
                _ => quote! { ::flovyn_core::agent::Merge::merge(kept, value.into()) },
            };
            quote! {
                match &mut self.#name {
                    ::core::option::Option::Some(kept) => #join,
                    none => *none = ::core::option::Option::Some(value.into()),
                }
            }
        }
    };
    quote! {
        #[doc = #docs]
        #vis fn #name(mut self, value: impl ::core::convert::Into<#ty>) -> Self {
            #again
            self
        }
    }
}

fn reducer_of(field: &Field) -> Result<Reducer> {
    let mut found = None;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("reducer")) {
        let word: Ident = attribute.parse_args().map_err(|error| {
            Error::new(error.span(), "write one of #[reducer(append)], #[reducer(replace)], #[reducer(merge)]")
        })?;
        let reducer = match word.to_string().as_str() {
            "replace" => Reducer::Replace,
            "append" => Reducer::Append,
            "merge" => Reducer::Merge,
            other => {
                let message = format!("no reducer is called {other:?}; write append, replace or merge");
                return Err(Error::new_spanned(&word, message));
            }
        };
        if found.replace(reducer).is_some() {
            return Err(Error::new_spanned(attribute, "a field has one reducer"));
        }
    }
    Ok(found.unwrap_or(Reducer::Replace))
}

impl Reducer {
    fn docs(self, name: &Ident) -> String {
        match self {
            Self::Replace => format!("Takes the place of `{name}`."),
            Self::Append => format!("Goes to the end of `{name}`."),
            Self::Merge => format!("Joins `{name}` key by key."),
        }
    }

    fn join(self, name: &Ident) -> TokenStream {
        match self {
            Self::Replace => quote! { self.#name = update; },
            Self::Append => quote! { ::flovyn_core::agent::Append::append(&mut self.#name, update); },
            Self::Merge => quote! { ::flovyn_core::agent::Merge::merge(&mut self.#name, update); },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn refused(input: &DeriveInput) -> String {
        expand(input).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_a_state_is_refused_with_the_reason() {
        assert!(refused(&parse_quote! { enum State { A } }).contains("struct with named fields"));
        assert!(refused(&parse_quote! { struct State(u32); }).contains("need names"));
        assert!(refused(&parse_quote! { struct State<T> { a: T } }).contains("no type parameters"));
        let unknown = parse_quote! { struct State { #[reducer(sum)] a: u32 } };
        assert!(refused(&unknown).contains("append, replace or merge"));
        let bare = parse_quote! { struct State { #[reducer] a: u32 } };
        assert!(refused(&bare).contains("#[reducer(append)]"));
        let twice = parse_quote! { struct State { #[reducer(append)] #[reducer(merge)] a: Vec<u32> } };
        assert!(refused(&twice).contains("one reducer"));
    }

    #[test]
    fn an_update_has_the_visibility_of_its_state() {
        let written = expand(&parse_quote! { pub(crate) struct Chat { pub turn: u32 } }).unwrap().to_string();
        assert!(written.contains("pub (crate) struct ChatUpdate { # [doc"), "{written}");
    }
}
