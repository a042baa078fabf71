//! The arguments of `flovyn chat`.

use super::{given_text, output_schema};
use crate::{Failed, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use flovyn_toolkit::provider::ThinkingLevel;
use flovyn_toolkit::react::{AnswerLimits, OutputSpec};
use flovyn_toolkit::tools::{Availability, Sandbox};
use std::path::PathBuf;

/// What follows the help.
pub(crate) const AFTER: &str = "A session is a durable run: it outlives this process, and --resume goes on where it was.\n\
    Sessions are kept in --db, else FLOVYN_URL, else ~/.flovyn/chat.db. With the URL of a server its workers do the work\n\
    (`flovyn worker`); otherwise this process does.\n\n\
    While the agent works, a line is heard before its next step; Ctrl-C stops what it does, twice leaves.\n\n\
    Exit codes of -p: 0 the agent has finished, 1 it failed, 2 wrong usage, 3 --max-turns, 4 --max-cost or another budget,\n\
    5 the model refused, 6 the answer was longer than it may be, 7 it was not of the form of --output-schema however often\n\
    asked, 130 and 143 interrupted. Every session can be resumed.";

/// The policy that allows every call.
pub(super) const EVERYTHING: &str = "all";

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// What is asked first; with standard input that is no terminal, that is read too
    #[arg(value_name = "PROMPT", value_parser = OsStringValueParser::new().map(given_text::of_argument))]
    pub prompt: Option<String>,
    /// Answer the prompt and end: text to standard output, tools and cost to standard error
    #[arg(short, long)]
    pub print: bool,
    /// What -p writes: the text, one JSON object at the end (the same as --json), or one JSON object for each event
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<OutputFormat>,
    /// The form of the answer: a JSON Schema, or a file with one; the answer is JSON of that form
    #[arg(long, alias = "json-schema", value_name = "SCHEMA", value_parser = output_schema::of_argument)]
    pub output_schema: Option<OutputSpec>,
    /// Where sessions are kept: a file, or a URL (sqlite:FILE, http://HOST:PORT)
    #[arg(long, value_name = "FILE|URL")]
    pub db: Option<String>,
    /// The model, or a short name such as sonnet, opus or gpt; without one, that of the session or the usual one of the first key
    #[arg(long, value_name = "MODEL", env = "FLOVYN_MODEL")]
    pub model: Option<String>,
    /// Talk with an agent of others: pi, claude, codex, or a command that speaks ACP, such as "gemini --experimental-acp"
    #[arg(long, value_name = "AGENT|COMMAND", conflicts_with_all = ["output_schema", "thinking", "fake", "fork", "max_turns", "max_cost", "append_system_prompt", "mcp"])]
    pub agent: Option<String>,
    /// How long the model thinks, from the next message on
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub thinking: Option<Thinking>,
    /// Ask a scripted model in this process instead of a real one
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, require_equals = true)]
    pub fake: Option<Option<PathBuf>>,
    /// Go on with a session: the one of this ID, or the last one of this directory
    #[arg(long, value_name = "ID", num_args = 0..=1)]
    pub resume: Option<Option<String>>,
    /// Go on with the last session of this directory; the same as --resume without an ID
    #[arg(short, long = "continue", conflicts_with_all = ["resume", "fork"])]
    pub continue_last: bool,
    /// Start a session that shares another's conversation so far
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    pub fork: Option<String>,
    /// List the sessions of this directory
    #[arg(long)]
    pub list: bool,
    /// With --list: those of every directory
    #[arg(long, requires = "list")]
    pub all: bool,
    /// Allow every tool call; the same as --approve all
    #[arg(short, long, conflicts_with = "approve")]
    pub yes: bool,
    /// What is done without asking: reads, edits, all, or a file with an approval policy in JSON
    #[arg(long, value_name = "POLICY", default_value = "reads")]
    pub approve: String,
    /// Calls that need no approval, such as edit, mcp__files__* or 'bash(cargo test:*)'; a list, or given several times
    #[arg(long, alias = "allowedTools", value_name = "RULES")]
    pub allowed_tools: Vec<String>,
    /// Calls that are refused, in the same form; a tool without parentheses is not offered to the model
    #[arg(long, alias = "disallowedTools", value_name = "RULES")]
    pub disallowed_tools: Vec<String>,
    /// The most model calls that answer a message
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,
    /// No further model call once those that answer a message have cost so many US dollars
    #[arg(long, alias = "max-budget-usd", value_name = "DOLLARS", value_parser = micros)]
    pub max_cost: Option<u64>,
    /// Instructions for the model beside the usual ones, in a session that begins
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["resume", "fork", "continue_last"])]
    pub append_system_prompt: Option<String>,
    /// Trust this folder in this run: what its files allow and run counts; without it you are asked once, if you are there
    #[arg(long)]
    pub trust: bool,
    /// MCP servers whose tools the model may call, in a file with mcpServers, in place of all others; may be given several times
    #[arg(long, value_name = "FILE")]
    pub mcp: Vec<PathBuf>,
    /// Print lines once and in plain letters, without redrawing: for screen readers
    #[arg(long)]
    pub plain: bool,
    #[command(flatten)]
    pub confinement: Confinement,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Confinement {
    /// Run commands with all rights of this process, outside the sandbox
    #[arg(long)]
    pub unsandboxed: bool,
    /// Let commands in the sandbox use the network
    #[arg(long)]
    pub network: bool,
    /// Another directory whose files may be read and written; may be given several times
    #[arg(long = "add-dir", value_name = "DIRECTORY")]
    pub add_dirs: Vec<PathBuf>,
    /// A variable of this process that commands see beside the usual ones, or NAME* for several; may be given several times
    #[arg(long = "env", value_name = "NAME")]
    pub variables: Vec<String>,
    /// Let commands in the sandbox write to the package caches of the user instead of caches of their own
    #[arg(long)]
    pub user_caches: bool,
}

