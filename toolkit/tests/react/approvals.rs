//! Calls that need a person.

use super::*;
use flovyn_core::Payload;
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest, Decision, Rule};

/// An agent that asks before it changes anything.
async fn lab(turns: impl IntoIterator<Item = Turn>) -> Lab {
    Lab::of("memory:", Script::new(turns), agent().with_approvals(ApprovalPolicy::default())).await
}

/// Waits until so many requests were made.
async fn requests(run: &Handle, count: usize) -> Vec<ApprovalRequest> {
    waits_for(run, APPROVAL).await;
    let requests = of_type(run, "approval_request").await;
    assert_eq!(requests.len(), count);
    requests
}

async fn answer(run: &Handle, request: &ApprovalRequest, approved: bool, reason: Option<&str>) {
    let reason = reason.map(str::to_owned);
    let answer = ApprovalAnswer { id: request.id.clone(), hash: request.hash.clone(), approved, reason };
    let payload = Payload::of(&answer).expect("JSON");
    run.signal(APPROVAL, payload, EngineDelivery::NextStep, None).await.expect("the run takes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_allows_runs_and_what_they_do_not_is_told_to_the_model() {
    let calls = Turn::call("send", json!({"text": "a"}))
        .and_call("note", json!({"text": "b"}))
        .and_call("send", json!({"text": "c"}));
    let lab = lab([calls, Turn::text("Good.")]).await;
    let run = lab.start(&ask("Send.")).await;
    let asked = requests(&run, 2).await;
    assert!(told(&run).await.contains(&"tool_result: note = noted b".to_owned()), "a look needs nobody");
    // An approval of other arguments is none.
    answer(&run, &ApprovalRequest { hash: asked[1].hash.clone(), ..asked[0].clone() }, true, None).await;
    answer(&run, &asked[1], false, Some("not c")).await;
    answer(&run, &asked[0], true, None).await;
    assert_eq!(outcome(&run).await.text, "Good.");
    let mut results: Vec<_> = told(&run).await.into_iter().filter(|line| line.contains(": send =")).collect();
    results.sort();
    let denied = "tool_result: send = The user did not allow this call. They said: not c";
    assert_eq!(results, [denied, "tool_result: send = noted a"]);
    assert_eq!(of_type::<ApprovalAnswer>(&run, "approval").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_instead_of_answering_is_heard() {
    let lab = lab([Turn::call("send", json!({"text": "a"})), Turn::text("I will not.")]).await;
    let run = lab.start(&ask("Send.")).await;
    requests(&run, 1).await;
    say(&run, UserMessage::new("Rather not.")).await;
    assert_eq!(outcome(&run).await.text, "I will not.");
    let expected = ["tool_result: send = Skipped: the user sent a new message.", "user: Rather not."];
    assert_eq!(told(&run).await[3..5], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_come_days_later_to_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let agent = agent().with_approvals(ApprovalPolicy::default());
    let turns = || Script::new([Turn::call("send", json!({"text": "a"})), Turn::text("Sent.")]);
    let first = Lab::of(&url, turns(), agent.clone()).await;
    let run = first.start(&ask("Send.")).await;
    let asked = requests(&run, 1).await;
    first.flovyn.close().await.expect("it closes");
    assert_eq!(first.fake.paid(), 1);
    let second = Lab::of(&url, turns(), agent).await;
    let run = second.flovyn.handle(&run.id().to_string()).await.expect("the run is there");
    answer(&run, &asked[0], true, None).await;
    assert_eq!(outcome(&run).await.text, "Sent.");
    assert_eq!(second.fake.paid(), 1, "the first model call was not made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_be_stricter_than_its_worker_and_not_laxer() {
    let deny = ApprovalPolicy::allow_all().with(Rule::new("note", Decision::Deny));
    let lab = lab([Turn::call("note", json!({})).and_call("send", json!({})), Turn::text("So be it.")]).await;
    let run = lab.start(&AgentInput { approvals: Some(deny), ..ask("Note and send.") }).await;
    let asked = requests(&run, 1).await;
    assert_eq!(asked[0].name, "send");
    assert!(told(&run).await[4].contains("The policy of this agent does not allow this call of note."));
    answer(&run, &asked[0], true, None).await;
    assert_eq!(outcome(&run).await.turns, 2);
}

/// Approves a call on terms.
async fn approve_on(run: &Handle, request: &ApprovalRequest, terms: Value) {
    let mut answer = json!({ "id": request.id, "hash": request.hash, "approved": true });
    answer.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
    run.signal(APPROVAL, Payload::of(&answer).expect("JSON"), EngineDelivery::NextStep, None)
        .await
        .expect("it is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_may_change_what_they_allow() {
    let calls = Turn::call("send", json!({"text": "a"}))
        .and_call("send", json!({"text": "b"}))
        .and_call("send", json!({"text": "c"}));
    let lab = lab([calls, Turn::text("Good.")]).await;
    let run = lab.start(&ask("Send.")).await;
    let asked = requests(&run, 3).await;
    approve_on(&run, &asked[0], json!({ "arguments": { "text": "changed" } })).await;
    approve_on(&run, &asked[1], json!({ "arguments": { "text": 7 } })).await;
    // The same is no change.
    approve_on(&run, &asked[2], json!({ "arguments": { "text": "c" }, "scope": "unheard-of" })).await;
    assert_eq!(outcome(&run).await.text, "Good.");
    let mut results: Vec<_> = told(&run).await.into_iter().filter(|line| line.contains(": send =")).collect();
    results.sort();
    let changed = |rest: &str| format!("tool_result: send = [The user changed the arguments of this call: {rest}");
    assert!(
        results[0].starts_with(&changed("{\"text\":\"changed\"}]")) && results[0].ends_with("noted changed"),
        "{results:?}"
    );
    assert!(results[1].starts_with(&changed("{\"text\":7}]")) && !results[1].contains("noted 7"), "{results:?}");
    assert_eq!(results[2], "tool_result: send = noted c");
    // What was decided is kept with its terms.
    let kept = of_type::<Value>(&run, "approval").await;
    assert_eq!(kept[0]["arguments"], json!({ "text": "changed" }));
}

/// What the model wrote does not run where somebody may have meant something else; null is what nobody has said.
#[tokio::test(flavor = "multi_thread")]
async fn terms_that_cannot_be_read_are_a_no() {
    let calls = Turn::call("send", json!({"text": "a"})).and_call("send", json!({"text": "b"}));
    let lab = lab([calls, Turn::text("Good.")]).await;
    let run = lab.start(&ask("Send.")).await;
    let asked = requests(&run, 2).await;
    approve_on(&run, &asked[0], json!({ "arguments": { "text": "changed" }, "scope": 7 })).await;
    approve_on(&run, &asked[1], json!({ "arguments": { "text": "changed" }, "scope": null })).await;
    assert_eq!(outcome(&run).await.text, "Good.");
    let results: Vec<_> = told(&run).await.into_iter().filter(|line| line.contains(": send =")).collect();
    assert!(results.iter().any(|line| line.contains("could not be read")), "{results:?}");
    assert!(results.iter().any(|line| line.ends_with("noted changed")), "{results:?}");
    assert!(!results.iter().any(|line| line.ends_with("noted a") || line.ends_with("noted b")), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_allows_for_the_run_is_not_asked_again_in_any_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let policy = ApprovalPolicy::default().with(Rule::new("note", Decision::Ask));
    let agent = agent().with_approvals(policy);
    let turns = || {
        Script::new([
            Turn::call("send", json!({"text": "a"})),
            Turn::call("send", json!({"text": "b"})).and_call("note", json!({"text": "c"})),
            Turn::text("Sent."),
        ])
    };
    let first = Lab::of(&url, turns(), agent.clone()).await;
    let run = first.start(&ask("Send.")).await;
    let asked = requests(&run, 1).await;
    approve_on(&run, &asked[0], json!({ "scope": "run" })).await;
    // The other tool is asked about all the same.
    while of_type::<ApprovalRequest>(&run, "approval_request").await.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    first.flovyn.close().await.expect("it closes");
    let second = Lab::of(&url, turns(), agent).await;
    let run = second.flovyn.handle(&run.id().to_string()).await.expect("the run is there");
    let asked = requests(&run, 2).await;
    assert_eq!(asked[1].name, "note");
    answer(&run, &asked[1], true, None).await;
    assert_eq!(outcome(&run).await.text, "Sent.");
    let told = told(&run).await;
    for sent in ["send = noted a", "send = noted b", "note = noted c"] {
        assert!(told.contains(&format!("tool_result: {sent}")), "{sent}: {told:?}");
    }
}
