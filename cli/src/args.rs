//! The arguments of the command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::time::Duration;

/// Durable AI agents: look at runs, steer them, follow them.
#[derive(Debug, Parser)]
#[command(name = "flovyn", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Use colours; auto means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub color: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk to a coding agent in this directory; its sessions are durable
    #[command(after_help = crate::chat::AFTER)]
    Chat(Box<crate::chat::Chat>),
    /// Serve a database on this machine, for workers and clients in any process
    Dev(Dev),
    /// Serve a database to everybody who has a key
    #[command(visible_alias = "serve")]
    Server(Server),
    /// Work for a database or server: the built-in agent, its model calls and its tools on this machine
    #[command(override_usage = "flovyn worker [URL] [OPTIONS]", after_help = AFTER)]
    Worker(crate::commands::worker::Worker),
    /// Work on this computer for a server that has let it in by name
    #[command(args_conflicts_with_subcommands = true, after_help = crate::daemon::AFTER)]
    Daemon(crate::daemon::Daemon),
    /// List the machines of an organization, let one in by its code, revoke one
    #[command(subcommand, arg_required_else_help = true, after_help = AFTER)]
    Machines(crate::commands::machines::Machines),
    /// Make, list and revoke the keys of a database's callers
    #[command(subcommand, arg_required_else_help = true)]
    Keys(Keys),
    /// Make, list, rename, limit and remove the organizations of a database
    #[command(subcommand, arg_required_else_help = true)]
    Orgs(Orgs),
    /// Show what was done to an organization, newest first, and check that no row of it was changed
    #[command(override_usage = "flovyn audit [URL] [OPTIONS]")]
    Audit(Audit),
    /// Bring a database to this version's schema; makes it if it is not there
    #[command(override_usage = "flovyn migrate [URL]")]
    Migrate(Migrate),
    /// Copy a SQLite database to a new file while it is in use
    #[command(override_usage = "flovyn backup [URL] <FILE>")]
    Backup(Words),
    /// Look at runs and steer them
    #[command(subcommand, arg_required_else_help = true, after_help = AFTER)]
    Runs(Runs),
    /// Start runs by the clock
    #[command(subcommand, arg_required_else_help = true, after_help = AFTER)]
    Schedules(Schedules),
    /// Limit what queues hand out
    #[command(subcommand, arg_required_else_help = true, after_help = AFTER)]
    Queues(Queues),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Queues {
    /// Limit a queue, in place of the limit it has; without an option, free it
    #[command(override_usage = "flovyn queues limit [URL] <QUEUE> [--concurrency N] [--rate N/TIME]")]
    Limit(LimitQueue),
    /// List the queues that have a limit
    #[command(override_usage = "flovyn queues list [URL]")]
    List(Words),
}

#[derive(Debug, Args)]
pub(crate) struct LimitQueue {
    #[command(flatten)]
    pub words: Words,
    /// Runs that workers hold at the same time
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// How often runs are handed to workers, such as 10/1s or 600/1h
    #[arg(long, value_name = "N/TIME", value_parser = rate)]
    pub rate: Option<flovyn_core::model::Rate>,
}

/// Reads `10/1s`.
fn rate(text: &str) -> Result<flovyn_core::model::Rate, String> {
    let form = || "write a number and a time, such as 10/1s or 600/1h".to_owned();
    let (runs, time) = text.split_once('/').ok_or_else(form)?;
    Ok(flovyn_core::model::Rate { runs: runs.parse().map_err(|_| form())?, per: duration(time)? })
}

#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    /// Make a schedule, or replace the one of its id
    #[command(override_usage = "flovyn schedules create [URL] <ID> <CRON> <KIND> [JSON] [OPTIONS]")]
    Create(CreateSchedule),
    /// List schedules, by id
    #[command(override_usage = "flovyn schedules list [URL]")]
    List(Words),
    /// Let a schedule rest: no ticks until it is resumed
    #[command(override_usage = "flovyn schedules pause [URL] <ID>")]
    Pause(Words),
    /// Let a schedule go on with its next tick
    #[command(override_usage = "flovyn schedules resume [URL] <ID>")]
    Resume(Words),
    /// Remove a schedule; the runs that it started stay
    #[command(override_usage = "flovyn schedules delete [URL] <ID>")]
    Delete(Words),
}

