//! Instructions for the model: `AGENTS.md`, else `CLAUDE.md`, of the user and of every folder from the root of the repository
//! down to the working directory. The nearest comes last.

use super::folders::Folders;
use std::path::{Path, PathBuf};

/// The files with instructions; the first one of a folder is used.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// Characters of one file that are used at most, what it imports included.
const MAX_FILE: usize = 32_000;
/// Characters of all files together.
const MAX_ALL: usize = 96_000;
/// How deep files import others.
const MAX_DEPTH: usize = 4;

/// The instructions of all files, each with where it is from; empty where there are none.
pub(super) fn of(folders: &Folders) -> String {
    let mut said = String::new();
    let user = folders.home.iter().map(|home| (home, home));
    let of_project = folders.chain.iter().map(|folder| (folder, &folders.root));
    for (folder, within) in user.chain(of_project) {
        let found = NAMES.iter().map(|name| folder.join(name)).find(|file| file.is_file());
        let Some(file) = found else { continue };
        let mut text = imported(&file, within, &mut vec![file.clone()]);
        let rest = MAX_FILE.min(MAX_ALL.saturating_sub(said.chars().count()));
        if let Some((end, _)) = text.char_indices().nth(rest) {
            text.truncate(end);
            text.push_str("\n[The rest of the file is left out.]");
        }
        if text.trim().is_empty() {
            continue;
        }
        let who = if Some(folder) == folders.home.as_ref() { "user says everywhere" } else { "project says" };
        said.push_str(&format!("\n\nThe {who} in {}:\n\n{}", folders.shown(&file), text.trim_end()));
    }
    said
}

/// A file with the files that it imports in the place of the lines that name them. They have to be in the same project.
fn imported(file: &Path, within: &Path, open: &mut Vec<PathBuf>) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut whole = String::with_capacity(text.len());
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let named =
            line.trim().trim_start_matches("- ").strip_prefix('@').filter(|name| !name.contains(' ') && !is_code);
        let import = named.and_then(|name| {
            let path = file.parent()?.join(name).canonicalize().ok()?;
            let is_inside = within.canonicalize().is_ok_and(|within| path.starts_with(within));
            (is_inside && path.is_file() && !open.contains(&path) && open.len() <= MAX_DEPTH).then_some(path)
        });
        match import {
            Some(path) => {
                open.push(path.clone());
                whole.push_str(&imported(&path, within, open));
                open.pop();
            }
            None => {
                whole.push_str(line);
                whole.push('\n');
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_the_user_to_the_nearest_with_what_they_import() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("it is there");
        let write = |path: &str, text: &str| {
            let path = base.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        write("home/AGENTS.md", "Be brief.\n");
        write("outside.md", "a secret\n");
        write("AGENTS.md", "Above the repository.\n");
        std::fs::create_dir_all(base.join("repo/.git")).expect("a repository");
        write(
            "repo/AGENTS.md",
            "Use tabs.\n@notes/style.md\n@../outside.md\n@notes/none.md\n```\n@notes/style.md\n```\n",
        );
        write("repo/CLAUDE.md", "Not this one.\n");
        write("repo/notes/style.md", "No dashes.\n@style.md\n");
        write("repo/a/CLAUDE.md", "Only in a.\n");
        write("repo/a/b/AGENTS.md", &"x".repeat(MAX_FILE + 9));
        let said = of(&Folders::of(&base.join("repo/a/b"), Some(&base.join("home"))));
        let places: Vec<_> = [
            "The user says everywhere in ~/.flovyn/AGENTS.md:\n\nBe brief.",
            "The project says in AGENTS.md:\n\nUse tabs.\nNo dashes.\n@style.md\n@../outside.md\n@notes/none.md\n```\n@notes/style.md",
            "The project says in a/CLAUDE.md:\n\nOnly in a.",
            "The project says in a/b/AGENTS.md:\n\nxxx",
            "[The rest of the file is left out.]",
        ]
        .map(|part| said.find(part).unwrap_or_else(|| panic!("{part}\n{}", &said[..600])))
        .into();
        assert!(places.is_sorted(), "{places:?}");
        for absent in ["a secret", "Above", "Not this one"] {
            assert!(!said.contains(absent), "{absent}");
        }
        assert!(said.chars().count() < MAX_FILE + 1_000);
        assert_eq!(of(&Folders::of(&base.join("nowhere"), None)), "");
    }
}
