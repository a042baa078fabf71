//! The prompts of MCP servers as commands of the chat: `/mcp__SERVER__PROMPT words`. A server fills one in, and what it makes of it
//! is the user's message.
//!
//! Servers are asked in the background, for they may take long. Nothing that they say is read as a line of the user's: it
//! names no files that are attached, and is no command.

use super::completion::Candidate;
use flovyn_core::error::{Code, Error, Result};
use flovyn_toolkit::mcp::{McpProblem, McpPrompt, McpServers};
use flovyn_toolkit::message::{Message, Part, Role};
use tokio::task::{JoinError, JoinHandle};

/// The beginning of the names of all prompts.
const PREFIX: &str = "/mcp__";

type Listed = (Vec<McpPrompt>, Vec<McpProblem>);

/// The prompts that are known, and what servers were asked for.
#[derive(Default)]
pub(super) struct McpPrompts {
    /// The servers, once they were asked.
    servers: Option<McpServers>,
    known: Vec<McpPrompt>,
    listing: Option<JoinHandle<Listed>>,
    filling: Option<JoinHandle<Result<Vec<Message>>>>,
}

/// An answer of servers.
pub(super) enum PromptNews {
    /// The prompts of all servers, and what is wrong with some.
    Listed(Vec<McpProblem>),
    /// What a prompt stands for: its text, and images.
    Filled(Result<(String, Vec<Part>)>),
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptLine {
    /// A prompt, which its server fills in now.
    Begun,
    /// Something that cannot be done; why.
    Refused(String),
    /// No prompt.
    Other,
}

impl McpPrompts {
    /// Asks the servers for their prompts.
    pub(super) fn list(&mut self, servers: &McpServers) {
        if self.listing.is_none() && servers.names().next().is_some() {
            self.servers = Some(servers.clone());
            let servers = servers.clone();
            self.listing = Some(tokio::spawn(async move { servers.prompts().await }));
        }
    }

    /// What a line stands for, if it is a prompt of these servers: its text, and images. Waits for the servers.
    ///
    /// Errors: `INVALID_ARGUMENT` (no server has the prompt, or it needs more), `TASK_FAILED` (its server does not fill it in).
    pub(super) async fn expand(line: &str, servers: &McpServers) -> Result<Option<(String, Vec<Part>)>> {
        let (word, rest) = word_of(line);
        if !word.starts_with(PREFIX) {
            return Ok(None);
        }
        let (known, problems) = servers.prompts().await;
        let Some(prompt) = known.iter().find(|prompt| word.strip_prefix('/') == Some(prompt.name.as_str())) else {
            let known = known.iter().map(|prompt| format!("/{}", prompt.name)).collect::<Vec<_>>().join(", ");
            let known =
                if known.is_empty() { "the MCP servers have none".to_owned() } else { format!("there are {known}") };
            let problems: String = problems.iter().map(|problem| format!("; {problem}")).collect();
            return Err(Error::new(Code::InvalidArgument, format!("there is no prompt {word}; {known}{problems}")));
        };
        let arguments = prompt.arguments_of(rest)?;
        Ok(Some(said(&servers.get_prompt(prompt, arguments).await?)))
    }

    /// Begins what a line says, if it is a prompt.
    pub(super) fn begin(&mut self, line: &str, servers: &McpServers) -> PromptLine {
        let (word, rest) = word_of(line);
        let Some(prompt) = self.known.iter().find(|prompt| word.strip_prefix('/') == Some(prompt.name.as_str())) else {
            return match word.starts_with(PREFIX) && self.listing.is_some() {
                true => PromptLine::Refused("the MCP servers are still asked for their prompts".to_owned()),
                false => PromptLine::Other,
            };
        };
        if self.filling.is_some() {
            return PromptLine::Refused("another prompt is still filled in by its server".to_owned());
        }
        let arguments = match prompt.arguments_of(rest) {
            Ok(arguments) => arguments,
            Err(error) => return PromptLine::Refused(error.message().to_owned()),
        };
        let (servers, prompt) = (servers.clone(), prompt.clone());
        self.filling = Some(tokio::spawn(async move { servers.get_prompt(&prompt, arguments).await }));
        PromptLine::Begun
    }

