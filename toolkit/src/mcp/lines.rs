//! The messages in a server's standard output: one a line, and what servers make of that.

use super::reading::{Message, Read, Scan, read, unreadable};
use rmcp::model::RequestId;
use std::collections::VecDeque;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest message, in bytes. Of a longer one its call is told.
const LONGEST: usize = 64 << 20;

/// Reads messages. A read that is given up goes on with the next.
pub(super) struct Lines<R> {
    output: BufReader<R>,
    longest: usize,
    line: Vec<u8>,
    /// The line is longer than it may be: it is not kept.
    too_long: Option<Scan>,
    /// The lines of a message that has not ended.
    begun: Option<(Vec<u8>, Scan)>,
    ready: VecDeque<Message>,
    has_ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(output: R) -> Self {
        Self {
            output: BufReader::with_capacity(64 * 1024, output),
            longest: LONGEST,
            line: Vec::new(),
            too_long: None,
            begun: None,
            ready: VecDeque::new(),
            has_ended: false,
        }
    }

    /// The next message; none when the output has ended. `open` are the requests that wait for an answer.
    pub async fn next(&mut self, open: &[RequestId]) -> Option<Message> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if self.has_ended {
                return None;
            }
            // Nothing is taken before there is something, so that nothing is lost with a read that is given up.
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
                // A server that ends without a line end has said the line all the same.
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
            self.begun = None;
            match scan.id().filter(|id| open.contains(id)) {
                Some(id) => {
                    let why = format!("it is longer than {} MB", self.longest >> 20);
                    self.ready.push_back(unreadable(id, &why));
                }
                None => tracing::debug!("a line of an MCP server was longer than a message may be"),
            }
            return;
        }
        match read(&line, open) {
            // A whole message says that what was begun before was none.
            Read::Messages(messages) if !messages.is_empty() => {
                self.begun = None;
                self.ready.extend(messages);
            }
            Read::Messages(_) if self.begun.is_none() => tracing::debug!("a line of an MCP server was no message"),
            _ => self.go_on(&line, open),
        }
    }

    /// Takes a line of a message that is written over several.
    fn go_on(&mut self, line: &[u8], open: &[RequestId]) {
        let (mut begun, mut scan) = self.begun.take().unwrap_or_default();
        if begun.len() + line.len() > self.longest {
            return;
        }
        begun.extend_from_slice(line);
        begun.push(b'\n');
        scan.feed(line);
        if !scan.is_whole() {
            self.begun = Some((begun, scan));
        } else if let Read::Messages(messages) = read(&begun, open) {
            self.ready.extend(messages);
        }
    }
}

#[cfg(test)]
mod tests;
