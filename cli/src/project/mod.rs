//! What a person and a project say to the agent in files: instructions, settings, custom commands, hooks, and whether the
//! project is trusted.
//!
//! `folders` finds the files, `schema` checks settings and `settings` reads and merges them, `permission` reads rules,
//! `trust` remembers folders, `instructions` are told to the model, `commands` are prompts, `hooks` are commands of the user's, `kept_rules`
//! are what a person allows for good.

mod commands;
mod folders;
mod hooks;
mod instructions;
mod kept_rules;
pub(crate) mod permission;
mod schema;
mod settings;
mod trust;

pub(crate) use commands::{Commands, Expanded};
pub(crate) use hooks::{Hooks, MAX_CONTINUATIONS, PromptVerdict};
pub(crate) use kept_rules::keep;
pub(crate) use settings::Settings;
pub(crate) use trust::Trust;

use crate::Result;
use folders::Folders;
use std::path::{Path, PathBuf};

/// The project of a directory, with what the user says everywhere.
pub(crate) struct Project {
    /// The settings of all files.
    pub settings: Settings,
    /// What the model is told.
    pub instructions: String,
    /// The user's and the project's own commands.
    pub commands: Commands,
    /// What is to be said about the files.
    pub notices: Vec<String>,
}

impl Project {
    /// Reads the files of a directory's project. `trust` decides whether what they run or allow counts.
    ///
    /// # Errors
    ///
    /// A settings file is no JSON or has a value of a wrong type; the message says where.
    pub(crate) fn open(directory: &Path, home: Option<&Path>, trust: &Trust) -> Result<Self> {
        let folders = Folders::of(directory, home);
        let mut notices = Vec::new();
        let mut settings = settings::of_user(&folders, &mut notices)?;
        let mut of_project = settings::of_project(&folders, &mut notices)?;
        let mut commands = Commands::read(&folders, &mut notices);
        let risks = risks(&of_project, &commands);
        if !risks.is_empty() && !trust.covers(&folders.root) {
            of_project = of_project.without_risks();
            commands = commands.without_risks();
            let (root, risks) = (folders.root.display(), risks.join(", "));
            notices.push(format!("{root} is not trusted, so this of it is ignored: {risks}. --trust takes it."));
        }
        settings.merge(of_project);
        let instructions = instructions::of(&folders);
        Ok(Self { settings, instructions, commands, notices })
    }

    /// What of a directory's project needs trust, in words; nothing where all of it is harmless.
    pub(crate) fn risks(directory: &Path, home: Option<&Path>) -> Result<(PathBuf, Vec<String>)> {
        let folders = Folders::of(directory, home);
        let of_project = settings::of_project(&folders, &mut Vec::new())?;
        let risks = risks(&of_project, &Commands::read(&folders, &mut Vec::new()));
        Ok((folders.root, risks))
    }
}

fn risks(settings: &Settings, commands: &Commands) -> Vec<String> {
    let mut risks = settings.risks();
    if commands.allow_something() {
        risks.push("allowed-tools of commands".to_owned());
    }
    risks
}