    /// The next answer of servers; never resolves while nothing was asked. Cancel-safe.
    pub(super) async fn next(&mut self) -> PromptNews {
        loop {
            tokio::select! {
                listed = ended(&mut self.listing) => {
                    self.listing = None;
                    let (known, problems) = listed.unwrap_or_default();
                    self.known = known;
                    return PromptNews::Listed(problems);
                }
                filled = ended(&mut self.filling) => {
                    self.filling = None;
                    let filled = filled.unwrap_or_else(|_| Ok(Vec::new()));
                    return PromptNews::Filled(filled.map(|messages| said(&messages)));
                }
                // A list that is on its way may be from before the change.
                servers = changed(self.servers.as_ref()), if self.listing.is_none() => self.list(&servers),
            }
        }
    }

    /// The prompts for the menu.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let candidate = |prompt: &McpPrompt| {
            let (takes, about) = (takes(prompt), &prompt.description);
            let about = if takes.is_empty() { about.clone() } else { format!("{takes}  {about}") };
            Candidate { text: format!("/{}", prompt.name), about }
        };
        self.known.iter().map(candidate).collect()
    }

    /// The prompts for a list, one a line.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |prompt: &McpPrompt| {
            let words = format!("/{} {}", prompt.name, takes(prompt));
            format!("  {}  {}", words.trim_end(), prompt.description).trim_end().to_owned()
        };
        self.known.iter().map(line).collect()
    }
}

/// The first word of a line, and the rest of it.
fn word_of(line: &str) -> (&str, &str) {
    let line = line.trim();
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

/// The servers, once one of them has said that its prompts have changed; never resolves where none was asked.
async fn changed(servers: Option<&McpServers>) -> McpServers {
    match servers {
        Some(servers) => {
            servers.prompts_changed().await;
            servers.clone()
        }
        None => std::future::pending().await,
    }
}

/// What a prompt takes, as the help of commands has it: `CITY [STATE]`.
fn takes(prompt: &McpPrompt) -> String {
    let arguments = prompt.arguments.iter().map(|argument| match argument.is_required {
        true => argument.name.to_uppercase(),
        false => format!("[{}]", argument.name.to_uppercase()),
    });
    arguments.collect::<Vec<_>>().join(" ")
}

/// The messages of a prompt as one of the user's. Where the model speaks in them too, each says whose it is.
fn said(messages: &[Message]) -> (String, Vec<Part>) {
    let is_talk = messages.iter().any(|message| message.role == Role::Assistant);
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for message in messages {
        let text = message.text();
        match (is_talk, message.role == Role::Assistant) {
            _ if text.is_empty() => {}
            (false, _) => texts.push(text),
            (true, true) => texts.push(format!("Assistant: {text}")),
            (true, false) => texts.push(format!("User: {text}")),
        }
        others.extend(message.parts.iter().filter(|part| part.as_text().is_none()).cloned());
    }
    (texts.join("\n\n"), others)
}

/// What a task has ended with; never resolves where there is none.
async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> std::result::Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_prompt_are_one_of_the_user() {
        let one = [Message::user("Look at @src/main.rs."), Message::user("Be brief.")];
        assert_eq!(said(&one), ("Look at @src/main.rs.\n\nBe brief.".to_owned(), Vec::new()));
        let talk = [Message::user("2 + 2?"), Message::assistant("4"), Message::user("And 3 + 3?")];
        assert_eq!(said(&talk).0, "User: 2 + 2?\n\nAssistant: 4\n\nUser: And 3 + 3?");
        assert_eq!(said(&[]).0, "");
    }
}
