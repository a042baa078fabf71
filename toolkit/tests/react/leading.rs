//! Agents that lead others: supervisors, and those that have a model plan.

use super::delegates::{asked, named, plain};
use super::timeless::timeless;
use super::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::testing::Harness;
use flovyn_toolkit::fake_llm::Outcome;
use flovyn_toolkit::patterns::{PlanAndExecute, PlanInput, PlanOutcome, supervisor};
use flovyn_toolkit::react::{Delegate, Takes};

fn otter() -> Delegate {
    Delegate::of(&named("otter"), "Knows otters.")
}

fn said() -> Delegate {
    let parameters = json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]});
    let takes = Takes::Argument { parameters, name: "word".into() };
    Delegate { takes, ..Delegate::new("plain", "Says it.") }
}

fn planned() -> PlanAndExecute {
    let planner = Delegate::of(&ReactAgent::new().named("planner"), "Plans.");
    PlanAndExecute::new("planned", planner, vec![otter(), said()]).expect("workers")
}

fn planner() -> ReactAgent {
    ReactAgent::new().named("planner").with_model(flovyn_toolkit::react::ModelChoice::parse("fake/m"))
}

fn plan(tasks: Value) -> Turn {
    Turn::call("final_answer", json!({ "tasks": tasks }))
}

fn part(id: &str, task: &str, depends_on: &[&str]) -> Value {
    json!({ "id": id, "worker": "otter", "arguments": { "task": task }, "dependsOn": depends_on })
}

fn host(fake: &FakeLlm, agent: PlanAndExecute) -> impl Fn() -> NativeHost + Send + Sync + 'static {
    let models = timeless(models(fake).resolve("fake/m").expect("a model"));
    let generate = LlmGenerate::new(models).with_policy(RetryPolicy::never());
    move || {
        let host =
            NativeHost::default().agent(agent.clone()).and_then(|host| host.agent(planner())?.agent(named("otter")));
        host.and_then(|host| host.agent(plain())?.task(generate.clone())?.task(Note)).expect("every kind once")
    }
}

