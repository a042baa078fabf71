//! What a message of the user carries besides its text: files and images that it names, and what the user ran.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flovyn_toolkit::message::{Content, Message, Part};
use flovyn_toolkit::tools::{checked_media, excerpt};
use std::path::{Path, PathBuf};

/// Bytes of a text file that are given; of a longer one the beginning.
const MAX_TEXT: usize = 256 << 10;
/// Lines of it.
const MAX_LINES: usize = 10_000;
/// Bytes of an image that is taken; models see it as small as they need it.
pub(super) const MAX_IMAGE: u64 = 32 << 20;
/// Names of a folder that are given.
const MAX_NAMES: usize = 500;
/// The images that models see, by the ends of their names.
const IMAGES: [(&str, &str); 5] = [
    (".png", "image/png"),
    (".jpg", "image/jpeg"),
    (".jpeg", "image/jpeg"),
    (".gif", "image/gif"),
    (".webp", "image/webp"),
];
/// How the line begins that shows what came with a message.
pub(super) const ATTACHED: &str = "⎿ ";
/// How the parts with files, folders and commands begin.
const FILE: &str = "<file path=\"";
const FOLDER: &str = "<folder path=\"";
const COMMAND: &str = "<user-command>";

/// The parts that a text names: `@path`, also with quotation marks, and paths of images, as a terminal pastes them. With
/// what could not be given.
pub(super) fn of(text: &str, directory: &Path) -> (Vec<Part>, Vec<String>) {
    let (mut parts, mut problems, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for (word, is_named) in words(text) {
        let Some(path) = existing(&word, directory).filter(|path| is_named || mime(path).is_some()) else { continue };
        if seen.contains(&path) {
            continue;
        }
        seen.push(path.clone());
        let name = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
        match part(&path, &name) {
            Ok(part) => parts.push(part),
            Err(why) => problems.push(format!("{name} is not given to the model: {why}")),
        }
    }
    (parts, problems)
}

/// The words of a text that may be paths, and whether an @ says so.
fn words(text: &str) -> Vec<(String, bool)> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let bare = rest.strip_prefix('@').unwrap_or(rest);
        let is_named = bare.len() < rest.len();
        let quote = bare.chars().next().filter(|letter| matches!(letter, '"' | '\''));
        let end = match quote.and_then(|quote| bare[1..].find(quote)) {
            Some(end) => {
                words.push((bare[1..=end].to_owned(), is_named));
                end + 2
            }
            None => {
                // A terminal writes a backslash before what a shell would take for its own, such as a space, in a path that is
                // dropped on it.
                let mut before = ' ';
                let end = bare.find(|letter: char| {
                    let ends = letter.is_whitespace() && before != '\\';
                    before = letter;
                    ends
                });
                let end = end.unwrap_or(bare.len());
                words.push((unescaped(&bare[..end]), is_named));
                end
            }
        };
        rest = bare[end..].trim_start();
    }
    words
}

/// A word without the backslashes before what is neither a letter nor a digit.
fn unescaped(word: &str) -> String {
    let mut letters = word.chars().peekable();
    let mut plain = String::with_capacity(word.len());
    while let Some(letter) = letters.next() {
        let escaped = letters.next_if(|next| letter == '\\' && !next.is_alphanumeric());
        plain.push(escaped.unwrap_or(letter));
    }
    plain
}

fn existing(word: &str, directory: &Path) -> Option<PathBuf> {
    if word.is_empty() || word.len() > 4_096 {
        return None;
    }
    let at = |word: &str| {
        let word = word.strip_prefix("file://").unwrap_or(word);
        let path = match word.strip_prefix("~/") {
            Some(rest) => PathBuf::from(std::env::var_os("HOME")?).join(rest),
            None => directory.join(word),
        };
        path.exists().then_some(path)
    };
    at(word).or_else(|| at(word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')'])))
}

/// What kind of image a file is by its name; none for other files.
pub(super) fn mime(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    IMAGES.iter().find(|(end, _)| name.ends_with(end)).map(|(_, mime)| *mime)
}

