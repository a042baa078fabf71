//! The backend and the run that a command's arguments name.

use crate::{Failed, Result};
use flovyn_core::client::{Client, Handle};
use flovyn_core::error::{Code, Error};
use flovyn_core::runtime::{Backend, Chosen, Runtime, parse_url};
use flovyn_core::{Payload, client};
use std::collections::BTreeMap;

/// The URL of a command, and its other positional arguments.
pub(crate) struct Target {
    chosen: Chosen,
    words: std::vec::IntoIter<String>,
}

impl Target {
    /// Splits the positional arguments of a command that takes those in `names` beside a URL.
    pub(crate) fn parse(words: Vec<String>, names: &[&str]) -> Result<Self> {
        let mut words: Vec<_> = words;
        let url = words.first().is_some_and(|word| is_url(word)).then(|| words.remove(0));
        if let Some(extra) = words.get(names.len()) {
            let accepted = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            let hint = "a URL starts with sqlite: or http: and comes first";
            return Err(Failed::Usage(format!("{extra:?} is one word too many: beside a URL come {accepted}; {hint}")));
        }
        Ok(Self { chosen: Chosen::of(url.as_deref()), words: words.into_iter() })
    }

    /// The next argument, which is required.
    pub(crate) fn word(&mut self, name: &str) -> Result<String> {
        self.words.next().ok_or_else(|| Failed::Usage(format!("{name} is missing")))
    }

    /// The next argument, if there is one.
    pub(crate) fn next_word(&mut self) -> Option<String> {
        self.words.next()
    }

    /// The URL in use.
    pub(crate) fn url(&self) -> &str {
        &self.chosen.url
    }

    /// Opens the backend, which must exist.
    pub(crate) async fn open(&self) -> Result<Runtime> {
        match parse_url(&self.chosen.url).map_err(|error| self.chosen.explain(error))? {
            Backend::Sqlite { path, .. } if !path.exists() => {
                let message = format!(
                    "there is no database {}; nothing was created. Give the URL of one (sqlite:FILE) or set FLOVYN_URL",
                    path.display()
                );
                return Err(Error::new(Code::InvalidArgument, message).into());
            }
            Backend::Memory { name: None } => {
                let message = "memory: keeps nothing that another process could see; give sqlite:FILE";
                return Err(Error::new(Code::InvalidArgument, message).into());
            }
            _ => {}
        }
        Ok(Runtime::open_chosen(&self.chosen).await?)
    }

    /// Opens the backend and finds the run that the next word names.
    pub(crate) async fn run(&mut self) -> Result<Run> {
        let id = self.word("the run's ID")?;
        let runtime = self.open().await?;
        let handle = runtime.client().handle(&id).await?;
        Ok(Run { handle, runtime })
    }
}

/// A run of an open backend.
pub(crate) struct Run {
    pub handle: Handle,
    pub runtime: Runtime,
}

impl Run {
    /// The client it was found with.
    pub(crate) fn client(&self) -> Client {
        self.runtime.client()
    }

    /// How people name it.
    pub(crate) fn name(&self) -> String {
        self.handle.key().map_or_else(|| self.handle.id().to_string(), str::to_owned)
    }
}

/// Whether a word is the URL of a backend.
pub(crate) fn is_url(word: &str) -> bool {
    ["sqlite:", "memory:", "postgres:", "postgresql:", "http:", "https:"].iter().any(|scheme| word.starts_with(scheme))
}

/// Reads a JSON argument.
pub(crate) fn json(name: &str, text: &str) -> Result<Payload> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => Ok(Payload::json(text.as_bytes().to_vec())),
        Err(error) => Err(Failed::Usage(format!("{name} is not JSON ({error}); write text as '\"{text}\"'"))),
    }
}

/// Reads `NAME=VALUE` arguments.
pub(crate) fn metadata(pairs: &[String]) -> Result<BTreeMap<String, String>> {
    let split = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failed::Usage(format!("--meta takes NAME=VALUE, not {pair:?}"))),
    };
    pairs.iter().map(split).collect()
}

/// Start options of a command.
pub(crate) fn start_options(
    id: Option<String>,
    queue: Option<String>,
    pairs: &[String],
) -> Result<client::StartOptions> {
    Ok(client::StartOptions { id, queue, metadata: metadata(pairs)?, ..client::StartOptions::default() })
}