/// Runs an agent that plans to its end.
async fn ends(fake: &FakeLlm, agent: PlanAndExecute, input: &impl serde::Serialize) -> Result<PlanOutcome> {
    let runtime = flovyn_core::runtime::Runtime::open("memory:").await.expect("a store");
    let _worker = runtime.worker(Arc::new(host(fake, agent)()), Default::default()).await.expect("a worker");
    let input = Payload::of(input).expect("JSON");
    let run = runtime.client().start("planned", input, StartOptions::default()).await.expect("it starts");
    run.result(Some(PATIENCE)).await?.parse()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_done_part_by_part_under_kills() {
    let parts = json!([
        part("sea", "Look at sea otters.", &[]),
        part("river", "Look at river otters.", &[]),
        part("both", "Compare {{sea}}", &["sea", "river"])
    ]);
    let script = Script::new([
        plan(parts).when(asked("Split this task")),
        Turn::text("They float.").when(asked("Look at sea otters")),
        Turn::text("They run.").when(asked("Look at river otters")),
        Turn::text("Both swim.").when(asked("Compare They float.")),
        Turn::call("final_answer", json!({"answer": "Otters swim.", "satisfied": true}))
            .when(asked("Other agents have done")),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let input = Payload::of("How do otters move?").expect("JSON");
    let proof = Harness::new("planned", input, host(&fake, planned())).concurrent().by_attempt().check().await;
    let proof = proof.unwrap_or_else(|error| panic!("{error}"));
    let (paid, most) = (fake.paid(), proof.runs * 5 + proof.crashes);
    assert!((proof.runs * 5..=most).contains(&paid), "{paid} calls were paid in {} runs of 5", proof.runs);
    let refused = fake.requests().into_iter().find(|one| matches!(one.outcome, Outcome::Refused { .. }));
    assert_eq!(refused, None);
    let last = fake.requests().iter().filter(|one| one.body.to_string().contains("Other agents have done")).count();
    assert!(last >= proof.runs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_done_goes_back_to_the_model() {
    let circle = json!([part("a", "x", &["b"]), part("b", "y", &["a"])]);
    let script = Script::new([
        plan(json!([part("a", "Look at otters.", &[])])).when(asked("wait for each other: a, b")),
        plan(circle.clone()).when(asked("Split this task")),
        Turn::text("They float.").when(asked("Look at otters")),
        Turn::call("final_answer", json!({"answer": "Done.", "satisfied": true})),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let outcome = ends(&fake, planned(), &"How do otters move?").await.expect("it completes");
    assert_eq!((outcome.text.as_str(), outcome.tasks.len(), outcome.replans), ("Done.", 1, 0));
    let stubborn = FakeLlm::start(Script::new([plan(circle)])).expect("a server");
    let failed = ends(&stubborn, planned(), &"How do otters move?").await.expect_err("no plan");
    assert!(failed.message().contains("was asked 3 times and made no plan that can be done"), "{failed}");
    assert_eq!(stubborn.paid(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_do_leads_to_another_plan() {
    let script = Script::new([
        plan(json!([part("more", "Look at seals.", &[])])).when(asked("does not do yet: nothing of seals")),
        plan(json!([part("first", "Look at otters.", &[])])).when(asked("Split this task")),
        Turn::text("They float.").when(asked("Look at otters")),
        Turn::text("They dive.").when(asked("Look at seals")),
        Turn::call("final_answer", json!({"answer": "Both.", "satisfied": true})).when(asked("## more")),
        Turn::call("final_answer", json!({"answer": "Otters.", "satisfied": false, "missing": "nothing of seals"})),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let input = PlanInput { task: "How do animals move?".into(), criteria: vec!["Names seals.".into()] };
    let outcome = ends(&fake, planned(), &input).await.expect("it completes");
    assert_eq!((outcome.text.as_str(), outcome.satisfied, outcome.replans), ("Both.", true, 1));
    assert_eq!(outcome.tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ["first", "more"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_is_tried_again_and_planned_anew() {
    let bad = json!({ "id": "bad", "worker": "plain", "arguments": { "word": "fail" }, "dependsOn": [] });
    let script = Script::new([
        plan(json!([part("good", "Look at otters.", &[])])).when(asked("These tasks of the last plan have failed")),
        plan(json!([bad, part("after", "x", &["bad"])])).when(asked("Split this task")),
        Turn::text("They float.").when(asked("Look at otters")),
        Turn::call("final_answer", json!({"answer": "Done.", "satisfied": true})).when(asked("Other agents have done")),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let outcome = ends(&fake, planned(), &"How do otters move?").await.expect("it completes");
    assert_eq!((outcome.text.as_str(), outcome.replans), ("Done.", 1));
    let told = fake.requests().into_iter().find(|one| one.body.to_string().contains("have failed"));
    let told = told.expect("the planner is told").body.to_string();
    assert!(
        told.contains("- bad (plain): The agent plain has failed") && told.contains("- after: not begun"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_answers_when_its_rounds_are_over() {
    let script = Script::new([
        Turn::text("They float.").when(asked("Look")),
        Turn::call("otter", json!({"task": "Look."})).times(3),
        Turn::text("Otters float."),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let lead = supervisor("lead", [otter()], Some(2)).expect("agents");
    let builder =
        FlovynClient::builder().storage("memory:").agent(lead.clone()).agent(named("otter")).task(generate(&fake));
    let flovyn = builder.task(Note).build().await.expect("a backend");
    let _worker = flovyn.worker().await.expect("a worker");
    let run = flovyn.start(&lead, &ask("How do otters move?"), StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.text, "Otters float.");
    let said = told(&run).await;
    assert_eq!(said.iter().filter(|line| line.ends_with("otter = They float.")).count(), 2, "{said:#?}");
    assert_eq!(said.iter().filter(|line| line.contains("otter = Not given out")).count(), 1, "{said:#?}");
    assert!(supervisor("lead", [], None).is_err());
}
