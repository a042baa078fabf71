//! The chat for screen readers, and without colours.

use super::terminal::Terminal;
use super::*;

#[test]
fn plain_lines_are_printed_once() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntext = \"# Title\\n\\n| a | b |\\n| - | - |\\n| 1 | 2 |\"\n\
         toolCalls = [{ name = \"write\", arguments = { path = \"a.txt\", content = \"otter\\n\" } }]\n\
         [[turns]]\ntext = \"Written.\"\n",
    );
    let mut terminal = Terminal::chat(&user, &[&fake, "--plain", "Write it"]);
    terminal.shows("Allow it?");
    terminal.line("y");
    terminal.shows("Written.");
    terminal.shows("cost unknown");
    terminal.line("/cost");
    terminal.waits("what it cost", |text| text.matches("cost unknown").count() == 2);
    terminal.line("/quit");
    let bytes = terminal.bytes_at_end();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains('\u{1b}'), "no sequence at all\n{text}");
    assert!(
        text.contains("> Write it")
            && text.contains("* write a.txt")
            && text.contains("| 1 | 2 |")
            && text.contains("1 + otter"),
        "{text}"
    );
    assert_eq!(text.matches("Written.").count(), 1, "{text}");
    assert!(!text.contains(['│', '─', '●', '›', '┌']), "no drawing\n{text}");
}

#[test]
fn no_color_means_none() {
    let user = User::new();
    let fake = user.script("[otherwise]\ntext = \"**Bold** and `code`\"\n");
    let mut terminal = Terminal::chat_with(&user, &[&fake, "Hi"], &[("NO_COLOR", "1")]);
    terminal.shows("cost unknown");
    terminal.write("\u{4}");
    let bytes = terminal.bytes_at_end();
    let text = String::from_utf8_lossy(&bytes);
    let is_style = |rest: &str| {
        rest.find(|letter: char| !letter.is_ascii_digit() && letter != ';')
            .is_some_and(|end| rest[end..].starts_with('m'))
    };
    assert!(!text.split("\u{1b}[").skip(1).any(is_style), "{text:?}");
}

#[test]
fn a_dumb_terminal_is_only_printed_to() {
    let user = User::new();
    let fake = user.script("[otherwise]\ntext = \"**Bold** and `code`\"\n");
    let mut terminal = Terminal::chat_with(&user, &[&fake, "Hi"], &[("TERM", "dumb")]);
    terminal.shows("cost unknown");
    terminal.line("/quit");
    let bytes = terminal.bytes_at_end();
    assert!(!bytes.contains(&0x1b), "no sequence at all\n{}", String::from_utf8_lossy(&bytes));
}
