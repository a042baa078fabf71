//! The commands of the chat, and what comes with a message.

use super::terminal::Terminal;
use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn, When};
use serde_json::json;

fn leave(mut terminal: Terminal) {
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn an_unknown_command_is_not_sent_and_a_path_is() {
    let user = User::new();
    let fake = user.script("[otherwise]\ntext = \"Heard: {{lastUser}}\"\n");
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("/help");
    terminal.line("/exprot notes");
    let text = terminal.shows("there is no command /exprot; did you mean /export?");
    assert!(!text.contains("Heard"), "{text}");
    terminal.line("/usr/bin is full");
    terminal.shows("Heard: /usr/bin is full");
    terminal.shows("cost unknown");
    terminal.line("/export talk.md");
    terminal.shows("The conversation is in talk.md.");
    let written = std::fs::read_to_string(user.project().join("talk.md")).expect("the file");
    assert!(written.contains("## You\n\n/usr/bin is full\n\n## Agent\n\nHeard:"), "{written}");
    terminal.line("/clear");
    terminal.shows("A new conversation; /resume ");
    terminal.line("second");
    terminal.shows("Heard: second");
    terminal.waits("both turns", |text| text.matches("cost unknown").count() == 2);
    terminal.line("/resume");
    terminal.shows("Go on with");
    terminal.write("\r");
    terminal.waits("the first session", |text| text.matches("› /usr/bin is full").count() == 2);
    assert_eq!(user.sessions().len(), 2);
    terminal.line("/help");
    terminal.shows("/compact [FOCUS]");
    leave(terminal);
}

#[test]
fn a_turn_is_undone_with_its_files_and_its_words() {
    let user = User::new();
    let project = user.project();
    std::fs::write(project.join("a.txt"), "one\ntwo\nthree\n").expect("a file");
    std::fs::write(project.join("b.txt"), "left\nright\n").expect("a file");
    let edit = |path: &str, old: &str, new: &str| {
        format!(
            "{{ name = \"edit\", arguments = {{ path = \"{path}\", old_string = \"{old}\", new_string = \"{new}\" }} }}"
        )
    };
    let fake = user.script(&format!(
        "[[turns]]\ntext = \"Hello.\"\n\
         [[turns]]\ntoolCalls = [{}, {}, {{ name = \"write\", arguments = {{ path = \"c.txt\", content = \"new\\n\" }} }}]\n\
         [[turns]]\ntext = \"Changed.\"\n\
         [otherwise]\ntext = \"Heard: {{{{lastUser}}}}\"\n",
        edit("a.txt", "two", "2"),
        edit("b.txt", "right", "RIGHT"),
    ));
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "Hi"]);
    terminal.shows("Hello.");
    terminal.shows("cost unknown");
    terminal.line("Change them");
    terminal.shows("Changed.");
    terminal.waits("the end of the turn", |text| text.matches("cost unknown").count() == 2);
    assert!(project.join("c.txt").exists());
    std::fs::write(project.join("b.txt"), "mine\nleft\nRIGHT\n").expect("a file");
    terminal.line("/undo");
    let text = terminal.shows("b.txt changed since");
    assert!(text.contains("Went back before “Change them”.") && text.contains("Put back: a.txt, c.txt."), "{text}");
    assert_eq!(std::fs::read_to_string(project.join("a.txt")).expect("the file"), "one\ntwo\nthree\n");
    assert!(!project.join("c.txt").exists());
    assert_eq!(std::fs::read_to_string(project.join("b.txt")).expect("the file"), "mine\nleft\nRIGHT\n");
    terminal.shows("› Change them");
    terminal.write("\u{15}");
    terminal.line("y");
    terminal.shows("Put back: b.txt.");
    assert_eq!(std::fs::read_to_string(project.join("b.txt")).expect("the file"), "mine\nleft\nright\n");
    terminal.line("Again");
    terminal.waits("the end of the turn", |text| text.matches("cost unknown").count() == 3);
    terminal.write("\u{f}");
    let text = terminal.shows("q closes");
    assert!(text.contains("› Hi") && text.contains("› Again"), "{text}");
    assert!(!text.contains("› Change them"), "the conversation goes on before the turn\n{text}");
    terminal.write("q");
    terminal.waits("the conversation", |text| !text.contains("q closes"));
    leave(terminal);
}

