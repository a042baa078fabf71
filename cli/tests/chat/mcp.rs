//! MCP servers in a chat: real servers, whose tools are allowed and whose questions are answered at a terminal.

use super::terminal::Terminal;
use super::workers::start;
use super::*;
use crate::server::{ERA, FOLDER, KEY, noted};
use serde_json::{Value, json};

/// How the probe of the toolkit's tests is started: this very program. The shell gives it descriptor 3 for what the test
/// harness does not print on.
fn probe(user: &User) -> Value {
    probe_of(user, "stateless")
}

fn probe_of(user: &User, era: &str) -> Value {
    let program = std::env::current_exe().expect("this program");
    let script = "exec \"$0\" --exact server::on_pipes --ignored --nocapture 3>&1 >/dev/null";
    json!({
        "command": "sh", "args": ["-c", script, program],
        "env": { FOLDER: user.folder.path(), ERA: era, "KEY": KEY },
    })
}

/// Writes a file with servers and gives its path.
fn file(path: PathBuf, servers: &Value) -> String {
    std::fs::write(&path, json!({ "mcpServers": servers }).to_string()).expect("a file");
    path.display().to_string()
}

/// A file with the probe alone.
fn servers(user: &User) -> String {
    file(user.folder.path().join("servers.json"), &json!({ "lake": probe(user) }))
}

/// The same, which speaks the protocol with a handshake and asks by requests of its own.
fn servers_of_the_handshake(user: &User) -> String {
    file(user.folder.path().join("servers.json"), &json!({ "lake": probe_of(user, "handshake") }))
}

/// A script that calls a tool of the probe and tells what came of it.
fn calls(user: &User, tool: &str, arguments: &str) -> String {
    user.script(&format!(
        "[[turns]]\ntoolCalls = [{{ name = \"mcp__lake__{tool}\", arguments = {{ {arguments} }} }}]\n\
         [[turns]]\ntext = \"So: {{{{result}}}}\"\n"
    ))
}

fn times(user: &User, line: &str) -> usize {
    noted(user.folder.path(), line)
}

/// Leaves a chat.
fn leaves(mut terminal: Terminal) {
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_tool_is_listed_allowed_and_used() {
    let user = User::new();
    let fake = calls(&user, "once", "depth = 3, note = \"Deep.\"");
    let mut terminal = Terminal::chat(&user, &[&fake, "--mcp", &servers(&user)]);
    terminal.shows("MCP servers: lake (");
    terminal.line("/tools");
    let text = terminal.shows("The model may call");
    for shown in [
        "without asking  bash-output, bash-stop, find, grep, read, todo",
        "asked first     bash, edit",
        "lake",
        "without asking  echo, ",
    ] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    terminal.line("Go");
    let text = terminal.shows("Allow it?");
    for shown in ["● lake: once", "│ depth: 3", "│ note: Deep.", "a always (every once of lake)"] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    assert_eq!(times(&user, "once"), 0, "nothing runs before it is allowed");
    terminal.line("y");
    let text = terminal.shows("So: done 1");
    assert!(text.contains("● lake: once depth: 3 · note: Deep."), "{text}");
    leaves(terminal);
}

#[test]
fn a_server_asks_and_is_answered_field_by_field() {
    let user = User::new();
    let fake = calls(&user, "asks_much", "");
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &servers(&user), "Go"]);
    let text = terminal.shows("▸ Name");
    for shown in ["? lake asks before asks_much goes on  1 of 2", "What lake shall it be?", "As it is on the map."] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    terminal.line("ab");
    terminal.shows("shorter than 3 characters");
    terminal.line("/tmp");
    terminal.shows("1 Small");
    terminal.line("/back");
    terminal.shows("Enter takes /tmp");
    terminal.line("Ness");
    terminal.shows("▸ size");
    terminal.line("large");
    terminal.shows("a whole number, 1 to 5");
    terminal.line("9");
    terminal.shows("9 is greater than the maximum of 5");
    // The server's own proposal, then a field that may be left out.
    terminal.line("");
    terminal.shows("y or n (may be left out)");
    terminal.line("");
    let text = terminal.shows("https://lake.example/login?state=1");
    assert!(text.contains("2 of 2") && text.contains("y when you are done there"), "{text}");
    terminal.line("y");
    let text = terminal.shows("cost unknown");
    assert!(text.contains("│ Name: Ness") && text.contains("│ size: Large"), "{text}");
    // What the server was told, whatever the width of the screen.
    let lake =
        r#"So:{"lake":{"action":"accept","content":{"depth":2,"name":"Ness","size":"l"}},"login":{"action":"accept"}}"#;
    let told: String = text.split_whitespace().collect();
    assert!(told.contains(lake), "{text}");
    assert_eq!(times(&user, "asks_much"), 1, "the call went on once");
    leaves(terminal);
}

