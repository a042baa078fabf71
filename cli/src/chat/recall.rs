//! What the user wrote: the lines of a directory across sessions, and the line that is being written, which outlives the process.

use flovyn_toolkit::config::home;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Lines of a directory that are remembered.
const MAX_LINES: usize = 1_000;
/// Bytes of the file after which its older half is dropped.
const MAX_FILE: u64 = 16 << 20;
/// Chats in one directory at a time whose drafts are kept.
const MAX_CHATS: usize = 32;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    directory: String,
    text: String,
}

/// The memory of a directory. Where its files cannot be used, nothing is remembered.
pub(super) struct Recall {
    directory: String,
    file: Option<PathBuf>,
    /// The draft of this chat; locked, so that no other chat takes it for one of a process that died.
    draft: Option<File>,
    kept: String,
}

impl Recall {
    /// The memory of a directory, and the draft of a chat there that ended before its line was sent.
    pub(super) fn open(directory: &Path) -> (Self, Option<String>) {
        let directory = directory.display().to_string();
        let folder = home().ok().filter(|home| private_folder(home));
        let file = folder.as_ref().map(|folder| folder.join("chat-history.jsonl"));
        let (draft, kept) = folder.and_then(|folder| draft(&folder, &directory)).unzip();
        let kept = kept.unwrap_or_default();
        (Self { directory, file, draft, kept: kept.clone() }, Some(kept).filter(|kept| !kept.is_empty()))
    }

    /// The lines of the directory, oldest first.
    pub(super) fn lines(&self) -> Vec<String> {
        let Some(file) = self.file.as_ref().and_then(|file| File::open(file).ok()) else { return Vec::new() };
        let read = BufReader::new(file).lines().map_while(Result::ok);
        let lines = read.filter_map(|line| serde_json::from_str::<Line>(&line).ok());
        let mut own: Vec<_> = lines.filter(|line| line.directory == self.directory).map(|line| line.text).collect();
        own.dedup();
        own.split_off(own.len().saturating_sub(MAX_LINES))
    }

    /// Remembers a line.
    pub(super) fn add(&self, text: &str) {
        let Some(path) = &self.file else { return };
        let line = Line { directory: self.directory.clone(), text: text.to_owned() };
        let Ok(mut line) = serde_json::to_string(&line) else { return };
        line.push('\n');
        halve(path);
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        // A line that cannot be remembered is still sent.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    /// Keeps the line that is being written.
    pub(super) fn keep(&mut self, text: String) {
        let Some(file) = self.draft.as_mut().filter(|_| text != self.kept) else { return };
        // First the new text, then its end: at no time is there nothing.
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(text.as_bytes()));
        let _ = written.and_then(|()| file.set_len(text.len() as u64));
        self.kept = text;
    }
}

impl Recall {
    /// Lets the user write in `VISUAL` or `EDITOR`, else `vi`, and gives what was written.
    ///
    /// # Errors
    ///
    /// The editor cannot be started or fails; the text says why.
    pub(super) async fn edit(&self, text: &str) -> Result<String, String> {
        let named = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
        let failed = |error: std::io::Error| format!("the editor {editor:?} could not be used: {error}");
        let folder = home().map_err(|error| error.message().to_owned())?.join("drafts");
        let path = folder.join(format!("edit-{}.md", std::process::id()));
        let options = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        options().and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
        // The variable may hold arguments, and is read as a shell reads it.
        let command = format!("{editor} \"$1\"");
        let status = tokio::process::Command::new("sh").args(["-c", &command, "sh"]).arg(&path).status().await;
        let written = std::fs::read_to_string(&path);
        let _ = std::fs::remove_file(&path);
        match status.map_err(failed)? {
            status if status.success() => written.map_err(failed),
            status => Err(format!("the editor {editor:?} ended with {status}; the line is as it was")),
        }
    }
}

/// The first draft of a directory that no living chat holds, rather one with text.
fn draft(folder: &Path, directory: &str) -> Option<(File, String)> {
    let folder = folder.join("drafts");
    if !private_folder(&folder) {
        return None;
    }
    let name = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, directory.as_bytes()).simple();
    let mut free = None;
    for number in 0..MAX_CHATS {
        let path = folder.join(format!("{name}-{number}"));
        let is_new = !path.exists();
        if is_new && free.is_some() {
            break;
        }
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let Some(mut file) = opened.ok().filter(|file| file.try_lock().is_ok()) else { continue };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if !text.is_empty() {
            return Some((file, text));
        }
        free.get_or_insert((file, text));
        if is_new {
            break;
        }
    }
    free
}

fn private_folder(folder: &Path) -> bool {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok()
}

/// Drops the older half of a file that has grown too large.
fn halve(path: &Path) {
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_FILE) {
        return;
    }
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let middle = text.len() / 2;
    let start = (middle..).find(|at| text.is_char_boundary(*at)).unwrap_or(middle);
    let Some((_, newer)) = text[start..].split_once('\n') else { return };
    let fresh = path.with_extension("new");
    if std::fs::write(&fresh, newer).is_ok() {
        let _ = std::fs::rename(fresh, path);
    }
}