impl Confinement {
    /// What confines commands here, for people.
    pub(crate) fn word(&self) -> &'static str {
        Availability::probe().word(if self.unsandboxed { Sandbox::Off } else { Sandbox::Required })
    }
}

/// How long a model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Thinking {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Max,
}

impl From<Thinking> for ThinkingLevel {
    fn from(thinking: Thinking) -> Self {
        match thinking {
            Thinking::Off => Self::Off,
            Thinking::Minimal => Self::Minimal,
            Thinking::Low => Self::Low,
            Thinking::Medium => Self::Medium,
            Thinking::High => Self::High,
            Thinking::Max => Self::Max,
        }
    }
}

/// What a prompt without a conversation writes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer.
    Text,
    /// One object when it is done.
    Json,
    /// An object for each event.
    StreamJson,
}

/// Reads dollars as millionths of one.
fn micros(text: &str) -> std::result::Result<u64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(dollars) if dollars > 0.0 && dollars < 1e9 => Ok(((dollars * 1e6).round() as u64).max(1)),
        _ => Err("write US dollars, such as 0.50 or 2".to_owned()),
    }
}

impl Chat {
    /// What the answer to a message may use.
    pub(crate) fn limits(&self) -> AnswerLimits {
        AnswerLimits { max_turns: self.max_turns, max_cost_micros: self.max_cost }
    }

    /// The format of the output; `json` is the option of all commands.
    pub(crate) fn format(&self, json: bool) -> Result<OutputFormat> {
        match (self.output_format, json) {
            (Some(OutputFormat::Text), true) => {
                Err(Failed::Usage("--json and --output-format text do not go together; leave one out".into()))
            }
            (Some(format), _) => Ok(format),
            (None, true) => Ok(OutputFormat::Json),
            (None, false) => Ok(OutputFormat::Text),
        }
    }

    /// The session that is named: by its id, or the last one by an empty name.
    pub(crate) fn resumed(&self) -> Option<Option<&str>> {
        match &self.resume {
            Some(id) => Some(id.as_deref()),
            None => self.continue_last.then_some(None),
        }
    }

    /// What is done without asking.
    pub(crate) fn policy(&self) -> &str {
        if self.yes { EVERYTHING } else { &self.approve }
    }
}