#[test]
fn a_question_is_declined_or_closed() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    for (word, action, shown) in
        [("/decline", "decline", "│ declined"), ("/cancel", "cancel", "│ closed without an answer")]
    {
        let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &servers(&user), "Go"]);
        terminal.shows("Which branch?");
        terminal.line(word);
        let text = terminal.shows(&format!("So: {{\"action\":\"{action}\"}}"));
        assert!(text.contains(shown), "{text}");
        leaves(terminal);
    }
}

#[test]
fn who_stops_the_agent_is_asked_no_more() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &servers(&user), "Go"]);
    terminal.shows("▸ branch");
    terminal.write("\u{3}");
    let text = terminal.shows("■ stopped by Ctrl-C");
    assert!(text.contains("Not gone on with") && !text.contains("▸ branch"), "{text}");
    terminal.line("And?");
    terminal.shows("So: Not gone on with");
    assert_eq!(times(&user, "asks"), 0, "the call did not go on");
    leaves(terminal);
}

#[test]
fn a_line_that_is_being_written_waits_for_the_answer() {
    let user = User::new();
    let go = user.project().join("go");
    let fake = user.script(
        "[[turns]]\ntoolCalls = [{ name = \"bash\", arguments = { command = \"until [ -e go ]; do sleep 0.05; done\" } }]\n\
         [[turns]]\ntoolCalls = [{ name = \"mcp__lake__asks\", arguments = {} }]\n\
         [[turns]]\ntext = \"So: {{result}}\"\n",
    );
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--unsandboxed", "--mcp", &servers(&user), "Go"]);
    terminal.shows("● bash until");
    terminal.write("half a thou");
    terminal.shows("› half a thou");
    std::fs::write(go, "").expect("it may go on");
    terminal.waits("the question with a line of its own", |text| {
        text.contains("Which branch?") && !text.contains("half a thou")
    });
    terminal.line("main");
    terminal.shows("So: {");
    terminal.shows("› half a thou");
    leaves_by_key(terminal);
}

/// Empties the line and leaves a chat.
fn leaves_by_key(mut terminal: Terminal) {
    terminal.write("\u{15}\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_question_of_a_chat_that_was_killed_comes_again_once() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    let file = servers(&user);
    let terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &file, "Go"]);
    terminal.shows("Which branch?");
    terminal.kill();
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &file, "--resume"]);
    let text = terminal.shows("▸ branch");
    assert!(text.contains("› Go") && text.matches("Which branch?").count() == 1, "{text}");
    // An answer from elsewhere that does not fit the form is told, and the question stays.
    let session = user.sessions().remove(0);
    let db = format!("sqlite:{}", user.folder.path().join("home/chat.db").display());
    let shown = user.run(&["runs", "entries", &db, &session, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let of_type = |entry: &&Value| entry["entryType"] == "input_request";
    let request =
        shown["items"].as_array().expect("entries").iter().find(of_type).expect("a request")["content"].clone();
    let wrong = json!({ "id": request["id"], "hash": request["hash"],
        "responses": { "branch": { "action": "accept", "content": { "branch": 3 } } } });
    let sent = user.run(&["runs", "signal", &db, &session, "input", &wrong.to_string()]);
    assert!(sent.status.success(), "{}", told(&sent));
    let text = terminal.shows("does not fit the form");
    assert_eq!(text.matches("▸ branch").count(), 1, "{text}");
    terminal.line("main");
    let text = terminal.shows("So: {\"action\":\"accept\",\"content\":{\"branch\":\"main\"}} state:");
    assert!(text.contains("│ branch: main"), "{text}");
    assert_eq!(times(&user, "asks"), 1, "the call went on once");
    leaves(terminal);
}

#[test]
fn a_server_of_the_handshake_asks_as_often_as_it_wants() {
    let user = User::new();
    let fake = calls(&user, "asks", "times = 2");
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &servers_of_the_handshake(&user), "Go"]);
    let text = terminal.shows("▸ branch");
    assert!(text.contains("? lake asks before asks goes on") && text.contains("Which branch?"), "{text}");
    terminal.line("main");
    terminal.waits("the second question", |text| text.contains("│ branch: main") && text.contains("▸ branch"));
    terminal.line("/decline");
    let text = terminal.shows("cost unknown");
    let told: String = text.split_whitespace().collect();
    let answers = r#"So:{"action":"accept","content":{"branch":"main"}}{"action":"decline"}state:"1""#;
    assert!(told.contains(answers), "{text}");
    assert_eq!((times(&user, "asked"), times(&user, "asks")), (1, 1), "it is one call");
    leaves(terminal);
}

