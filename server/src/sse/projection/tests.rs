//! Events in, frames out: what each protocol shows of a turn.

use super::part::TurnPart;
use super::prose::Draft;
use super::{AgUi, AiSdk, Answer, Turn, TurnLocation, Writer, remember};
use flovyn_core::clock::Timestamp;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{Chunk, ChunkKind, Event, EventId, EventKind, FamilyEvent, StreamEvent};
use serde_json::{Value, json};

/// The op that writes in most of these tests.
const OP: (u32, u32) = (0, 4);

/// Events of one run, numbered as they come.
#[derive(Default)]
struct Tale {
    events: Vec<FamilyEvent>,
    number: u64,
    seq: u64,
}

impl Tale {
    /// One that has begun with a message of the user.
    fn new() -> Self {
        Self::default().entry("user", "message", json!({ "role": "user", "parts": [{ "type": "text", "text": "hi" }] }))
    }

    fn push(mut self, event: StreamEvent) -> Self {
        let (cursor, execution) = (self.number.to_string().into(), ExecutionId::default());
        self.events.push(FamilyEvent { cursor, execution, depth: 0, event });
        self
    }

    fn durable(mut self, kind: EventKind, op: Option<(u32, u32)>, data: Value) -> Self {
        self.number += 1;
        let (execution, at) = (ExecutionId::default(), Timestamp(1_700_000_000_000_000));
        let (segment, sequence) = op.map_or((0, None), |op| (op.0, Some(op.1)));
        let event = Event { execution, number: self.number, at, kind, segment, sequence, data };
        self.push(StreamEvent::Durable(event))
    }

    fn entry(self, role: &str, kind: &str, content: Value) -> Self {
        let id = format!("e{}", self.number + 1);
        let data = json!({ "entry": id, "role": role, "entry_type": kind, "content": content });
        self.durable(EventKind::Entry, Some((0, 900)), data)
    }

    fn answer(self, parts: Value) -> Self {
        self.entry("assistant", "message", json!({ "role": "assistant", "parts": parts }))
    }

    fn chunk(mut self, kind: ChunkKind, attempt: u32, data: &str) -> Self {
        self.seq += 1;
        let (execution, (segment, sequence)) = (ExecutionId::default(), OP);
        let chunk = Chunk { execution, segment, sequence, epoch: 1, attempt, seq: self.seq, kind, data: data.into() };
        let id = EventId { number: self.number };
        self.push(StreamEvent::Chunk(id, chunk.into()))
    }

    fn token(self, text: &str) -> Self {
        self.chunk(ChunkKind::Token, 1, text)
    }

    fn data(self, value: &Value) -> Self {
        self.chunk(ChunkKind::Data, 1, &value.to_string())
    }

    fn done(self) -> Self {
        self.durable(EventKind::TaskCompleted, Some(OP), json!({ "kind": "llm.generate" }))
    }

    fn retract(self) -> Self {
        let id = EventId { number: self.number };
        self.push(StreamEvent::Retract { id, op: OP })
    }

    fn waits(self, signals: &[&str]) -> Self {
        let data = json!({ "reason": "signal", "signals": signals, "timers": false });
        self.durable(EventKind::Waiting, None, data)
    }

    fn rests(self) -> Self {
        self.entry("system", "answer_end", json!({ "stopReason": "end", "turns": 1 })).waits(&["userMessage"])
    }

    fn parts(&self) -> Vec<TurnPart> {
        let (mut turn, mut parts) = (Turn::awaiting(), Vec::new());
        for event in &self.events {
            turn.take(event, &mut parts);
            turn.ask(&mut parts);
        }
        parts
    }

    fn shown(&self, mut writer: Writer) -> Vec<Value> {
        let opening = writer.opening();
        opening.into_iter().chain(self.parts().into_iter().flat_map(|part| writer.show(part))).collect()
    }

    fn ai_sdk(&self) -> Vec<Value> {
        self.shown(Writer::AiSdk(AiSdk { resets: false }))
    }

    fn ag_ui(&self) -> Vec<Value> {
        let before = vec![json!({ "id": "m", "role": "user", "content": "hi" })];
        let writer = AgUi::new("thread".into(), "run".into(), before);
        self.shown(Writer::AgUi { writer, with_messages: false })
    }
}

