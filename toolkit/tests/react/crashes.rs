//! A process that dies at every commit in turn: the conversation stays valid and no model call that ended is made again.

use super::delegates::{asked, asked_with, asking, boss, named, plain, with_id};
use super::outputs::{Otter, gives, input, registry, right};
use super::timeless::timeless;
use super::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::sync::Mutex;
use flovyn_core::testing::{Harness, Proof};
use flovyn_toolkit::fake_llm::Outcome;
use flovyn_toolkit::react::{Delegate, Delivery, KIND, OutputSpec};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};

fn harness(fake: &FakeLlm, agent: ReactAgent, input: &AgentInput) -> Harness {
    harness_of(&models(fake), agent, input)
}

/// The same with the model of the input, from among these.
fn harness_of(models: &Registry, agent: ReactAgent, input: &AgentInput) -> Harness {
    let asked = input.model.to_string();
    let generate =
        LlmGenerate::new(timeless(models.resolve(&asked).expect("a model"))).with_policy(RetryPolicy::never());
    let host = move || {
        let host = NativeHost::default().agent(agent.clone()).and_then(|host| host.task(generate.clone()));
        host.and_then(|host| host.task(Note)?.task(Gate::new("meet"))).expect("every kind once")
    };
    Harness::new(KIND, Payload::of(input).expect("JSON"), host).concurrent().by_attempt()
}

/// The same for an agent with the agents that it gives work to.
fn family(fake: &FakeLlm, boss: ReactAgent, otter: ReactAgent, input: &AgentInput) -> Harness {
    let generate =
        LlmGenerate::new(timeless(models(fake).resolve("fake/m").expect("a model"))).with_policy(RetryPolicy::never());
    let host = move || {
        let host = NativeHost::default().agent(boss.clone()).and_then(|host| host.agent(otter.clone())?.agent(plain()));
        host.and_then(|host| host.task(generate.clone())?.task(Note)).expect("every kind once")
    };
    Harness::new(KIND, Payload::of(input).expect("JSON"), host).concurrent().by_attempt()
}

