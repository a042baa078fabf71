//! The line that is being written: kept for the next process, put aside for an elicitation, written in another editor, or with an
//! image of the clipboard in it.

use super::TerminalChat;
use crate::Result;
use crate::chat::clipboard::{self, ClipboardImage};
use crate::chat::screen::keys::KeyEvents;
use crate::chat::screen::terminal::Terminal;
use flovyn_toolkit::tools::excerpt;
use tokio::task::JoinHandle;

/// The clipboard, while it is asked for an image.
pub(super) type Clipboard = JoinHandle<std::result::Result<ClipboardImage, String>>;

impl TerminalChat<'_> {
    /// Keeps the line that is being written, also one that waits for the end of an elicitation.
    pub(super) fn keep_draft(&mut self) {
        let draft = self.stashed_draft.clone().unwrap_or_else(|| self.editor.text());
        self.recall.keep(draft);
    }

    /// Lets the user go on writing in an editor of their own.
    pub(super) async fn write_elsewhere(
        &mut self,
        terminal: &mut Terminal,
        key_events: KeyEvents,
    ) -> Result<KeyEvents> {
        if self.context.chat.plain {
            self.view.show_hint("the terminal reads lines already; write there");
            return Ok(key_events);
        }
        // Both would read the keys.
        tokio::task::spawn_blocking(move || key_events.close()).await.map_err(std::io::Error::other)?;
        terminal.pause()?;
        let written = self.recall.edit(&self.editor.text()).await;
        terminal.resume()?;
        match written {
            Ok(text) => self.editor.set_text(text.trim_end_matches('\n')),
            Err(error) => self.view.show_hint(&error),
        }
        Ok(KeyEvents::open()?)
    }

    /// Begins to ask the clipboard for an image; the line goes on meanwhile.
    pub(super) fn ask_clipboard(&mut self) {
        if self.clipboard.is_none() {
            self.view.show_hint("looking for an image in the clipboard");
            self.clipboard = Some(tokio::spawn(clipboard::image()));
        }
    }

    /// Puts the image of the clipboard into the line, or says why there is none.
    pub(super) fn on_clipboard(&mut self, found: std::result::Result<ClipboardImage, String>) {
        self.clipboard = None;
        match found {
            Ok(ClipboardImage { path, size }) => {
                let label = format!("[image, {}]", excerpt::size(size));
                self.editor.attach(format!("@\"{}\"", path.display()), label);
                self.view.clear_hint();
            }
            Err(why) => self.view.show_hint(&why),
        }
    }

    /// Stashes the line that is being written during an elicitation, which needs the line for its answer.
    pub(super) fn stash_draft(&mut self) {
        match (self.view.pending.elicitation().is_some(), self.stashed_draft.take()) {
            (true, None) => self.stashed_draft = Some(self.editor.take_text()),
            (false, Some(stashed_draft)) if self.editor.is_empty() => self.editor.set_text(&stashed_draft),
            (_, stashed_draft) => self.stashed_draft = stashed_draft,
        }
    }
}

/// What the clipboard had; never resolves where it was not asked.
pub(super) async fn clipboard_answer(clipboard: &mut Option<Clipboard>) -> std::result::Result<ClipboardImage, String> {
    match clipboard {
        Some(asked) => asked.await.unwrap_or_else(|error| Err(format!("the clipboard could not be read: {error}"))),
        None => std::future::pending().await,
    }
}
