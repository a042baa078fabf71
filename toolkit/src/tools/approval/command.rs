//! The commands of a shell line, as far as approvals have to know: the simple commands that it is made of, where that is
//! certain, and how every command begins that may be in it.
//!
//! What allows goes by the first, what asks or denies by the second. Both err to the strict side: a line that is not
//! understood is not allowed, and a word that may be a command counts as one.

use super::shell;

/// What separates commands or begins one inside another.
const BREAKS: &[char] = &[';', '&', '|', '\n', '(', ')', '{', '}', '`'];
/// Programs and shell words that run the command behind them.
const WRAPPERS: &[&str] = &[
    "sudo", "doas", "env", "nohup", "nice", "ionice", "time", "timeout", "command", "exec", "builtin", "xargs",
    "setsid", "stdbuf", "if", "then", "else", "elif", "do", "while", "until", "!",
];

/// A shell line taken apart.
pub(super) struct Commands {
    line: String,
    /// The words of each simple command; none where it is not certain which commands run.
    certain: Option<Vec<Vec<String>>>,
    /// The words of each command, with and without what stands before its program.
    commands: Vec<Vec<String>>,
}

impl Commands {
    pub(super) fn of(line: &str) -> Self {
        let certain = shell::simple_commands(line);
        // Quotes do not hide a break: a command inside them may be given to another shell.
        let commands = line.split(BREAKS).flat_map(beginnings).collect();
        Self { line: line.to_owned(), certain, commands }
    }

    /// Whether the line is this text.
    pub(super) fn is_exactly(&self, text: &str) -> bool {
        self.line.trim() == text.trim()
    }

    /// Whether it is certain which commands run, and each of them passes.
    pub(super) fn each_passes(&self, passes: impl Fn(&[String]) -> bool) -> bool {
        self.certain.as_ref().is_some_and(|commands| commands.iter().all(|words| passes(words)))
    }

    /// Whether any command in it begins with these words.
    pub(super) fn any_begins(&self, prefix: &[String]) -> bool {
        self.commands.iter().any(|words| begins(words, prefix))
    }
}

/// As the shell would find the program: by its path or its name.
fn begins(words: &[String], prefix: &[String]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or(program);
    (program == &prefix[0] || name == prefix[0]) && rest.starts_with(&prefix[1..])
}

/// The words of a command, and the same from each place where what stands before may only wrap it.
fn beginnings(command: &str) -> Vec<Vec<String>> {
    let words: Vec<String> = command
        .split_whitespace()
        .map(|word| word.replace(['\'', '"', '\\'], ""))
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    let mut wrapped = true;
    for start in 0..words.len() {
        if !wrapped {
            break;
        }
        found.push(words[start..].to_vec());
        let word = &words[start];
        let is_shell = ["-c", "bash", "sh", "zsh", "dash"].contains(&word.rsplit('/').next().unwrap_or(word));
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.contains('/'));
        let is_option = start > 0 && word.starts_with('-');
        let is_number = start > 0 && word.starts_with(|letter: char| letter.is_ascii_digit());
        wrapped = WRAPPERS.contains(&word.rsplit('/').next().unwrap_or(word))
            || is_shell
            || is_assignment
            || is_option
            || is_number;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(prefix: &str) -> Vec<String> {
        prefix.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_is_found_wherever_it_may_begin() {
        for (line, prefix, found) in [
            ("rm -rf x", "rm", true),
            ("ls; rm x", "rm", true),
            ("ls && /bin/rm x", "rm", true),
            ("sudo -n rm x", "rm", true),
            ("env A=1 nice -n 5 rm x", "rm", true),
            ("A=1 rm x", "rm", true),
            ("echo $(rm x)", "rm", true),
            ("echo `rm x`", "rm", true),
            ("bash -c 'rm x'", "rm", true),
            ("if true; then rm x; fi", "rm", true),
            ("find . | xargs rm", "rm", true),
            ("r''m x", "rm", true),
            ("\\rm x", "rm", true),
            ("(rm x)", "rm", true),
            ("{ rm x; }", "rm", true),
            ("timeout 5 rm x", "rm", true),
            ("git push --force", "git push", true),
            ("git pull", "git push", false),
            ("echo rm", "rm", false),
            ("ls confirm", "rm", false),
            ("", "rm", false),
        ] {
            assert_eq!(Commands::of(line).any_begins(&words(prefix)), found, "{line:?}");
        }
    }
}
