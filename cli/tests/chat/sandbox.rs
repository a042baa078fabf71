//! What confines commands: that it is shown, what options open of it, and commands that ask to run outside of it.

use super::terminal::Terminal;
use super::workers::start;
use super::*;
use flovyn_toolkit::tools::{Availability, Sandbox};
use serde_json::{Value, json};

/// A command, and what came out.
fn script(user: &User, command: &str) -> String {
    let turn =
        format!("[[turns]]\ntoolCalls = [{{ name = \"bash\", arguments = {{ command = {} }} }}]\n", json!(command));
    user.script(&format!("{turn}[[turns]]\ntext = \"Then: {{{{result}}}}\"\n"))
}

/// What confines commands on this machine.
fn active() -> &'static str {
    Availability::probe().word(Sandbox::Required)
}

fn home(user: &User, path: &str, text: &str) {
    let home = user.folder.path().join("home");
    std::fs::create_dir_all(&home).expect("a folder");
    std::fs::write(home.join(path), text).expect("a file");
}

#[test]
fn what_confines_commands_is_shown_and_does() {
    const OPEN: &str = r#"{"sandbox": {"enabled": false}}"#;
    let on = if active() == "none" { "sandbox none" } else { "sandbox on" };
    for (args, settings, name, row) in [
        (&[][..], "{}", active(), on),
        (&["--unsandboxed"], "{}", "off", "sandbox off"),
        (&[], OPEN, "off", "sandbox off"),
    ] {
        let user = User::new();
        home(&user, "settings.json", settings);
        let fake = script(&user, "true");
        let args = [&[fake.as_str(), "--yes"], args].concat();
        let mut terminal = Terminal::chat(&user, &args);
        let text = terminal.shows("/help");
        assert!(text.contains(&format!("Flovyn · fake/scripted · ~/project · sandbox {name}\n")), "{args:?}\n{text}");
        let has_row =
            |text: &str| text.trim_end().lines().last().is_some_and(|last| last.contains(&format!(" · {row} · ")));
        assert!(has_row(&text), "{args:?}\n{text}");
        terminal.line("Go");
        terminal.shows("Then:");
        terminal.shows("cost unknown");
        terminal.line("/clear");
        terminal.shows("A new conversation");
        terminal.waits("the row below", has_row);
        terminal.write("\u{4}");
        assert_eq!(terminal.ends(), Some(0));
        let db = format!("sqlite:{}", user.folder.path().join("home/chat.db").display());
        let listed = user.run(&["runs", "entries", &db, &user.sessions()[0], "--json"]);
        let entries = String::from_utf8_lossy(&listed.stdout).into_owned();
        let said = format!(r#""sandbox":"{name}""#);
        assert!(entries.replace(": ", ":").contains(&said), "the command has run in it: {said}\n{entries}");
    }
}

#[test]
fn a_worker_says_what_confines_the_commands_of_others() {
    let user = User::new();
    let fake = script(&user, "true");
    let served = format!("sqlite:{}", user.folder.path().join("served.db").display());
    let dev = user.flovyn(&["dev", "--json", "--db", &served, "--http-port", "0", "--grpc-port", "0"]);
    let (_server, line) = start(dev);
    let read = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let url = read(&line)["grpc"].as_str().expect("an address").to_owned();
    for (args, name) in [(&[][..], active()), (&["--unsandboxed"], "off")] {
        let (_worker, line) = start(user.flovyn(&[&["worker", &url, "--json", &fake], args].concat()));
        assert_eq!(read(&line)["sandbox"], name, "{line}");
    }
    // It is the worker's to say, so the chat does not.
    let mut terminal = Terminal::chat(&user, &["--db", &url, "--model", "fake/scripted"]);
    let text = terminal.shows("/help");
    assert!(!text.contains("sandbox"), "{text}");
    terminal.write("\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_directory_that_is_added_is_read_and_written() {
    let user = User::new();
    let beside = user.folder.path().canonicalize().expect("it is there").join("beside");
    std::fs::create_dir(&beside).expect("a folder");
    std::fs::write(beside.join("a.txt"), "an otter\n").expect("a file");
    let at = |name: &str| beside.join(name).display().to_string();
    let fake = user.script(&format!(
        "[[turns]]\ntoolCalls = [{{ name = \"read\", arguments = {{ path = \"{}\" }} }}]\n\
         [[turns]]\ntext = \"Read: {{{{result}}}}\"\n\
         toolCalls = [{{ name = \"write\", arguments = {{ path = \"{}\", content = \"by a tool\\n\" }} }}]\n\
         [[turns]]\ntoolCalls = [{{ name = \"bash\", arguments = {{ command = \"echo by a command > {}\" }} }}]\n\
         [[turns]]\ntext = \"Then: {{{{result}}}}\"\n",
        at("a.txt"),
        at("b.txt"),
        at("c.txt"),
    ));
    let read = |name: &str| std::fs::read_to_string(at(name)).ok();
    let text = user.chat(&["-p", "Go", &fake, "--yes"]);
    assert!(text.contains("Read: ") && !text.contains("otter"), "{text}");
    assert_eq!((read("b.txt"), read("c.txt")), (None, None), "{text}");
    let text = user.chat(&["-p", "Go", &fake, "--yes", "--add-dir", "../beside"]);
    assert!(text.contains("otter"), "{text}");
    assert_eq!(
        (read("b.txt").as_deref(), read("c.txt").as_deref()),
        (Some("by a tool\n"), Some("by a command\n")),
        "{text}"
    );
    let output = user.run(&["chat", "-p", "Go", &fake, "--yes", "--add-dir", "../none"]);
    assert!(!output.status.success() && told(&output).contains("none"), "{}", told(&output));
}

#[test]
fn commands_see_the_variables_that_are_named() {
    let user = User::new();
    let fake = script(&user, "echo \"otter: $OTTER. seals: $SEAL_A$SEAL_B. eel: $EEL.\"");
    for (args, expected) in [
        (&[][..], "otter: . seals: . eel: ."),
        (&["--env", "OTTER", "--env", "SEAL_*"], "otter: holds hands. seals: 12. eel: ."),
    ] {
        let mut command = user.flovyn(&[&["chat", "-p", "Go", "--yes", &fake], args].concat());
        command.envs([("OTTER", "holds hands"), ("SEAL_A", "1"), ("SEAL_B", "2"), ("EEL", "secret")]);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", told(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.trim_end(), format!("Then: {expected}"), "{args:?}");
    }
}

#[test]
fn commands_have_caches_of_their_own_or_those_of_the_user() {
    let user = User::new();
    let folder = user.folder.path().canonicalize().expect("it is there");
    std::fs::create_dir(folder.join(".cache")).expect("a folder");
    let fake = script(
        &user,
        "touch ~/.cache/of-the-user; test -z \"$npm_config_cache\" || touch \"$npm_config_cache/own\"; echo \"npm: $npm_config_cache.\"",
    );
    let own = folder.join("home/caches/npm");
    let there = || (own.join("own").exists(), folder.join(".cache/of-the-user").exists());
    let text = user.chat(&["-p", "Go", &fake, "--yes"]);
    assert!(text.contains("home/caches/npm.\n"), "{text}");
    assert_eq!(there(), (true, false), "{text}");
    std::fs::remove_file(own.join("own")).expect("it was there");
    let text = user.chat(&["-p", "Go", &fake, "--yes", "--user-caches"]);
    assert!(text.contains("npm: ."), "{text}");
    assert_eq!(there(), (false, true), "{text}");
}

const OUTSIDE: &str = r#"
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "touch one", outsideSandbox = true, reason = "to count otters" } }]
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "touch one two", outsideSandbox = true, reason = "to count eels" } }]
[[turns]]
text = "Then: {{result}}"
"#;

