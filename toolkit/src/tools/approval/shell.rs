//! The simple commands that a shell line is made of, where that is certain.
//!
//! A parser of bash takes the line apart. What it says is believed only for a line without anything that the shell would
//! still work out (expansions, substitutions, patterns), that changes what a later word means (assignments, functions,
//! `eval`, another shell), or that writes to a file. For any other line there is no answer.

use brush_parser::ast::{
    AndOr, Command, CommandPrefixOrSuffixItem, CompoundCommand, CompoundList, IoFileRedirectKind, IoFileRedirectTarget,
    IoRedirect, Pipeline, RedirectList, SeparatorOperator, SimpleCommand,
};
use brush_parser::{Parser, ParserOptions, SourceInfo};
use std::io::Cursor;

/// The longest line that is taken apart, in bytes.
const LONGEST: usize = 16 * 1024;
/// How many brackets a line may have. The parser goes down into each, and may look at it more than once.
const MOST_BRACKETS: usize = 8;

/// Words that run other words, read a program from somewhere, or change what the words after them mean; and the reserved
/// words of shells. A command that begins so is never taken apart.
const UNCERTAIN: &[&str] = &[
    ".",
    "alias",
    "ash",
    "bg",
    "bind",
    "builtin",
    "busybox",
    "caller",
    "case",
    "chroot",
    "command",
    "compgen",
    "complete",
    "compopt",
    "coproc",
    "dash",
    "declare",
    "disown",
    "do",
    "doas",
    "done",
    "elif",
    "else",
    "enable",
    "env",
    "esac",
    "eval",
    "exec",
    "export",
    "fc",
    "fg",
    "fi",
    "fish",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "ionice",
    "jobs",
    "ksh",
    "let",
    "local",
    "logout",
    "mapfile",
    "nice",
    "nohup",
    "parallel",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "setsid",
    "shift",
    "shopt",
    "source",
    "stdbuf",
    "su",
    "sudo",
    "suspend",
    "then",
    "time",
    "timeout",
    "trap",
    "typeset",
    "ulimit",
    "unalias",
    "unset",
    "until",
    "wait",
    "watch",
    "while",
    "xargs",
];
/// Shells, which may be given a script by its path and nothing else.
const SHELLS: &[&str] = &["bash", "sh", "zsh"];

/// The words of each simple command of a line; none if it is not certain which commands it runs.
pub(super) fn simple_commands(line: &str) -> Option<Vec<Vec<String>>> {
    if line.len() > LONGEST || !is_certain(line) {
        return None;
    }
    let options = ParserOptions::default();
    let program = Parser::new(Cursor::new(line), &options, &SourceInfo::default()).parse_program().ok()?;
    let mut found = Vec::new();
    program.complete_commands.iter().try_for_each(|list| of_list(list, &mut found))?;
    (!found.is_empty()).then_some(found)
}

/// Words as a line that the shell reads as the same words.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=+@%^".contains(letter);
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r#"'"'"'"#)),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Whether no character of a line makes the shell do more than part it into words and commands. It does not rely on the
/// parser, so that the two have to agree.
fn is_certain(line: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    let mut brackets = 0;
    for letter in line.chars() {
        brackets += usize::from(quote.is_none() && letter == '(');
        let is_odd = letter.is_control() || (letter.is_whitespace() && letter != ' ') || letter == '\u{feff}';
        let is_bad = (is_odd && letter != '\n' && letter != '\t')
            || match quote {
                Some('\'') => false,
                Some(_) => matches!(letter, '$' | '`' | '\\'),
                None => match letter {
                    // Two at once begin arithmetic, or something else where that does not fit.
                    '(' => before == '(',
                    '$' | '`' | '\\' | '*' | '?' | '[' | ']' | '{' | '}' | '#' | '!' => true,
                    // Only a tilde at the beginning of a word, or of what is assigned, is a home directory.
                    '~' => !before.is_ascii_alphanumeric(),
                    _ => false,
                },
            };
        if is_bad {
            return false;
        }
        match quote {
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            Some(open) if open == letter => quote = None,
            _ => {}
        }
        before = letter;
    }
    quote.is_none() && brackets <= MOST_BRACKETS
}

