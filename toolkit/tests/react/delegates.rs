//! Agents that are tools of an agent: each call is a child, and its end is the result.

use super::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::model::PageRequest;
use flovyn_core::worker::WorkerOptions;
use flovyn_toolkit::fake_llm::{Outcome, When};
use flovyn_toolkit::react::{AgentConfig, AgentSpawn, Delegate, Delivery, KIND, Takes, Via};

pub(crate) fn asked(text: &str) -> When {
    When { last_user_contains: Some(text.into()), ..When::default() }
}

/// The same, before or after a tool has answered.
pub(crate) fn asked_with(text: &str, has_tool_result: bool) -> When {
    When { has_tool_result: Some(has_tool_result), ..asked(text) }
}

/// An agent of the tests under another kind.
pub(crate) fn named(kind: &str) -> ReactAgent {
    agent().named(kind).with_model(flovyn_toolkit::react::ModelChoice::parse("fake/m"))
}

/// A function agent: it fails, waits, or says what it was given.
pub(crate) fn plain() -> impl flovyn_core::agent::AgentDefinition + Clone {
    super::plain::Plain
}

/// A boss with the delegates `otter` (built in) and `plain` (a function).
pub(crate) fn boss() -> ReactAgent {
    let otter = Delegate::of(&named("otter"), "Knows otters.");
    let plain = Delegate {
        takes: Takes::Argument {
            parameters: json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}),
            name: "word".into(),
        },
        ..Delegate::new("plain", "Says it.")
    };
    agent().with_delegate(otter).and_then(|boss| boss.with_delegate(plain)).expect("names of their own")
}

/// A backend whose worker serves the boss and its delegates.
struct Family {
    fake: FakeLlm,
    flovyn: FlovynClient,
    boss: ReactAgent,
    gate: Gate,
    _worker: Worker,
}

impl Family {
    async fn new(script: Script, boss: ReactAgent) -> Self {
        let fake = FakeLlm::start(script).expect("a server");
        let gate = Gate::new("wait");
        let builder = FlovynClient::builder().storage("memory:").agent(boss.clone()).agent(named("otter"));
        let builder =
            builder.agent(plain()).task(generate(&fake)).task(Note).task(gate.clone()).task(Gate::new("meet"));
        let flovyn = builder.build().await.expect("a backend");
        let worker = flovyn.worker().await.expect("a worker");
        Self { fake, flovyn, boss, gate, _worker: worker }
    }

    async fn start(&self, input: &AgentInput) -> Handle {
        self.flovyn.start(&self.boss, input, StartOptions::default()).await.expect("it starts")
    }