#[test]
fn who_stops_the_agent_calls_off_what_a_server_of_the_handshake_asks() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &servers_of_the_handshake(&user), "Go"]);
    terminal.shows("▸ branch");
    terminal.write("\u{3}");
    terminal.shows("■ stopped by Ctrl-C");
    terminal.waits("the server to hear of it", |_| times(&user, "question called off") == 1);
    terminal.line("And?");
    terminal.shows("So: Not gone on with");
    leaves(terminal);
}

#[test]
fn a_killed_chat_loses_what_a_server_of_the_handshake_asked_and_says_so() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    let file = servers_of_the_handshake(&user);
    let terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &file, "Go"]);
    terminal.shows("Which branch?");
    terminal.kill();
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &file, "--resume"]);
    terminal.shows("▸ branch");
    terminal.line("main");
    let text = terminal.shows("So: Interrupted after start, outcome unknown");
    assert!(text.contains("│ branch: main"), "what was answered is there: {text}");
    assert_eq!((times(&user, "asked"), times(&user, "asks")), (1, 0), "the call was not made again");
    leaves(terminal);
}

#[test]
fn a_chat_that_was_killed_goes_on_without_its_server() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    let terminal = Terminal::chat(&user, &[&fake, "--yes", "--mcp", &servers(&user), "Go"]);
    terminal.shows("Which branch?");
    terminal.kill();
    let mut terminal = Terminal::chat(&user, &[&fake, "--yes", "--resume"]);
    terminal.shows("! lake is not here to take an answer");
    terminal.line("main");
    terminal.shows("So: There is no tool");
    assert_eq!(times(&user, "asks"), 0);
    leaves(terminal);
}

#[test]
fn where_nobody_is_there_a_question_is_closed_and_a_call_is_refused() {
    let user = User::new();
    let (file, fake) = (servers(&user), calls(&user, "asks", ""));
    let output = user.run(&["chat", "-p", "Go", &fake, "--yes", "--mcp", &file]);
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "So: {\"action\":\"cancel\"} state: \"1\"\n");
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(beside.contains("lake asks before asks goes on: Which branch? Nobody can answer here"), "{beside}");
    assert!(beside.contains("✓ lake: asks"), "{beside}");
    let output = user.run(&["chat", "-p", "Go", &fake, "--yes", "--mcp", &servers_of_the_handshake(&user)]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "So: {\"action\":\"cancel\"} state: \"1\"\n",
        "{}",
        told(&output)
    );
    servers(&user);
    let output = user.run(&["chat", "-p", "Go", &fake, "--mcp", &file, "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one object and nothing else");
    assert!(answer["text"].as_str().is_some_and(|text| text.contains("did not allow this call")), "{answer}");
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(beside.contains("lake: asks was not allowed; --yes, --approve or --allowed-tools allows it"), "{beside}");
}

