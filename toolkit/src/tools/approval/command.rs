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
    pub(super) fn any_begins(&self, beginning: &Beginning) -> bool {
        self.commands.iter().any(|words| beginning.is_of_program(words))
    }
}

/// How commands begin: with whole words, of which the last may go on.
#[derive(Debug, Clone)]
pub(super) struct Beginning {
    words: Vec<String>,
    /// What the word after them begins with.
    begun: Option<String>,
}

impl Beginning {
    /// Reads words such as `git log`, `rm*` for every program whose name begins so, or `git log *`, which is `git log`. None
    /// if there are no words.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        let begun = words.last().and_then(|last| last.strip_suffix('*')).map(str::to_owned);
        if begun.is_some() {
            words.pop();
        }
        let begun = begun.filter(|begun| !begun.is_empty());
        (!words.is_empty() || begun.is_some()).then_some(Self { words, begun })
    }

    /// The words as they are.
    pub(super) fn of_words(words: Vec<String>) -> Self {
        Self { words, begun: None }
    }

    /// Whether a command begins so.
    pub(super) fn is_of(&self, words: &[String]) -> bool {
        let next = || words.get(self.words.len());
        words.starts_with(&self.words)
            && self.begun.as_ref().is_none_or(|begun| next().is_some_and(|word| word.starts_with(begun)))
    }

    /// As [`is_of`](Self::is_of), where the program may be written with its path.
    fn is_of_program(&self, words: &[String]) -> bool {
        let Some((program, rest)) = words.split_first() else { return false };
        self.is_of(words)
            || program.rsplit_once('/').is_some_and(|(_, name)| {
                let named: Vec<_> = std::iter::once(name.to_owned()).chain(rest.iter().cloned()).collect();
                self.is_of(&named)
            })
    }
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
            ("rmdir x", "rm", false),
            ("rmdir x", "rm*", true),
            ("sudo /bin/rmdir x", "rm*", true),
            ("rm", "rm*", true),
            ("mr rm", "rm*", false),
            ("git push-all", "git push*", true),
            ("git push", "git push*", true),
            ("git", "git push*", false),
            ("git pull", "git push*", false),
            ("git", "git *", true),
            ("gitk", "git *", false),
        ] {
            let beginning = Beginning::parse(prefix).expect("words");
            assert_eq!(Commands::of(line).any_begins(&beginning), found, "{line:?} {prefix}");
        }
    }
}