/// The types of chunks, with what each is about.
fn types(chunks: &[Value]) -> Vec<String> {
    chunks.iter().map(|chunk| chunk["type"].as_str().unwrap().to_owned()).collect()
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn thinking(delta: &str) -> Value {
    json!({ "type": "thinking_delta", "delta": delta })
}

fn call(id: &str) -> Value {
    json!({ "type": "toolCall", "id": id, "name": "publish", "arguments": { "title": "Otters" } })
}

fn result(id: &str, said: &str, is_error: bool) -> Value {
    let part =
        json!({ "type": "toolResult", "id": id, "name": "publish", "content": [text(said)], "isError": is_error });
    json!({ "role": "tool", "parts": [part] })
}

/// What a reader of the AI SDK ends with: the texts that were not taken back.
fn ai_sdk_texts(chunks: &[Value]) -> Vec<String> {
    let (mut open, mut done): (Vec<(Value, String)>, Vec<String>) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let at = |open: &[(Value, String)]| open.iter().position(|(id, _)| *id == chunk["id"]).expect("it was opened");
        match chunk["type"].as_str().unwrap() {
            "text-start" => open.push((chunk["id"].clone(), String::new())),
            "text-delta" => {
                let at = at(&open);
                open[at].1.push_str(chunk["delta"].as_str().unwrap());
            }
            "text-end" => {
                let (_, text) = open.remove(at(&open));
                if chunk["providerMetadata"]["flovyn"]["retracted"] != true {
                    done.push(text);
                }
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    done
}

/// What a reader of AG-UI ends with: the texts of its assistant's messages.
fn ag_ui_texts(events: &[Value]) -> Vec<String> {
    let mut messages: Vec<(Value, String)> = Vec::new();
    for event in events {
        let id = &event["messageId"];
        match event["type"].as_str().unwrap() {
            "TEXT_MESSAGE_START" => messages.push((id.clone(), String::new())),
            "TEXT_MESSAGE_CONTENT" => {
                let message = messages.iter_mut().find(|(known, _)| known == id).expect("it was started");
                message.1.push_str(event["delta"].as_str().unwrap());
            }
            "MESSAGES_SNAPSHOT" => {
                let all = event["messages"].as_array().unwrap();
                let said = all.iter().filter(|message| message["role"] == "assistant");
                messages = said.map(|one| (one["id"].clone(), one["content"].as_str().unwrap().to_owned())).collect();
            }
            _ => {}
        }
    }
    messages.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_turn_is_streamed_and_ends() {
    let tale = Tale::new().data(&thinking("Hm.")).token("Ot").token("ters").done();
    let tale = tale.answer(json!([{ "type": "thinking", "text": "Hm." }, text("Otters.")])).rests();
    let chunks = tale.ai_sdk();
    assert_eq!(
        chunks,
        [
            json!({ "type": "start", "messageId": "e1-answer" }),
            json!({ "type": "start-step" }),
            json!({ "type": "reasoning-start", "id": "e1-0-0" }),
            json!({ "type": "reasoning-delta", "id": "e1-0-0", "delta": "Hm." }),
            json!({ "type": "reasoning-end", "id": "e1-0-0" }),
            json!({ "type": "text-start", "id": "e1-0-1" }),
            json!({ "type": "text-delta", "id": "e1-0-1", "delta": "Ot" }),
            json!({ "type": "text-delta", "id": "e1-0-1", "delta": "ters" }),
            json!({ "type": "text-delta", "id": "e1-0-1", "delta": "." }),
            json!({ "type": "text-end", "id": "e1-0-1" }),
            json!({ "type": "finish-step" }),
            json!({ "type": "finish", "finishReason": "stop" }),
        ]
    );
    let events = tale.ag_ui();
    let kinds: Vec<_> = types(&events);
    assert_eq!(
        kinds,
        [
            "RUN_STARTED",
            "STEP_STARTED",
            "REASONING_START",
            "REASONING_MESSAGE_START",
            "REASONING_MESSAGE_CONTENT",
            "REASONING_MESSAGE_END",
            "REASONING_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED",
        ]
    );
    assert_eq!(events.last().unwrap()["outcome"], json!({ "type": "success" }));
}

#[test]
fn read_when_it_is_done_a_turn_has_the_ids_that_it_had() {
    let entry = json!([{ "type": "thinking", "text": "Hm." }, text("a"), text("b"), call("c"), text("d")]);
    let delta = json!({ "type": "tool_call_delta", "part": 2, "delta": "{" });
    let live = Tale::new().data(&thinking("Hm.")).token("a").token("b").data(&delta).token("d").done();
    let live = live.answer(entry.clone()).entry("tool_result", "message", result("c", "ok", false));
    let live = live.answer(json!([text("e")])).rests();
    let late = Tale::new().answer(entry).entry("tool_result", "message", result("c", "ok", false));
    let late = late.answer(json!([text("e")])).rests();
    let whole = |tale: &Tale| {
        let mut pieces: Vec<(String, String)> = Vec::new();
        for chunk in tale.ai_sdk() {
            let id = chunk["id"].as_str().unwrap_or_default().to_owned();
            match chunk["delta"].as_str() {
                Some(delta) => pieces.iter_mut().find(|piece| piece.0 == id).unwrap().1.push_str(delta),
                None if chunk["type"].as_str().unwrap().ends_with("-start") => pieces.push((id, String::new())),
                None => {}
            }
        }
        pieces
    };
    assert_eq!(whole(&live), whole(&late));
    assert_eq!(whole(&live).len(), 4);
    assert_eq!(live.ag_ui().last(), late.ag_ui().last());
}

#[test]
fn what_an_attempt_wrote_that_failed_is_taken_back() {
    let tale = Tale::new().token("wrong").retract().chunk(ChunkKind::Token, 2, "ri").done();
    let tale = tale.answer(json!([text("right")])).rests();
    assert_eq!(ai_sdk_texts(&tale.ai_sdk()), ["right"]);
    assert_eq!(ag_ui_texts(&tale.ag_ui()), ["right"]);
    let resets = types(&tale.shown(Writer::AiSdk(AiSdk { resets: true })));
    let wanted = ["text-start", "text-delta", "reset-step", "text-start", "text-delta", "text-delta", "text-end"];
    assert_eq!(resets[2..resets.len() - 2], wanted);
    assert_eq!(resets.iter().filter(|kind| *kind == "start-step").count(), 1, "a step that was reset goes on");

    // Nobody says that it is void: a later attempt does, or the entry.
    let later = Tale::new().token("wrong").chunk(ChunkKind::Token, 2, "right").token("late").done();
    let later = later.answer(json!([text("right")])).rests();
    let other = Tale::new().token("wrong").done().answer(json!([text("right")])).rests();
    for tale in [later, other] {
        assert_eq!(ai_sdk_texts(&tale.ai_sdk()), ["right"]);
        assert_eq!(ag_ui_texts(&tale.ag_ui()), ["right"]);
    }
}

#[test]
fn what_a_tool_streams_is_taken_back_for_its_result() {
    let tool = |tale: Tale, text: &str, seq: u64| {
        let (execution, id) = (ExecutionId::default(), EventId { number: tale.number });
        let (kind, data) = (ChunkKind::Token, text.into());
        let chunk = Chunk { execution, segment: 0, sequence: 7, epoch: 1, attempt: 1, seq, kind, data };
        tale.push(StreamEvent::Chunk(id, chunk.into()))
    };
    let tale = Tale::new().token("I look.").done().answer(json!([text("I look."), call("c")]));
    let tale = tool(tale, "half", 1).durable(EventKind::TaskCompleted, Some((0, 7)), json!({ "kind": "tool.x" }));
    let found = tale.entry("tool_result", "message", result("c", "found", false)).token("It");
    let found = found.done().answer(json!([text("It is there.")])).rests();
    assert_eq!(ai_sdk_texts(&found.ai_sdk()), ["I look.", "It is there."]);
    assert_eq!(ag_ui_texts(&found.ag_ui()), ["I look.", "It is there."]);

    // While something else is in the step, it is not reset.
    let beside = tool(Tale::new().token("Let"), "half", 1).token(" me").done().answer(json!([text("Let me.")]));
    let beside = beside.durable(EventKind::TaskFailed, Some((0, 7)), json!({})).rests();
    let chunks = beside.shown(Writer::AiSdk(AiSdk { resets: true }));
    assert!(!types(&chunks).contains(&"reset-step".into()), "{chunks:#?}");
    assert_eq!(ai_sdk_texts(&chunks), ["Let me."]);
}

#[test]
fn what_comes_twice_is_shown_once_and_what_is_lost_comes_with_the_entry() {
    let mut tale = Tale::new().token("a").token("b");
    let gap = StreamEvent::Gap(EventId { number: tale.number });
    let again = tale.events[1..].to_vec();
    tale = tale.push(gap);
    tale.events.extend(again);
    tale.seq += 1;
    let tale = tale.token("d").done().answer(json!([text("abcd")])).rests();
    assert_eq!(ai_sdk_texts(&tale.ai_sdk()), ["abcd"]);
    assert_eq!(ag_ui_texts(&tale.ag_ui()), ["abcd"]);
}

#[test]
fn a_call_is_shown_with_its_approval_and_its_result() {
    let request =
        json!({ "id": "c", "name": "publish", "arguments": { "title": "Otters" }, "effect": "write", "hash": "abc" });
    let asked = Tale::new().token("I publish.").done().answer(json!([text("I publish."), call("c")]));
    let asked = asked.entry("assistant", "approval_request", request.clone()).waits(&["approval", "userMessage"]);
    let chunks = asked.ai_sdk();
    assert_eq!(
        chunks[5..],
        [
            json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "publish", "input": { "title": "Otters" } }),
            json!({ "type": "tool-approval-request", "approvalId": "abc:c", "toolCallId": "c" }),
            json!({ "type": "finish-step" }),
            json!({ "type": "finish", "finishReason": "tool-calls" }),
        ]
    );
    let events = asked.ag_ui();
    let end = events.last().unwrap();
    assert_eq!(
        (&end["outcome"]["type"], &end["outcome"]["interrupts"][0]["id"]),
        (&json!("interrupt"), &json!("abc:c"))
    );
    let start = events.iter().find(|event| event["type"] == "TOOL_CALL_START").unwrap();
    assert_eq!(start["parentMessageId"], "e1-0-0");

    let answered = |approved: bool, said: &str| {
        let tale = Tale::new().answer(json!([call("c")])).entry("assistant", "approval_request", request.clone());
        let tale = tale.entry("user", "approval", json!({ "id": "c", "hash": "abc", "approved": approved }));
        tale.entry("tool_result", "message", result("c", said, !approved)).answer(json!([text("Done.")])).rests()
    };
    let allowed = answered(true, "published").ai_sdk();
    assert!(allowed.contains(&json!({ "type": "tool-output-available", "toolCallId": "c", "output": "published" })));
    let denied = types(&answered(false, "no").ai_sdk());
    assert!(
        denied.contains(&"tool-output-denied".into()) && !denied.contains(&"tool-output-error".into()),
        "{denied:?}"
    );
}

#[test]
fn a_call_that_runs_beside_one_that_is_asked_about_keeps_the_stream_open() {
    let request = json!({ "id": "c", "name": "publish", "arguments": {}, "hash": "abc" });
    let tale = Tale::new().answer(json!([call("c"), call("d")])).entry("assistant", "approval_request", request);
    let tale = tale.waits(&["approval", "userMessage"]);
    assert!(!types(&tale.ai_sdk()).contains(&"finish".into()));
    let tale = tale.entry("tool_result", "message", result("d", "ok", false)).waits(&["approval", "userMessage"]);
    assert_eq!(tale.ai_sdk().last().unwrap()["finishReason"], "tool-calls");
}

#[test]
fn failures_are_shown_once() {
    let error = json!({ "kind": "unavailable", "message": "the model is down" });
    let message = json!({ "role": "assistant", "parts": [], "assistant": { "stop": "error", "error": error } });
    let chat = Tale::new().token("half").retract().entry("assistant", "message", message.clone());
    let chat = chat.entry("system", "answer_end", json!({ "stopReason": "error" }));
    let failed = Tale::new().entry("assistant", "message", message).durable(
        EventKind::Failed,
        None,
        json!({ "error": { "message": "no model answered", "error_type": "unavailable" } }),
    );
    for tale in [chat, failed] {
        let errors: Vec<_> = tale.ai_sdk().into_iter().filter(|chunk| chunk["type"] == "error").collect();
        assert_eq!(errors, [json!({ "type": "error", "errorText": "the model is down" })]);
        let end = json!({ "type": "RUN_ERROR", "message": "the model is down", "code": "unavailable" });
        assert_eq!(tale.ag_ui().last(), Some(&end));
    }
    let paused = Tale::new().durable(EventKind::Paused, None, json!({ "reason": "budget" })).ai_sdk();
    assert_eq!(paused[1]["errorText"], "The run is paused: budget");
    let cancelled = Tale::new().durable(EventKind::Cancelled, None, json!({}));
    assert_eq!(types(&cancelled.ai_sdk()), ["start", "abort"]);
    assert_eq!(cancelled.ag_ui().last().unwrap()["outcome"]["type"], "cancelled");
}

#[test]
fn a_message_in_between_ends_the_answer_before_it() {
    let tale = Tale::new().token("a").done().answer(json!([text("a")]));
    let tale = tale.entry("user", "message", json!("wait")).token("b");
    assert_eq!(ai_sdk_texts(&tale.ai_sdk()), ["a"]);
    assert_eq!(tale.ai_sdk().last().unwrap()["type"], "finish");

    // The one who has sent it reads what follows it, and nothing before.
    let mut turn = Turn::awaiting_message(Some("wait".into()), 0).before_its_signal();
    let mut parts = Vec::new();
    tale.events.iter().for_each(|event| turn.take(event, &mut parts));
    assert!(matches!(&parts[0], TurnPart::Began { id, position } if id == "e4" && position == "3"), "{parts:?}");
}

#[test]
fn previews_that_come_before_their_message_are_shown_behind_it() {
    let scheduled = |tale: Tale| tale.durable(EventKind::TaskScheduled, Some(OP), json!({ "kind": "say" }));
    let user = |tale: Tale| tale.entry("user", "message", json!("hi"));
    // A task begins beside the commit that has the message.
    let beside = scheduled(user(Tale::default().token("a"))).token("b").done().answer(json!([text("abc")])).rests();
    assert_eq!(types(&beside.ai_sdk())[..2], ["start", "start-step"]);
    assert_eq!(beside.ai_sdk()[0]["messageId"], "e1-answer");
    assert_eq!(ai_sdk_texts(&beside.ai_sdk()), ["abc"]);
    // An agent that appends none is shown as soon as its task is durable.
    let without = scheduled(Tale::default().token("a")).token("b").done().waits(&["go"]);
    assert_eq!(ai_sdk_texts(&without.ai_sdk()), ["ab"]);
    // One that streams by itself has no task that could tell.
    let itself = user(Tale::default().chunk(ChunkKind::Token, 0, "a")).chunk(ChunkKind::Token, 0, "b").rests();
    assert_eq!(ai_sdk_texts(&itself.ai_sdk()), ["ab"]);
    // What answers an earlier message is none of it.
    let earlier = user(Tale::default().token("old").done().answer(json!([text("old")])));
    let mut turn = Turn::awaiting_message(Some("hi".into()), 0).before_its_signal();
    let mut parts = Vec::new();
    let earlier = earlier.answer(json!([text("new")])).rests();
    earlier.events.iter().for_each(|event| turn.take(event, &mut parts));
    let writer = AiSdk { resets: false };
    assert_eq!(ai_sdk_texts(&parts.into_iter().flat_map(|part| writer.chunks(part)).collect::<Vec<_>>()), ["new"]);
}

#[test]
fn an_agent_of_ones_own_is_shown_as_far_as_it_is_known() {
    let streams = Tale::default().durable(EventKind::Resumed, None, json!({ "epoch": 1 }));
    let streams =
        streams.chunk(ChunkKind::Token, 0, "word").data(&json!({ "type": "my step!", "n": 1 })).data(&json!(7));
    let streams = streams.chunk(ChunkKind::Progress, 0, r#"{"fraction":0.5}"#).waits(&["go"]);
    let chunks = streams.ai_sdk();
    assert_eq!(ai_sdk_texts(&chunks), ["word"]);
    let data = json!({ "type": "data-my_step_", "data": { "type": "my step!", "n": 1 }, "transient": true });
    assert!(chunks.contains(&data), "{chunks:?}");
    let named = types(&chunks);
    assert!(named.contains(&"data-value".into()) && named.contains(&"data-progress".into()), "{named:?}");

    let appends = Tale::default().entry("assistant", "message", json!({ "answer": 42 }));
    let appends = appends.durable(EventKind::Completed, None, json!({}));
    assert_eq!(ai_sdk_texts(&appends.ai_sdk()), [r#"{"answer":42}"#]);
}

#[test]
fn a_wait_in_which_work_goes_on_ends_nothing() {
    let scheduled = Tale::new().durable(EventKind::TaskScheduled, Some((0, 9)), json!({ "kind": "tool.bash" }));
    for tale in [
        scheduled.waits(&["userMessage"]),
        Tale::new().durable(EventKind::Waiting, None, json!({ "signals": ["userMessage"], "timers": true })),
        Tale::new().durable(EventKind::Waiting, None, json!({ "signals": [], "timers": false })),
    ] {
        assert_eq!(types(&tale.ai_sdk()), ["start"]);
    }
}

#[test]
fn hostile_text_is_one_line_of_json() {
    let hostile = "</script>\r\n\ndata: [DONE]\n\nid: 9\u{2028}\u{0}\u{feff}🦦";
    let tale = Tale::new().token(hostile).done().answer(json!([text(hostile)])).rests();
    let mut frames = Vec::new();
    Writer::AiSdk(AiSdk { resets: false }).write(tale.ai_sdk(), &mut frames);
    let sent = String::from_utf8(frames).unwrap();
    assert!(sent.split("\n\n").filter(|frame| !frame.is_empty()).all(|frame| frame.starts_with("data: {")), "{sent:?}");
    assert_eq!(ai_sdk_texts(&tale.ai_sdk()), [hostile]);
}

#[test]
fn a_conversation_is_told_as_messages() {
    let entry = |id: &str, role: &str, content: Value| json!({ "entry": id, "role": role, "entry_type": "message", "content": content });
    let image = json!({ "type": "media", "mime": "image/png", "source": { "base64": "AA==" } });
    let mut writer = AgUi::new("thread".into(), "run".into(), Vec::new());
    remember(
        &mut writer,
        &[
            entry("s", "system", json!("You know otters.")),
            entry("u", "user", json!({ "parts": [text("Publish."), image] })),
            entry("a", "assistant", json!({ "parts": [text("Yes."), call("c")] })),
            entry("t", "tool_result", result("c", "published", false)),
            entry("b", "assistant", json!({ "parts": [text("Done.")] })),
        ],
    );
    let snapshot = writer.opening(true).pop().unwrap();
    let arguments = r#"{"title":"Otters"}"#;
    let tool_call = json!({ "id": "c", "type": "function", "function": { "name": "publish", "arguments": arguments } });
    let source = json!({ "type": "data", "value": "AA==", "mimeType": "image/png" });
    assert_eq!(
        snapshot["messages"],
        json!([
            { "id": "u", "role": "user", "content": [text("Publish."), { "type": "image", "source": source }] },
            { "id": "u-0-0", "role": "assistant", "content": "Yes.", "toolCalls": [tool_call] },
            { "id": "result-c", "role": "tool", "toolCallId": "c", "content": "published" },
            { "id": "u-1-0", "role": "assistant", "content": "Done." },
        ])
    );
}

#[test]
fn a_draft_knows_what_it_has() {
    let mut draft = Draft::new((ExecutionId::default(), OP), 0);
    assert!(draft.is_empty());
    let mut parts = Vec::new();
    draft.settle("t", &[], true, &mut parts);
    assert_eq!(parts, []);
    assert_eq!(draft.piece_of_calls("t"), "t-0");
}

/// What is gathered of a turn whose reader comes when all has happened.
fn gathered(tale: &Tale) -> Answer {
    let until = tale.number.to_string();
    let turn = Turn::awaiting();
    let location = TurnLocation { after: String::new(), turn, from: None, until, position: None };
    let mut answer = Answer::new(location, true);
    // The cursor of an event is its own number.
    for (index, event) in tale.events.iter().enumerate() {
        let cursor = match &event.event {
            StreamEvent::Durable(durable) => durable.number.to_string().into(),
            _ => index.to_string().into(),
        };
        answer.take(&FamilyEvent { cursor, ..event.clone() });
    }
    answer
}

#[test]
fn questions_that_are_open_end_a_turn_and_those_that_were_answered_do_not() {
    let call = json!({ "type": "toolCall", "id": "c", "name": "book", "arguments": {} });
    let request = json!({ "id": "c", "name": "book", "server": "s", "hash": "h", "questions": { "day": {} } });
    let asks = || {
        let tale = Tale::new().answer(json!([call])).entry("assistant", "input_request", request.clone());
        tale.waits(&["input", "userMessage"])
    };
    let open = gathered(&asks());
    assert_eq!((open.is_complete(), open.questions()), (true, std::slice::from_ref(&request)));
    let both = json!({ "type": "toolCall", "id": "d", "name": "rm", "arguments": {} });
    let approval = json!({ "id": "d", "name": "rm", "hash": "g", "arguments": {} });
    let both = asks().answer(json!([both])).entry("assistant", "approval_request", approval);
    let both = gathered(&both.waits(&["approval", "input", "userMessage"]));
    assert_eq!((both.is_complete(), both.approvals().len(), both.questions().len()), (true, 1, 1));
    let other = asks().entry("user", "input", json!({ "id": "c", "hash": "other" })).waits(&["input"]);
    assert_eq!(gathered(&other).questions().len(), 1);

    let result =
        json!({ "type": "toolResult", "id": "c", "name": "book", "content": [{ "type": "text", "text": "ok" }] });
    let woken = asks().durable(EventKind::Woken, None, json!({}));
    let answered = woken.entry("user", "input", json!({ "id": "c", "hash": "h", "responses": {} }));
    let answered = answered.entry("tool_result", "message", json!({ "parts": [result] }));
    let answered = gathered(&answered.answer(json!([{ "type": "text", "text": "Booked." }])).rests());
    assert_eq!((answered.text().as_deref(), answered.questions().len()), (Some("Booked."), 0));
}

#[test]
fn what_a_run_has_come_to_rest_at_is_read_past_once_it_goes_on() {
    let said = json!([{ "type": "text", "text": "a" }]);
    for (kind, part) in [(EventKind::Paused, "is paused: full"), (EventKind::Failed, "has failed: full")] {
        let halted = || Tale::new().durable(kind, None, json!({ "reason": "full", "error": { "message": "full" } }));
        let (message, _) = gathered(&halted()).failure.unwrap();
        assert!(message.contains(part), "{message}");
        let goes_on = halted().durable(EventKind::Continued, None, json!({})).answer(said.clone()).rests();
        let answer = gathered(&goes_on);
        assert!(answer.failure.is_none());
        assert_eq!(answer.text().as_deref(), Some("a"), "{kind:?}");
    }
}

#[test]
fn what_counts_is_what_the_run_has_kept() {
    let usage = |tale: Tale, tokens: u64| {
        let used = json!({ "calls": 1, "input_tokens": tokens });
        tale.durable(EventKind::Usage, Some(OP), json!({ "model": "p/m", "usage": used }))
    };
    let tale = usage(Tale::new().token("in vain").retract(), 1).token("a, and more than that").done();
    let tale = usage(tale, 2).answer(json!([{ "type": "text", "text": "a" }]));
    let end = json!({ "stopReason": "end", "output": { "n": 1 } });
    let tale = tale.entry("system", "answer_end", end).durable(EventKind::Checkpoint, Some((3, 0)), json!({}));
    let answer = gathered(&usage(tale, 4).waits(&["userMessage"]));
    assert_eq!((answer.text().as_deref(), answer.structured.clone()), (Some("a"), Some(json!({ "n": 1 }))));
    assert_eq!((answer.usage["p/m"].input_tokens, answer.usage["p/m"].calls), (3, 2));
    assert_eq!(answer.checkpoint.map(|(_, sequence)| sequence), Some(3));
}

#[test]
fn an_answer_that_the_next_message_comes_behind_is_whole_and_one_that_it_cuts_is_not() {
    let next = |tale: Tale| gathered(&tale.entry("user", "message", json!({ "text": "next" })));
    let meta = |stop: &str, parts: Value| {
        let content = json!({ "role": "assistant", "parts": parts, "assistant": { "stop": stop } });
        Tale::new().entry("assistant", "message", content)
    };
    let text = json!([{ "type": "text", "text": "a" }]);
    let call =
        json!([{ "type": "text", "text": "a" }, { "type": "toolCall", "id": "c", "name": "n", "arguments": {} }]);
    for (tale, stop) in [
        (meta("end", text.clone()), Some("end")),
        (meta("length", text.clone()), Some("length")),
        (meta("aborted", text.clone()), None),
        (meta("toolUse", call.clone()), None),
        (Tale::new().answer(text), Some("end")),
        (Tale::new().answer(call), None),
        (Tale::new(), None),
    ] {
        assert_eq!(next(tale).stop_before_next(), stop);
    }
}
