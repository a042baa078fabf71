//! The prompts of servers: templates of messages that a person chooses by name, such as `/mcp__server__prompt`.

use super::call::CallEnvironment;
use super::connection::Connection;
use super::names::tool_name;
use super::outcome::{clean, of_blocks};
use super::request::{entries, request};
use super::servers::{McpProblem, McpServers};
use crate::message::{Message, Role};
use crate::tools::excerpt;
use crate::tools::fault::Fault;
use flovyn_core::error::{Code, Error, Result};
use futures::future::{join_all, select_all};
use rmcp::model::{ClientRequest, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest, Prompt};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 300;

/// A prompt of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpPrompt {
    /// The name that a person writes: `mcp__server__prompt`.
    pub name: String,
    /// The server's name in the configuration.
    pub server: String,
    /// The prompt's name at its server.
    pub prompt: String,
    /// What it is for, in one line.
    pub description: String,
    /// Its arguments, in the server's order.
    pub arguments: Vec<McpPromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpPromptArgument {
    /// Its name.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// Whether the prompt cannot do without it.
    pub is_required: bool,
}

impl McpPrompt {
    /// The arguments of a line that follows the prompt's name. Each word is one argument, in the server's order; a word
    /// may be quoted, and the last argument takes the rest of the line. `name=value` gives an argument by its name.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: one that is required is missing; the message says which there are.
    pub fn arguments_of(&self, line: &str) -> Result<BTreeMap<String, String>> {
        let mut given = BTreeMap::new();
        let mut rest = line.trim();
        while !rest.is_empty() {
            let is_free = |argument: &&McpPromptArgument| !given.contains_key(&argument.name);
            let named = self.arguments.iter().filter(is_free).find_map(|argument| {
                let value = rest.strip_prefix(argument.name.as_str())?.strip_prefix('=')?;
                Some((argument.name.clone(), value))
            });
            if let Some((name, value)) = named {
                let (word, behind) = first_word(value);
                given.insert(name, word);
                rest = behind;
                continue;
            }
            let mut free = self.arguments.iter().filter(is_free);
            let Some(argument) = free.next() else { break };
            let is_last = free.next().is_none();
            let (word, behind) = first_word(rest);
            let (word, behind) = if is_last && !behind.is_empty() { (rest.to_owned(), "") } else { (word, behind) };
            given.insert(argument.name.clone(), word);
            rest = behind;
        }
        self.check(&given)?;
        Ok(given)
    }

    fn check(&self, given: &BTreeMap<String, String>) -> Result<()> {
        let missing =
            self.arguments.iter().find(|argument| argument.is_required && !given.contains_key(&argument.name));
        let Some(missing) = missing else { return Ok(()) };
        let known = self.arguments.iter().map(|argument| match argument.is_required {
            true => argument.name.clone(),
            false => format!("[{}]", argument.name),
        });
        let known = known.collect::<Vec<_>>().join(" ");
        let message = format!("the prompt {} needs {:?}; write /{} {known}", self.prompt, missing.name, self.name);
        Err(Error::new(Code::InvalidArgument, message))
    }

    fn of(connection: &Connection, listed: Prompt) -> Self {
        let line = |text: Option<String>| {
            let text = text.unwrap_or_default();
            let text = excerpt::line(text.trim(), MAX_DESCRIPTION);
            clean(&text).into_owned()
        };
        let argument = |argument: rmcp::model::PromptArgument| McpPromptArgument {
            description: line(argument.description.or(argument.title)),
            name: argument.name,
            is_required: argument.required.unwrap_or_default(),
        };
        Self {
            name: tool_name(&connection.name, &listed.name),
            server: connection.name.clone(),
            description: line(listed.description.or(listed.title)),
            arguments: listed.arguments.unwrap_or_default().into_iter().map(argument).collect(),
            prompt: listed.name,
        }
    }
}

/// The first word of a text, without its quotes, and what follows it.
fn first_word(text: &str) -> (String, &str) {
    for quote in ['"', '\''] {
        if let Some((word, behind)) = text.strip_prefix(quote).and_then(|text| text.split_once(quote)) {
            return (word.to_owned(), behind.trim_start());
        }
    }
    let (word, behind) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word.to_owned(), behind.trim_start())
}

