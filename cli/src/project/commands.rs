//! Custom commands: prompts in files, `/NAME` in a chat. `NAME.md` in `commands` of `~/.flovyn`, of a project's `.claude` or
//! `.flovyn`; in a sub-folder they are named `FOLDER:NAME`. The later folder goes before the earlier.

use super::folders::{CLAUDE, Folders};
use super::permission;
use flovyn_toolkit::tools::approval::{Decision, Rule};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder with commands.
const FOLDER: &str = "commands";
/// Commands that are read at most.
const MAX_COMMANDS: usize = 500;
/// How deep sub-folders are read.
const MAX_DEPTH: usize = 4;
/// Bytes of a command that are read at most.
const MAX_SIZE: usize = 100_000;

/// All custom commands, by name.
#[derive(Debug, Default)]
pub(crate) struct Commands(BTreeMap<String, CustomCommand>);

/// A custom command.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CustomCommand {
    /// What it does, for people: the description of its file, else its first line.
    pub description: String,
    /// What its arguments are, for people.
    pub argument_hint: String,
    /// The model that is asked.
    model: Option<String>,
    /// What may run without asking while it is answered.
    allowed: Vec<Rule>,
    body: String,
    is_of_project: bool,
}

/// A command with its arguments in place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expanded {
    /// What is sent to the model.
    pub prompt: String,
    /// The model that is asked, if the command names one.
    pub model: Option<String>,
    /// What may run without asking while it is answered.
    pub allowed: Vec<Rule>,
}

impl Commands {
    /// Reads the commands of all folders.
    pub(super) fn read(folders: &Folders, notices: &mut Vec<String>) -> Self {
        let mut commands = Self::default();
        let user = folders.home.iter().map(|home| (home.clone(), false));
        let both = |folder: &PathBuf| [Some(folder.join(CLAUDE)), folders.own_of(folder)];
        let of_project = folders.chain.iter().flat_map(both).flatten().map(|folder| (folder, true));
        for (folder, is_of_project) in user.chain(of_project) {
            let mut files = Vec::new();
            collect(&folder.join(FOLDER), &mut Vec::new(), &mut files);
            for (name, file) in files {
                if commands.0.len() >= MAX_COMMANDS {
                    notices
                        .push(format!("there are more than {MAX_COMMANDS} custom commands; the others are left out"));
                    return commands;
                }
                let Ok(bytes) = std::fs::read(&file) else { continue };
                if bytes.len() > MAX_SIZE {
                    notices.push(format!("{} is left out: it is longer than {MAX_SIZE} bytes", folders.shown(&file)));
                    continue;
                }
                let (command, faults) = CustomCommand::parse(&String::from_utf8_lossy(&bytes));
                notices.extend(faults.iter().map(|fault| format!("{}: {fault}", folders.shown(&file))));
                commands.0.insert(name, CustomCommand { is_of_project, ..command });
            }
        }
        commands
    }

    /// Whether commands of the project allow something.
    pub(super) fn allow_something(&self) -> bool {
        self.0.values().any(|command| command.is_of_project && !command.allowed.is_empty())
    }

    /// Lets commands of the project allow nothing.
    pub(super) fn without_risks(mut self) -> Self {
        self.0.values_mut().filter(|command| command.is_of_project).for_each(|command| command.allowed.clear());
        self
    }

    /// The commands by name, for completion and lists.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &CustomCommand)> {
        self.0.iter().map(|(name, command)| (name.as_str(), command))
    }

    /// A line such as `/name some words` as what it stands for; none if it is no custom command.
    pub(crate) fn expand(&self, line: &str) -> Option<Expanded> {
        let rest = line.trim_start().strip_prefix('/')?;
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let command = self.0.get(name)?;
        let (model, allowed) = (command.model.clone(), command.allowed.clone());
        Some(Expanded { prompt: filled(&command.body, arguments.trim()), model, allowed })
    }
}

/// Finds the files of a folder, with the names of their commands.
fn collect(folder: &Path, above: &mut Vec<String>, files: &mut Vec<(String, PathBuf)>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
        if path.is_dir() {
            if above.len() < MAX_DEPTH && !name.starts_with('.') {
                above.push(name);
                collect(&path, above, files);
                above.pop();
            }
        } else if path.extension().is_some_and(|ending| ending == "md") && !name.contains(char::is_whitespace) {
            let parts: Vec<_> = above.iter().cloned().chain([name]).collect();
            files.push((parts.join(":"), path));
        }
    }
}

impl CustomCommand {
    /// Reads a file: what stands before its prompt between lines of `---`, and the prompt. What cannot be used is told.
    fn parse(text: &str) -> (Self, Vec<String>) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
        let split = text
            .strip_prefix("---\n")
            .and_then(|rest| rest.split_once("\n---\n").or_else(|| Some((rest.strip_suffix("\n---")?, ""))));
        let (front, body) = split.unwrap_or(("", &text));
        let (mut command, mut faults) = (Self { body: body.trim().to_owned(), ..Self::default() }, Vec::new());
        for (key, value) in fields(front) {
            match key.as_str() {
                "description" => command.description = value.join(" "),
                "argument-hint" => command.argument_hint = value.join(" "),
                "model" => command.model = value.into_iter().next(),
                "allowed-tools" => {
                    for rule in value.iter().flat_map(|list| permission::split(list)) {
                        match permission::parse(rule, Decision::Allow) {
                            Ok(rule) => command.allowed.push(rule),
                            Err(why) => faults.push(format!("allowed-tools: the rule {rule:?} {why}")),
                        }
                    }
                }
                // Other agents have keys of their own.
                _ => {}
            }
        }
        if command.description.is_empty() {
            let first = command.body.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            command.description = crate::print::short(first.trim_start_matches('#'), 80);
        }
        (command, faults)
    }
}