#[test]
fn a_policy_may_ask_about_what_a_server_calls_a_look() {
    let user = User::new();
    let (file, fake) = (servers(&user), calls(&user, "echo", "text = \"hello\""));
    let text = user.chat(&["-p", "Go", &fake, "--mcp", &file]);
    assert_eq!(text, "So: hello\n", "what only looks is not asked about");
    let policy = user.folder.path().join("policy.json");
    std::fs::write(&policy, r#"{"rules": [{"tool": "mcp__lake__*", "decision": "ask"}]}"#).expect("a file");
    let text = user.chat(&["-p", "Go", &fake, "--mcp", &file, "--approve", &policy.display().to_string()]);
    assert!(text.contains("did not allow this call"), "{text}");
}

#[test]
fn a_session_goes_on_without_a_server_that_cannot_be_used() {
    let user = User::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("an address");
    let given = json!({ "lake": probe(&user), "gone": { "command": "no-such-mcp-server" },
        "far": { "url": format!("http://{closed}/") } });
    let file = file(user.folder.path().join("servers.json"), &given);
    let fake = calls(&user, "echo", "text = \"hello\"");
    let output = user.run(&["chat", "-p", "Go", &fake, "--mcp", &file]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "So: hello\n", "{}", told(&output));
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    for server in ["The MCP server \"gone\": the program", "The MCP server \"far\": "] {
        assert!(beside.contains(server), "{server}: {beside}");
    }
    assert_eq!(beside.matches("It goes on without it.").count(), 2, "{beside}");
    let mut terminal = Terminal::chat(&user, &[&fake, "--mcp", &file]);
    terminal.shows("! The MCP server \"gone\": the program");
    terminal.line("Go");
    terminal.shows("So: hello");
    leaves(terminal);
}

#[test]
fn a_server_that_is_slow_to_start_holds_nobody_up() {
    let user = User::new();
    let mut slow = probe(&user);
    let command = slow["args"][1].as_str().expect("a script").to_owned();
    let go = user.folder.path().join("go");
    slow["args"][1] = json!(format!("until [ -e {} ]; do sleep 0.02; done; {command}", go.display()));
    let file = file(user.folder.path().join("servers.json"), &json!({ "lake": slow }));
    let fake = calls(&user, "echo", "text = \"hello\"");
    let terminal = Terminal::chat(&user, &[&fake, "--mcp", &file]);
    terminal.shows("MCP servers are starting");
    leaves(terminal);
    let mut terminal = Terminal::chat(&user, &[&fake, "--mcp", &file]);
    terminal.shows("MCP servers are starting");
    terminal.line("/tools");
    terminal.shows("the MCP servers are starting");
    terminal.line("Go");
    terminal.shows("waiting for MCP servers to start");
    std::fs::write(go, "").expect("it may start");
    let text = terminal.shows("So: hello");
    assert!(text.contains("MCP servers: lake ("), "{text}");
    leaves(terminal);
}

#[test]
fn a_file_that_cannot_be_used_ends_the_command() {
    let user = User::new();
    let fake = calls(&user, "echo", "");
    let wrong = user.folder.path().join("wrong.json");
    std::fs::write(&wrong, r#"{"servers": {}}"#).expect("a file");
    for (file, found) in [
        (wrong.display().to_string(), "there is no object \"mcpServers\" in it, only \"servers\""),
        ("nowhere.json".to_owned(), "it cannot be read"),
    ] {
        let output = user.run(&["chat", "-p", "Go", &fake, "--mcp", &file]);
        let beside = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{beside}");
        assert!(beside.contains(&file) && beside.contains(found) && beside.contains("expected is"), "{beside}");
    }
    assert!(user.sessions().is_empty(), "nothing was started");
    // The user's own file is read where none is named, and the same is said of it.
    let own = user.folder.path().join("home/mcp.json");
    std::fs::write(&own, "[]").expect("a file");
    let output = user.run(&["chat", "-p", "Go", &fake]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("home/mcp.json"), "{}", told(&output));
    file(own, &json!({ "lake": probe(&user) }));
    assert_eq!(user.chat(&["-p", "Go", &calls(&user, "echo", "text = \"own\"")]), "So: own\n");
}

#[test]
fn the_servers_of_a_project_are_not_started_by_themselves() {
    let user = User::new();
    let started = user.folder.path().join("started");
    let touch = json!({ "lake": { "command": "touch", "args": [started] } });
    file(user.project().join(".mcp.json"), &touch);
    let fake = user.script("[[turns]]\ntext = \"Hello.\"\n");
    let output = user.run(&["chat", "-p", "Go", &fake]);
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && beside.contains("is ignored: MCP servers. --trust takes it"), "{beside}");
    let mut terminal = Terminal::chat(&user, &[&fake]);
    terminal.shows("Do you trust this folder?");
    terminal.line("n");
    terminal.shows("is ignored: MCP servers");
    leaves(terminal);
    assert!(!started.exists(), "nobody asked for it");
    let output = user.run(&["chat", "-p", "Go", &fake, "--mcp", ".mcp.json"]);
    assert!(output.status.success() && started.exists(), "it was named: {}", told(&output));
}

#[test]
fn a_server_asks_through_a_server_whose_worker_calls_it() {
    let user = User::new();
    let fake = calls(&user, "asks", "");
    let served = format!("sqlite:{}", user.folder.path().join("served.db").display());
    let dev = user.flovyn(&["dev", "--json", "--db", &served, "--http-port", "0", "--grpc-port", "0"]);
    let (_server, line) = start(dev);
    let said: Value = serde_json::from_str(&line).expect("JSON");
    let url = said["grpc"].as_str().expect("an address").to_owned();
    let (_worker, line) = start(user.flovyn(&["worker", &url, "--json", "--yes", &fake, "--mcp", &servers(&user)]));
    let said: Value = serde_json::from_str(&line).expect("JSON");
    assert!(said["mcpServers"]["lake"].as_u64().is_some_and(|tools| tools > 10), "{said}");
    let words = ["--db", &url, "--model", "fake/scripted"];
    let mut terminal = Terminal::chat(&user, &[&words[..], &["Go"]].concat());
    terminal.shows("a always (every asks of lake)");
    terminal.line("y");
    terminal.shows("Which branch?");
    terminal.line("/tools");
    terminal.shows("asked first unless its server says that it only looks");
    terminal.shows("asks_much");
    terminal.line("main");
    terminal.shows("So: {\"action\":\"accept\",\"content\":{\"branch\":\"main\"}}");
    leaves(terminal);
    let output = user.run(&[&["chat", "-p", "Go", "--mcp", "x.json"][..], &words].concat());
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && beside.contains("--mcp x.json"), "{beside}");
}

