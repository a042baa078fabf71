//! Agents that a run is handed off to: they go on with the conversation.

use super::delegates::plain;
use super::*;
use flovyn_toolkit::fake_llm::{Outcome, When};
use flovyn_toolkit::react::{Delegate, Takes};

/// A reception that can hand off to `billing` (built in), `plain` (a function) and itself.
pub(crate) fn reception() -> ReactAgent {
    let plain = Delegate {
        takes: Takes::Argument {
            parameters: json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}),
            name: "word".into(),
        },
        ..Delegate::new("plain", "Says it.")
    };
    let again = Delegate { takes: Takes::Prompt, ..Delegate::new("react-agent", "The reception.") };
    let agent = agent()
        .with_handoff(Delegate::of(&billing(), "Corrects invoices."))
        .and_then(|agent| agent.with_handoff(plain));
    agent.and_then(|agent| agent.with_handoff(again)).expect("names of their own")
}

pub(crate) fn billing() -> ReactAgent {
    let note = AgentTool::task(spec("note"), "note", Effect::Read).expect("a schema");
    let model = flovyn_toolkit::react::ModelChoice::parse("other/m");
    let agent = ReactAgent::new().named("billing").with_system_prompt("You correct invoices.").with_model(model);
    agent.with_tool(note).expect("a name of its own").with_approvals(ApprovalPolicy::allow_all())
}

async fn lab(script: Script) -> (FakeLlm, FlovynClient, Worker) {
    let fake = FakeLlm::start(script).expect("a server");
    let builder = FlovynClient::builder().storage("memory:").agent(reception()).agent(billing()).agent(plain());
    let flovyn = builder.task(generate(&fake)).task(Note).build().await.expect("a backend");
    let worker = flovyn.worker().await.expect("a worker");
    (fake, flovyn, worker)
}

fn of_model(model: &str) -> When {
    When { model: Some(model.into()), ..When::default() }
}

/// The server refused nothing: each conversation was one that a provider takes.
fn nothing_refused(fake: &FakeLlm) {
    let refused = fake.requests().into_iter().find(|one| matches!(one.outcome, Outcome::Refused { .. }));
    assert_eq!(refused, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_goes_on_with_the_conversation() {
    let script = Script::new([
        Turn::call("transfer_to_billing", json!({"reason": "an invoice", "instructions": "Correct it."}))
            .and_call("note", json!({"text": "late"}))
            .and_call("transfer_to_plain", json!({"word": "no"})),
        Turn::call("note", json!({"text": "corrected"})),
        Turn::text("It is corrected."),
    ]);
    let (fake, flovyn, _worker) = lab(script).await;
    let run =
        flovyn.start(&reception(), &ask("My invoice is wrong."), StartOptions::default()).await.expect("it starts");
    let end = outcome(&run).await;
    assert_eq!((end.text.as_str(), end.model.to_string().as_str()), ("It is corrected.", "other/m"));
    let wanted = [
        "system: Be brief.",
        "user: My invoice is wrong.",
        "assistant: call transfer_to_billing",
        "assistant: call note",
        "assistant: call transfer_to_plain",
        "tool_result: note = noted late",
        "tool_result: transfer_to_plain = Not transferred: this turn transfers the conversation to another agent.",
        "tool_result: transfer_to_billing = Asked billing to go on with the conversation.",
        "system: You correct invoices.",
        "assistant: call note",
        "tool_result: note = noted corrected",
        "assistant: It is corrected.",
    ];
    assert_eq!(told(&run).await, wanted);
    nothing_refused(&fake);
    let requests = fake.requests();
    let second = requests[1].body.to_string();
    assert!(second.contains("You correct invoices.") && !second.contains("Be brief."), "{second}");
    assert_eq!(requests[1].body["tools"].as_array().map(Vec::len), Some(1), "{second}");
    assert_eq!(requests.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_may_be_any_agent() {
    let (fake, flovyn, _worker) = lab(Script::new([Turn::call("transfer_to_plain", json!({"word": "hi"}))])).await;
    let run = flovyn.start(&reception(), &ask("Say hi."), StartOptions::default()).await.expect("it starts");
    let end: String = run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("a text");
    assert_eq!(end, "plain said hi after 4 messages");
    nothing_refused(&fake);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_handoffs_ends_with_words_to_the_model() {
    let script = Script::new([
        Turn::call("transfer_to_react-agent", json!({"reason": "not mine"})).times(9),
        Turn::text("I do it myself."),
    ]);
    let (fake, flovyn, _worker) = lab(script).await;
    let run = flovyn.start(&reception(), &ask("Do it."), StartOptions::default()).await.expect("it starts");
    // An agent without a model of its own asks that of the run which gives it the work.
    assert_eq!(outcome(&run).await.text, "I do it myself.");
    let said = told(&run).await;
    assert_eq!(said.iter().filter(|line| line.ends_with("to go on with the conversation.")).count(), 9, "{said:#?}");
    let last = fake.requests().last().expect("a request").body.to_string();
    assert_eq!(last.matches("cannot be transferred to react-agent").count(), 1, "{last}");
    assert_eq!(
        last.matches("to go on with the conversation.").count(),
        8,
        "the model is told what has come of it: {last}"
    );
    nothing_refused(&fake);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_a_chat_goes_on_with_the_successor() {
    let script = Script::new([
        Turn::text("Corrected.").when(When { has_tool_result: Some(true), ..of_model("m") }),
        Turn::call("transfer_to_billing", json!({"reason": "an invoice"})),
    ]);
    let (fake, flovyn, _worker) = lab(script).await;
    let run = flovyn
        .start(&reception(), &ask("My invoice is wrong.").chat(), StartOptions::default())
        .await
        .expect("it starts");
    let handed = async {
        loop {
            if let Some(to) = run.describe().await.expect("it is there").handed_to {
                return to;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let to = tokio::time::timeout(PATIENCE, handed).await.expect("it is handed off");
    let successor = flovyn.handle(&to.to_string()).await.expect("the successor");
    waits_for(&successor, USER_MESSAGE).await;
    say(&run, UserMessage::new("Thanks!")).await;
    let answered = fake.wait_until(PATIENCE, |requests| requests.len() == 3).await;
    answered.unwrap_or_else(|found| panic!("{} requests", found.len()));
    waits_for(&successor, USER_MESSAGE).await;
    let said = told(&run).await;
    assert_eq!(&said[said.len() - 2..], ["user: Thanks!", "assistant: Corrected."], "{said:#?}");
    nothing_refused(&fake);
}
