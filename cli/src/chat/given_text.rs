//! Text that the user gives in arguments and through pipes. Any bytes are taken: what no model can be sent is replaced,
//! what is too long for a prompt is cut, and the prompt says so.

use flovyn_toolkit::tools::excerpt;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};

/// The most bytes of a pipe that a prompt takes: about a hundred thousand tokens.
const MOST_PIPED: usize = 400 * 1024;
/// How much of that is the beginning. The rest is the end.
const HEAD: usize = 300 * 1024;

/// An argument as text.
pub(super) fn of_argument(argument: OsString) -> String {
    match argument.into_string() {
        Ok(text) => text,
        Err(argument) => readable(argument.as_encoded_bytes(), "prompt"),
    }
}

/// What comes through a pipe, as text without spaces at its end.
pub(super) fn of_pipe(mut pipe: impl Read) -> io::Result<String> {
    let (mut head, mut tail, mut total) = (Vec::new(), VecDeque::new(), 0);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let length = match pipe.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if length == 0 {
            break;
        }
        total += length;
        let (first, rest) = chunk[..length].split_at(length.min(HEAD - head.len()));
        head.extend_from_slice(first);
        tail.extend(rest);
        tail.drain(..tail.len().saturating_sub(MOST_PIPED - HEAD));
    }
    let left_out = total - head.len() - tail.len();
    if left_out == 0 {
        head.extend(tail);
        return Ok(readable(&head, "input").trim_end().to_owned());
    }
    // The cuts fall between lines where there are some.
    let end = head.iter().rposition(|&byte| byte == b'\n').map_or(head.len(), |at| at + 1);
    let tail: Vec<u8> = tail.into();
    let begin = tail.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let left_out = left_out + head.len() - end + begin;
    let (size, all) = (excerpt::size(left_out as u64), excerpt::size(total as u64));
    let note =
        format!("\n[The input is too long: {size} of {all} are left out here. Give a file to see all of it.]\n\n");
    let whole = [&head[..end], note.as_bytes(), &tail[begin..]].concat();
    Ok(readable(&whole, "input").trim_end().to_owned())
}

/// Bytes as text: what is no UTF-8 and zero bytes are replaced, which the end says.
fn readable(bytes: &[u8], what: &str) -> String {
    let lossy = String::from_utf8_lossy(bytes);
    let is_utf8 = std::str::from_utf8(bytes).is_ok();
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    let mut text = lossy.replace('\0', "\u{2400}");
    if !is_utf8 {
        text.push_str(&format!("\n\n[The {what} is not UTF-8: unreadable bytes are shown as \u{fffd}.]"));
    }
    if zeros > 0 {
        text.push_str(&format!("\n\n[The {what} has {zeros} zero bytes, shown as \u{2400}.]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_become_text_that_says_what_was_done() {
        for (bytes, text) in [
            (&b"one\ntwo\n\n"[..], "one\ntwo"),
            (b"", ""),
            (b"caf\xe9\n", "caf\u{fffd}\n\n\n[The input is not UTF-8: unreadable bytes are shown as \u{fffd}.]"),
            (b"a\0b", "a\u{2400}b\n\n[The input has 1 zero bytes, shown as \u{2400}.]"),
        ] {
            assert_eq!(of_pipe(bytes).expect("it is read"), text);
        }
    }

    #[test]
    fn a_long_pipe_is_cut_in_its_middle() {
        let long: String = (0..1_000_000).map(|line| format!("line {line}\n")).collect();
        let text = of_pipe(long.as_bytes()).expect("it is read");
        assert!(text.len() < MOST_PIPED + 200, "{} bytes", text.len());
        assert!(text.starts_with("line 0\n") && text.ends_with("\nline 999999"));
        let (before, after) = text.split_once("\n\n[The input is too long: ").expect("a note");
        assert!(before.lines().last().is_some_and(|line| line.starts_with("line ")), "{before}");
        assert!(after.contains("MB are left out here. Give a file to see all of it.]\n\nline "), "{after}");
        let wide = of_pipe(&vec![b'x'; 10 << 20][..]).expect("it is read");
        assert!(wide.len() < MOST_PIPED + 200 && wide.contains("9.6 MB of 10.0 MB"), "{} bytes", wide.len());
        let exact = vec![b'x'; MOST_PIPED];
        assert_eq!(of_pipe(&exact[..]).expect("it is read").len(), MOST_PIPED);
    }
}