#[derive(Debug, Args)]
pub(crate) struct CreateSchedule {
    #[command(flatten)]
    pub words: Words,
    /// The IANA time zone whose clock counts, such as Europe/Paris; UTC without one
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// The queue of the runs
    #[arg(long)]
    pub queue: Option<String>,
    /// Priority of the runs
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Concurrency key of the runs: with one, a run waits for that of the tick before
    #[arg(long, value_name = "KEY")]
    pub concurrency_key: Option<String>,
    /// How many runs of the key there may be at a time; 1 without it
    #[arg(long, value_name = "N", requires = "concurrency_key", value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency_limit: Option<u32>,
    /// Metadata of the runs; may be given several times
    #[arg(long = "meta", value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// What is served: sqlite:FILE, postgres://USER@HOST/DATABASE or memory:
    #[arg(long, value_name = "URL", default_value = "sqlite:flovyn.db")]
    pub db: String,
    /// The port of HTTP; 0 picks one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub http_port: u16,
    /// The port of gRPC; 0 picks one
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    pub grpc_port: u16,
    /// Write the token to this file too
    #[arg(long, value_name = "PATH")]
    pub token_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub callers: Callers,
    #[command(flatten)]
    pub log: Log,
}

/// Who else may call a server.
#[derive(Debug, Args)]
pub(crate) struct Callers {
    /// A name that a proxy on this machine is called by, so that HTTP on loopback answers to it too; may be given several times
    #[arg(long = "public-host", value_name = "NAME")]
    pub public_hosts: Vec<String>,
    /// The origin of another front end, whose pages may call with a token, such as http://localhost:3000; may be given several times
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    pub cors_origins: Vec<String>,
}

/// How a process that serves tells what it does.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The log on standard error as text, or as one JSON object a line [default: text]
    #[arg(long = "log-format", env = "FLOVYN_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub format: Option<crate::logs::Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Server {
    /// A file in TOML: db, grpc, http, plaintext, …
    #[arg(long, value_name = "FILE")]
    pub config: std::path::PathBuf,
    #[command(flatten)]
    pub callers: Callers,
    #[command(flatten)]
    pub log: Log,
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub words: Words,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a key and print its token, this once
    #[command(override_usage = "flovyn keys create [URL] --name NAME [OPTIONS]")]
    Create(CreateKey),
    /// List keys, oldest first
    #[command(override_usage = "flovyn keys list [URL] [OPTIONS]")]
    List(OfOrg),
    /// End a key
    #[command(override_usage = "flovyn keys revoke [URL] <KEY> [OPTIONS]")]
    Revoke(RevokeKey),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Orgs {
    /// Make an organization
    #[command(override_usage = "flovyn orgs create [URL] <NAME>")]
    Create(Words),
    /// List organizations by name
    #[command(override_usage = "flovyn orgs list [URL]")]
    List(Words),
    /// Give an organization another name; all it has stays
    #[command(override_usage = "flovyn orgs rename [URL] <NAME> <NEW>")]
    Rename(Words),
    /// Set what the keys of an organization may ask for together; what is left out is no limit
    #[command(override_usage = "flovyn orgs limit [URL] <NAME> [OPTIONS]")]
    Limit(LimitOrg),
    /// Remove an organization with its keys, its ended runs and all else it has
    #[command(override_usage = "flovyn orgs delete [URL] <NAME> --yes")]
    Delete(Confirmed),
}

