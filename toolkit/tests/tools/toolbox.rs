//! The toolbox and approvals: what models are told of tools, what is checked, what a person is asked.

use crate::Work;
use async_trait::async_trait;
use flovyn_core::error::{Code, Result};
use flovyn_toolkit::tools::approval::{
    ApprovalAnswer, ApprovalPolicy, ApprovalRequest, CallHash, Decision, Rule, Verdict,
};
use flovyn_toolkit::tools::{Effect, Tool, ToolEnvironment, ToolOutcome, ToolTask, Toolbox};
use serde_json::{Value, json};

/// A tool whose output may not be as it declares.
struct Weather(&'static str);

#[async_trait]
impl Tool for Weather {
    fn name(&self) -> &str {
        self.0
    }

    fn description(&self) -> &str {
        "Tells the weather."
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object", "properties": { "degrees": {} }, "required": ["degrees"] })
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({ "type": "object", "properties": { "degrees": { "type": "number" } } }))
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    async fn call(&self, arguments: Value, _environment: &ToolEnvironment) -> Result<ToolOutcome> {
        Ok(ToolOutcome::text("mild").with_details(arguments))
    }
}

#[tokio::test]
async fn host_tools_are_declared() {
    let toolbox = Toolbox::host().unwrap();
    let effects: Vec<_> = toolbox.definitions().into_iter().map(|tool| (tool.name, tool.effect)).collect();
    let expected = [
        ("bash", Effect::Exec),
        ("bash-output", Effect::Read),
        ("bash-stop", Effect::Read),
        ("edit", Effect::Write),
        ("fetch", Effect::Exec),
        ("find", Effect::Read),
        ("grep", Effect::Read),
        ("read", Effect::Read),
        ("run-sandbox", Effect::Exec),
        ("todo", Effect::Read),
        ("write", Effect::Write),
    ];
    assert_eq!(effects, expected.map(|(name, effect)| (name.to_owned(), effect)));
    for tool in toolbox.definitions() {
        assert!(tool.description.len() > 40, "{}", tool.name);
        assert_eq!(
            (&tool.input_schema["type"], &tool.input_schema["additionalProperties"]),
            (&json!("object"), &json!(false))
        );
    }
    assert_eq!(ToolTask::kind_of("run-sandbox"), "tool.run-sandbox");
    assert_eq!(toolbox.only(["read", "grep"]).unwrap().names().collect::<Vec<_>>(), ["grep", "read"]);
    assert!(toolbox.only(["read", "ls"]).err().unwrap().message().contains("There is no tool \"ls\""));
}

#[tokio::test]
async fn calls_are_checked_before_they_run() {
    let (work, toolbox) = (Work::new(), Toolbox::host().unwrap());
    for (name, arguments, code, said) in [
        (
            "ls",
            json!({}),
            "unknown_tool",
            "There are: bash, bash-output, bash-stop, edit, fetch, find, grep, read, run-sandbox, todo, write.",
        ),
        ("read", json!({}), "invalid_arguments", "- \"path\" is a required property"),
        ("read", json!({ "path": 1 }), "invalid_arguments", "- path: 1 is not of type \"string\""),
        ("read", json!({ "path": "a", "ofset": 1 }), "invalid_arguments", "'ofset' was unexpected"),
        (
            "read",
            json!({ "path": "a", "limit": 2_001 }),
            "invalid_arguments",
            "- limit: 2001 is greater than the maximum of 2000",
        ),
        (
            "bash",
            json!({ "command": "true", "timeout": 601 }),
            "invalid_arguments",
            "- timeout: 601 is greater than the maximum of 600",
        ),
        ("run-sandbox", json!({ "language": "perl", "code": "1" }), "invalid_arguments", "- language: "),
        ("write", json!("text"), "invalid_arguments", "is not of type \"object\""),
    ] {
        let outcome = toolbox.call(name, arguments.clone(), &work.environment).await.unwrap();
        assert_eq!(outcome.error_code(), Some(code), "{name} {arguments}: {outcome:?}");
        assert!(outcome.plain_text().contains(said), "{name} {arguments}: {}", outcome.plain_text());
    }
    for edits in [
        json!([{ "old_string": "a", "new_string": "b" }]),
        json!({ "old_string": "a", "new_string": "b" }),
        json!("[]"),
    ] {
        assert!(toolbox.check("edit", &json!({ "path": "f", "edits": edits })).is_ok(), "{edits}");
    }
    work.put("f", "here");
    assert!(
        toolbox.call("read", json!({ "path": "f" }), &work.environment).await.unwrap().plain_text().contains("here")
    );
}

#[tokio::test]
async fn an_output_that_is_not_as_declared_is_told() {
    let work = Work::new();
    let toolbox = Toolbox::new().with(Weather("weather")).unwrap();
    let good = toolbox.call("weather", json!({ "degrees": 12 }), &work.environment).await.unwrap();
    assert_eq!((good.plain_text().as_str(), good.is_error), ("mild", false));
    let bad = toolbox.call("weather", json!({ "degrees": "warm" }), &work.environment).await.unwrap();
    assert_eq!(bad.error_code(), Some("invalid_output"));
    assert!(bad.plain_text().contains("- degrees: \"warm\" is not of type \"number\""), "{bad:?}");
}

#[test]
fn names_are_those_that_providers_take() {
    for name in
        ["", "two words", "dot.ted", "ümlaut", "a23456789b123456789c123456789d123456789e123456789f123456789g12345"]
    {
        let error = Toolbox::new().with(Weather(name)).err().unwrap();
        assert_eq!(error.code(), Code::InvalidArgument, "{name:?}");
    }
    let twice = Toolbox::new().with(Weather("a")).unwrap().with(Weather("a"));
    assert!(twice.err().unwrap().message().contains("two tools are named"));
}

#[test]
fn an_outcome_becomes_the_result_of_a_call() {
    let result =
        ToolOutcome::error("stale", "Read it again.").with_details(json!({ "path": "f" })).into_result("c1", "edit");
    assert_eq!((result.id.as_str(), result.name.as_str(), result.is_error), ("c1", "edit", true));
    assert_eq!(result.details, Some(json!({ "error": "stale", "path": "f" })));
    let stored: ToolOutcome = serde_json::from_str(&serde_json::to_string(&ToolOutcome::text("a")).unwrap()).unwrap();
    assert_eq!(stored, ToolOutcome::text("a"));
}

#[test]
fn a_person_is_asked_about_what_is_run_later_and_what_is_run_outside() {
    let edits = ApprovalPolicy::default().with(Rule::new("*", Decision::Allow)).compile().unwrap();
    let everything = ApprovalPolicy::allow_all().compile().unwrap();
    for path in [
        ".git/hooks/pre-commit",
        "a/.envrc",
        ".vscode/tasks.json",
        ".mcp.json",
        ".claude/x",
        ".flovyn/settings.json",
        ".exrc",
        ".vimrc",
        ".gvimrc",
        "a/.nvimrc",
        ".nvim.lua",
        "a/.dir-locals.el",
        ".dir-locals-2.el",
        "otters.code-workspace",
    ] {
        let arguments = json!({ "path": path, "content": "x" });
        assert_eq!(edits.decide("write", Effect::Write, &arguments), Decision::Ask, "{path}");
        assert_eq!(everything.decide("write", Effect::Write, &arguments), Decision::Allow, "{path}");
        assert_eq!(edits.decide("read", Effect::Read, &arguments), Decision::Allow, "{path}");
    }
    for path in ["src/a.rs", ".editorconfig"] {
        assert_eq!(edits.decide("write", Effect::Write, &json!({ "path": path })), Decision::Allow, "{path}");
    }
    let outside = json!({ "command": "git commit -m x", "outsideSandbox": true, "reason": "to commit" });
    let exact = Rule::new("bash", Decision::Allow).with_exact("git commit -m x");
    let exact = ApprovalPolicy::allow_all().with(exact).compile().unwrap();
    for approvals in [&edits, &everything, &exact] {
        assert_eq!(approvals.decide("bash", Effect::Exec, &outside), Decision::Ask);
        assert_eq!(approvals.decide("bash", Effect::Exec, &json!({ "command": "git commit -m x" })), Decision::Allow);
    }
    let request = ApprovalRequest::new("1", "bash", Effect::Exec, &outside).unwrap();
    assert!(request.alike().is_empty(), "there is no always");
    let denied = ApprovalPolicy::default().with(Rule::new("bash", Decision::Deny)).compile().unwrap();
    assert_eq!(denied.decide("bash", Effect::Exec, &outside), Decision::Deny);
}

#[test]
fn the_strictest_rule_decides() {
    let policy = ApprovalPolicy::default()
        .with(Rule::new("bash", Decision::Allow).with_command("git status"))
        .with(Rule::new("bash", Decision::Allow).with_command("cargo test"))
        .with(Rule::new("bash", Decision::Deny).with_command("git push"))
        .with(Rule::new("write", Decision::Allow).with_path("src/**"))
        .with(Rule::new("write", Decision::Deny).with_path("src/secrets/**"))
        .with(Rule::new("mcp__github__*", Decision::Ask))
        .with(Rule::new("mcp__github__delete_*", Decision::Deny));
    let restored: ApprovalPolicy = serde_json::from_value(serde_json::to_value(&policy).unwrap()).unwrap();
    assert_eq!(restored, policy);
    let approvals = policy.compile().unwrap();
    for (name, effect, arguments, expected) in [
        ("read", Effect::Read, json!({ "path": "a" }), Decision::Allow),
        ("write", Effect::Write, json!({ "path": "a" }), Decision::Ask),
        ("write", Effect::Write, json!({ "path": "src/a.rs" }), Decision::Allow),
        ("write", Effect::Write, json!({ "path": "./src/deep/a.rs" }), Decision::Allow),
        ("write", Effect::Write, json!({ "path": "src/secrets/a.rs" }), Decision::Deny),
        ("write", Effect::Write, json!({ "path": "src/../a" }), Decision::Deny),
        ("write", Effect::Write, json!({}), Decision::Ask),
        ("edit", Effect::Write, json!({ "path": "src/a.rs" }), Decision::Ask),
        ("bash", Effect::Exec, json!({ "command": "git status --short" }), Decision::Allow),
        ("bash", Effect::Exec, json!({ "command": "cargo test -p x" }), Decision::Allow),
        ("bash", Effect::Exec, json!({ "command": "cargo test; rm x" }), Decision::Ask),
        ("bash", Effect::Exec, json!({ "command": "git status && git push" }), Decision::Deny),
        ("bash", Effect::Exec, json!({ "command": "ls" }), Decision::Ask),
        ("mcp__github__list", Effect::Read, json!({}), Decision::Ask),
        ("mcp__github__delete_repo", Effect::Write, json!({}), Decision::Deny),
        ("mcp__gitlab__list", Effect::Read, json!({}), Decision::Allow),
    ] {
        assert_eq!(approvals.decide(name, effect, &arguments), expected, "{name} {arguments}");
    }
    let everything = ApprovalPolicy::allow_all().compile().unwrap();
    assert_eq!(everything.decide("bash", Effect::Exec, &json!({ "command": "rm -rf /" })), Decision::Allow);
    for rule in [
        Rule::new("[", Decision::Ask),
        Rule::new("a", Decision::Ask).with_path("{"),
        Rule::new("a", Decision::Ask).with_command(" "),
    ] {
        assert_eq!(ApprovalPolicy::default().with(rule).compile().err().unwrap().code(), Code::InvalidArgument);
    }
}

#[test]
fn an_approval_is_good_for_its_call_alone() {
    let arguments = json!({ "command": "rm x", "timeout": 5 });
    let request = ApprovalRequest::new("call-1", "bash", Effect::Exec, &arguments).unwrap();
    assert_eq!(
        request.hash,
        CallHash::of("bash", &serde_json::from_str(" {\"timeout\":5.0, \"command\":\"rm x\"}").unwrap()).unwrap()
    );
    let answer = |id: &str, hash: &CallHash, approved| ApprovalAnswer {
        id: id.into(),
        hash: hash.clone(),
        approved,
        reason: Some("no".into()),
    };
    assert_eq!(request.answered(&answer("call-1", &request.hash, true)), Verdict::Approved);
    assert_eq!(request.answered(&answer("call-1", &request.hash, false)), Verdict::Denied(Some("no".into())));
    assert_eq!(request.answered(&answer("call-2", &request.hash, true)), Verdict::OfAnotherCall);
    for (name, arguments) in [
        ("bash", json!({ "command": "rm y", "timeout": 5 })),
        ("sh", arguments.clone()),
        ("bash", json!({ "command": "rm x" })),
    ] {
        let other = CallHash::of(name, &arguments).unwrap();
        assert_ne!(other, request.hash);
        assert_eq!(request.answered(&answer("call-1", &other, true)), Verdict::OfAnotherCall);
    }
    let sent: ApprovalAnswer =
        serde_json::from_value(json!({ "id": "call-1", "hash": request.hash, "approved": true })).unwrap();
    assert_eq!(request.answered(&sent), Verdict::Approved);
}
