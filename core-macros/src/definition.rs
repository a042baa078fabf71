//! What `#[task]` and `#[agent]` write: beside the function a type that implements the definition trait by calling it.

use crate::settings::{Kind, Settings};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Error, Expr, ExprLit, FnArg, GenericArgument, Ident, ItemFn, Lit, Meta, PathArguments, Result, ReturnType, Type,
    TypeParamBound,
};

pub(crate) fn task(settings: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let settings = Settings::parse(settings, Kind::Task)?;
    let Function { item, mut arguments, output } = Function::parse(function, "task")?;
    let context = match arguments.first() {
        Some(first) if last_name(first).is_some_and(|name| name == "TaskContext") => Some(arguments.remove(0)),
        _ => None,
    };
    let input = one_input(&arguments, "task")?;
    let mut given = Vec::new();
    match &context {
        Some(Type::Reference(_)) => given.push(quote! { __ctx }),
        Some(_) => given.push(quote! { ::core::clone::Clone::clone(__ctx) }),
        None => {}
    }
    let (input, value) = input_of(input);
    given.extend(value);
    let (name, definition) = names(&item, &settings);
    let (docs, described) = docs(&item, &settings, "task", &format!("ctx.task(&{definition}, …)"));
    let (function, vis) = (&item.sig.ident, &item.vis);
    let settings = settings.methods(&quote! { #input }, &quote! { #output });
    let call = call(function, &given);
    Ok(quote! {
        #item

        #[doc = #docs]
        #[derive(Debug, Clone, Copy, Default)]
        #vis struct #definition;

        #[::flovyn_core::__private::async_trait]
        impl ::flovyn_core::task::TaskDefinition for #definition {
            type Input = #input;
            type Output = #output;

            fn kind(&self) -> &str {
                #name
            }

            fn on_use(&self) -> ::core::option::Option<Self> {
                ::core::option::Option::Some(*self)
            }

            #described
            #settings

            async fn execute(
                &self,
                __ctx: &::flovyn_core::task::TaskContext,
                __input: #input,
            ) -> ::flovyn_core::Result<#output> {
                #call
            }
        }
    })
}

