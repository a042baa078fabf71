//! The derive macros of flovyn-core. Owns `derive(AgentState)`: the state of an agent and the type of its updates.

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
