//! What files of the user and of a project say to a chat: instructions, settings, trust, custom commands, hooks.

use super::terminal::Terminal;
use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use serde_json::{Value, json};
use std::path::Path;

fn write(folder: &Path, path: &str, text: &str) {
    let file = folder.join(path);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(file, text).expect("a file");
}

/// Writes a file of the project.
fn project(user: &User, path: &str, text: &str) {
    write(&user.project(), path, text);
}

/// Writes a file in Flovyn's folder of the user.
fn home(user: &User, path: &str, text: &str) {
    write(&user.folder.path().join("home"), path, text);
}

/// A chat of a folder of the project with a model on Anthropic's wire.
fn run(user: &User, folder: &str, model: &FakeLlm, args: &[&str]) -> Output {
    let mut command = user.flovyn(&[&["chat", "-p"], args].concat());
    command.current_dir(user.project().join(folder)).env("ANTHROPIC_BASE_URL", model.url());
    command.output().expect("it runs")
}

fn beside(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn hello() -> FakeLlm {
    FakeLlm::start(Script::new([Turn::text("Hello.").times(99)])).expect("a model")
}

#[test]
fn instructions_come_from_the_user_and_every_folder_of_the_repository() {
    let (user, model) = (User::new(), hello());
    home(&user, "AGENTS.md", "Be brief.");
    project(&user, ".git/HEAD", "");
    project(&user, "AGENTS.md", "Use tabs.\n@style.md\n");
    project(&user, "style.md", "No dashes.");
    project(&user, "deep/inside/CLAUDE.md", "Only here.");
    let output = run(&user, "deep/inside", &model, &["Hi", "--model", "m"]);
    assert_eq!(output.status.code(), Some(1), "m is no model: {}", told(&output));
    let output = run(&user, "deep/inside", &model, &["Hi"]);
    assert!(output.status.success(), "{}", told(&output));
    let system = model.requests()[0].body["system"].to_string();
    let places: Vec<_> = ["Be brief.", "Use tabs.", "No dashes.", "in deep/inside/CLAUDE.md", "Only here."]
        .iter()
        .map(|part| system.find(part).unwrap_or_else(|| panic!("{part}: {system}")))
        .collect();
    assert!(places.is_sorted(), "{system}");
}

#[test]
fn settings_are_merged_and_what_is_wrong_with_them_is_said() {
    let (user, model) = (User::new(), hello());
    home(
        &user,
        "settings.json",
        r#"{"model": "haiku", "modelAliases": {"mine": "anthropic/claude-of-mine"}, "thinking": "off"}"#,
    );
    let asked = |args: &[&str]| {
        let output = run(&user, "", &model, &[&["Hi"], args].concat());
        assert!(output.status.success(), "{}", told(&output));
        (model.requests().last().expect("a request").body["model"].clone(), beside(&output))
    };
    assert_eq!(asked(&[]).0, "claude-haiku-5-5");
    project(&user, ".flovyn/settings.json", r#"{"model": "opus", "modle": "x"}"#);
    let (asked_model, notices) = asked(&[]);
    assert_eq!(asked_model, "claude-opus-5-5");
    assert!(notices.contains(".flovyn/settings.json: modle is not known; did you mean model?"), "{notices}");
    project(&user, ".flovyn/settings.local.json", r#"{"model": "mine"}"#);
    assert_eq!(asked(&[]).0, "claude-of-mine");
    assert_eq!(asked(&["--model", "sonnet"]).0, "claude-sonnet-5-5", "options go before all files");
    project(&user, ".flovyn/settings.json", r#"{"permissions": {"deny": ["bash", 3]}}"#);
    let output = run(&user, "", &model, &["Hi"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = beside(&output);
    assert!(
        said.contains("permissions.deny[1] has to be a text, and is 3") && said.contains("settings.json"),
        "{said}"
    );
}

const CALLS: &str = r#"
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "echo $OTTER; touch ran" } }]
[[turns]]
text = "Then: {{result}}"
[[turns]]
text = "So: {{lastUser}}"
"#;

const RISKY: &str = r#"{
  "permissions": { "allow": ["Bash(echo:*)", "bash"], "deny": ["write"] },
  "env": { "OTTER": "holds hands" },
  "sandbox": { "enabled": false },
  "hooks": { "PostToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command", "command": "echo mind the otter >&2; exit 2" }] }] }
}"#;

