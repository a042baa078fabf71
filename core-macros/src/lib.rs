//! The macros of flovyn-core: `#[agent]` and `#[task]` make definitions of functions, `derive(AgentState)` the state of an
//! agent and the type of its updates.

mod definition;
mod settings;
mod state;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares a struct as the state of an agent, with one rule per field for how an update joins it.
///
/// | attribute | an update of the field |
/// | --- | --- |
/// | `#[reducer(replace)]`, or none | takes the old value's place |
/// | `#[reducer(append)]` | goes to the end: the type is [`Append`] (`Vec`, `VecDeque`, `String`, sets) |
/// | `#[reducer(merge)]` | joins it key by key: the type is [`Merge`] (maps, `serde_json::Value`, `Option` of those) |
///
/// For a struct `Chat` the macro writes `impl AgentState for Chat`, a struct `ChatUpdate` of the same visibility with one
/// method per field, and `impl Reduce for Chat`, whose `reduce` takes a `ChatUpdate`. Fields an update does not name stay as
/// they are. The struct needs named fields, no type parameters, and `Serialize`, `Deserialize` and `Default` beside it.
///
/// [`Append`]: https://docs.rs/flovyn-core/latest/flovyn_core/agent/trait.Append.html
/// [`Merge`]: https://docs.rs/flovyn-core/latest/flovyn_core/agent/trait.Merge.html
#[proc_macro_derive(AgentState, attributes(reducer))]
pub fn agent_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a task of an async function: see `flovyn_core::task`, where it is re-exported.
#[proc_macro_attribute]
pub fn task(settings: TokenStream, function: TokenStream) -> TokenStream {
    written(definition::task, settings, function)
}

/// Makes a durable agent of an async function: see `flovyn_core::agent`, where it is re-exported.
#[proc_macro_attribute]
pub fn agent(settings: TokenStream, function: TokenStream) -> TokenStream {
    written(definition::agent, settings, function)
}

type Expand = fn(proc_macro2::TokenStream, proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream>;

/// What a macro writes. If it refuses the function, the function stays, so that the compiler speaks of nothing else.
fn written(expand: Expand, settings: TokenStream, function: TokenStream) -> TokenStream {
    let function = proc_macro2::TokenStream::from(function);
    expand(settings.into(), function.clone())
        .unwrap_or_else(|error| {
            let refused = error.to_compile_error();
            quote::quote! { #function #refused }
        })
        .into()
}
