//! Answers of a form: `--output-schema`, with models that can be forced into it and with those that call `final_answer`.

use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use serde_json::{Value, json};

const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 1}},
    "required": ["name", "age"], "additionalProperties": false}"#;

fn otter() -> Value {
    json!({"name": "Lutra", "age": 3})
}

fn gives(is_native: bool, value: &Value) -> Turn {
    if is_native { Turn::text(value.to_string()) } else { Turn::call("final_answer", value.clone()) }
}

/// Runs the command with a model that is forced into forms, or is not.
fn run(user: &User, model: &FakeLlm, is_native: bool, args: &[&str]) -> Output {
    let (model, url) = (if is_native { "claude-sonnet-5-5" } else { "claude-0" }, model.url());
    let model = format!("anthropic/{model}");
    let mut command = user.flovyn(&[&["chat", "-p", "--model", &model], args].concat());
    command.env("ANTHROPIC_BASE_URL", &url).output().expect("it runs")
}

fn result(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("{}", told(output)))
}

#[test]
fn an_answer_is_json_of_the_form_that_was_asked_for() {
    for is_native in [true, false] {
        let user = User::new();
        let file = user.project().join("otter.json");
        std::fs::write(&file, format!("\u{feff}{SCHEMA}")).expect("a file");
        let wrong = json!({"name": "Lutra", "age": 0});
        let turns = [
            gives(is_native, &wrong),
            gives(is_native, &otter()),
            Turn::text("Just words."),
            gives(is_native, &otter()),
        ];
        let model = FakeLlm::start(Script::new(turns)).expect("a model");
        let output = run(&user, &model, is_native, &["Which?", "--output-schema", "otter.json"]);
        assert!(output.status.success(), "{}", told(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", otter()), "that alone is written");
        // The form was that message's own.
        let output = run(&user, &model, is_native, &["And now?", "--continue", "--json"]);
        assert_eq!((&result(&output)["text"], result(&output).get("structured_output")), (&json!("Just words."), None));
        let output = run(&user, &model, is_native, &["Again", "--continue", "--json-schema", SCHEMA, "--json"]);
        let said = result(&output);
        assert_eq!((&said["structured_output"], &said["subtype"]), (&otter(), &json!("success")), "{said}");
        // A session that was done says it again, to whoever asks for text, too.
        let output = run(&user, &model, is_native, &["--resume"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(serde_json::from_str::<Value>(text.trim()).expect("JSON"), otter());
        assert_eq!((model.paid(), user.sessions().len()), (4, 1));
    }
}

#[test]
fn an_answer_that_never_has_the_form_has_a_code_of_its_own() {
    let user = User::new();
    let model = FakeLlm::start(Script::new([Turn::text("No.").times(9)])).expect("a model");
    let output = run(&user, &model, true, &["Which?", "--output-schema", SCHEMA, "--output-format", "stream-json"]);
    assert_eq!((output.status.code(), model.paid()), (Some(7), 3), "{}", told(&output));
    let said = result(&output);
    assert_eq!(said["subtype"], "error_max_structured_output_retries", "{said}");
    assert_eq!((&said["stop_reason"], &said["is_error"]), (&json!("invalid_output"), &json!(true)));
    // The session goes on.
    let output = run(&user, &model, true, &["And now?", "--continue"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "No.\n", "{}", told(&output));
}

#[test]
fn a_schema_that_is_none_is_wrong_usage() {
    let user = User::new();
    let model = FakeLlm::start(Script::new([Turn::text("No.").times(9)])).expect("a model");
    for (schema, word) in [("none.json", "none.json"), ("{", "JSON"), (r#"{"type": "otter"}"#, "otter")] {
        let output = run(&user, &model, true, &["Which?", "--output-schema", schema]);
        assert_eq!((output.status.code(), model.paid()), (Some(2), 0), "{}", told(&output));
        assert!(told(&output).contains(word), "{}", told(&output));
    }
}
