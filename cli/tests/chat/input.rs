//! What a user writes: pastes, history, drafts, completion, another editor.

use super::terminal::Terminal;
use super::*;

const HEARD: &str = "[otherwise]\ntext = \"Heard.\"\n";

fn leave(mut terminal: Terminal) {
    terminal.write("\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_long_paste_is_one_mark_and_sent_whole() {
    let user = User::new();
    let fake = user.script(HEARD);
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("/help");
    let long: String = (0..3_214).map(|line| format!("{line} {}\r\n", "otter ".repeat(10))).collect();
    assert!(long.len() > 200_000);
    terminal.write("see ");
    terminal.write(&format!("\u{1b}[200~{long}\u{1b}[201~"));
    terminal.shows("› see [pasted 3,214 lines]");
    terminal.write("\r");
    let text = terminal.shows("Heard.");
    assert!(text.contains("more lines · Ctrl-O shows all"), "the conversation is not flooded\n{text}");
    terminal.write("\u{f}");
    terminal.waits("the end of the paste", |text| text.contains("  3213 otter") && text.contains("q closes"));
    terminal.write("q");
    terminal.waits("the conversation", |text| !text.contains("q closes"));
    leave(terminal);
}

#[test]
fn lines_and_drafts_outlive_the_process() {
    let user = User::new();
    let fake = user.script(HEARD);
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("/help");
    terminal.line("the first line");
    terminal.shows("Heard.");
    terminal.shows("cost unknown");
    terminal.write("half a thought");
    terminal.shows("› half a thought");
    terminal.write("\u{3}");
    terminal.waits("an empty line", |text| !text.contains("half a thought"));
    terminal.write("\u{1b}[A");
    terminal.shows("› half a thought");
    terminal.write("\u{1b}\r日本 and more");
    terminal.shows("  日本 and more");
    let drafts = user.folder.path().join("home/drafts");
    until("the draft is kept", || {
        let read = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(entry.ok()?.path()).ok();
        std::fs::read_dir(&drafts)
            .is_ok_and(|mut files| files.any(|file| read(file).is_some_and(|text| text.ends_with("more"))))
    });
    terminal.kill();
    let mut terminal = Terminal::chat(&user, &[&fake]);
    let text = terminal.shows("› half a thought");
    assert!(text.contains("  日本 and more"), "{text}");
    terminal.write("\u{3}");
    terminal.write("\u{12}first");
    terminal.shows("› the first line");
    terminal.write("\r");
    terminal.waits("the line that was found", |text| !text.contains("search:") && text.contains("› the first line"));
    terminal.write("\u{15}");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
    let terminal = Terminal::chat(&user, &[&fake]);
    let text = terminal.shows("/help");
    assert!(!text.contains("/q\n") && !text.contains("/quit"), "what was sent is no draft\n{text}");
    leave(terminal);
}

#[test]
fn commands_and_files_are_completed() {
    let user = User::new();
    std::fs::create_dir(user.project().join("src")).expect("a folder");
    std::fs::write(user.project().join("src/otters.rs"), "").expect("a file");
    let fake = user.script(HEARD);
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("/help");
    terminal.write("/cos");
    terminal.shows("▸ /cost");
    terminal.write("\r");
    terminal.shows("0 tokens in");
    terminal.write("look at @ott");
    terminal.shows("▸ @src/otters.rs");
    terminal.write("\t");
    terminal.shows("› look at @src/otters.rs");
    terminal.write("\u{15}");
    leave(terminal);
}

#[test]
fn a_line_is_written_in_another_editor() {
    let user = User::new();
    let program = user.folder.path().join("edit.sh");
    std::fs::write(&program, "printf ' and\\nmore' >> \"$1\"\n").expect("a program");
    let fake = user.script(HEARD);
    let editor = format!("sh {}", program.display());
    let mut terminal = Terminal::chat_with(&user, &[&fake], &[("VISUAL", &editor)]);
    terminal.shows("/help");
    terminal.write("some\u{7}");
    terminal.waits("both lines", |text| text.contains("› some and") && text.contains("  more"));
    terminal.write("\r");
    terminal.shows("Heard.");
    leave(terminal);
}

#[test]
fn keys_in_the_protocol_of_kitty_are_read_and_the_terminal_is_given_back() {
    const ON: &str = "\u{1b}[>1u";
    const OFF: &str = "\u{1b}[<1u";
    let user = User::new();
    let fake = user.script("[otherwise]\ntext = \"Heard: {{lastUser}}\"\n");
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("/help");
    // Shift-Enter is a new line, and Ctrl-J and Alt-Enter are as well.
    terminal.write("a\u{1b}[13;2ub");
    terminal.waits("two lines", |text| text.contains("› a\n  b\n"));
    terminal.write("\u{1b}[106;5uc\u{1b}[13;3ud");
    terminal.waits("four lines", |text| text.contains("› a\n  b\n  c\n  d\n"));
    assert!(!terminal.text().contains("Heard"), "nothing was sent");
    terminal.write("\u{1b}[13u");
    terminal.shows("Heard: a b c d");
    terminal.shows("cost unknown");
    // Ctrl-D.
    terminal.write("\u{1b}[100;5u");
    let bytes = terminal.bytes_at_end();
    let text = String::from_utf8_lossy(&bytes);
    let (on, off) = (text.find(ON), text.find(OFF));
    assert!(on.is_some() && on < text.find("Flovyn ·"), "before anything is drawn: {text:?}");
    assert!(off > text.find("Heard:") && off < text.find("goes on with this session"), "{text:?}");
    assert_eq!((text.matches(ON).count(), text.matches(OFF).count()), (1, 1), "{text:?}");
}