fn of_list(list: &CompoundList, found: &mut Vec<Vec<String>>) -> Option<()> {
    for item in &list.0 {
        if !matches!(item.1, SeparatorOperator::Sequence) {
            return None;
        }
        of_pipeline(&item.0.first, found)?;
        for AndOr::And(pipeline) | AndOr::Or(pipeline) in &item.0.additional {
            of_pipeline(pipeline, found)?;
        }
    }
    Some(())
}

fn of_pipeline(pipeline: &Pipeline, found: &mut Vec<Vec<String>>) -> Option<()> {
    if pipeline.timed.is_some() || pipeline.bang {
        return None;
    }
    pipeline.seq.iter().try_for_each(|command| match command {
        Command::Simple(command) => {
            found.push(words_of(command)?);
            Some(())
        }
        Command::Compound(CompoundCommand::Subshell(subshell), redirects) => {
            let harmless = |RedirectList(all): &RedirectList| all.iter().all(is_harmless);
            redirects.as_ref().is_none_or(harmless).then_some(())?;
            of_list(&subshell.list, found)
        }
        _ => None,
    })
}

fn words_of(command: &SimpleCommand) -> Option<Vec<String>> {
    let mut words = vec![literal(&command.word_or_name.as_ref()?.value)?];
    let before = command.prefix.iter().flat_map(|prefix| &prefix.0).map(|item| (item, true));
    let after = command.suffix.iter().flat_map(|suffix| &suffix.0).map(|item| (item, false));
    for (item, is_before) in before.chain(after) {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) if is_harmless(redirect) => {}
            CommandPrefixOrSuffixItem::IoRedirect(_) | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => {
                return None;
            }
            _ if is_before => return None,
            // Behind the program this is a word like any other, such as `if=/dev/zero`.
            CommandPrefixOrSuffixItem::AssignmentWord(_, word) => words.push(literal(&word.value)?),
            word => words.push(literal(&word.to_string())?),
        }
    }
    is_understood(&words).then_some(words)
}

/// Whether a command runs its program and nothing that its words or a later command would say.
fn is_understood(words: &[String]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or(program);
    if name.is_empty() || program.contains('=') || UNCERTAIN.contains(&name) {
        return false;
    }
    if SHELLS.contains(&name) {
        return arguments.first().is_some_and(|script| !script.starts_with(['-', '+']));
    }
    // These assign to variables that they are told of, or work out what stands in brackets.
    !(matches!(name, "printf" | "test") && arguments.iter().any(|argument| argument.starts_with("-v")))
}

/// Whether a redirection only joins the outputs, or leads from or to nothing.
fn is_harmless(redirect: &IoRedirect) -> bool {
    let is_nothing = |word: &str| literal(word).as_deref() == Some("/dev/null");
    match redirect {
        IoRedirect::File(_, IoFileRedirectKind::DuplicateOutput, target) => match target {
            IoFileRedirectTarget::Fd(number) => (0..=2).contains(number),
            IoFileRedirectTarget::Duplicate(word) => matches!(word.value.as_str(), "0" | "1" | "2"),
            _ => false,
        },
        IoRedirect::File(
            _,
            IoFileRedirectKind::Read | IoFileRedirectKind::Write | IoFileRedirectKind::Append,
            IoFileRedirectTarget::Filename(word),
        ) => is_nothing(&word.value),
        IoRedirect::OutputAndError(word, _) => is_nothing(&word.value),
        _ => false,
    }
}

/// A word without its quotes; none if the shell would make something else of it.
fn literal(word: &str) -> Option<String> {
    let mut text = String::new();
    let mut quote = None;
    for letter in word.chars() {
        match quote {
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            Some(open) if open == letter => quote = None,
            None if matches!(letter, ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n' | '\t' | ' ') => return None,
            _ => text.push(letter),
        }
    }
    quote.is_none().then_some(text)
}

#[cfg(test)]
#[path = "shell/tests.rs"]
mod tests;