#[test]
fn files_and_commands_come_with_a_message() {
    let user = User::new();
    std::fs::write(user.project().join("a.txt"), "an otter\n").expect("a file");
    let fake = user.script("[otherwise]\ntext = \"Heard: {{lastUser}}\"\n");
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("/help");
    terminal.line("!echo from $((6 * 7)); exit 3");
    let text = terminal.shows("│ from 42");
    assert!(text.contains("● ! echo from $((6 * 7)); exit 3") && text.contains("exit 3\n"), "{text}");
    terminal.line("Look at @a.txt please");
    terminal.shows("⎿ a.txt (1 line)");
    let text = terminal.shows("Heard: Look at @a.txt please");
    terminal.shows("cost unknown");
    assert!(!text.split("Heard").next().is_some_and(|said| said.contains("<file")), "{text}");
    terminal.line("/export talk.md");
    terminal.shows("The conversation is in talk.md.");
    leave(terminal);
    let listed = user.run(&[
        "runs",
        "entries",
        &format!("sqlite:{}", user.folder.path().join("home/chat.db").display()),
        &user.sessions()[0],
        "--json",
    ]);
    let told = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(told.contains("an otter") && told.contains("from 42") && told.contains("exit code 3"), "{told}");
}

#[test]
fn plan_mode_only_looks_and_then_asks() {
    let user = User::new();
    let write = "{ name = \"write\", arguments = { path = \"a.txt\", content = \"otter\\n\" } }";
    let fake = user.script(&format!(
        "[[turns]]\ntoolCalls = [{write}]\n\
         [[turns]]\ntext = \"The plan. {{{{result}}}}\"\n\
         [[turns]]\ntoolCalls = [{write}]\n\
         [[turns]]\ntext = \"Done.\"\n"
    ));
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes"]);
    terminal.shows("/help");
    terminal.write("\u{1b}[Z");
    terminal.shows("accepts edits");
    terminal.write("\u{1b}[Z");
    terminal.shows("plan mode: only looks");
    terminal.line("Write it");
    let text = terminal.shows("Carry out this plan?");
    assert!(text.contains("The user is in plan mode"), "{text}");
    assert!(!user.project().join("a.txt").exists());
    terminal.line("y");
    terminal.shows("Done.");
    assert!(user.project().join("a.txt").exists());
    terminal.shows("› Carry out the plan.");
    leave(terminal);
}

#[test]
fn a_conversation_is_compacted_and_thinking_is_chosen() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\nwhen = { lastUserContains = \"Pay attention to this above all: the otters\" }\ntext = \"They spoke of otters.\"\n\
         [otherwise]\ntext = \"Heard.\"\n",
    );
    let mut terminal = Terminal::chat(&user, &[&fake, "Otters?"]);
    terminal.shows("cost unknown");
    terminal.line("/compact the otters");
    terminal.shows("tokens of the conversation were summarised");
    terminal.line("/thinking hgih");
    terminal.shows("/thinking takes off, minimal, low, medium, high or max");
    terminal.line("/thinking high");
    terminal.shows("The model thinks from the next message on: high.");
    leave(terminal);
}

/// Runs git in the project.
fn git(user: &User, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Otto", "-c", "user.email=otto@example.com"]).args(args);
    command.current_dir(user.project()).env_clear().env("HOME", user.folder.path());
    let output = command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).output().expect("git");
    assert!(output.status.success(), "{args:?}: {}", told(&output));
}

