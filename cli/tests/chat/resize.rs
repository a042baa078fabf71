//! A window whose size changes while something is on the screen.

use super::terminal::Terminal;
use super::*;

#[test]
fn a_window_is_resized_while_an_answer_is_streamed() {
    let user = User::new();
    let fake =
        user.script("[[turns]]\ntext = \"Beginning {{pad:1500}} end.\"\npace = { chunkMs = 10, chunkChars = 10 }\n");
    let mut terminal = Terminal::chat(&user, &[&fake, "Go"]);
    terminal.shows("Beginning lorem");
    for (rows, columns) in [(50, 60), (30, 100), (50, 40), (50, 90)] {
        terminal.resize(rows, columns);
        let footer = if columns < 45 { "scripted" } else { "fake/scripted" };
        terminal.waits("a footer", |text| text.lines().any(|line| line.starts_with(footer)));
    }
    let text = terminal.shows("cost unknown");
    assert!(text.contains("end.") && text.matches("Ctrl-C stops").count() == 0, "{text}");
    assert_eq!(text.matches("/help").count(), 1, "nothing is left of what was drawn before\n{text}");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_window_is_resized_while_a_question_is_open() {
    let user = User::new();
    let command = "echo one two three four five six seven eight nine ten eleven twelve thirteen fourteen";
    let fake = user.script(&format!(
        "[[turns]]\ntoolCalls = [{{ name = \"bash\", arguments = {{ command = \"{command}\" }} }}]\n[[turns]]\ntext = \"Done.\"\n"
    ));
    let mut terminal = Terminal::chat(&user, &[&fake, "--unsandboxed", "Go"]);
    terminal.shows("Allow it?");
    // The end of a row at each width says that it was drawn for it.
    for (rows, columns, end) in
        [(50, 44, "five six\n"), (50, 120, "fourteen\n"), (14, 44, "five six\n"), (50, 100, "fourteen\n")]
    {
        terminal.resize(rows, columns);
        terminal.waits(&format!("the question at {columns} columns"), |text| {
            text.contains("Allow it?") && text.contains(end)
        });
    }
    let text = terminal.text();
    assert_eq!(text.matches("Allow it?").count(), 1, "{text}");
    // As fingers do it. What comes together with the signal of a resize may be read with the next key alone: the library that
    // reads keys takes one of two things that are ready at the same time.
    terminal.write("y");
    std::thread::sleep(Duration::from_millis(50));
    terminal.write("\r");
    terminal.shows("Done.");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}
