//! Which model a chat asks: short names, the key that is there, levels of thinking, and what is said where there is none.

use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use serde_json::{Value, json};

/// A chat with these words, whose environment says that two providers are there, and what they were asked.
fn asked(args: &[&str], variables: &[(&str, &str)]) -> (Output, Vec<Value>) {
    let (user, model) = (User::new(), FakeLlm::start(Script::new([Turn::text("Hello.").times(9)])).expect("a model"));
    let mut command = user.flovyn(&[&["chat", "-p", "Hi", "--json"], args].concat());
    command.env("ANTHROPIC_BASE_URL", model.url()).env("OPENAI_BASE_URL", model.openai_url());
    command.envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    (output, model.requests().iter().map(|request| request.body.clone()).collect())
}

#[test]
fn a_short_name_is_the_newest_model_and_the_default_is_a_sensible_one() {
    for (args, wanted) in [
        (&[][..], "claude-sonnet-5-5"),
        (&["--model", "opus"][..], "claude-opus-5-5"),
        (&["--model", "gpt"][..], "gpt-5.5"),
        (&["--model", "claude-haiku-4-5"][..], "claude-haiku-4-5"),
        (&["--model", "anthropic/claude-next"][..], "claude-next"),
    ] {
        let (output, requests) = asked(args, &[]);
        assert!(output.status.success(), "{}", told(&output));
        assert_eq!(requests[0]["model"], wanted, "{args:?}");
    }
}

#[test]
fn thinking_is_a_level_that_holds_from_the_next_message_on() {
    let (output, requests) = asked(&["--model", "claude-haiku-4-5", "--thinking", "high"], &[]);
    assert!(output.status.success(), "{}", told(&output));
    let budget = requests[0]["thinking"]["budget_tokens"].as_u64().expect("it thinks");
    let (_, requests) = asked(&["--model", "claude-haiku-4-5", "--thinking", "low"], &[]);
    assert!(requests[0]["thinking"]["budget_tokens"].as_u64().is_some_and(|low| low < budget), "{}", requests[0]);
    let (_, requests) = asked(&["--model", "claude-haiku-4-5"], &[]);
    assert_eq!(requests[0]["thinking"]["budget_tokens"], Value::Null);
    assert_eq!(asked(&["--thinking", "much"], &[]).0.status.code(), Some(2));

    let (user, model) = (User::new(), FakeLlm::start(Script::new([Turn::text("Hello.").times(9)])).expect("a model"));
    let run = |args: &[&str]| {
        let mut command = user.flovyn(&[&["chat", "-p", "Hi", "--model", "claude-haiku-4-5"], args].concat());
        let output = command.env("ANTHROPIC_BASE_URL", model.url()).output().expect("it runs");
        assert!(output.status.success(), "{}", told(&output));
        model.requests().last().expect("a request").body["thinking"]["budget_tokens"].is_u64()
    };
    assert_eq!([run(&[]), run(&["-c", "--thinking", "medium"]), run(&["-c"])], [false, true, true]);
}

#[test]
fn without_a_model_it_is_said_what_was_found_and_what_to_do() {
    let user = User::new();
    let said = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = user.flovyn(&[&["chat", "-p", "Hi"], args].concat());
        let output = command.envs(variables.iter().copied()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = said(&[], &[("ANTHROPIC_API_KEY", " "), ("CLAUDE_API_KEY", "x"), ("GEMINI_API_KEY", "x")]);
    for wanted in [
        "OPENAI_API_KEY for openai",
        "ANTHROPIC_API_KEY is set, but empty",
        "CLAUDE_API_KEY is set, which is not read; set ANTHROPIC_API_KEY to it",
        "GEMINI_API_KEY",
        "--fake",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let text = said(&["--model", "sonnet"], &[("OPENAI_API_KEY", "x")]);
    for wanted in ["anthropic/claude-sonnet-5-5 cannot be asked", "set ANTHROPIC_API_KEY", "--model openai/gpt-5.5"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(said(&["--model", "sonet"], &[("OPENAI_API_KEY", "x")]).contains("Did you mean sonnet?"));
    assert!(user.sessions().is_empty(), "nothing was started");
}

#[test]
fn a_limit_of_cost_says_that_it_cannot_hold_without_a_price() {
    let (output, _) = asked(&["--model", "anthropic/claude-unheard", "--max-cost", "1"], &[]);
    assert!(output.status.success(), "{}", told(&output));
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(beside.contains("The price of anthropic/claude-unheard is not known"), "{beside}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["stop_reason"], json!("end"));
}