#[test]
fn what_has_changed_is_shown_by_git_and_without_it_by_the_tools() {
    for has_git in [true, false] {
        let user = User::new();
        std::fs::write(user.project().join("a.txt"), "one\ntwo\nthree\n").expect("a file");
        if has_git {
            git(&user, &["init", "--quiet"]);
            git(&user, &["add", "a.txt"]);
            git(&user, &["commit", "--quiet", "--message", "Begin"]);
        }
        let fake = user.script(
            "[[turns]]\ntoolCalls = [\
             { name = \"edit\", arguments = { path = \"a.txt\", old_string = \"two\", new_string = \"2\" } }, \
             { name = \"write\", arguments = { path = \"b.txt\", content = \"new\\n\" } }]\n\
             [[turns]]\ntext = \"Changed.\"\n",
        );
        let mut terminal = Terminal::chat(&user, &[&fake, "--yes"]);
        terminal.shows("/help");
        terminal.line("/diff");
        terminal.shows("nothing has changed");
        terminal.line("Change them");
        terminal.shows("Changed.");
        terminal.shows("cost unknown");
        std::fs::write(user.project().join("mine.txt"), "by hand\n").expect("a file");
        terminal.line("/diff");
        let text = terminal.shows("q closes");
        assert!(text.contains("What has changed ·"), "{text}");
        assert!(text.contains("a.txt  +1 -1\n") && text.contains(" 2 - two\n") && text.contains(" 2 + 2\n"), "{text}");
        assert_eq!(text.contains("new file b.txt\n"), has_git, "{text}");
        assert_eq!(text.contains("b.txt  +1\n") && text.contains(" 1 + new\n"), !has_git, "{text}");
        assert_eq!(text.contains("new file mine.txt\n"), has_git, "only git knows of it\n{text}");
        assert!(!text.contains("Change them"), "it is a page of its own\n{text}");
        terminal.write("q");
        terminal.waits("the conversation", |text| text.contains("Change them") && !text.contains("q closes"));
        leave(terminal);
    }
}

#[test]
fn init_has_agents_md_written_and_the_next_chat_is_told_of_it() {
    let user = User::new();
    let asked = When {
        last_user_contains: Some("write AGENTS.md at its root".into()),
        has_tool_result: Some(false),
        ..When::default()
    };
    let writes = Turn::call("write", json!({"path": "AGENTS.md", "content": "Run make otters.\n"})).when(asked);
    let script = Script { otherwise: Some(Box::new(Turn::text("Answered."))), ..Script::new([writes]) };
    let model = FakeLlm::start(script).expect("a model");
    let url = model.url();
    let mut terminal = Terminal::chat_with(&user, &[], &[("ANTHROPIC_BASE_URL", &url)]);
    terminal.shows("/help");
    terminal.line("/init");
    terminal.shows("› Look at this project and write AGENTS.md");
    let text = terminal.shows("Allow it?");
    assert!(text.contains("● write AGENTS.md") && text.contains("1 + Run make otters."), "{text}");
    terminal.line("y");
    terminal.shows("Answered.");
    leave(terminal);
    let written = std::fs::read_to_string(user.project().join("AGENTS.md")).expect("the file");
    assert_eq!(written, "Run make otters.\n");
    let output = user.flovyn(&["chat", "-p", "Hi"]).env("ANTHROPIC_BASE_URL", &url).output().expect("it runs");
    assert!(output.status.success(), "{}", told(&output));
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    let is_told = |at: usize| requests[at].body["system"].to_string().contains("Run make otters.");
    assert_eq!([is_told(0), is_told(2)], [false, true]);
}

#[test]
fn another_model_is_asked_from_the_next_message_on() {
    let user = User::new();
    let model = FakeLlm::start(Script::new([Turn::text("Answer {{turn}}.").times(9)])).expect("a model");
    let mut terminal = Terminal::chat_with(&user, &[], &[("ANTHROPIC_BASE_URL", &model.url())]);
    terminal.shows("anthropic/claude-sonnet-5-5 · sandbox");
    terminal.line("/model haiku");
    terminal.shows("anthropic/claude-haiku-5-5 is asked from now on");
    terminal.line("One");
    terminal.shows("Answer 1.");
    terminal.line("/model opus");
    terminal.shows("anthropic/claude-opus-5-5 is asked from now on");
    terminal.waits("the row below", |text| {
        text.trim_end().lines().last().is_some_and(|row| row.contains("claude-opus-5-5"))
    });
    terminal.line("Two");
    terminal.shows("Answer 2.");
    // A name that is none changes nothing.
    terminal.line("/model opsu");
    terminal.shows("Did you mean opus?");
    terminal.line("Three");
    terminal.shows("Answer 3.");
    leave(terminal);
    let asked: Vec<_> = model.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(asked, ["claude-haiku-5-5", "claude-opus-5-5", "claude-opus-5-5"]);
}
