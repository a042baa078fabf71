//! The arguments of `flovyn chat`.

use clap::Args;
use std::path::PathBuf;

/// What follows the help.
pub(crate) const AFTER: &str = "A session is a durable run: it outlives this process, and --resume goes on where it was.\n\
    Sessions are kept in --db, else FLOVYN_URL, else ~/.flovyn/chat.db. With the URL of a server its workers do the work\n\
    (`flovyn worker`); otherwise this process does.\n\n\
    While the agent works, a line is heard before its next step; Ctrl-C stops what it does, twice leaves.";

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// What is asked first; with standard input that is no terminal, that is read too
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,
    /// Answer the prompt and end: text to standard output, tools and cost to standard error
    #[arg(short, long)]
    pub print: bool,
    /// Where sessions are kept: a file, or a URL (sqlite:FILE, http://HOST:PORT)
    #[arg(long, value_name = "FILE|URL")]
    pub db: Option<String>,
    /// The model; without one, that of the session or the first whose key is set
    #[arg(long, value_name = "PROVIDER/MODEL", env = "FLOVYN_MODEL")]
    pub model: Option<String>,
    /// Ask a scripted model in this process instead of a real one
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, require_equals = true)]
    pub fake: Option<Option<PathBuf>>,
    /// Go on with a session: the one of this ID, or the last one of this directory
    #[arg(long, value_name = "ID", num_args = 0..=1)]
    pub resume: Option<Option<String>>,
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
    /// MCP servers whose tools the model may call, in a file with mcpServers; else those of ~/.flovyn/mcp.json; may be given several times
    #[arg(long, value_name = "FILE")]
    pub mcp: Vec<PathBuf>,
    #[command(flatten)]
    pub confinement: Confinement,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Confinement {
    /// Run commands with all rights of this process, outside the sandbox
    #[arg(long)]
    pub unsandboxed: bool,
    /// Let commands in the sandbox use the network
    #[arg(long)]
    pub network: bool,
}

impl Chat {
    /// What is done without asking.
    pub(crate) fn policy(&self) -> &str {
        if self.yes { "all" } else { &self.approve }
    }
}