pub(crate) fn agent(settings: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let mut settings = Settings::parse(settings, Kind::Agent)?;
    let Function { item, mut arguments, output } = Function::parse(function, "agent")?;
    if arguments.is_empty() {
        return Err(Error::new_spanned(&item.sig, FIRST_ARGUMENT));
    }
    let (context, typed) = context_of(&arguments.remove(0))?;
    let input = one_input(&arguments, "agent")?;
    let state = settings.state.take().or(typed).map_or_else(|| quote! { () }, |state| quote! { #state });
    let (input, value) = input_of(input);
    let given: Vec<_> = std::iter::once(context).chain(value).collect();
    let (name, definition) = names(&item, &settings);
    let (docs, described) = docs(&item, &settings, "agent", &format!("agents.execute({definition}, …)"));
    let (function, vis) = (&item.sig.ident, &item.vis);
    let settings = settings.methods(&quote! { #input }, &quote! { #output });
    let call = call(function, &given);
    Ok(quote! {
        #item

        #[doc = #docs]
        #[derive(Debug, Clone, Copy, Default)]
        #vis struct #definition;

        #[::flovyn_core::__private::async_trait]
        impl ::flovyn_core::agent::AgentDefinition for #definition {
            type State = #state;
            type Input = #input;
            type Output = #output;

            fn kind(&self) -> &str {
                #name
            }

            #described
            #settings

            async fn execute(
                &self,
                __ctx: &dyn ::flovyn_core::context::AgentContext,
                __input: #input,
            ) -> ::flovyn_core::Result<#output> {
                #call
            }
        }
    })
}

const FIRST_ARGUMENT: &str = "the first argument of an agent is its context: `ctx: Context`, or `ctx: Context<Chat>` for one with the state `Chat`";

/// A function that can be a definition.
struct Function {
    item: ItemFn,
    arguments: Vec<Type>,
    output: Type,
}

impl Function {
    fn parse(function: TokenStream, what: &str) -> Result<Self> {
        let item: ItemFn = syn::parse2(function).map_err(|error| {
            Error::new(error.span(), format!("#[{what}] stands before an async function outside of an impl: {error}"))
        })?;
        let signature = &item.sig;
        if signature.asyncness.is_none() {
            let message = format!(
                "#[{what}] needs an async function: write `async fn {}`; what blocks a thread goes into \
                 `tokio::task::spawn_blocking`",
                signature.ident
            );
            return Err(Error::new_spanned(signature.fn_token, message));
        }
        if !signature.generics.params.is_empty() {
            let message = format!(
                "#[{what}] has no type parameters: its name stands for one type of input and one of result, in every \
                 process"
            );
            return Err(Error::new_spanned(&signature.generics, message));
        }
        let mut arguments = Vec::new();
        for argument in &signature.inputs {
            match argument {
                FnArg::Typed(typed) => arguments.push((*typed.ty).clone()),
                FnArg::Receiver(receiver) => {
                    let message = format!(
                        "#[{what}] stands before a function outside of an impl; one with fields of its own implements the \
                         trait by hand"
                    );
                    return Err(Error::new_spanned(receiver, message));
                }
            }
        }
        let output = output_of(&signature.output, signature.ident.span(), what)?;
        Ok(Self { arguments, output, item })
    }
}

/// The `T` of `Result<T>`, whoever's `Result` it is.
fn output_of(returned: &ReturnType, at: Span, what: &str) -> Result<Type> {
    let message = format!(
        "#[{what}] returns a result that names its value, such as `Result<String>`: what it returns is recorded, and so is \
         its error"
    );
    let ReturnType::Type(_, returned) = returned else { return Err(Error::new(at, message)) };
    if let Type::Path(path) = &**returned
        && let Some(last) = path.path.segments.last()
        && last.ident.to_string().ends_with("Result")
        && let PathArguments::AngleBracketed(given) = &last.arguments
        && let Some(GenericArgument::Type(output)) = given.args.first()
    {
        owned(output, "result", what)?;
        return Ok(output.clone());
    }
    Err(Error::new_spanned(returned, message))
}

/// How the context is handed over, and the state that its type names.
fn context_of(given: &Type) -> Result<(TokenStream, Option<Type>)> {
    let (by_reference, inner) = match given {
        Type::Reference(reference) => (true, &*reference.elem),
        other => (false, other),
    };
    if by_reference
        && let Type::TraitObject(object) = inner
        && object.bounds.iter().any(|bound| {
            matches!(bound, TypeParamBound::Trait(named)
                if named.path.segments.last().is_some_and(|last| last.ident == "AgentContext"))
        })
    {
        return Ok((quote! { __ctx }, None));
    }
    let Type::Path(path) = inner else { return Err(Error::new_spanned(given, FIRST_ARGUMENT)) };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Context") else {
        return Err(Error::new_spanned(given, FIRST_ARGUMENT));
    };
    let mut context = quote! { ::flovyn_core::context::AgentContext::owned(__ctx) };
    let mut state = None;
    if let PathArguments::AngleBracketed(named) = &last.arguments {
        let Some(GenericArgument::Type(named)) = named.args.first() else {
            return Err(Error::new_spanned(given, FIRST_ARGUMENT));
        };
        context = quote! { #context.with_state::<#named>() };
        state = Some(named.clone());
    }
    Ok((
        if by_reference {
            quote! { &#context }
        } else {
            context
        },
        state,
    ))
}

fn one_input<'a>(arguments: &'a [Type], what: &str) -> Result<Option<&'a Type>> {
    if let Some(second) = arguments.get(1) {
        let message =
            format!("#[{what}] takes one input beside its context; put several values into a struct or a tuple");
        return Err(Error::new_spanned(second, message));
    }
    if let Some(input) = arguments.first() {
        owned(input, "input", what)?;
    }
    Ok(arguments.first())
}

/// Refuses a type that cannot be read back from what was recorded.
fn owned(given: &Type, role: &str, what: &str) -> Result<()> {
    let message = match given {
        Type::Reference(_) => {
            format!("the {role} of #[{what}] is recorded and read back, so it is an owned value: `String` for `&str`")
        }
        Type::ImplTrait(_) => format!("the {role} of #[{what}] is of one type that is recorded and read back: name it"),
        _ => return Ok(()),
    };
    Err(Error::new_spanned(given, message))
}

/// The type of the input, and the argument if there is one.
fn input_of(input: Option<&Type>) -> (TokenStream, Option<TokenStream>) {
    match input {
        Some(input) => (quote! { #input }, Some(quote! { __input })),
        None => (quote! { () }, None),
    }
}

fn call(function: &Ident, given: &[TokenStream]) -> TokenStream {
    quote_spanned! { function.span() => #function(#(#given),*).await.map_err(::flovyn_core::Error::other) }
}

fn last_name(given: &Type) -> Option<String> {
    match given {
        Type::Reference(reference) => last_name(&reference.elem),
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}

/// The name that is recorded, and that of the type.
fn names(item: &ItemFn, settings: &Settings) -> (String, Ident) {
    let function = item.sig.ident.to_string();
    let function = function.strip_prefix("r#").unwrap_or(&function);
    let name = settings.name.as_ref().map_or_else(|| function.to_owned(), syn::LitStr::value);
    let definition = settings
        .definition
        .clone()
        .unwrap_or_else(|| format_ident!("{}", upper(function), span = item.sig.ident.span()));
    (name, definition)
}

/// `fetch_page` becomes `FetchPage`.
fn upper(function: &str) -> String {
    let words = function.split('_').filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// The docs of the type, and the method that gives the description.
fn docs(item: &ItemFn, settings: &Settings, what: &str, used: &str) -> (String, TokenStream) {
    let lines = item.attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let written = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
    let description = settings.description.as_ref().map_or_else(|| written.clone(), syn::LitStr::value);
    let described = (!description.is_empty()).then(|| {
        quote! {
            fn description(&self) -> ::core::option::Option<&str> {
                ::core::option::Option::Some(#description)
            }
        }
    });
    let what = format!("The {what} [`{}`] as a definition: `{used}`.", item.sig.ident);
    let docs = if written.is_empty() { what } else { format!("{written}\n\n{what}") };
    (docs, quote! { #described })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(of_agent: bool, settings: TokenStream, function: TokenStream) -> String {
        let made = if of_agent { agent(settings, function) } else { task(settings, function) };
        made.unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_a_task_is_refused_with_the_reason() {
        let refused = |function| refused(false, quote! {}, function);
        assert!(refused(quote! { struct A; }).contains("async function outside of an impl"));
        assert!(refused(quote! { fn a() -> Result<u32> { Ok(1) } }).contains("write `async fn a`"));
        assert!(refused(quote! { async fn a<T>(x: T) -> Result<u32> { Ok(1) } }).contains("no type parameters"));
        assert!(refused(quote! { async fn a(&self) -> Result<u32> { Ok(1) } }).contains("outside of an impl"));
        assert!(refused(quote! { async fn a(x: &str) -> Result<u32> { Ok(1) } }).contains("`String` for `&str`"));
        assert!(refused(quote! { async fn a(x: impl Copy) -> Result<u32> { Ok(1) } }).contains("name it"));
        assert!(
            refused(quote! { async fn a(x: u32, y: u32) -> Result<u32> { Ok(1) } }).contains("a struct or a tuple")
        );
        assert!(refused(quote! { async fn a() -> u32 { 1 } }).contains("such as `Result<String>`"));
        assert!(refused(quote! { async fn a() {} }).contains("such as `Result<String>`"));
        assert!(refused(quote! { async fn a() -> Result { Ok(()) } }).contains("such as `Result<String>`"));
        assert!(refused(quote! { async fn a() -> Result<&'static str> { Ok("") } }).contains("owned value"));
    }

    #[test]
    fn what_cannot_be_an_agent_is_refused_with_the_reason() {
        let refused = |function| refused(true, quote! {}, function);
        assert!(refused(quote! { async fn a() -> Result<u32> { Ok(1) } }).contains("`ctx: Context`"));
        assert!(refused(quote! { async fn a(x: u32) -> Result<u32> { Ok(1) } }).contains("`ctx: Context`"));
        assert!(refused(quote! { async fn a(ctx: &dyn Any) -> Result<u32> { Ok(1) } }).contains("`ctx: Context`"));
        assert!(
            refused(quote! { async fn a(ctx: Context, x: u32, y: u32) -> Result<u32> { Ok(1) } }).contains("one input")
        );
    }

    #[test]
    fn settings_that_mean_nothing_are_refused_with_those_there_are() {
        let function = quote! { async fn a() -> Result<u32> { Ok(1) } };
        let refused = |settings| refused(false, settings, function.clone());
        let unknown = refused(quote! { retry = 3 });
        assert!(unknown.contains("\"retry\"") && unknown.contains("retries"), "{unknown}");
        assert!(refused(quote! { timeout = "30" }).contains("\"30s\""));
        assert!(refused(quote! { timeout = "soon" }).contains("\"30s\""));
        assert!(refused(quote! { retries = 1, retries = 2 }).contains("twice"));
        assert!(refused(quote! { tags = ["a"] }).contains("#[task] has"));
        assert!(refused(quote! { retries }).contains("`retries = …`"));
        assert!(refused(quote! { name = "" }).contains("empty"));
        assert!(refused(quote! { at_most_once, retries = 2 }).contains("at_most_once"));
    }

    #[test]
    fn names_of_types_are_made_of_the_functions() {
        assert_eq!((upper("fetch_page").as_str(), upper("a").as_str()), ("FetchPage", "A"));
        let written = task(quote! { definition = Other, name = "b" }, quote! { async fn a() -> Result<u32> { Ok(1) } });
        let written = written.unwrap().to_string();
        assert!(written.contains("struct Other ;") && written.contains("\"b\""), "{written}");
    }
}
