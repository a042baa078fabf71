//! The events of a run as protocols of others have them: one reading of a turn, and a thin mapping for each protocol.
//!
//! `turn` makes [`TurnPart`]s out of events, `ai_sdk` and `ag_ui` write them. What these clients keep is the answer to one message, so a
//! stream is that of a turn: it begins with a message of the user, and ends where the agent waits for the next one.

mod ag_ui;
mod ai_sdk;
mod answer;
mod content;
mod history;
mod idle;
mod location;
mod part;
mod phase;
mod plain;
mod prose;
mod turn;

#[cfg(test)]
mod tests;

pub(super) use ag_ui::AgUi;
pub(super) use ai_sdk::AiSdk;
pub(super) use answer::Answer;
pub(super) use history::remember;
pub(super) use location::{Mail, Order, Position, TurnLocation, Turns};
pub(super) use part::{Approval, Ending};
pub(super) use turn::Turn;

use content::first_text;
use flovyn_core::client::Following;
use flovyn_core::model::StreamEvent;
use part::TurnPart;
use serde_json::Value;
use std::collections::HashSet;

/// What a message of the user says; none if the event is no such message.
pub(super) fn user_text(event: &StreamEvent) -> Option<&str> {
    match event {
        StreamEvent::Durable(event) if idle::is_user_message(event) => Some(first_text(&event.data["content"])),
        _ => None,
    }
}

/// A protocol of others, with what its writer keeps.
#[derive(Debug)]
pub(super) enum Writer {
    /// The UI message stream of the AI SDK.
    AiSdk(AiSdk),
    /// The events of AG-UI.
    AgUi {
        /// Writes them.
        writer: AgUi,
        /// Whether the reader gets the conversation before the turn.
        with_messages: bool,
    },
    /// Events with names of their own, for those who have no client.
    Plain,
}

impl Writer {
    fn opening(&self) -> Vec<Value> {
        match self {
            Self::AiSdk(_) | Self::Plain => Vec::new(),
            Self::AgUi { writer, with_messages } => writer.opening(*with_messages),
        }
    }

    /// Takes a part that the reader has.
    fn skip(&mut self, part: TurnPart) {
        if let Self::AgUi { writer, .. } = self {
            writer.remember(None, vec![part]);
        }
    }

    fn show(&mut self, part: TurnPart) -> Vec<Value> {
        match self {
            Self::AiSdk(writer) => writer.chunks(part),
            Self::AgUi { writer, .. } => writer.events(part),
            Self::Plain => plain::events(part),
        }
    }

    /// Adds what is shown to the frames of the stream.
    fn write(&self, values: Vec<Value>, frames: &mut Vec<u8>) {
        for value in values {
            if let Self::Plain = self {
                frames.extend(format!("event: {}\n", value["type"].as_str().unwrap_or_default()).into_bytes());
            }
            frames.extend(b"data: ");
            frames.extend(value.to_string().into_bytes());
            frames.extend(b"\n\n");
        }
    }

    /// Whether its streams are read again by the ids that they give.
    fn gives_positions(&self) -> bool {
        !matches!(self, Self::Plain)
    }
}

/// The stream of a turn.
pub(super) struct Projection {
    /// The events; none where there is nothing to read.
    following: Option<Following>,
    turn: Turn,
    writer: Writer,
    /// Shown from behind this event on; none once it was read.
    from: Option<String>,
    /// The last event that there was as it began; none once it was read.
    until: Option<String>,
    /// The id with which the stream begins.
    position: Option<String>,
    /// The pieces that the reader knows and that are not complete.
    open: HashSet<String>,
    is_step_shown: bool,
    is_opened: bool,
    is_ended: bool,
}

impl Projection {
    /// Reads a turn from its place, and writes it.
    pub(super) fn new(following: Following, location: TurnLocation, writer: Writer) -> Self {
        let until = location.last();
        Self {
            following: Some(following),
            turn: location.turn,
            from: location.from,
            until,
            position: location.position,
            ..Self::at_rest(writer)
        }
    }

