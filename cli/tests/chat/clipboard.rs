//! Images of the clipboard, from programs that stand for those of a desktop, and images that are dropped on the terminal.

use super::terminal::Terminal;
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

const HEARD: &str = "[otherwise]\ntext = \"Heard.\"\n";

/// An image of one dot.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A folder of programs that is all of `PATH`.
fn desktop(user: &User, programs: &[(&str, &str)]) -> String {
    let folder = user.folder.path().join("bin");
    std::fs::create_dir(&folder).expect("a folder");
    for (name, script) in programs {
        let file = folder.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a program");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("it is ours");
    }
    folder.display().to_string()
}

fn opened(user: &User, programs: &[(&str, &str)]) -> Terminal {
    let fake = user.script(HEARD);
    let terminal = Terminal::chat_with(user, &[&fake, "--unsandboxed"], &[("PATH", &desktop(user, programs))]);
    terminal.shows("/help");
    terminal
}

fn images(user: &User) -> Vec<Vec<u8>> {
    let Ok(files) = std::fs::read_dir(user.folder.path().join("home/images")) else { return Vec::new() };
    files.map(|file| std::fs::read(file.expect("a file").path()).expect("its bytes")).collect()
}

fn leave(mut terminal: Terminal) {
    terminal.write("\u{15}\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn ctrl_v_takes_an_image_and_sends_it() {
    let user = User::new();
    // The desktop of Wayland is not there, that of X is.
    let xclip = "case \"$*\" in *TARGETS*) echo TIMESTAMP; echo image/png;; *'-t image/png -o') echo DOT | /usr/bin/base64 -d;; *) exit 1;; esac";
    let xclip = xclip.replace("DOT", DOT);
    let mut terminal = opened(&user, &[("wl-paste", "echo 'no display' >&2; exit 1"), ("xclip", &xclip)]);
    terminal.write("What is\u{16}");
    terminal.shows("› What is [image, 70 bytes]");
    assert!(images(&user)[0].starts_with(b"\x89PNG"));
    terminal.write("here?\r");
    terminal.shows("Heard.");
    let text = terminal.shows("⎿ ");
    assert!(text.contains(".png") && !text.contains("[image"), "{text}");
    // A terminal that pastes an image pastes nothing.
    terminal.write("\u{1b}[200~\u{1b}[201~");
    terminal.shows("› [image, 70 bytes]");
    leave(terminal);
}

#[test]
fn a_clipboard_without_an_image_is_said() {
    for (programs, said) in [
        (&[("wl-paste", "echo text/plain")][..], "the clipboard has no image"),
        (&[("pngpaste", "exec /usr/bin/head -c 40000000 /dev/zero")], "the image of the clipboard is too large"),
        (&[("powershell.exe", "echo")], "the clipboard has no image"),
        (&[], "wl-paste (package wl-clipboard), xclip or pngpaste"),
    ] {
        let user = User::new();
        let mut terminal = opened(&user, programs);
        terminal.write("\u{16}");
        terminal.shows(said);
        assert!(images(&user).is_empty());
        leave(terminal);
    }
}

#[test]
fn a_clipboard_that_does_not_answer_stops_nobody() {
    let user = User::new();
    let mut terminal = opened(&user, &[("xclip", "exec /bin/sleep 600")]);
    terminal.write("\u{16}");
    terminal.shows("looking for an image");
    terminal.line("Go on");
    terminal.shows("Heard.");
    terminal.shows("has not answered within 10 s");
    leave(terminal);
}

#[test]
fn an_image_that_is_dropped_on_the_terminal_is_sent() {
    let user = User::new();
    let model = FakeLlm::start(Script::new([Turn::text("Answer {{turn}}.").times(9)])).expect("a model");
    for name in ["my picture.png", "otter's (1).png"] {
        std::fs::write(user.project().join(name), STANDARD.decode(DOT).expect("bytes")).expect("an image");
    }
    let mut terminal = Terminal::chat_with(&user, &[], &[("ANTHROPIC_BASE_URL", &model.url())]);
    terminal.shows("/help");
    // As a terminal pastes it: with a backslash before what a shell would take for its own, and a space behind.
    terminal.write(&format!("\u{1b}[200~{}/my\\ picture.png \u{1b}[201~", user.project().display()));
    terminal.line("what is it?");
    terminal.shows("Answer 1.");
    terminal.shows("⎿ my picture.png");
    // Typed, from the directory on.
    terminal.line(r"and otter\'s\ \(1\).png?");
    terminal.shows("Answer 2.");
    terminal.shows("⎿ otter's (1).png");
    // A path that leads nowhere is only text.
    terminal.line(r"and my\ pictures.png?");
    terminal.shows("Answer 3.");
    leave(terminal);
    let requests = model.requests();
    let images = |body: &Value| -> Vec<Value> {
        let last = body["messages"].as_array().and_then(|all| all.last()).expect("a message");
        let parts = last["content"].as_array().cloned().unwrap_or_default();
        parts.into_iter().filter(|part| part["type"] == "image").collect()
    };
    let sent: Vec<_> = requests.iter().map(|request| images(&request.body)).collect();
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0], "{sent:?}");
    assert!(sent.iter().flatten().all(|image| image["source"]["data"] == DOT), "{sent:?}");
}