/// No disturbance may show, and the server was never sent a conversation that it would refuse.
async fn holds(fake: &FakeLlm, harness: Harness, calls: usize) -> Proof {
    let proof = harness.check().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(proof.crashes as u64 >= proof.commits && proof.commits > 3, "{proof:#?}");
    let refused = fake.requests().into_iter().find(|one| matches!(one.outcome, Outcome::Refused { .. }));
    assert_eq!(refused, None, "the conversation was valid at every moment");
    // A process may die with an answer on its lips, once in each run that it dies in; no answer that is durable is asked
    // for again.
    let (paid, most) = (fake.paid(), proof.runs * calls + proof.crashes);
    assert!((proof.runs * calls..=most).contains(&paid), "{paid} calls were paid in {} runs of {calls}", proof.runs);
    proof
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_tools_survives_a_crash_at_every_commit() {
    let script = Script::new([
        Turn::call("note", json!({"text": "late"})).and_call("note", json!({"text": "fail"})).thinking("Two notes."),
        Turn::call("send", json!({"text": "c"})),
        Turn::text("Done."),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let proof = holds(&fake, harness(&fake, agent(), &ask("Take notes.")), 3).await;
    assert!(proof.observed.is_some_and(|observed| observed.tasks.len() == 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_with_approvals_survives_a_crash_at_every_commit() {
    let script = Script::new([Turn::call("send", json!({"text": "a"})), Turn::text("Sent."), Turn::text("Bye.")]);
    let fake = FakeLlm::start(script).expect("a server");
    let agent = agent().with_approvals(ApprovalPolicy::default());
    let harness = harness(&fake, agent, &ask("Send it.")).outside(|run| async move {
        say_once(&run, UserMessage::new("And then?").deliver(Delivery::NextTurn)).await;
        waits_for(&run, APPROVAL).await;
        let asked: Vec<ApprovalRequest> = of_type(&run, "approval_request").await;
        let (id, hash) = (asked[0].id.clone(), asked[0].hash.clone());
        let answer = ApprovalAnswer { id, hash, approved: true, reason: None };
        let payload = Payload::of(&answer).expect("JSON");
        run.signal(APPROVAL, payload, EngineDelivery::NextStep, Some("a".into())).await.expect("the run takes it");
    });
    holds(&fake, harness, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_survives_a_crash_at_every_commit() {
    let calls = Turn::call("note", json!({"text": "a"})).and_call("send", json!({"text": "b"}));
    let fake = FakeLlm::start(Script::new([calls])).expect("a server");
    let agent = agent().with_approvals(ApprovalPolicy::default());
    let harness = harness(&fake, agent, &ask("Note and send.")).outside(|run| async move {
        waits_for(&run, APPROVAL).await;
        say_once(&run, UserMessage::interrupt()).await;
    });
    let entries = holds(&fake, harness, 1).await.observed.expect("what it left").entries;
    assert!(entries.iter().any(|entry| entry.contains("the user stopped the agent")), "{entries:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_survives_a_crash_at_every_commit() {
    let note = || Turn { text: Some("{{pad:2000}}".into()), ..Turn::call("note", json!({"text": "{{pad:2000}}"})) };
    let script = Script::new([
        Turn::text("Otters.").when(asked("Summarise the conversation above")),
        Turn::text("Notes.").when(asked("the beginning of one long turn")),
        Turn::text("Done.").when(asked("Notes.")),
        note().times(9),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let mut input = ask("Take notes.");
    input.config.compaction.window = Some(5_000);
    input.config.compaction.keep_recent_tokens = 1_000;
    let proof = holds(&fake, harness(&fake, agent(), &input), 5).await;
    let entries = proof.observed.expect("what it left").entries;
    assert!(entries.iter().any(|entry| entry.starts_with("user: ") && entry.contains("bytes")), "{entries:#?}");
}

/// The wrong answer is recorded, and what was wrong with it; only then is the model asked again.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_form_survives_a_crash_at_every_commit() {
    for (wire, form) in [("anthropic", "native"), ("anthropic", "tool"), ("chat", "tool"), ("responses", "native")] {
        let script = Script::new([
            Turn::call("note", json!({"text": "otters"})),
            gives(form, &json!({"name": "Lutra", "age": 0, "friends": []})),
            gives(form, &right()),
        ]);
        let fake = FakeLlm::start(script).expect("a server");
        let input = input(wire, form, OutputSpec::of::<Otter>());
        let runs = Arc::new(Mutex::new(Vec::new()));
        let kept = runs.clone();
        let harness = harness_of(&registry(&fake), agent(), &input).outside(move |run| {
            kept.lock().push(run);
            async {}
        });
        let proof = holds(&fake, harness, 3).await;
        let runs = std::mem::take(&mut *runs.lock());
        assert_eq!(runs.len(), proof.runs, "{wire} {form}");
        // The harness compares long values by their size alone.
        for run in runs {
            let outcome = outcome(&run).await;
            assert_eq!((outcome.output, outcome.turns), (Some(right()), 3), "{wire} {form}");
            assert_eq!(outcome.usage.0.values().map(|usage| usage.calls).sum::<u64>(), 3, "{wire} {form}");
            let said = told(&run).await;
            let faults = said.iter().filter(|line| line.contains("- /age: 0 is less than the minimum of 1")).count();
            let answers = match form {
                "native" => said.iter().filter(|line| line.starts_with("assistant: {")).count(),
                _ => said.iter().filter(|line| *line == "assistant: call final_answer").count(),
            };
            assert_eq!((faults, answers), (1, 2), "{wire} {form}: {said:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delegates_survive_a_crash_at_every_commit() {
    let script = Script::new([
        Turn::call("note", json!({"text": "a"})).when(asked_with("Look at otters", false)),
        Turn::text("They hold hands.").when(asked("Look at otters")),
        Turn::call("otter", json!({"task": "Look at otters."})).and_call("plain", json!({"word": "fail"})),
        Turn::text("Done."),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let entries = holds(&fake, family(&fake, boss(), named("otter"), &ask("What is new?")), 4)
        .await
        .observed
        .expect("entries")
        .entries;
    assert!(entries.iter().any(|entry| entry.contains("They hold hands.")), "{entries:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handoff_survives_a_crash_at_every_commit() {
    let script = Script::new([
        Turn::call("transfer_to_otter", json!({})).and_call("note", json!({"text": "a"})),
        Turn::call("note", json!({"text": "b"})),
        Turn::text("Done."),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let desk = agent().with_handoff(Delegate::of(&named("otter"), "Knows otters.")).expect("a name of its own");
    let entries = holds(&fake, family(&fake, desk, named("otter"), &ask("Who knows?")), 3)
        .await
        .observed
        .expect("entries")
        .entries;
    assert!(entries.iter().any(|entry| entry.contains("noted b")), "{entries:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_a_delegate_survives_a_crash_at_every_commit() {
    let script = Script::new([
        Turn::call("escalate", json!({"question": "Which otters?"})).when(asked_with("Look at otters", false)),
        Turn::text("Sea: {{result}}").when(asked("Look at otters")),
        with_id("call_1", Turn::call("otter", json!({"task": "Look at otters."}))),
        Turn::call("answer_agent", json!({"id": "1.call_1", "answer": "Wet."})),
        Turn::text("Done."),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let (boss, otter) = asking();
    let entries =
        holds(&fake, family(&fake, boss, otter, &ask("What is new?")), 5).await.observed.expect("entries").entries;
    assert!(entries.iter().any(|entry| entry.contains("Sea: Wet.")), "{entries:#?}");
}

async fn say_once(run: &Handle, message: UserMessage) {
    let signal = message.signal(Some("once".into())).expect("a signal");
    run.signal(USER_MESSAGE, signal.payload, signal.delivery, signal.idempotency_key).await.expect("the run takes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_in_a_process_with_other_tools() {
    for mode in ["one-shot", "chat"] {
        let fake = FakeLlm::start(Script::new([Turn::call("wait", json!({})), Turn::text("Done.")])).expect("a server");
        let echo = AgentTool::task(spec("mcp__probe__echo"), "note", Effect::Read).expect("a schema");
        let with_server = agent().with_tool(echo).expect("a name of its own");
        let with_server = with_server.with_server_instructions("probe", "Look for otters first.");
        let runtime = flovyn_core::runtime::Runtime::open("memory:").await.expect("a store");
        let gate = Gate::new("wait");
        let serve = async |agent: ReactAgent| {
            let host =
                NativeHost::default().agent(agent).and_then(|host| host.task(generate(&fake))?.task(gate.clone()));
            let host = Arc::new(host.expect("every kind once"));
            runtime.worker(host, Default::default()).await.expect("a worker")
        };
        let first = serve(with_server).await;
        let input = if mode == "chat" { ask("Hi").chat() } else { ask("Hi") };
        let input = Payload::of(&input).expect("JSON");
        let run = runtime.client().start(KIND, input, StartOptions::default()).await.expect("it starts");
        works(&run, "wait").await;
        first.kill_noticed().await.expect("it is noticed");
        let _second = serve(agent()).await;
        gate.open.add_permits(2);
        let answered = fake.wait_until(PATIENCE, |requests| requests.len() == 2).await;
        let requests = answered.unwrap_or_else(|found| panic!("{mode}: {} requests", found.len()));
        let system = |number: usize| requests[number].body["system"].to_string();
        assert!(system(0).contains("otters first"), "{mode}: {}", system(0));
        assert_eq!((system(0), &requests[0].body["tools"]), (system(1), &requests[1].body["tools"]), "{mode}");
        match mode {
            "chat" => waits_for(&run, USER_MESSAGE).await,
            _ => assert_eq!(outcome(&run).await.text, "Done."),
        }
        assert_eq!((fake.requests().len(), fake.paid()), (2, 2), "{mode}: each answer is paid once");
        assert_eq!(told(&run).await.iter().filter(|line| line.starts_with("system:")).count(), 1, "{mode}");
    }
}
