//! Images of the clipboard, from programs that stand for those of a desktop.

use super::terminal::Terminal;
use super::*;
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
