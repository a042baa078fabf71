//! The agents below the session: what they do, a word to one of them, and its end.

use super::TerminalChat;
use crate::Result;
use crate::chat::screen::pager::Pager;
use crate::chat::transcript::Transcript;
use flovyn_core::error::Code;
use flovyn_core::model::{CancelMode, Cancellation};
use flovyn_toolkit::message::Message;
use flovyn_toolkit::react::{USER_MESSAGE, UserMessage};

impl TerminalChat<'_> {
    /// Lists the agents, shows what one has done, says something to it, or stops it.
    pub(super) async fn agents(&mut self, rest: &str, width: usize) -> Result {
        let (number, then) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let cards = self.view.agents();
        if number.is_empty() {
            let lines: Vec<_> = cards.iter().enumerate().map(|(place, card)| card.listed(place + 1)).collect();
            let text = if lines.is_empty() { "No agent works below this one.".to_owned() } else { lines.join("\n") };
            self.view.show_note(&text, width);
            return Ok(());
        }
        let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let (Some(card), Some(live_session)) = (place.and_then(|place| cards.get(place)), &self.live_session) else {
            self.view.show_hint(&format!("there is no agent {number}; /agents lists them"));
            return Ok(());
        };
        let (name, handle) = (card.spawn.name.clone(), live_session.agent(card.spawn.child).await?);
        let has_ended = format!("{name} has ended; /agents {number} shows what it did");
        if !then.trim().is_empty() && handle.status().await?.is_terminal() {
            self.view.show_hint(&has_ended);
            return Ok(());
        }
        match then.trim().split_once(char::is_whitespace).unwrap_or((then.trim(), "")) {
            ("", _) => {
                let mut said = Transcript::default();
                for entry in handle.messages().await? {
                    if entry.new.entry_type == "message"
                        && let Ok(message) = entry.new.content.parse::<Message>()
                    {
                        said.add(&message);
                    }
                }
                self.pager = Some(Pager::open(format!("The agent {name}"), said.rows(width), true));
            }
            ("say", text) if !text.trim().is_empty() => {
                let signal = UserMessage::new(text.trim()).signal(None)?;
                let said = handle.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await;
                let hint = match said {
                    Ok(_) => format!("said to {name}; it reads it before its next model call"),
                    // It has ended since it was looked at.
                    Err(error) if error.code() == Code::ExecutionClosed => has_ended,
                    Err(error) => return Err(error.into()),
                };
                self.view.show_hint(&hint);
            }
            ("stop", _) => {
                handle.cancel(CancelMode::Graceful, Cancellation::USUAL_GRACE).await?;
                self.view.show_hint(&format!("{name} is asked to stop"));
            }
            _ => self.view.show_hint("write /agents N, /agents N say TEXT, or /agents N stop"),
        }
        Ok(())
    }
}
