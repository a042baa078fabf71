//! A question of an agent to whoever has given it its work.

use crate::mcp::InputAnswer;
use crate::react::{INPUT, InputReply, InputRequest, REQUEST, answer_of, questions};
use crate::tools::approval::CallHash;
use flovyn_core::Payload;
use flovyn_core::context::{AgentContext, AgentContextExt, Message};
use flovyn_core::error::{Code, Result};
use serde_json::{Value, json};

/// Asks whoever has given this run its work: the run that has started it, else a person. A parent that is led by a model
/// answers, or passes the question on. A person finds the question among those of the run, as those of MCP servers, and
/// answers by the signal [`INPUT`]. None where nobody answers.
///
/// A run asks a person one question at a time: the answer to another one has no effect.
pub async fn escalate(ctx: &dyn AgentContext, question: &str) -> Result<Option<String>> {
    let payload = json!({ "question": question });
    match ctx.request_from_parent::<Value>(REQUEST, &payload, None)?.await {
        Ok(Value::Null) => Ok(None),
        Ok(Value::String(answer)) => Ok(Some(answer)),
        Ok(answer) => Ok(Some(answer.to_string())),
        Err(error) if error.code() == Code::NoParent => ask_person(ctx, question).await,
        Err(error) => Err(error),
    }
}

async fn ask_person(ctx: &dyn AgentContext, question: &str) -> Result<Option<String>> {
    let id = format!("escalate-{}", ctx.random_uuid());
    let questions = questions(question);
    let hash = CallHash::of(REQUEST, &json!({ "id": id, "questions": questions }))?;
    let (name, server) = (REQUEST.to_owned(), String::new());
    let request = InputRequest { id: id.clone(), name, server, questions, hash: hash.clone() };
    note(ctx, "assistant", "input_request", &serde_json::to_value(&request).unwrap_or_default())?;
    loop {
        let answer = ctx.wait_raw(INPUT, None)?.await?;
        let Some(reply) = answer.payload().and_then(|payload| payload.parse::<InputReply>().ok()) else { continue };
        let InputReply { id: meant, answer: InputAnswer { hash: named, responses } } = &reply;
        if *meant != id || *named != hash {
            continue;
        }
        note(ctx, "user", "input", &serde_json::to_value(&reply).unwrap_or_default())?;
        return Ok(answer_of(responses));
    }
}

fn note(ctx: &dyn AgentContext, role: &str, entry_type: &str, content: &Value) -> Result<()> {
    let (role, entry_type, content) = (role.to_owned(), entry_type.to_owned(), Payload::of(content)?);
    ctx.append_message(Message { role, content, entry_type, turn_id: None, metadata: None }).map(drop)
}
