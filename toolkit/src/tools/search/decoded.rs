//! Bytes of files as UTF-8. What is not UTF-8 is taken for Windows-1252, byte by byte, so that in a file with letters of
//! both all of them are found. A file in UTF-16 that says so by its mark passes as it is: the searcher decodes it.

use encoding_rs::WINDOWS_1252;
use std::io::{self, Read};

/// How much is read at once where a file is not UTF-8.
const CHUNK: usize = 64 * 1024;
/// What a file in UTF-16 begins with.
const MARKS: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// A reader of text.
pub(in crate::tools) struct Decoded<R> {
    inner: R,
    /// Bytes that were read and may go on to a whole character.
    begun: Vec<u8>,
    /// Text that was decoded, and how much of it was handed over.
    text: Vec<u8>,
    handed: usize,
    encoding: Encoding,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Nothing was read.
    Unknown,
    Utf8,
    /// Some of it is no UTF-8.
    Mixed,
    Utf16,
}

impl<R: Read> Decoded<R> {
    pub(in crate::tools) fn new(inner: R) -> Self {
        Self { inner, begun: Vec::new(), text: Vec::new(), handed: 0, encoding: Encoding::Unknown }
    }

    /// Whether nothing but UTF-8, or UTF-16 with its mark, was read.
    pub(in crate::tools) fn is_utf8(&self) -> bool {
        self.encoding != Encoding::Mixed
    }

    pub(in crate::tools) fn into_inner(self) -> R {
        self.inner
    }

    /// Decodes what was read. At the end of the file nothing is left for later.
    fn decode(&mut self, is_end: bool) {
        let bytes = std::mem::take(&mut self.begun);
        let mut rest = &bytes[..];
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, after) = rest.split_at(error.valid_up_to());
            self.text.extend_from_slice(valid);
            let wrong = match error.error_len() {
                Some(wrong) => wrong,
                None if is_end => after.len(),
                None => {
                    self.begun = after.to_vec();
                    return;
                }
            };
            self.encoding = Encoding::Mixed;
            self.text.extend_from_slice(WINDOWS_1252.decode_without_bom_handling(&after[..wrong]).0.as_bytes());
            rest = &after[wrong..];
        }
        self.text.extend_from_slice(rest);
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.handed < self.text.len() {
                let copied = (&self.text[self.handed..]).read(buffer)?;
                self.handed += copied;
                return Ok(copied);
            }
            self.text.clear();
            self.handed = 0;
            if self.encoding == Encoding::Utf16 {
                return self.inner.read(buffer);
            }
            let before = self.begun.len();
            self.begun.resize(before + CHUNK, 0);
            let read = self.inner.read(&mut self.begun[before..]);
            self.begun.truncate(before + read.as_ref().map_or(0, |read| *read));
            let is_end = read? == 0;
            if self.encoding == Encoding::Unknown {
                // One byte alone may be the half of a mark.
                if self.begun.len() < 2 && !is_end {
                    continue;
                }
                let is_marked = MARKS.iter().any(|mark| self.begun.starts_with(mark));
                self.encoding = if is_marked { Encoding::Utf16 } else { Encoding::Utf8 };
                if is_marked {
                    self.text = std::mem::take(&mut self.begun);
                    continue;
                }
            }
            self.decode(is_end);
            if is_end && self.text.is_empty() {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of a size.
    struct Pieces<'b>(&'b [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(buffer.len());
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn text_is_the_same_however_it_is_read() {
        for (bytes, text, is_utf8) in [
            (&b""[..], "".as_bytes(), true),
            (b"plain", b"plain", true),
            ("Grüße 🦦\n".as_bytes(), "Grüße 🦦\n".as_bytes(), true),
            (b"Gr\xfc\xdfe", "Grüße".as_bytes(), false),
            (b"\xe9t\xe9 \x80 5", "été € 5".as_bytes(), false),
            (b"both \xc3\xbc \xfc", "both ü ü".as_bytes(), false),
            (b"cut \xf0\x9f\xa6", "cut ðŸ¦".as_bytes(), false),
            (b"\xff\xfea\x00\xe9\x00", b"\xff\xfea\x00\xe9\x00", true),
            (b"\xff", "ÿ".as_bytes(), false),
        ] {
            for size in [1, 2, 3, 100] {
                let mut decoded = Decoded::new(Pieces(bytes, size));
                let mut found = Vec::new();
                decoded.read_to_end(&mut found).expect("it reads");
                assert_eq!((found.as_slice(), decoded.is_utf8()), (text, is_utf8), "{bytes:?} by {size}");
            }
        }
    }
}