#[test]
fn what_a_folder_allows_and_runs_counts_only_where_it_is_trusted() {
    let user = User::new();
    let fake = user.script(CALLS);
    project(&user, ".flovyn/settings.json", RISKY);
    let output = user.run(&["chat", "-p", "Go", &fake, "--output-format", "stream-json"]);
    let (text, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), beside(&output));
    assert!(text.contains("Nobody can be asked") && !user.project().join("ran").exists(), "{text}");
    assert!(said.contains("is not trusted") && said.contains("hooks, permissions that allow, env, sandbox"), "{said}");
    assert!(
        !text.lines().next().unwrap_or_default().contains("\"write\""),
        "what is refused is refused anyway: {text}"
    );
    let text = user.chat(&["-p", "Go", &fake, "--trust"]);
    assert!(text.contains("holds hands") && text.contains("A hook of the user's says: mind the otter"), "{text}");
    assert!(user.project().join("ran").exists());
    let output = user.run(&["chat", "-p", "Go", &fake]);
    assert!(beside(&output).contains("is not trusted"), "--trust holds for one run: {}", told(&output));
}

#[test]
fn what_files_refuse_stays_refused_and_what_they_ask_about_an_option_may_allow() {
    let user = User::new();
    let fake = user.script(CALLS);
    home(&user, "settings.json", r#"{"permissions": {"ask": ["bash"]}}"#);
    let text = user.chat(&["-p", "Go", &fake, "--yes", "--unsandboxed"]);
    assert!(user.project().join("ran").exists(), "{text}");
    home(&user, "settings.json", r#"{"permissions": {"deny": ["bash(touch:*)"]}}"#);
    let text = user.chat(&["-p", "Go", &fake, "--yes", "--unsandboxed"]);
    assert!(text.contains("The user's policy does not allow it"), "{text}");
}

#[test]
fn directories_may_be_added_by_files_of_the_user() {
    let user = User::new();
    write(user.folder.path(), "beside/a.txt", "otter\n");
    let beside = user.folder.path().canonicalize().expect("it is there").join("beside");
    let fake = user.script(&format!(
        "[[turns]]\ntoolCalls = [{{ name = \"read\", arguments = {{ path = \"{}/a.txt\" }} }}]\n\
         [[turns]]\ntext = \"Then: {{{{result}}}}\"\n",
        beside.display()
    ));
    assert!(!user.chat(&["-p", "Go", &fake]).contains("otter"));
    home(&user, "settings.json", r#"{"additionalDirectories": ["beside", "none"]}"#);
    let output = user.run(&["chat", "-p", "Go", &fake]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("otter"), "{}", told(&output));
    let said = self::beside(&output);
    assert!(said.contains("~/.flovyn/settings.json: additionalDirectories: there is no directory none"), "{said}");
}

#[test]
fn a_person_is_asked_once_whether_a_folder_is_trusted() {
    let user = User::new();
    let fake = user.script(CALLS);
    project(&user, ".claude/settings.json", r#"{"permissions": {"allow": ["Bash"]}, "statusLine": {"type": "x"}}"#);
    let mut terminal = Terminal::chat(&user, &[&fake, "--unsandboxed"]);
    let text = terminal.shows("Do you trust this folder?");
    assert!(text.contains("permissions that allow"), "{text}");
    terminal.line("y");
    terminal.shows("Flovyn ·");
    terminal.line("Go");
    terminal.shows("Then:");
    terminal.shows("cost unknown");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
    assert!(user.project().join("ran").exists(), "it ran without a question");
    let text = user.chat(&["-p", "Go", &fake, "--unsandboxed"]);
    assert!(text.contains("Then:") && !text.contains("Nobody can be asked"), "the answer is remembered: {text}");
    let mut terminal = Terminal::chat(&user, &[&fake]);
    let text = terminal.shows("Flovyn ·");
    assert!(!text.contains("trust"), "{text}");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_project_may_bring_mcp_servers_and_settings_choose_among_them() {
    let user = User::new();
    let fake = user.script("[[turns]]\ntext = \"Hi.\"\n");
    project(
        &user,
        ".mcp.json",
        r#"{"mcpServers": {"one": {"command": "none-such-one"}, "two": {"command": "none-such-two"}, "odd": {"comand": "x"}}}"#,
    );
    let said = |args: &[&str]| {
        let output = user.run(&[&["chat", "-p", "Hi", &fake], args].concat());
        assert!(output.status.success(), "{}", told(&output));
        beside(&output)
    };
    let text = said(&[]);
    assert!(text.contains("not trusted") && text.contains("MCP servers") && !text.contains("none-such"), "{text}");
    let text = said(&["--trust"]);
    for wanted in ["\"one\"", "\"two\"", "\"odd\"", "It goes on without it."] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    home(&user, "settings.json", r#"{"enabledMcpServers": ["two"]}"#);
    let text = said(&["--trust"]);
    assert!(text.contains("\"two\"") && !text.contains("\"one\""), "{text}");
}

#[test]
fn custom_commands_are_prompts_in_files() {
    let (user, model) = (User::new(), hello());
    home(&user, "commands/greet.md", "---\ndescription: Says hello\nmodel: haiku\n---\nSay hello to $1 and $2.\n");
    project(&user, ".claude/commands/db/migrate.md", "Migrate the database.\n");
    let prompt = |args: &[&str]| {
        let output = run(&user, "", &model, args);
        assert!(output.status.success(), "{}", told(&output));
        let request = model.requests().last().expect("a request").body.clone();
        let said = request["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        (said["content"].to_string(), request["model"].clone())
    };
    let (said, asked) = prompt(&["/greet \"Otto Otter\" Sue"]);
    assert!(said.contains("Say hello to Otto Otter and Sue.") && asked == "claude-haiku-5-5", "{said} {asked}");
    let (said, asked) = prompt(&["/db:migrate now", "--model", "opus"]);
    assert!(said.contains("Migrate the database.\\n\\nArguments: now") && asked == "claude-opus-5-5", "{said} {asked}");
    let (said, _) = prompt(&["/etc/hosts says what?"]);
    assert!(said.contains("/etc/hosts says what?"), "a path is no command: {said}");

    let fake = user.script("[[turns]]\ntext = \"You said {{lastUser}}\"\n");
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("Flovyn ·");
    terminal.line("/help");
    let text = terminal.shows("/greet");
    assert!(text.contains("Says hello") && text.contains("/db:migrate"), "{text}");
    terminal.line("/db:migrate twice");
    terminal.shows("You said Migrate the database.");
    terminal.write("\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_command_of_an_untrusted_project_allows_nothing() {
    let user = User::new();
    let fake = user.script(CALLS);
    project(&user, ".flovyn/commands/go.md", "---\nallowed-tools: Bash(echo:*), bash\n---\nGo on.\n");
    let output = user.run(&["chat", "-p", "/go", &fake, "--unsandboxed"]);
    assert!(beside(&output).contains("allowed-tools of commands"), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Nobody can be asked"), "{}", told(&output));
    let text = user.chat(&["-p", "/go", &fake, "--unsandboxed", "--trust"]);
    assert!(text.contains("Then:") && !text.contains("Nobody can be asked"), "{text}");
}

#[test]
fn hooks_stand_before_a_tool_at_the_prompt_and_at_the_end() {
    let user = User::new();
    let fake = user.script(CALLS);
    let hooks = json!({ "hooks": {
        "PreToolUse": [{ "matcher": "Bash", "hooks": [
            { "type": "command", "command": "cat > told.json; grep -q ran told.json && { echo 'no touching' >&2; exit 2; }" },
        ] }],
        "UserPromptSubmit": [{ "hooks": [
            { "type": "command", "command": "grep -q secret && { echo 'no secrets' >&2; exit 2; }; echo It is Friday." },
        ] }],
        "Stop": [{ "hooks": [
            { "type": "command", "command": "test -e stopped && exit 0; touch stopped; echo 'look again' >&2; exit 2" },
        ] }],
    } });
    home(&user, "settings.json", &hooks.to_string());
    let output = user.run(&["chat", "-p", "my secret", &fake]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(beside(&output).contains("a hook does not allow this prompt: no secrets"), "{}", told(&output));
    assert!(user.sessions().is_empty(), "nothing was begun");
    let text = user.chat(&["-p", "Go", &fake, "--yes", "--unsandboxed"]);
    assert!(text.contains("A hook of the user's does not allow this call: no touching"), "{text}");
    assert!(text.contains("So: A hook of the user's says: look again"), "{text}");
    assert!(!user.project().join("ran").exists());
    let told: Value = serde_json::from_str(&std::fs::read_to_string(user.project().join("told.json")).expect("a file"))
        .expect("JSON");
    assert_eq!((&told["hook_event_name"], &told["tool_name"]), (&json!("PreToolUse"), &json!("bash")));
    let session = user.sessions().remove(0);
    let db = format!("sqlite:{}", user.folder.path().join("home/chat.db").display());
    let output = user.run(&["runs", "entries", &db, &session]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("It is Friday."), "{}", super::told(&output));
}

#[test]
fn a_command_that_is_always_allowed_in_a_project_runs_unasked_in_the_next_chat() {
    let user = User::new();
    let call = |command: &str| {
        format!("[[turns]]\ntoolCalls = [{{ name = \"bash\", arguments = {{ command = \"{command}\" }} }}]\n")
    };
    let end = "[[turns]]\ntext = \"Then: {{result}}\"\n";
    let touched = |name: &str| user.project().join(name).exists();

    let fake = user.script(&(call("touch otter") + end));
    let mut terminal = Terminal::chat(&user, &[&fake, "Go"]);
    let text = terminal.shows("Allow it?");
    assert!(text.contains("● bash touch otter") && text.contains("p always in this project"), "{text}");
    assert!(!touched("otter"));
    terminal.line("p");
    terminal.shows("Kept in .flovyn/settings.local.json: bash(touch otter:*)");
    terminal.shows("Then:");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
    assert!(touched("otter"));
    let own = user.project().join(".flovyn");
    let kept = std::fs::read_to_string(own.join("settings.local.json")).expect("the settings");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    assert_eq!(kept, json!({ "permissions": { "allow": ["bash(touch otter:*)"] } }));
    assert_eq!(std::fs::read_to_string(own.join(".gitignore")).expect("a file"), "settings.local.json\n");

    std::fs::remove_file(user.project().join("otter")).expect("it was there");
    let fake = user.script(&(call("touch otter") + &call("touch eel") + end));
    let mut terminal = Terminal::chat(&user, &[&fake]);
    // Such a file may come with a repository, so it is asked about as others are.
    let text = terminal.shows("Do you trust this folder?");
    assert!(text.contains("permissions that allow"), "{text}");
    terminal.line("y");
    terminal.shows("Flovyn ·");
    terminal.line("Go");
    let text = terminal.shows("Allow it?");
    assert!(text.contains("● bash touch eel") && text.contains("● bash touch otter"), "{text}");
    assert!(touched("otter") && !touched("eel"), "the first has run unasked");
    terminal.line("n");
    terminal.shows("Then: The user did not allow this call.");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));

    std::fs::remove_file(user.project().join("otter")).expect("it was there");
    let text = user.chat(&["-p", "Go", &fake]);
    assert!(text.contains("Nobody can be asked") && touched("otter") && !touched("eel"), "{text}");
}

#[test]
fn hooks_that_a_project_has_for_claude_code_run_here() {
    let user = User::new();
    let write = |name: &str, text: &str| {
        format!(
            "[[turns]]\ntoolCalls = [{{ name = \"write\", arguments = {{ path = \"{name}\", content = \"{text}\" }} }}]\n"
        )
    };
    let end = "[[turns]]\ntext = \"Then: {{result}}\"\n";
    let fake = user.script(&(write("a.txt", "otter") + &write("b.txt", "eel") + end));
    let hooks = json!({ "hooks": {
        "PreToolUse": [
            { "matcher": "Write|Edit", "hooks": [
                { "type": "command", "command": "grep -q eel && { echo 'no eels' >&2; exit 2; }; exit 0" },
            ] },
            { "matcher": "Bash", "hooks": [{ "type": "command", "command": "touch of-another-tool" }] },
        ],
        "PostToolUse": [{ "matcher": "Write", "hooks": [
            { "type": "command", "command": "cat > told.json; tr a-z A-Z < a.txt > loud.txt", "timeout": 30 },
        ] }],
    } });
    project(&user, ".claude/settings.json", &hooks.to_string());
    let read = |name: &str| std::fs::read_to_string(user.project().join(name)).ok();

    let output = user.run(&["chat", "-p", "Go", &fake, "--yes"]);
    assert!(beside(&output).contains("is not trusted") && beside(&output).contains("hooks"), "{}", told(&output));
    assert_eq!((read("b.txt").as_deref(), read("loud.txt")), (Some("eel"), None), "{}", told(&output));
    for name in ["a.txt", "b.txt"] {
        std::fs::remove_file(user.project().join(name)).expect("it was there");
    }

    let mut terminal = Terminal::chat(&user, &[&fake, "--yes"]);
    let text = terminal.shows("Do you trust this folder?");
    assert!(text.contains("comes with hooks:"), "{text}");
    terminal.line("y");
    terminal.shows("Flovyn ·");
    terminal.line("Go");
    terminal.shows("Then: A hook of the user's does not allow this call: no eels");
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!((read("a.txt").as_deref(), read("b.txt")), (Some("otter"), None));
    assert_eq!(read("loud.txt").as_deref(), Some("OTTER"), "the hook behind a call has run");
    assert_eq!(read("of-another-tool"), None);
    let told: Value = serde_json::from_str(&read("told.json").expect("a file")).expect("JSON");
    assert_eq!((&told["hook_event_name"], &told["tool_name"]), (&json!("PostToolUse"), &json!("write")));
    assert_eq!(told["tool_input"]["path"], "a.txt");
}