fn part(path: &Path, name: &str) -> Result<Part, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|error| error.to_string())?;
        let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names.truncate(MAX_NAMES);
        return Ok(Part::text(format!("{FOLDER}{name}\">\n{}\n</folder>", names.join("\n"))));
    }
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    if let Some(mime) = mime(path) {
        if metadata.len() > MAX_IMAGE {
            let (size, most) = (excerpt::size(metadata.len()), excerpt::size(MAX_IMAGE));
            return Err(format!("it has {size}, and an image may have {most}"));
        }
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let mut part = Part::media(mime, STANDARD.encode(bytes));
        if let Content::Media(media) = &mut part.content {
            media.name = Some(name.to_owned());
            // A run is not begun with what no model can see.
            *media = checked_media(media.clone())?;
        }
        return Ok(part);
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let (head, is_cut) = excerpt::head(&text, MAX_LINES, MAX_TEXT);
    let rest = if is_cut { "\n[The file goes on; read has the rest.]" } else { "" };
    Ok(Part::text(format!("{FILE}{name}\">\n{}{rest}\n</file>", head.trim_end_matches('\n'))))
}

/// The part that tells the model of a command that the user ran.
pub(super) fn of_command(command: &str, output: &str, code: Option<i32>) -> Part {
    let code = code.map_or_else(|| "a signal ended it".to_owned(), |code| format!("exit code {code}"));
    let output = output.trim_end();
    Part::text(format!(
        "{COMMAND}\nThe user ran this command in the working directory:\n$ {command}\n{output}\n[{code}]\n</user-command>"
    ))
}

/// What the user wrote.
pub(super) fn written(message: &Message) -> &str {
    message.parts.first().and_then(Part::as_text).unwrap_or_default()
}

/// What the user wrote, and a line for each thing that came with it.
pub(super) fn shown(message: &Message) -> String {
    let mut shown = written(message).to_owned();
    for part in message.parts.iter().skip(1) {
        let line = match (&part.content, part.as_text()) {
            (Content::Media(media), _) => format!("{ATTACHED}{}", media.name.as_deref().unwrap_or(&media.mime)),
            (_, Some(text)) => {
                match [FILE, FOLDER].iter().find_map(|head| text.strip_prefix(head)?.split_once("\">")) {
                    Some((name, rest)) => {
                        format!("{ATTACHED}{name} ({})", counted(rest.lines().count().saturating_sub(2)))
                    }
                    None if text.starts_with(COMMAND) => continue,
                    None if text.starts_with('<') => continue,
                    None => text.to_owned(),
                }
            }
            _ => continue,
        };
        shown.push('\n');
        shown.push_str(&line);
    }
    shown
}

fn counted(lines: usize) -> String {
    if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_toolkit::message::Role;

    /// An image of one dot.
    const DOT: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    #[test]
    fn a_path_is_read_as_terminals_write_it() {
        for (text, expected) in [
            (r"/a/my\ picture.png ", vec!["/a/my picture.png"]),
            (r"@a\ b.txt and c", vec!["a b.txt", "and", "c"]),
            (r"it\'s\ \(1\)\ \&\ \\.png", vec![r"it's (1) & \.png"]),
            (r"'it is (1).png' c:\new.png end\", vec!["it is (1).png", r"c:\new.png", r"end\"]),
        ] {
            assert_eq!(words(text).into_iter().map(|(word, _)| word).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn named_files_and_images_come_with_a_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path();
        std::fs::write(directory.join("a b.txt"), "one\ntwo\n").expect("a file");
        std::fs::write(directory.join("c.rs"), "fn c() {}\n").expect("a file");
        std::fs::write(directory.join("raw.bin"), [0xff, 0xfe]).expect("a file");
        std::fs::write(directory.join("shot.png"), STANDARD.decode(DOT).expect("bytes")).expect("an image");
        std::fs::write(directory.join("broken.png"), [1, 2, 3]).expect("a file");
        let shot = directory.join("shot.png").display().to_string();
        let text = format!("see @\"a b.txt\" and @c.rs, @c.rs, me@c.rs c.rs @none @raw.bin {shot} broken.png");
        let (parts, problems) = of(&text, directory);
        assert_eq!(problems[0], "raw.bin is not given to the model: it is no text");
        assert!(
            problems[1].starts_with("broken.png is not given to the model: it is called image/png"),
            "{problems:?}"
        );
        assert_eq!(problems.len(), 2);
        let texts: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
        let expected = ["<file path=\"a b.txt\">\none\ntwo\n</file>", "<file path=\"c.rs\">\nfn c() {}\n</file>"];
        assert_eq!(texts, expected);
        assert!(matches!(&parts[2].content, Content::Media(media) if media.mime == "image/png"));
        let mut message = Message::new(Role::User, vec![Part::text("Look")]);
        message.parts.extend(parts);
        message.parts.push(of_command("ls", "c.rs\n", Some(0)));
        assert_eq!(shown(&message), "Look\n⎿ a b.txt (2 lines)\n⎿ c.rs (1 line)\n⎿ shot.png");
    }
}
