//! What a session's model is told about how to behave: a coding agent's manners, where it is, and the project's own words.

use std::path::Path;

const MANNERS: &str = "You are a coding agent in a terminal. You work with your tools in the user's project until what they \
asked for is done, then you say briefly what you found and what you changed.\n\
- Look before you change anything: find and grep for what matters, read files before you edit them.\n\
- Make the smallest change that does the job, in the style of the code around it. Do not touch what was not asked for.\n\
- Check your work with the project's own tests and tools, and say what you ran and what came out.\n\
- Prefer edit to write for files that exist. Ask for several independent things at once.\n\
- The user sees the calls you make and may refuse one; then find another way or ask. Never work around a refusal.\n\
- When something cannot be done, say so and why. Your answers are shown as Markdown in a terminal: keep them short.";

/// Files in which projects say how agents are to behave; the first one counts.
const OF_PROJECTS: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// The most of such a file that is told, in characters.
const MOST: usize = 32_000;

/// What the model is told in a directory.
pub fn of(directory: &Path) -> String {
    let mut prompt = format!(
        "{MANNERS}\n\nThe working directory is {} on {}. Paths are relative to it.",
        directory.display(),
        std::env::consts::OS
    );
    let found = OF_PROJECTS.iter().find_map(|name| Some((name, std::fs::read_to_string(directory.join(name)).ok()?)));
    if let Some((name, text)) = found {
        let told: String = text.chars().take(MOST).collect();
        prompt.push_str(&format!("\n\nThe project says in {name}:\n\n{told}"));
    }
    prompt
}