    /// A stream in which nothing is under way.
    pub(super) fn at_rest(writer: Writer) -> Self {
        Self {
            following: None,
            turn: Turn::awaiting(),
            writer,
            from: None,
            until: None,
            position: None,
            open: HashSet::new(),
            is_step_shown: false,
            is_opened: false,
            is_ended: false,
        }
    }

    /// Looks whether the events can be read from where they are to be.
    pub(super) async fn begin(&mut self) -> flovyn_core::Result<bool> {
        match &mut self.following {
            // Of a run that has ended the end is shown.
            Some(following) => following.begin().await.map(|_| true),
            None => Ok(true),
        }
    }

    /// The next frames; none after the last ones. Whoever drops the future loses nothing.
    pub(super) async fn next(&mut self) -> flovyn_core::Result<Option<Vec<u8>>> {
        if !std::mem::replace(&mut self.is_opened, true) {
            let mut frames = Vec::new();
            if let Some(position) = self.position.as_ref().filter(|_| self.writer.gives_positions()) {
                frames.extend(format!("id: {position}\n\n").into_bytes());
            }
            self.writer.write(self.writer.opening(), &mut frames);
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
        }
        while !self.is_ended {
            let mut frames = Vec::new();
            let event = match &mut self.following {
                Some(following) => following.next().await?,
                None => None,
            };
            let Some(event) = event else {
                let mut parts = Vec::new();
                self.turn.ask(&mut parts);
                parts.into_iter().for_each(|part| self.show(part, &mut frames));
                self.finish(&mut frames);
                return Ok(Some(frames));
            };
            let mut parts = Vec::new();
            self.turn.take(&event, &mut parts);
            let is_at = |place: &Option<String>| {
                matches!(event.event, StreamEvent::Durable(_)) && place.as_deref() == Some(&*event.cursor)
            };
            if is_at(&self.until) {
                self.until = None;
            }
            if self.until.is_none() {
                self.turn.ask(&mut parts);
            }
            match &self.from {
                None => parts.into_iter().for_each(|part| self.show(part, &mut frames)),
                from => {
                    let is_next = is_at(from);
                    parts.into_iter().for_each(|part| self.writer.skip(part));
                    if is_next {
                        self.from = None;
                        self.resume(&mut frames);
                    }
                }
            }
            if self.turn.is_over() && self.from.is_none() {
                self.finish(&mut frames);
            }
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
        }
        Ok(None)
    }

    /// Begins to show a turn that is under way.
    fn resume(&mut self, frames: &mut Vec<u8>) {
        if let Some(id) = self.turn.begun() {
            let began = TurnPart::Began { id: id.to_owned(), position: String::new() };
            self.show(began, frames);
        }
    }

    /// Shows a part, as far as the reader knows what it is about.
    fn show(&mut self, mut part: TurnPart, frames: &mut Vec<u8>) {
        match &mut part {
            TurnPart::Began { position, .. } if !position.is_empty() && self.writer.gives_positions() => {
                frames.extend(format!("id: {position}\n\n").into_bytes());
            }
            TurnPart::StepBegan => self.is_step_shown = true,
            TurnPart::StepEnded if !std::mem::take(&mut self.is_step_shown) => return,
            TurnPart::Opened(piece) => drop(self.open.insert(piece.id.clone())),
            TurnPart::Grew(piece, _) if self.open.insert(piece.id.clone()) => {
                let opened = self.writer.show(TurnPart::Opened(piece.clone()));
                self.writer.write(opened, frames);
            }
            TurnPart::Closed(piece) if !self.open.remove(&piece.id) => return,
            TurnPart::Voided { pieces, .. } => {
                pieces.iter_mut().for_each(|(piece, is_open)| *is_open = self.open.remove(&piece.id))
            }
            _ => {}
        }
        let shown = self.writer.show(part);
        self.writer.write(shown, frames);
    }

    fn finish(&mut self, frames: &mut Vec<u8>) {
        self.is_ended = true;
        match &self.writer {
            Writer::AiSdk(_) => frames.extend(b"data: [DONE]\n\n"),
            Writer::AgUi { writer, .. } if !self.turn.is_over() => self.writer.write(vec![writer.finished()], frames),
            Writer::AgUi { .. } | Writer::Plain => {}
        }
    }
}
