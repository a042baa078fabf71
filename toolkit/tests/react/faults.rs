//! Providers that cut, refuse, overload and run dry.

use super::*;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, TaskCall};
use flovyn_core::journal::Outcome;
use flovyn_toolkit::fake_llm::{Cut, FaultKind, Pace, When};
use flovyn_toolkit::react::{Delivery, GenerateInput, ModelChoice, StopReason};
use std::collections::BTreeMap;

fn refused(code: u16, retry_after: Option<f64>, message: &str) -> FaultKind {
    FaultKind::Status { code, retry_after, message: Some(message.into()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stream_is_retracted_and_asked_for_again() {
    let pace = Some(Pace { chunk_ms: 5, chunk_chars: 4, ..Pace::default() });
    let cut = FaultKind::Cut(Cut { after_events: Some(6), ..Cut::default() });
    let lab = Lab::new([Turn { pace, ..Turn::text("The whole story.") }.fault(cut)]).await;
    let run = lab.start(&ask("Tell me.")).await;
    let (mut events, mut texts, mut void) = (run.stream(None), BTreeMap::<_, String>::new(), Vec::new());
    while let Some(event) = events.next().await.expect("the events can be read") {
        match event {
            StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token => {
                texts.entry((chunk.segment, chunk.sequence)).or_default().push_str(&chunk.data);
            }
            StreamEvent::Retract { op, .. } => void.extend(texts.remove(&op)),
            _ => {}
        }
    }
    assert_eq!(outcome(&run).await.text, "The whole story.");
    assert_eq!((lab.fake.paid(), lab.fake.requests().len()), (1, 2));
    assert!(matches!(&void[..], [text] if "The whole story.".starts_with(text) && text.len() < 16), "{void:?}");
    assert_eq!(texts.into_values().collect::<Vec<_>>(), ["The whole story."]);
    assert_eq!(told(&run).await.len(), 3, "nothing of the first attempt is in the conversation");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_is_stood_in_for() {
    for code in [401, 529] {
        let broken = When { model: Some("m".into()), ..When::default() };
        let fault = flovyn_toolkit::fake_llm::Fault { kind: refused(code, None, "no"), times: 100 };
        let turn = Turn { faults: vec![fault], ..Turn::text("never").when(broken) };
        let lab = Lab::new([turn, Turn::text("From elsewhere.")]).await;
        let mut input = ask("Hi");
        input.config.fallback = vec![ModelChoice::parse("other/m2")];
        let (outcome, run) = lab.ends(&input).await;
        assert_eq!(outcome.text, "From elsewhere.", "{code}");
        assert_eq!(outcome.usage.0["other/m2"].calls, 1);
        let answer: Message =
            content(run.messages().await.expect("entries").iter().rfind(is_answer).expect("an answer"));
        assert_eq!(answer.assistant.expect("its origin").origin.provider, "other");
    }
}

fn is_answer(entry: &&Entry) -> bool {
    entry.new.role == "assistant" && entry.new.entry_type == "message"
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_model_answers_a_run_fails_and_a_chat_says_why_and_goes_on() {
    let lab = Lab::new([Turn::text("Now I can.").fault(refused(401, None, "bad key"))]).await;
    let run = lab.start(&ask("Hi").chat()).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("Try again.")).await;
    lab.asked(2).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(told(&run).await[1..], ["user: Hi", "user: Try again.", "assistant: Now I can."]);

    let lab = Lab::new([Turn::text("never").fault(refused(401, None, "bad key"))]).await;
    let run = lab.start(&ask("Hi")).await;
    let error = run.result(Some(PATIENCE)).await.expect_err("nobody answered");
    assert!(
        error.message().contains("unauthorized: no model answered") && error.message().contains("bad key"),
        "{error}"
    );
    let failed: Vec<Message> = of_type(&run, "message").await;
    assert!(failed.last().is_some_and(|message| !message.stop().is_answer()), "why is in the record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_asks_for_time_is_given_it_durably() {
    let lab = Lab::new([Turn::text("Here.").fault(refused(429, Some(0.2), "slow down"))]).await;
    let (outcome, run) = lab.ends(&ask("Hi")).await;
    assert_eq!((outcome.text.as_str(), outcome.stop_reason), ("Here.", StopReason::End));
    let tasks = run.tasks(Default::default()).await.expect("the tasks").items;
    assert_eq!(tasks.len(), 3, "the beginning and two calls: the wait was the run's, not an attempt's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_speaks_while_a_provider_takes_its_time_is_heard() {
    let lab = Lab::new([Turn::text("Here.").fault(refused(429, Some(2.0), "slow down")), Turn::text("There.")]).await;
    let run = lab.start(&ask("Hi")).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("And then?").deliver(Delivery::NextTurn)).await;
    say(&run, UserMessage::new("Be quick.")).await;
    assert_eq!(outcome(&run).await.text, "There.");
    let expected = ["user: Be quick.", "assistant: Here.", "user: And then?", "assistant: There."];
    assert_eq!(told(&run).await[2..], expected);

    let lab = Lab::new([Turn::text("never").fault(refused(429, Some(600.0), "slow down"))]).await;
    let run = lab.start(&ask("Hi")).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::interrupt()).await;
    assert_eq!((outcome(&run).await.stop_reason, lab.fake.requests().len()), (StopReason::Interrupted, 1));
}

/// An agent of one's own that asks a model once.
struct Asker;

#[async_trait]
impl AgentDefinition for Asker {
    type State = ();
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "asker"
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Value> {
        let input = GenerateInput {
            context: None,
            messages: vec![Message::user("Hi")],
            ..GenerateInput::new(ModelChoice::parse("fake/m"), ctx.context_ref())
        };
        let call = TaskCall {
            kind: LlmGenerate::KIND.to_owned(),
            input: Payload::of(&input)?,
            options: Some(LlmGenerate::call_options()),
            queue: None,
            key: None,
        };
        match ctx.schedule_raw(call)?.await? {
            Outcome::Value(generated) => generated.parse(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_failure_of_ones_own_model_call_counts_by_itself() {
    let cut = || FaultKind::Cut(Cut { after_events: Some(6), ..Cut::default() });
    let unreadable = || FaultKind::Malformed { after_events: 3 };
    let overloaded = || FaultKind::Status { code: 529, retry_after: Some(0.01), message: None };
    for (faults, requests, said) in [
        (vec![cut(), unreadable()], 3, Some("Here.")),
        (vec![overloaded(), overloaded(), unreadable()], 4, Some("Here.")),
        (vec![overloaded(), unreadable(), unreadable()], 3, None),
    ] {
        let turn = faults.into_iter().fold(Turn::text("Here."), Turn::fault);
        let fake = FakeLlm::start(Script::new([turn])).expect("a server");
        let flovyn = FlovynClient::builder().storage("memory:").agent(Asker).task(generate(&fake)).build().await;
        let flovyn = flovyn.expect("a backend");
        let _worker = flovyn.worker().await.expect("a worker");
        let run = flovyn.start(&Asker, &Value::Null, StartOptions::default()).await.expect("it starts");
        let ended: Value = run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("JSON");
        assert_eq!(fake.requests().len(), requests, "{ended}");
        match said {
            Some(said) => assert!(ended["message"].to_string().contains(said), "{ended}"),
            None => assert_eq!(ended["error"]["kind"], "protocol", "{ended}"),
        }
    }
}