impl McpServers {
    /// The prompts of all servers that have any, in the order of their names, and what is wrong with the lists of others.
    pub async fn prompts(&self) -> (Vec<McpPrompt>, Vec<McpProblem>) {
        let lists = self.connections().map(|connection| async move { (connection, list(connection).await) });
        let (mut prompts, mut problems) = (Vec::new(), Vec::new());
        for (connection, listed) in join_all(lists).await {
            let (found, messages) = match listed {
                Ok(listed) => listed,
                Err(why) => (Vec::new(), vec![format!("it did not list its prompts: {why}")]),
            };
            prompts.extend(found.into_iter().map(|listed| McpPrompt::of(connection, listed)));
            problems
                .extend(messages.into_iter().map(|message| McpProblem { server: connection.name.clone(), message }));
        }
        prompts.sort_by(|one, other| one.name.cmp(&other.name));
        prompts.dedup_by(|one, other| one.name == other.name);
        (prompts, problems)
    }

    /// Resolves when a server has said that its prompts have changed; never where there is no server. Cancel-safe.
    pub async fn prompts_changed(&self) {
        let changes: Vec<_> =
            self.connections().map(|connection| Box::pin(connection.prompts_outdated.taken())).collect();
        match changes.is_empty() {
            true => std::future::pending().await,
            false => drop(select_all(changes).await),
        }
    }

    /// The messages of a prompt, filled in by its server. Their text and images are bounded like the results of host tools.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: an argument is missing. `TASK_FAILED`: the server cannot be used or refuses the prompt; the message
    /// is for a person.
    pub async fn get_prompt(&self, prompt: &McpPrompt, arguments: BTreeMap<String, String>) -> Result<Vec<Message>> {
        prompt.check(&arguments)?;
        let failed = |message: String| Error::new(Code::TaskFailed, message);
        let Some(connection) = self.connection(&prompt.server) else {
            return Err(failed(format!("the MCP server {:?} is not configured here", prompt.server)));
        };
        let mut parameters = GetPromptRequestParams::new(prompt.prompt.clone());
        let given: Map<_, _> = arguments.into_iter().map(|(name, text)| (name, Value::from(text))).collect();
        parameters.arguments = (!given.is_empty()).then_some(given);
        let get = ClientRequest::GetPromptRequest(GetPromptRequest::new(parameters));
        let answer = match request(&connection, get, &CallEnvironment::alone()).await {
            Ok(answer) => answer,
            Err(Fault::ForModel(_, message)) => return Err(failed(message)),
            Err(Fault::Machine(error)) => return Err(error),
        };
        let Some(listed) = answer.get("messages").and_then(Value::as_array) else {
            return Err(failed(format!(
                "The MCP server {:?} answered with something that is no prompt.",
                prompt.server
            )));
        };
        let mut messages = Vec::with_capacity(listed.len());
        for message in listed {
            let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
            messages.push(Message::new(role, of_blocks(&message["content"]).await));
        }
        Ok(messages)
    }
}

async fn list(connection: &Connection) -> std::result::Result<(Vec<Prompt>, Vec<String>), String> {
    connection.live().await.map_err(|unavailable| unavailable.why)?;
    if !connection.about().has_prompts {
        return Ok(Default::default());
    }
    let request = |page| ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(page));
    match entries(connection, "prompts", request, &CallEnvironment::alone()).await {
        Ok(listed) => Ok(listed),
        Err(Fault::ForModel(_, why)) => Err(why),
        Err(Fault::Machine(error)) => Err(error.message().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(arguments: &[(&str, bool)]) -> McpPrompt {
        let argument = |&(name, is_required): &(&str, bool)| McpPromptArgument {
            name: name.into(),
            description: String::new(),
            is_required,
        };
        McpPrompt {
            name: "mcp__s__p".into(),
            server: "s".into(),
            prompt: "p".into(),
            description: String::new(),
            arguments: arguments.iter().map(argument).collect(),
        }
    }

    #[test]
    fn a_line_is_taken_apart_into_the_arguments_of_a_prompt() {
        let two = prompt(&[("city", true), ("state", false)]);
        for (line, expected) in [
            ("Paris", vec![("city", "Paris")]),
            ("\"New York\" NY", vec![("city", "New York"), ("state", "NY")]),
            ("Portland the one in Oregon", vec![("city", "Portland"), ("state", "the one in Oregon")]),
            ("state=NY 'New York'", vec![("city", "New York"), ("state", "NY")]),
            ("  city=x=y  ", vec![("city", "x=y")]),
        ] {
            let expected: BTreeMap<_, _> = expected.iter().map(|&(name, text)| (name.into(), text.into())).collect();
            assert_eq!(two.arguments_of(line).expect(line), expected, "{line}");
        }
        let error = two.arguments_of("").expect_err("a city is needed");
        assert_eq!(error.message(), "the prompt p needs \"city\"; write /mcp__s__p city [state]");
        assert!(prompt(&[]).arguments_of("more words").expect("none is needed").is_empty());
    }
}
