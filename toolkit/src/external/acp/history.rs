//! The past of a session as `session/load` tells it again, and what of it is news.

use super::updates::text_of;
use crate::external::event::{ExternalEvent, TurnLog};
use crate::external::protocol::CatchUp;
use serde_json::Value;

/// What was said in a session, in order.
#[derive(Default)]
pub(super) struct History(Vec<Said>);

enum Said {
    User(String),
    Agent(ExternalEvent),
}

impl History {
    /// Takes an update that tells the past, and what was read of it.
    pub(super) fn take(&mut self, update: &Value, events: Vec<ExternalEvent>) {
        if update["sessionUpdate"] == "user_message_chunk" {
            let text = text_of(&update["content"]);
            match self.0.last_mut() {
                Some(Said::User(said)) => said.push_str(&text),
                _ => self.0.push(Said::User(text)),
            }
        }
        self.0.extend(events.into_iter().map(Said::Agent));
    }

    /// What it says of a turn, before which the agent was sent so many messages. A text that the user has said before may
    /// stand there twice; where nothing of the turn was recorded, only its own place counts.
    pub(super) fn catch_up(self, heard: &TurnLog, sent: usize) -> CatchUp {
        let first = heard.sent.first().map_or("", |text| text.trim());
        let messages = self.0.iter().enumerate().filter_map(|(place, said)| match said {
            Said::User(text) => Some((place, text)),
            Said::Agent(_) => None,
        });
        let messages: Vec<_> = messages.enumerate().collect();
        if messages.is_empty() && !self.0.is_empty() {
            return CatchUp::Unknown;
        }
        let is_place = |number: usize| number >= sent || !heard.is_silent();
        let found = messages.iter().rev().find(|(number, (_, text))| text.trim() == first && is_place(*number));
        let Some((_, (place, _))) = found else { return CatchUp::Unheard };
        let (mut known, mut events) = (Vec::new(), Vec::new());
        let place = *place;
        for said in self.0.into_iter().skip(place) {
            match said {
                Said::User(text) => known.push(text),
                Said::Agent(event) => events.push(event),
            }
        }
        CatchUp::Cut { heard: known, events }
    }
}
