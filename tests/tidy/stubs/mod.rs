//! What the native halves of the bindings have, read from their Rust sources: the stubs of both languages are made of it.

mod python;
mod typescript;

pub(crate) use python::{module as python_module, not_made as python_not_made};
pub(crate) use typescript::{not_made as typescript_not_made, types as typescript_types};

use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::{Attribute, FnArg, ImplItem, Item, Pat, ReturnType, Signature, Type};

/// A struct that a binding shows, with its methods in the order of the source.
#[derive(Default)]
struct Class {
    methods: Vec<Method>,
    /// Fields, where it is a plain object.
    fields: Vec<(String, Type)>,
    is_object: bool,
}

/// The methods of each class that both bindings show, in Python's and in Node's half; constructors are left out.
///
/// Only the checks ask for it; the program that writes generated files does not.
#[allow(dead_code)]
pub(crate) fn shared_classes() -> BTreeMap<String, [BTreeSet<String>; 2]> {
    let methods = |class: &Class| {
        let shown = class.methods.iter().filter(|method| !has(&method.attributes, "new") && method.has_receiver);
        shown.map(|method| method.name.clone()).collect::<BTreeSet<_>>()
    };
    let (python, node) = (python::binding(), typescript::binding());
    let shared = python.classes.iter().filter_map(|(name, class)| Some((name, class, node.classes.get(name)?)));
    shared.map(|(name, python, node)| (name.clone(), [methods(python), methods(node)])).collect()
}

/// A method or a function.
struct Method {
    name: String,
    attributes: Vec<Attribute>,
    /// Without the receiver and what the framework passes.
    parameters: Vec<(String, Type)>,
    returns: Option<Type>,
    has_receiver: bool,
}

/// What one binding shows.
#[derive(Default)]
struct Binding {
    classes: BTreeMap<String, Class>,
    functions: Vec<Method>,
}

impl Binding {
    /// Reads all files of a folder; the attributes of structs, functions and methods say what is shown.
    fn read(
        folder: &str,
        shows: impl Fn(&[Attribute]) -> bool,
        shows_impl: impl Fn(&[Attribute]) -> bool,
        shows_method: impl Fn(&[Attribute]) -> bool,
    ) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the repository");
        let entries = std::fs::read_dir(root.join(folder)).expect(folder).flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        files.sort();
        let mut binding = Self::default();
        for path in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
            let text = std::fs::read_to_string(path).expect("a source can be read");
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for item in file.items {
                match item {
                    Item::Struct(item) if shows(&item.attrs) => {
                        let class = binding.classes.entry(item.ident.to_string()).or_default();
                        class.is_object = has(&item.attrs, "object");
                        let named = item.fields.into_iter().filter(|_| class.is_object);
                        class.fields = named.filter_map(|field| Some((field.ident?.to_string(), field.ty))).collect();
                    }
                    Item::Impl(item) if shows_impl(&item.attrs) => {
                        let class = binding.classes.entry(item.self_ty.to_token_stream().to_string()).or_default();
                        for item in item.items {
                            if let ImplItem::Fn(method) = item
                                && shows_method(&method.attrs)
                            {
                                class.methods.push(Method::of(method.attrs, &method.sig));
                            }
                        }
                    }
                    Item::Fn(item) if shows(&item.attrs) => {
                        binding.functions.push(Method::of(item.attrs, &item.sig));
                    }
                    _ => {}
                }
            }
        }
        binding
    }
}

impl Method {
    fn of(attributes: Vec<Attribute>, signature: &Signature) -> Self {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(argument) => match &*argument.pat {
                Pat::Ident(name) => Some((name.ident.to_string(), (*argument.ty).clone())),
                _ => None,
            },
            FnArg::Receiver(_) => None,
        });
        Self {
            name: signature.ident.to_string(),
            attributes,
            parameters: typed.filter(|(_, of)| !["Python", "Env"].contains(&&*last_name(of))).collect(),
            has_receiver: signature.receiver().is_some(),
            returns: match &signature.output {
                ReturnType::Default => None,
                ReturnType::Type(_, returned) => Some((**returned).clone()),
            },
        }
    }

    /// Whether it is a call of an agent: those say which `once` they are made in.
    fn is_call(&self) -> bool {
        self.parameters.last().is_some_and(|(name, _)| name == "once")
    }
}

/// Whether the attributes name something: `#[napi(getter)]` and `#[getter]` are both `getter`.
fn has(attributes: &[Attribute], word: &str) -> bool {
    attributes.iter().filter(|attribute| !attribute.path().is_ident("doc")).any(|attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|part| part == word)
    })
}

/// The last name of a path, behind references: `Bound` of `&Bound<'_, PyAny>`.
fn last_name(of: &Type) -> String {
    match of {
        Type::Reference(reference) => last_name(&reference.elem),
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |part| part.ident.to_string()),
        _ => String::new(),
    }
}

/// The types between the angle brackets of a path.
fn inside(of: &Type) -> Vec<Type> {
    let Type::Path(path) = of else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return Vec::new() };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(of) => Some(of.clone()),
        _ => None,
    });
    types.collect()
}
