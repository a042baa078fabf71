//! What a call would do and what came of it, shown whole.

use super::terminal::Terminal;
use super::*;

#[test]
fn a_long_command_is_read_to_its_end_before_it_is_allowed() {
    let user = User::new();
    let command: String = (1..=120).map(|line| format!("echo step {line}\\n")).collect();
    let fake = user.script(&format!(
        "[[turns]]\ntoolCalls = [{{ name = \"bash\", arguments = {{ command = \"{command}echo \\u001b[8mhidden\" }} }}]\n\
         [[turns]]\ntext = \"Done.\"\n"
    ));
    let mut terminal = Terminal::chat(&user, &[&fake, "Go"]);
    let text = terminal.shows("Allow it?");
    assert!(text.contains("● bash echo step 1\n  echo step 2\n"), "each command has its line\n{text}");
    assert!(text.contains(" of 121 · PgUp PgDn scroll") && !text.contains("step 120"), "{text}");
    terminal.write("\u{1b}[6~\u{1b}[6~\u{1b}[6~\u{1b}[6~");
    terminal.shows("  echo ␛[8mhidden");
    terminal.write("\u{f}");
    let text = terminal.shows("q closes");
    assert!(text.contains("step 119") && text.contains("␛[8mhidden") && !text.contains("Allow it?"), "{text}");
    terminal.write("\u{1b}[H");
    terminal.waits("the beginning", |text| text.contains("› Go") && text.contains("echo step 1\n"));
    terminal.write("q");
    terminal.shows("Allow it?");
    terminal.line("y");
    let text = terminal.shows("Done.");
    assert!(text.contains("Ctrl-O shows all") && text.contains("│ step 120"), "the end of the output is shown\n{text}");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn an_edit_is_asked_about_with_its_lines_and_a_command_ends_with_its_code() {
    let user = User::new();
    let lines: String = (1..=40).map(|line| format!("line {line}\n")).collect();
    std::fs::write(user.project().join("a.txt"), lines).expect("a file");
    let fake = user.script(
        "[[turns]]\ntoolCalls = [{ name = \"edit\", arguments = { path = \"a.txt\", old_string = \"line 20\\n\", new_string = \"twenty\\n\" } }]\n\
         [[turns]]\ntoolCalls = [{ name = \"bash\", arguments = { command = \"printf '10%%\\\\r90%%\\\\rdone\\\\n'; exit 3\" } }]\n\
         [[turns]]\ntext = \"Done.\"\n",
    );
    let mut terminal = Terminal::chat(&user, &[&fake, "Go"]);
    let text = terminal.shows("Allow it?");
    for shown in ["│  19   line 19", "│  20 - line 20", "│  20 + twenty", "│  21   line 21"] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    terminal.line("y");
    terminal.shows("Allow it?");
    terminal.waits("the question about the command", |text| text.contains("● bash printf"));
    terminal.line("y");
    let text = terminal.shows("Done.");
    assert!(text.contains("exit 3\n  │ done\n") && !text.contains("10%\n"), "{text}");
    assert!(!text.contains("Command exited"), "the code is said once\n{text}");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}