#[derive(Debug, Args)]
pub(crate) struct LimitOrg {
    #[command(flatten)]
    pub words: Words,
    /// Starts and forks a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub create: Option<u32>,
    /// Signals a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub signal: Option<u32>,
    /// Polls for work a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub poll: Option<u32>,
    /// Streams of events at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub streams: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Confirmed {
    #[command(flatten)]
    pub words: Words,
    /// Do it: nothing brings it back
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateKey {
    #[command(flatten)]
    pub words: Words,
    /// What people call it
    #[arg(long)]
    pub name: String,
    /// The organization; `flovyn orgs create` makes one
    #[arg(long, default_value = "default")]
    pub org: String,
    /// viewer, member, worker, admin, or scopes (exec:read, exec:write, exec:signal, worker:QUEUE, keys, audit:read)
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', default_values_t = ["member".to_owned(), "worker".to_owned()])]
    pub scopes: Vec<String>,
    /// How long it works, at most a year
    #[arg(long, value_name = "AGE", default_value = "90d", value_parser = age)]
    pub expires: Duration,
    /// It works until it is revoked
    #[arg(long, conflicts_with = "expires")]
    pub never_expires: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OfOrg {
    #[command(flatten)]
    pub words: Words,
    /// The organization
    #[arg(long, default_value = "default")]
    pub org: String,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    pub of: OfOrg,
    /// How many of the newest rows to show; all are checked
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeKey {
    #[command(flatten)]
    pub of: OfOrg,
}

/// Reads `90d` or `12h`.
fn age(text: &str) -> Result<Duration, String> {
    const YEAR: u64 = 366 * 24;
    let hours = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => days.parse::<u64>().ok().and_then(|days| days.checked_mul(24)),
        (_, Some(hours)) => hours.parse().ok(),
        _ => None,
    };
    match hours {
        Some(hours @ 1..=YEAR) => Ok(Duration::from_secs(hours * 3_600)),
        _ => Err(format!("{text:?} is no age of up to a year; write 90d or 12h")),
    }
}

const AFTER: &str = "URL is sqlite:FILE, http://HOST:PORT or https://HOST:PORT. Where it is left out, FLOVYN_URL is used, else sqlite:flovyn.db.\n\
                     ID is a run's id or the key it was started with.";

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    #[command(override_usage = "flovyn runs list [URL] [OPTIONS]", after_help = AFTER)]
    List(List),
    /// Start a run for the workers of its kind
    #[command(override_usage = "flovyn runs start [URL] <KIND> [JSON] [OPTIONS]", after_help = AFTER)]
    Start(Start),
    /// Show one run: status, what it waits for, tasks, usage, checkpoints, events
    #[command(override_usage = "flovyn runs show [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Show(Show),
    /// Print the conversation of a run
    #[command(override_usage = "flovyn runs entries [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Entries(Entries),
    /// Follow the events of a run until it ends
    #[command(override_usage = "flovyn runs watch [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Watch(Watch),
    /// Send a run a signal; durable when the command returns
    #[command(override_usage = "flovyn runs signal [URL] <ID> <NAME> [JSON] [OPTIONS]", after_help = AFTER)]
    Signal(Signal),
    /// Let a call run that waits for a person; CALL is its id or hash, as `show` prints it
    #[command(override_usage = "flovyn runs approve [URL] <ID> [CALL] [OPTIONS]", after_help = AFTER)]
    Approve(Approve),
    /// Refuse a call that waits for a person
    #[command(override_usage = "flovyn runs deny [URL] <ID> [CALL] [OPTIONS]", after_help = AFTER)]
    Deny(Answer),
    /// Ask a run to stop
    #[command(override_usage = "flovyn runs cancel [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Cancel(Cancel),
    /// Remove a run that has ended, with all it has
    #[command(override_usage = "flovyn runs delete [URL] <ID> --yes", after_help = AFTER)]
    Delete(Confirmed),
    /// Continue a paused run
    #[command(override_usage = "flovyn runs resume [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Resume(Resume),
    /// Go on with a run that has failed, from its last commit
    #[command(override_usage = "flovyn runs retry [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Retry(Resume),
    /// Start a run that shares another's conversation up to a point
    #[command(override_usage = "flovyn runs fork [URL] <ID> [OPTIONS]", after_help = AFTER)]
    Fork(Fork),
    /// Answer for a task that is in doubt or quarantined
    #[command(override_usage = "flovyn runs resolve [URL] <OP> (--result JSON | --error MESSAGE | --retry)", after_help = AFTER)]
    Resolve(Resolve),
    /// Decide about a run that stopped because its code changed
    #[command(override_usage = "flovyn runs decide [URL] <ID> <continue|fork|stay>", after_help = AFTER)]
    Decide(Words),
}

#[derive(Debug, Args)]
pub(crate) struct Words {
    /// The backend, then what the usage line names
    #[arg(value_name = "WORD", num_args = 0..=5, hide = true, allow_negative_numbers = true)]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub words: Words,
    /// Only runs of this status; may be given several times
    #[arg(long, value_name = "STATUS")]
    pub status: Vec<String>,
    /// Only runs of this agent
    #[arg(long)]
    pub kind: Option<String>,
    /// Only runs in this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only runs with this metadata; may be given several times
    #[arg(long = "meta", value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,
    /// Only the children of this run
    #[arg(long, value_name = "ID")]
    pub parent: Option<String>,
    /// Only runs below this one, whatever lies between
    #[arg(long, value_name = "ID")]
    pub root: Option<String>,
    /// Only runs that no other run has started
    #[arg(long)]
    pub roots: bool,
    /// Only runs with these words in their id, kind, queue, metadata or input; a page looks at 10,000 runs at most
    #[arg(long, value_name = "WORDS")]
    pub search: Option<String>,
    /// At most so many (1 to 1000)
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Continue a listing: the `nextCursor` of the page before
    #[arg(long)]
    pub cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    pub words: Words,
    /// The run's key or id; starting it again gives the same run
    #[arg(long)]
    pub id: Option<String>,
    /// The queue its workers poll
    #[arg(long)]
    pub queue: Option<String>,
    /// The machine that runs it; without a name the only one there is
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with = "queue")]
    pub machine: Option<String>,
    /// Higher ones are claimed first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Of the runs with this key one advances at a time
    #[arg(long, value_name = "KEY")]
    pub concurrency_key: Option<String>,
    /// Or so many
    #[arg(long, value_name = "N", requires = "concurrency_key", value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency_limit: Option<u32>,
    /// Metadata for filters; may be given several times
    #[arg(long = "meta", value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub words: Words,
    /// How many of the last events to show
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub events: usize,
    /// The run and all runs below it, as a tree with what each and all have used
    #[arg(long, conflicts_with = "events")]
    pub tree: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Entries {
    #[command(flatten)]
    pub words: Words,
    /// Every branch, as a tree; otherwise the main branch
    #[arg(long)]
    pub tree: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub words: Words,
    /// Only events after this one (an id such as 17)
    #[arg(long, value_name = "EVENT")]
    pub after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Signal {
    #[command(flatten)]
    pub words: Words,
    /// Makes a repeated send one signal
    #[arg(long)]
    pub key: Option<String>,
    /// When the run may see it
    #[arg(long, value_enum, default_value_t = Delivery::NextStep)]
    pub delivery: Delivery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    #[value(alias = "next_step")]
    NextStep,
    #[value(alias = "next_turn")]
    NextTurn,
    Now,
}

#[derive(Debug, Args)]
pub(crate) struct Answer {
    #[command(flatten)]
    pub words: Words,
    /// What the model is told
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub answer: Answer,
    /// A JSON object: the arguments with which the call runs, in place of those that the model has written
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// Later calls of the run that are alike are not asked about
    #[arg(long)]
    pub for_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub words: Words,
    /// End it at once, without letting it tidy up
    #[arg(long, conflicts_with = "grace")]
    pub hard: bool,
    /// How long it may take to tidy up, such as 30s or 2m
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub grace: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    pub words: Words,
    /// Steps it may take from now on
    #[arg(long)]
    pub max_steps: Option<u32>,
    /// Ops its journal tail may have
    #[arg(long)]
    pub max_tail: Option<u32>,
    /// A user message to append first: JSON, or text
    #[arg(long)]
    pub message: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Fork {
    #[command(flatten)]
    pub words: Words,
    /// At this checkpoint (its number)
    #[arg(long, value_name = "N", group = "point")]
    pub checkpoint: Option<u32>,
    /// At this entry
    #[arg(long, value_name = "ENTRY", group = "point")]
    pub entry: Option<String>,
    /// At this op: its id, or SEGMENT-SEQUENCE
    #[arg(long, value_name = "OP", group = "point")]
    pub op: Option<String>,
    /// The fork's key or id
    #[arg(long)]
    pub id: Option<String>,
    /// Another state to start with
    #[arg(long, value_name = "JSON")]
    pub state: Option<String>,
    /// Another input
    #[arg(long, value_name = "JSON")]
    pub input: Option<String>,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub words: Words,
    /// It took effect, with this result
    #[arg(long, value_name = "JSON", group = "answer")]
    pub result: Option<String>,
    /// It failed, with this message
    #[arg(long, value_name = "MESSAGE", group = "answer")]
    pub error: Option<String>,
    /// Run it again
    #[arg(long, group = "answer")]
    pub retry: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    parsed
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "write a duration such as 500ms, 30s or 2m".to_owned())
}
