//! Conversations in a terminal.

use super::terminal::Terminal;
use super::*;

#[test]
fn the_built_in_script_shows_a_coding_session() {
    let user = User::new();
    let mut terminal = Terminal::chat(&user, &["--fake"]);
    terminal.shows("/help");
    terminal.line("Show me");
    terminal.shows("● write flovyn-demo/greet.sh");
    terminal.shows("a always (every write)");
    terminal.line("a");
    terminal.shows("● bash sh flovyn-demo/test.sh");
    terminal.shows("Allow it?");
    assert!(user.project().join("flovyn-demo/test.sh").exists(), "both writes were allowed by one word");
    terminal.line("n");
    terminal.shows("The user did not allow this call");
    terminal.shows("│   3 +   echo \"Hello, $name!\"");
    terminal.line("y");
    terminal.waits("the question about the second test", |text| {
        text.matches("● bash").count() == 2 && text.contains("Allow it?")
    });
    terminal.line("yes");
    let text = terminal.shows("cost unknown");
    assert!(text.contains("Mended") && text.contains("greets by name") && !text.contains("**"), "{text}");
    assert!(text.contains("│ ok: Otto"), "the test ran in the sandbox and passed\n{text}");
    let program = std::fs::read_to_string(user.project().join("flovyn-demo/greet.sh")).expect("the program");
    assert!(program.contains("Hello, $name!"), "{program}");
    terminal.line("thanks");
    terminal.shows("You said: “thanks”");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

const WAITS: &str = r#"
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "echo at work; until [ -e go ]; do sleep 0.05; done" } }]
[[turns]]
text = "So it is: {{lastUser}}"
"#;

#[test]
fn a_line_steers_while_a_tool_works_and_its_output_is_seen() {
    let user = User::new();
    let fake = user.script(WAITS);
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--unsandboxed", "Begin"]);
    terminal.shows("│ at work");
    terminal.line("Rather otters");
    terminal.shows("› Rather otters");
    std::fs::write(user.project().join("go"), "").expect("it may go on");
    let text = terminal.shows("So it is: Rather otters");
    let (tool, said) = (text.find("● bash"), text.find("› Rather otters"));
    assert!(tool < said, "what was said comes behind what ran\n{text}");
    terminal.shows("cost unknown");
    terminal.write("\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn ctrl_c_stops_the_answer_and_twice_leaves() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntext = \"Once upon a time {{pad:20000}}\"\npace = { chunkMs = 20, chunkChars = 8 }\n\
         [[turns]]\ntext = \"Here: {{lastUser}}\"\n",
    );
    let mut terminal = Terminal::chat(&user, &[&fake, "Tell me"]);
    terminal.shows("Once upon a time lorem");
    terminal.write("\u{3}");
    let text = terminal.shows("■ stopped by Ctrl-C");
    assert!(!text.contains("Here:"), "no model is asked where things stand\n{text}");
    terminal.line("where are you?");
    terminal.shows("Here: where are you?");
    terminal.waits("the end of the turn", |text| text.matches("cost unknown").count() == 2);
    terminal.write("\u{3}");
    terminal.shows("Ctrl-C again leaves");
    terminal.write("\u{3}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn what_was_killed_is_taken_up_with_its_question() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntext = \"I write.\"\n\
         toolCalls = [{ name = \"write\", arguments = { path = \"a.txt\", content = \"otter\\n\" } }]\n\
         [[turns]]\ntext = \"Written.\"\n",
    );
    let terminal = Terminal::chat(&user, &[&fake, "Write it"]);
    terminal.shows("Allow it?");
    terminal.kill();
    assert!(!user.project().join("a.txt").exists());
    let mut terminal = Terminal::chat(&user, &[&fake, "--resume"]);
    let text = terminal.shows("Allow it?");
    assert!(text.contains("› Write it") && text.contains("I write."), "the conversation is shown\n{text}");
    terminal.line("y");
    terminal.shows("Written.");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(std::fs::read_to_string(user.project().join("a.txt")).expect("the file"), "otter\n");
}

#[test]
fn the_steps_of_the_work_are_shown_as_they_are_done() {
    let user = User::new();
    let list = |first: &str, second: &str| {
        format!(
            "[[turns]]\ntoolCalls = [{{ name = \"todo\", arguments = {{ todos = [\
             {{ content = \"Count the otters\", status = \"{first}\" }}, \
             {{ content = \"Feed them\", status = \"{second}\" }}] }} }}]\n"
        )
    };
    let fake = user.script(&format!(
        "{}{}[[turns]]\ntext = \"So far.\"\n",
        list("in_progress", "pending"),
        list("done", "in_progress")
    ));
    let mut terminal = Terminal::chat(&user, &[&fake, "Feed the otters"]);
    terminal.shows("So far.");
    let text = terminal.shows("cost unknown");
    let first = text.find("● todo\n  │ [>] Count the otters\n  │ [ ] Feed them\n");
    let second = text.find("● todo\n  │ [x] Count the otters\n  │ [>] Feed them\n");
    assert!(first.is_some() && first < second, "nobody is asked about them\n{text}");
    terminal.write("\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}