/// The reference server `everything`, as `make setup` installs it.
fn everything(user: &User) -> String {
    let installed =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolkit/tests/mcp/reference/node_modules");
    let program = installed.join("@modelcontextprotocol/server-everything/dist/index.js");
    assert!(program.exists(), "{} is missing; `make setup` installs it", program.display());
    let server = json!({ "command": "node", "args": [program, "stdio"] });
    file(user.folder.path().join("everything.json"), &json!({ "e": server }))
}

#[test]
fn a_prompt_of_a_server_is_a_prompt_without_a_terminal() {
    let user = User::new();
    let fake = user.script("[otherwise]\ntext = \"So: {{lastUser}}\"\n");
    let servers = everything(&user);
    let chat = |prompt: &str| user.run(&["chat", &fake, "--mcp", &servers, "-p", prompt]);
    let output = chat("/mcp__e__args-prompt Portland Oregon");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "So: What's weather in Portland, Oregon?");
    for (prompt, why) in [
        ("/mcp__e__args-prompt", "needs \"city\"; write /mcp__e__args-prompt city [state]"),
        ("/mcp__e__nothing", "there is no prompt /mcp__e__nothing; there are /mcp__e__args-prompt, "),
    ] {
        let output = chat(prompt);
        let beside = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty() && beside.contains(why), "{beside}");
    }
}

#[test]
fn a_prompt_of_a_server_is_a_command() {
    let user = User::new();
    let fake = user.script("[[turns]]\ntext = \"So: {{lastUser}}\"\n[[turns]]\ntext = \"Fine.\"\n");
    let mut terminal = Terminal::chat(&user, &[&fake, "--mcp", &everything(&user)]);
    terminal.shows("MCP servers: e (");
    terminal.write("/mcp__e__arg");
    let text = terminal.shows("/mcp__e__args-prompt");
    assert!(text.contains("CITY [STATE]"), "{text}");
    terminal.line("s-prompt");
    terminal.shows("needs \"city\"; write /mcp__e__args-prompt city [state]");
    terminal.line("/mcp__e__args-prompt Portland Oregon");
    let text = terminal.shows("What's weather in Portland, Oregon?");
    assert!(!text.contains("there is no command"), "{text}");
    terminal.shows("So: ");
    terminal.line("/mcp");
    let text = terminal.shows("Prompts:");
    assert!(text.contains("e: ") && text.contains("/mcp__e__simple-prompt"), "{text}");
    // The server may be asked again meanwhile, and until it has answered nobody knows what it does not have. The hint that
    // says so looks the same each time.
    let unknown = "there is no command /mcp__e__nothing";
    for _ in 0..100 {
        terminal.line("/mcp__e__nothing");
        std::thread::sleep(std::time::Duration::from_millis(200));
        if terminal.text().contains(unknown) {
            break;
        }
    }
    terminal.shows(unknown);
    leaves(terminal);
}
