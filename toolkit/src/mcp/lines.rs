//! Reads the messages in a server's standard output. The rule is one message in a line, but some servers break it.

use super::parsing::{Message, Parsed, Scan, parse, too_long, unreadable};
use rmcp::model::RequestId;
use std::collections::VecDeque;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest message, in bytes. The call of a longer one fails.
pub(super) const MAX_LENGTH: usize = 64 << 20;

/// Reads messages. A read can be cancelled: the next one goes on where it was dropped.
pub(super) struct Lines<R> {
    output: BufReader<R>,
    longest: usize,
    line: Vec<u8>,
    /// Set while the present line is too long to be kept. Then only its end and its id are looked for.
    too_long: Option<Scan>,
    /// The lines of a message that has not ended.
    partial_message: Option<(Vec<u8>, Scan)>,
    ready: VecDeque<Message>,
    has_ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(output: R) -> Self {
        Self {
            output: BufReader::with_capacity(64 * 1024, output),
            longest: MAX_LENGTH,
            line: Vec::new(),
            too_long: None,
            partial_message: None,
            ready: VecDeque::new(),
            has_ended: false,
        }
    }

    /// The next message; none when the output has ended. `open` are the requests that wait for an answer.
    pub(super) async fn next(&mut self, open: &[RequestId]) -> Option<Message> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if self.has_ended {
                return None;
            }
            // Bytes are consumed only after they were handled, so that nothing is lost when this future is dropped.
            let (taken, is_whole) = match self.output.fill_buf().await {
                Ok(more @ [_, ..]) => {
                    let end = more.iter().position(|&byte| byte == b'\n');
                    let piece = &more[..end.unwrap_or(more.len())];
                    match &mut self.too_long {
                        Some(scan) => scan.feed(piece),
                        None if self.line.len() + piece.len() > self.longest => {
                            let mut scan = Scan::default();
                            scan.feed(&std::mem::take(&mut self.line));
                            scan.feed(piece);
                            self.too_long = Some(scan);
                        }
                        None => self.line.extend_from_slice(piece),
                    }
                    (piece.len() + usize::from(end.is_some()), end.is_some())
                }
                // The last line counts even without a line end.
                Ok([]) | Err(_) => {
                    self.has_ended = true;
                    (0, true)
                }
            };
            self.output.consume(taken);
            if is_whole {
                self.end_line(open);
            }
        }
    }

    fn end_line(&mut self, open: &[RequestId]) {
        let line = std::mem::take(&mut self.line);
        if let Some(scan) = self.too_long.take() {
            self.partial_message = None;
            match scan.id().filter(|id| open.contains(id)) {
                Some(id) => {
                    self.ready.push_back(unreadable(id, &too_long(self.longest)));
                }
                None => tracing::debug!("a line of an MCP server was longer than a message may be"),
            }
            return;
        }
        match parse(&line, open) {
            // A complete message shows that what looked like the beginning of a message before it was not one.
            Parsed::Messages(messages) if !messages.is_empty() => {
                self.partial_message = None;
                self.ready.extend(messages);
            }
            Parsed::Messages(_) if self.partial_message.is_none() => {
                tracing::debug!("a line of an MCP server was no message")
            }
            _ => self.continue_message(&line, open),
        }
    }

    /// Adds a line to a message that spans several lines.
    fn continue_message(&mut self, line: &[u8], open: &[RequestId]) {
        let (mut partial_message, mut scan) = self.partial_message.take().unwrap_or_default();
        if partial_message.len() + line.len() > self.longest {
            return;
        }
        partial_message.extend_from_slice(line);
        partial_message.push(b'\n');
        scan.feed(line);
        if !scan.is_whole() {
            self.partial_message = Some((partial_message, scan));
        } else if let Parsed::Messages(messages) = parse(&partial_message, open) {
            self.ready.extend(messages);
        }
    }
}

#[cfg(test)]
mod tests;