/// The fields of the lines before a prompt: `key: value`, `key: [a, b]`, or a list of lines with `-`.
fn fields(front: &str) -> Vec<(String, Vec<String>)> {
    let plain = |text: &str| {
        let text = text.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
        quoted.unwrap_or(text).to_owned()
    };
    let mut fields: Vec<(String, Vec<String>)> = Vec::new();
    for line in front.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if let (Some(item), Some((_, values))) = (line.trim_start().strip_prefix("- "), fields.last_mut()) {
            values.push(plain(item));
        } else if let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with(' ')) {
            let value = value.trim();
            let values = match value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) {
                Some(list) => permission::split_list(list).into_iter().map(plain).collect(),
                None if value.is_empty() => Vec::new(),
                None => vec![plain(value)],
            };
            fields.push((key.trim().to_owned(), values));
        }
    }
    fields
}

/// A prompt with its arguments: `$ARGUMENTS` all of them, `$1` to `$9` each. Where it has no place for them they come behind.
fn filled(body: &str, arguments: &str) -> String {
    let words = words(arguments);
    let (mut prompt, mut rest, mut is_used) = (String::with_capacity(body.len() + arguments.len()), body, false);
    while let Some((before, after)) = rest.split_once('$') {
        prompt.push_str(before);
        let digit = after.chars().next().and_then(|letter| letter.to_digit(10)).filter(|digit| *digit > 0);
        if let Some(after) = after.strip_prefix("ARGUMENTS") {
            (is_used, rest) = (true, after);
            prompt.push_str(arguments);
        } else if let Some(digit) = digit {
            (is_used, rest) = (true, &after[1..]);
            prompt.push_str(words.get(digit as usize - 1).map_or("", String::as_str));
        } else {
            rest = after;
            prompt.push('$');
        }
    }
    prompt.push_str(rest);
    if !is_used && !arguments.is_empty() {
        prompt.push_str(&format!("\n\nArguments: {arguments}"));
    }
    prompt
}

/// The words of a line; quotes hold several together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_all_folders_are_found_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path();
        let write = |path: &str, text: &str| {
            let path = base.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        write("home/commands/review.md", "The user's own.");
        write("home/commands/greet.md", "# Say hello to $1\n");
        write("repo/.claude/commands/review.md", "Claude's.");
        write("repo/.claude/commands/db/migrate.md", "Migrate.");
        write(
            "repo/.flovyn/commands/review.md",
            "---\ndescription: \"Looks: at a change\"\nmodel: opus\nallowed-tools: [\"Bash(git diff:*)\", read]\nother: x\n---\n\nLook at $ARGUMENTS.\n",
        );
        write("repo/.flovyn/commands/notes.txt", "no command");
        write("repo/.flovyn/commands/bad.md", "---\nallowed-tools:\n  - bash(x\n  - edit\n---\nBad.");
        std::fs::create_dir_all(base.join("repo/.git")).expect("a repository");
        let mut notices = Vec::new();
        let folders = Folders::of(&base.join("repo"), Some(&base.join("home")));
        let commands = Commands::read(&folders, &mut notices);
        let names: Vec<_> = commands.iter().map(|(name, command)| (name, command.description.as_str())).collect();
        let wanted = [
            ("bad", "Bad."),
            ("db:migrate", "Migrate."),
            ("greet", "Say hello to $1"),
            ("review", "Looks: at a change"),
        ];
        assert_eq!(names, wanted);
        assert!(notices.len() == 1 && notices[0].contains(".flovyn/commands/bad.md: allowed-tools"), "{notices:?}");
        let review = commands.expand("/review the last  commit").expect("a command");
        assert_eq!((review.prompt.as_str(), review.model.as_deref()), ("Look at the last  commit.", Some("opus")));
        assert_eq!(review.allowed.len(), 2);
        assert_eq!(commands.expand("/nothing"), None);
        assert_eq!(commands.expand("review"), None);
        assert!(commands.allow_something());
        let harmless = commands.without_risks();
        assert!(harmless.expand("/review x").is_some_and(|review| review.allowed.is_empty()));
        // Whoever works in their home has commands of their own there, and no project's.
        write(".flovyn/commands/own.md", "---\nallowed-tools: edit\n---\nMine.");
        let home = base.canonicalize().expect("it is there").join(".flovyn");
        let own = Commands::read(&Folders::of(home.parent().expect("a folder"), Some(&home)), &mut notices);
        assert!(own.expand("/own").is_some_and(|own| own.allowed.len() == 1) && !own.allow_something());
    }

    #[test]
    fn arguments_are_put_in_their_places() {
        for (body, arguments, prompt) in [
            ("Fix $1 in $2.", "\"a b\" c d", "Fix a b in c."),
            ("Fix $1 in $2.", "a", "Fix a in ."),
            ("All: $ARGUMENTS", "a 'b", "All: a 'b"),
            ("It costs $ and $0.", "", "It costs $ and $0."),
            ("No place.", "a b", "No place.\n\nArguments: a b"),
            ("$1$ARGUMENTS", "$1 x", "$1$1 x"),
        ] {
            assert_eq!(filled(body, arguments), prompt);
        }
    }
}
