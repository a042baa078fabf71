//! The commands of the chat: lines that begin with a slash and are not for the model. Pure: which line is which command.

use super::completion::Candidate;
use crate::project::Commands;
use std::path::Path;

/// A command.
pub(super) struct Command {
    /// Its name, with the slash.
    pub name: &'static str,
    /// What it takes.
    pub takes: &'static str,
    /// What it does.
    pub about: &'static str,
}

const fn command(name: &'static str, takes: &'static str, about: &'static str) -> Command {
    Command { name, takes, about }
}

/// All commands, by name.
pub(super) const COMMANDS: &[Command] = &[
    command(
        "/agents",
        "[N [say TEXT | stop]]",
        "the agents below this one: their conversation, a word to one, its end",
    ),
    command("/clear", "", "begin a new conversation; the old one is kept"),
    command("/compact", "[FOCUS]", "put a summary in place of the conversation so far"),
    command("/cost", "", "what the session cost"),
    command("/diff", "", "what has changed in the directory"),
    command("/edit", "", "go on writing in your editor (Ctrl-G)"),
    command("/expand", "", "everything whole: calls, output, thinking (Ctrl-O)"),
    command("/export", "[FILE]", "write the conversation to a file"),
    command("/help", "", "keys and commands"),
    command("/init", "", "have AGENTS.md written for this project"),
    command("/mcp", "", "the MCP servers and their tools"),
    command("/model", "[NAME]", "ask another model from now on"),
    command("/plan", "", "only look, and make a plan (Shift-Tab)"),
    command("/quit", "", "leave; --resume goes on with the session"),
    command("/resume", "[ID]", "go on with another session"),
    command("/thinking", "[LEVEL]", "how long the model thinks"),
    command("/tools", "", "what the model may call"),
    command("/undo", "", "go back before the last turn, files and conversation"),
];

/// Other names of commands.
const ALIASES: [(&str, &str); 2] = [("/new", "/clear"), ("/exit", "/quit")];

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A command, by its name, and what is written behind it.
    Command(&'static str, &'a str),
    /// A word like a command that is none; with the nearest one.
    Unknown(&'a str, Option<&'static str>),
    /// A command of the user's shell.
    Shell(&'a str),
    /// Something for the model.
    Text,
}

/// Says what a line is. A path that begins with a slash is for the model.
pub(super) fn read(line: &str) -> Line<'_> {
    if let Some(command) = line.strip_prefix('!').map(str::trim).filter(|command| !command.is_empty()) {
        return Line::Shell(command);
    }
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | ':');
    let is_word = word.strip_prefix('/').is_some_and(|name| !name.is_empty() && name.chars().all(is_name));
    if !is_word {
        return Line::Text;
    }
    let name = ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, name)| name);
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => Line::Command(command.name, rest.trim()),
        None if Path::new(word).exists() => Line::Text,
        None => Line::Unknown(word, nearest(word)),
    }
}

/// The command that a person has likely meant.
fn nearest(word: &str) -> Option<&'static str> {
    let names = COMMANDS.iter().map(|command| command.name);
    let distance = |name: &str| strsim::damerau_levenshtein(word, name);
    let begun = names.clone().find(|name| name.starts_with(word));
    begun.or_else(|| names.filter(|name| distance(name) <= 2).min_by_key(|name| distance(name)))
}

/// The commands for the menu, with those of the user and the project.
pub(super) fn candidates(custom: &Commands) -> Vec<Candidate> {
    let candidate = |name: String, takes: &str, about: &str| {
        let about = if takes.is_empty() { about.to_owned() } else { format!("{takes}  {about}") };
        Candidate { text: name, about }
    };
    let own = COMMANDS.iter().map(|command| candidate(command.name.to_owned(), command.takes, command.about));
    let custom = custom
        .iter()
        .map(|(name, command)| candidate(format!("/{name}"), &command.argument_hint, &command.description));
    own.chain(custom).collect()
}

/// The help, in lines.
pub(super) fn help(custom: &Commands) -> String {
    let line = |name: &str, takes: &str, about: &str| {
        let words = format!("{name} {takes}");
        match words.chars().count() < 19 {
            true => format!("  {words:<19}{about}\n"),
            // What does not fit beside the description stands above it.
            false => format!("  {words}\n  {:<19}{about}\n", ""),
        }
    };
    let commands = COMMANDS.iter().map(|command| line(command.name, command.takes, command.about));
    let custom =
        custom.iter().map(|(name, command)| line(&format!("/{name}"), &command.argument_hint, &command.description));
    let commands: String = commands.chain(custom).collect();
    format!(
        "Write what you want and press Enter. While the agent works, a line is heard before its next step.\n\
         @FILE gives a file or an image to the model. !COMMAND runs a command of yours; the model is told of it.\n\n\
         \u{20} Ctrl-C, Esc        stop what it does; Ctrl-C twice leaves, Ctrl-D too\n\
         \u{20} Shift-Enter        a new line; Alt-Enter and Ctrl-J as well\n\
         \u{20} Shift-Tab          ask before changes, accept edits, or only plan\n\
         \u{20} Up, Down, Ctrl-R   what you wrote before, and a search in it\n\
         \u{20} Tab                complete a command or a file\n\
         \u{20} Ctrl-O             everything whole; PgUp and PgDn scroll a long question\n\
         \u{20} Ctrl-V             an image of the clipboard\n\
         \u{20} Ctrl-G             go on writing in your own editor\n\n\
         {commands}\n\
         Where an MCP server asks something, each line answers one field; /back goes to the field before, /decline says no,\n\
         /cancel closes it without an answer."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_for_the_model() {
        for (line, expected) in [
            ("/compact  the tests ", Line::Command("/compact", "the tests")),
            ("/new", Line::Command("/clear", "")),
            ("/compcat", Line::Unknown("/compcat", Some("/compact"))),
            ("/res", Line::Unknown("/res", Some("/resume"))),
            ("/xylophone", Line::Unknown("/xylophone", None)),
            ("/usr/bin is full", Line::Text),
            ("/tmp", Line::Text),
            ("/ what?", Line::Text),
            ("see /help", Line::Text),
            ("!ls -l", Line::Shell("ls -l")),
            ("!", Line::Text),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