    async fn child(&self, run: &Handle) -> Handle {
        let spawned: Vec<AgentSpawn> = of_type(run, "agent_spawn").await;
        self.flovyn.handle(&spawned[0].child.to_string()).await.expect("the child")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_delegate_is_the_result_of_its_call() {
    let script = Script::new([
        Turn::call("note", json!({"text": "a"})).when(asked_with("Look at otters", false)),
        Turn::text("They hold hands.").when(asked("Look at otters")),
        Turn::call("otter", json!({"task": "Look at otters."})).and_call("plain", json!({"word": "seals"})),
        Turn::text("Done."),
    ]);
    let family = Family::new(script, boss()).await;
    let run = family.start(&ask("What is new?")).await;
    assert_eq!(outcome(&run).await.text, "Done.");
    let said = told(&run).await;
    let results: Vec<_> = said.iter().filter(|line| line.starts_with("tool_result")).collect();
    assert_eq!(results.len(), 2, "{said:#?}");
    assert!(results.iter().any(|line| *line == "tool_result: otter = They hold hands."), "{said:#?}");
    assert!(results.iter().any(|line| *line == "tool_result: plain = plain said seals"), "{said:#?}");
    let spawned: Vec<AgentSpawn> = of_type(&run, "agent_spawn").await;
    assert_eq!(spawned.iter().map(|one| one.kind.as_str()).collect::<Vec<_>>(), ["otter", "plain"]);
    let child = family.child(&run).await;
    assert_eq!(told(&child).await.last().map(String::as_str), Some("assistant: They hold hands."));
    let sum = run.roll_up().await.expect("a sum");
    assert_eq!(family.fake.paid(), 4);
    assert!(format!("{sum:?}").contains("calls: 4"), "{sum:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_of_a_delegate_is_shown_in_part_and_can_be_read() {
    let answer: String = (1..=9_000).map(|line| format!("otter {line}\n")).collect();
    let word = "seals ".repeat(20_000);
    let read = |id: &str| Turn::call("read_result", json!({"call_id": id, "offset": 4_321, "limit": 1}));
    let script = Script::new([
        Turn::text(&answer).when(asked("Look at otters")),
        with_id("call_otter", Turn::call("otter", json!({"task": "Look at otters."}))),
        read("call_otter"),
        with_id("call_plain", Turn::call("plain", json!({"word": word}))),
        Turn::text("Done."),
    ]);
    let family = Family::new(script, boss()).await;
    let run = family.start(&ask("What is new?")).await;
    assert_eq!(outcome(&run).await.text, "Done.");
    let said = told(&run).await;
    let result = |name: &str| {
        let begin = format!("tool_result: {name} = ");
        said.iter().find_map(|line| line.strip_prefix(&begin)).unwrap_or_else(|| panic!("{name}: {said:#?}"))
    };
    let shown = result("otter");
    assert!(shown.len() < 50 * 1024 && answer.len() > 90_000, "{} of {} bytes", shown.len(), answer.len());
    assert!(shown.starts_with("otter 1\notter 2\n") && shown.ends_with("otter 8999\notter 9000\n"), "{shown}");
    let note = "Read them with read_result: call_id=\"call_otter\"";
    assert!(shown.contains("in 9000 lines") && shown.contains(note), "{shown}");
    assert!(result("read_result").starts_with("  4321\totter 4321\n"), "{}", result("read_result"));
    let shown = result("plain");
    assert!(shown.starts_with("plain said seals seals") && shown.len() < 52 * 1024, "{} bytes", shown.len());
    // The boss's models are sent no more either, and the child has its answer whole.
    let sent = |request: &Value| {
        let messages = request["messages"].as_array().into_iter().flatten();
        let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
        blocks.filter(|block| block["type"] == "tool_result").map(|block| block.to_string().len()).max()
    };
    let most = family.fake.requests().iter().filter_map(|request| sent(&request.body)).max();
    assert!(most.is_some_and(|most| most < 60 * 1024), "{most:?} bytes");
    let child = family.child(&run).await;
    assert_eq!(outcome(&child).await.text, answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn delegates_of_one_turn_work_beside_each_other() {
    let script = Script::new([
        Turn::call("meet", json!({})).when(asked_with("Meet", false)),
        Turn::text("We met.").when(asked("Meet")),
        Turn::call("otter", json!({"task": "Meet one."})).and_call("otter", json!({"task": "Meet two."})),
        Turn::text("Done."),
    ]);
    let family = Family::new(script, boss()).await;
    let run = family.start(&ask("What is new?")).await;
    assert_eq!(outcome(&run).await.text, "Done.");
    assert_eq!(told(&run).await.iter().filter(|line| line.ends_with("= We met.")).count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegate_without_an_answer_is_a_result_in_words() {
    let script = Script::new([
        Turn::call("plain", json!({"word": "fail"})),
        Turn::call("plain", json!({"word": 5})),
        Turn::call("otter", json!({"task": "x"})),
        Turn::text("Done."),
    ]);
    let poor = Delegate { budget: Some("10".into()), ..Delegate::of(&named("otter"), "Knows otters.") };
    let plain = Delegate {
        takes: Takes::Argument {
            parameters: json!({"type": "object", "properties": {"word": {"type": "string"}}}),
            name: "word".into(),
        },
        ..Delegate::new("plain", "Says it.")
    };
    let boss = agent().with_delegate(poor).and_then(|boss| boss.with_delegate(plain)).expect("names of their own");
    let family = Family::new(script, boss).await;
    let run = family.start(&ask("What is new?")).await;
    assert_eq!(outcome(&run).await.text, "Done.");
    let said = told(&run).await.join("\n");
    assert!(said.contains("plain = The agent plain has failed: ") && said.contains("no such word"), "{said}");
    assert!(said.contains("plain = The arguments of plain are wrong"), "{said}");
    assert!(
        said.contains("otter = The agent otter was stopped by its budget: it has used 0 tokens in 0 model calls"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_stops_the_delegates_that_work() {
    let script = Script::new([
        Turn::call("wait", json!({})).when(asked_with("Look at otters", false)),
        Turn::text("Never said.").when(asked("Look at otters")),
        Turn::call("otter", json!({"task": "Look at otters."})),
        Turn::text("Stopped."),
    ]);
    let family = Family::new(script, boss()).await;
    let run = family.start(&ask("What is new?")).await;
    waits_for(&run, "userMessage").await;
    let child = family.child(&run).await;
    works(&child, "wait").await;
    say(&run, UserMessage::new("Stop that.").deliver(Delivery::Now)).await;
    assert_eq!(outcome(&run).await.text, "Stopped.");
    let said = told(&run).await.join("\n");
    assert!(said.contains("otter = The user has interrupted. The agent otter was stopped"), "{said}");
    assert_eq!(child.describe().await.expect("it is there").status, Status::Cancelled);
    drop(family.gate);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_approves_what_a_delegate_does() {
    let script = Script::new([
        Turn::call("send", json!({"text": "a"})).when(asked_with("Send it", false)),
        Turn::text("Sent.").when(asked("Send it")),
        Turn::call("otter", json!({"task": "Send it."})),
        Turn::text("Done."),
    ]);
    // What a run may not do unasked, its delegates may not either.
    let mut input = ask("What is new?");
    input.approvals = Some(ApprovalPolicy::default());
    let family = Family::new(script, boss()).await;
    let run = family.start(&input).await;
    waits_for(&run, "userMessage").await;
    let child = family.child(&run).await;
    waits_for(&child, APPROVAL).await;
    let requests: Vec<flovyn_toolkit::tools::approval::ApprovalRequest> = of_type(&child, "approval_request").await;
    let (id, hash) = (requests[0].id.clone(), requests[0].hash.clone());
    let answer = flovyn_toolkit::tools::approval::ApprovalAnswer { id, hash, approved: true, reason: None };
    let payload = flovyn_core::Payload::of(&answer).expect("JSON");
    child.signal(APPROVAL, payload, EngineDelivery::NextStep, None).await.expect("the run takes it");
    assert_eq!(outcome(&run).await.text, "Done.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegate_that_shares_the_conversation_sees_it() {
    let script = Script::new([
        Turn::text("{{lastUser}}, I see.").when(asked("Sum it up")),
        Turn::call("otter", json!({"task": "Sum it up."})),
        Turn::text("Done."),
    ]);
    let shared_context = Some(flovyn_core::model::SharedContext::read_only());
    let otter = Delegate { shared_context, ..Delegate::of(&named("otter"), "Knows otters.") };
    let family = Family::new(script, agent().with_delegate(otter).expect("a name")).await;
    let run = family.start(&ask("Otters hold hands.")).await;
    assert_eq!(outcome(&run).await.text, "Done.");
    let child = told(&family.child(&run).await).await;
    assert_eq!(child.iter().filter(|line| *line == "user: Otters hold hands.").count(), 1, "{child:#?}");
    assert_eq!(child.last().map(String::as_str), Some("assistant: Sum it up., I see."));
    let refused = family.fake.requests().into_iter().find(|one| matches!(one.outcome, Outcome::Refused { .. }));
    assert!(refused.is_none(), "{refused:?}");
}

/// A boss whose delegate `otter` may ask.
pub(crate) fn asking() -> (ReactAgent, ReactAgent) {
    let otter = named("otter").with_tool(AgentTool::escalate().expect("a tool")).expect("a name of its own");
    let boss = agent().with_delegate(Delegate::of(&otter, "Knows otters.")).expect("a name of its own");
    (boss.with_tool(AgentTool::escalate().expect("a tool")).expect("a name of its own"), otter)
}

/// The turn with this id for its call.
pub(crate) fn with_id(id: &str, mut turn: Turn) -> Turn {
    turn.tool_calls[0].id = Some(id.into());
    turn
}

async fn asking_family(script: Script) -> (FakeLlm, FlovynClient, ReactAgent, Worker) {
    let fake = FakeLlm::start(script).expect("a server");
    let (boss, otter) = asking();
    let builder = FlovynClient::builder().storage("memory:").agent(boss.clone()).agent(otter).task(generate(&fake));
    let flovyn = builder.task(Note).build().await.expect("a backend");
    let worker = flovyn.worker().await.expect("a worker");
    (fake, flovyn, boss, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_a_delegate_is_answered_by_the_model_that_gave_it_the_work() {
    let script = Script::new([
        Turn::call("escalate", json!({"question": "Which otters?"})).when(asked_with("Look at otters", false)),
        Turn::text("Sea otters: {{result}}").when(asked("Look at otters")),
        with_id("call_1", Turn::call("otter", json!({"task": "Look at otters."}))),
        Turn::call("answer_agent", json!({"id": "1.call_1", "answer": "The wet ones."})),
        Turn::text("Done."),
    ]);
    let (_fake, flovyn, boss, _worker) = asking_family(script).await;
    let run = flovyn.start(&boss, &ask("What is new?"), StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.text, "Done.");
    let said = told(&run).await.join("\n");
    assert!(said.contains("otter = The agent otter asks: Which otters?"), "{said}");
    assert!(said.contains("answer_agent = Sea otters: The wet ones."), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_below_can_answer_is_asked_of_a_person() {
    let script = Script::new([
        Turn::call("escalate", json!({"question": "Which otters?"})).when(asked_with("Look at otters", false)),
        Turn::text("Sea otters: {{result}}").when(asked("Look at otters")),
        with_id("call_1", Turn::call("otter", json!({"task": "Look at otters."}))),
        Turn::call("answer_agent", json!({"id": "nobody", "answer": "x"})),
        Turn::call("answer_agent", json!({"id": "1.call_1", "pass_on": true})),
        Turn::text("Done."),
    ]);
    let (_fake, flovyn, boss, _worker) = asking_family(script).await;
    let run = flovyn.start(&boss, &ask("What is new?"), StartOptions::default()).await.expect("it starts");
    waits_for(&run, flovyn_toolkit::react::INPUT).await;
    let requests: Vec<flovyn_toolkit::react::InputRequest> = of_type(&run, "input_request").await;
    assert_eq!(requests[0].questions["answer"].message(), "Which otters?");
    let answer = json!({
        "id": requests[0].id, "hash": requests[0].hash,
        "responses": {"answer": {"action": "accept", "content": {"answer": "All of them."}}}
    });
    let payload = flovyn_core::Payload::of(&answer).expect("JSON");
    run.signal(flovyn_toolkit::react::INPUT, payload, EngineDelivery::NextStep, None).await.expect("the run takes it");
    assert_eq!(outcome(&run).await.text, "Done.");
    let said = told(&run).await.join("\n");
    assert!(said.contains("No agent waits for an answer to \"nobody\"."), "{said}");
    assert!(said.contains("answer_agent = Sea otters: All of them."), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn family_14_a_delegate_without_a_key_asks_by_way_of_its_boss() {
    let script = Script::new([
        Turn::call("note", json!({"text": "a"})).when(asked_with("Look at otters", false)),
        Turn::text("They hold hands.").when(asked("Look at otters")),
        Turn::call("otter", json!({"task": "Look at otters."})),
        Turn::text("Done."),
    ]);
    let fake = FakeLlm::start(script).expect("a server");
    let by_boss = AgentConfig { via: Some(Via::Parent), ..AgentConfig::default() };
    let otter = named("otter").with_config(&by_boss);
    let there = Delegate { queue: Some("far".into()), ..Delegate::of(&otter, "Knows otters.") };
    let boss = agent().with_delegate(there).expect("a name of its own");
    let near = NativeHost::default().agent(boss.clone()).and_then(|host| host.task(generate(&fake)));
    // It has the tools, and neither the models nor a key.
    let far = NativeHost::default().agent(otter).and_then(|host| host.task(Note)).expect("every kind once");
    let runtime = flovyn_core::runtime::Runtime::open("memory:").await.expect("a store");
    let options = WorkerOptions { queue: "far".into(), ..WorkerOptions::default() };
    let _far = runtime.worker(Arc::new(far), options).await.expect("a worker");
    let _near = runtime.worker(Arc::new(near.expect("every kind once")), Default::default()).await.expect("a worker");
    let input = Payload::of(&ask("What is new?")).expect("JSON");
    let run = runtime.client().start(KIND, input, StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.text, "Done.");
    let spawned: Vec<AgentSpawn> = of_type(&run, "agent_spawn").await;
    let child = runtime.client().handle(&spawned[0].child.to_string()).await.expect("the child");
    let told = told(&child).await;
    assert!(told.contains(&"tool_result: note = noted a".to_owned()), "{told:#?}");
    let tasks = child.tasks(PageRequest { limit: 10, after: None }).await.expect("its tasks").items;
    let calls: Vec<_> = tasks.iter().filter(|task| task.new.kind == LlmGenerate::KIND).collect();
    assert!(calls.len() == 2 && calls.iter().all(|call| call.new.queue == "default"), "{calls:#?}");
    let usage = child.describe().await.expect("it is there").usage;
    assert_eq!(usage.0["fake/m"].calls, 2, "what its calls used is its own");
}
