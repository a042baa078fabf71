//! A server of the public Python package, as `make setup` installs it: tools, a resource, a prompt, a question, a tool that comes
//! while a run goes on.

use crate::changing::Lab;
use crate::sampling::asked;
use crate::{environment, servers};
use flovyn_core::Payload;
use flovyn_core::model::Delivery;
use flovyn_toolkit::fake_llm::Turn;
use flovyn_toolkit::mcp::{InputAnswer, InputQuestion, InputResponse};
use flovyn_toolkit::message::Message;
use flovyn_toolkit::react::{INPUT, InputReply, RunOutcome};
use flovyn_toolkit::tools::Toolbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The version of the protocol that has no handshake.
const STATELESS: &str = "2026-07-28";

/// The server `lake.py`.
fn lake() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../.venv/bin/python");
    assert!(python.exists(), "{} is missing; `make setup` installs it", python.display());
    json!({ "command": python, "args": [root.join("tests/mcp/reference/lake.py")] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_python_package_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let call = |tool: &str, arguments: Value| Turn::call(format!("mcp__probe__{tool}"), arguments);
    let turns = [
        call("depth", json!({ "lake": "Ada" })),
        call("list_resources", json!({})),
        call("read_resource", json!({ "uri": "lake://otters" })),
        call("swim", json!({ "lake": "Ada" })),
        call("teach", json!({})),
        call("dive", json!({})),
        Turn::text("Done."),
    ];
    let lab = Lab::new(folder.path(), lake(), turns).await;
    assert!(lab.toolkit.problems().is_empty(), "{:?}", lab.toolkit.problems());
    assert_eq!(lab.toolkit.mcp_servers().protocol_versions()["probe"], STATELESS);
    let said = lab.toolkit.mcp_servers().instructions();
    assert_eq!(said["probe"], "Ask for depths before anybody swims.");
    let (prompts, problems) = lab.toolkit.mcp_servers().prompts().await;
    assert!(problems.is_empty(), "{problems:?}");
    let prompt = prompts.first().expect("a prompt");
    assert_eq!((prompts.len(), prompt.name.as_str()), (1, "mcp__probe__describe"));
    let arguments = prompt.arguments_of("\"Lake Ada\" poetic").expect("both are given");
    let messages = lab.toolkit.mcp_servers().get_prompt(prompt, arguments).await.expect("its messages");
    assert_eq!(messages, [Message::user("Describe Lake Ada in a poetic way.")]);

    let run = lab.start().await;
    let request = asked(&run).await;
    let (key, question) = request.questions.iter().next().expect("a question");
    let InputQuestion::Form { message, .. } = question else { panic!("{request:?}") };
    assert_eq!(message, "Who swims?");
    let response = InputResponse::Accept { content: Some(json!({ "name": "Bob", "is_brave": true })) };
    let responses = BTreeMap::from([(key.clone(), response)]);
    let answer = InputAnswer { hash: request.hash.clone(), responses };
    let payload = Payload::of(&InputReply { id: request.id.clone(), answer }).expect("JSON");
    run.signal(INPUT, payload, Delivery::NextStep, None).await.expect("the run takes it");
    let outcome: RunOutcome =
        run.result(Some(Duration::from_secs(30))).await.expect("it completes").parse().expect("an outcome");
    assert_eq!(outcome.text, "Done.");
    let told: Vec<_> = (1..7).map(|request| lab.told(request)).collect();
    assert!(told[0].contains("\"metres\": 3"), "{}", told[0]);
    assert!(told[1].contains("- lake://otters otters"), "{}", told[1]);
    assert_eq!(told[2], "lake://otters:\nAda and Bob");
    assert_eq!(told[3], "Bob swims in Ada, brave: True.");
    assert_eq!((told[4].as_str(), told[5].as_str()), ("They can dive now.", "They dive."));
    assert!(!lab.offered(4, "dive") && lab.offered(5, "dive"), "it is offered once it is there");
    lab.toolkit.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_slow_to_start_can_ask_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = lake();
    let script = "sleep 2.5; exec \"$0\" \"$1\"";
    config["args"] = json!(["-c", script, config["command"], config["args"][0]]);
    config["command"] = "sh".into();
    let servers = servers(config, Duration::from_secs(20));
    let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(servers.protocol_versions()["probe"], STATELESS, "it was not taken for one of the handshake");
    let swims = toolbox.call("mcp__probe__swim", json!({ "lake": "Ada" }), &environment(folder.path())).await;
    assert_eq!(swims.expect("an outcome").error_code(), Some("input_required"));
    servers.close().await;
}