#[test]
fn a_command_outside_of_the_sandbox_is_asked_about_each_time() {
    let user = User::new();
    let fake = user.script(OUTSIDE);
    let there = || ["one", "two"].map(|name| user.project().join(name).exists());
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "Go"]);
    let text = terminal.shows("Allow it?");
    assert!(text.contains("● bash touch one\n  │ outside the sandbox, once: to count otters\n"), "{text}");
    assert!(!text.contains("`touch one") && !text.contains("every bash"), "no other call would be allowed\n{text}");
    assert_eq!(there(), [false, false]);
    // Whoever says it all the same allows this call and no other.
    terminal.line("p");
    terminal.shows("a person is asked about it each time");
    let text = terminal.shows("outside the sandbox, once: to count eels");
    assert!(text.contains("● bash touch one two\n") && text.contains("Allow it?"), "{text}");
    assert_eq!(there(), [true, false]);
    assert!(!user.project().join(".flovyn").exists(), "no rule was written");
    terminal.line("n");
    terminal.shows("Then: The user did not allow this call.");
    assert_eq!(there(), [true, false]);
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn where_nobody_can_be_asked_no_command_leaves_the_sandbox() {
    let user = User::new();
    let fake = user.script(OUTSIDE);
    for args in [&["--yes"][..], &["--approve", "all"], &["--allowed-tools", "bash"]] {
        let output = user.run(&[&["chat", "-p", "Go", &fake], args].concat());
        assert!(output.status.success(), "{}", told(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Then: The user did not allow this call."), "{text}");
        assert!(text.contains("Nobody can be asked in this session, so no command leaves the sandbox."), "{text}");
        let beside = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = "bash was not allowed: only a person at a terminal lets a command leave the sandbox";
        assert_eq!(beside.matches(said).count(), 2, "{beside}");
        assert!(!beside.contains("--yes"), "what was given already would not help\n{beside}");
        assert!(!user.project().join("one").exists());
    }
}
