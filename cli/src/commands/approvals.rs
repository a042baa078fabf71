//! `flovyn runs approve` and `flovyn runs deny`: a person's answer to a call that waits for one.

use crate::args::{Answer, Approve};
use crate::print::{Output, short};
use crate::target::{Run, Target};
use crate::{Failed, Result};
use flovyn_core::Payload;
use flovyn_core::model::Delivery;
use flovyn_toolkit::message::Message;
use flovyn_toolkit::react::APPROVAL;
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest, ApprovalScope, ApprovalTerms};
use serde::Serialize;
use serde_json::json;

/// The fewest digits of a hash that name a call.
const SHORTEST_HASH: usize = 8;

/// Lets a call run, on the terms of whoever allows it.
pub(super) async fn approve(args: Approve, out: &mut Output) -> Result {
    let arguments = args.arguments.map(|text| read_object(&text)).transpose()?;
    let scope = if args.for_run { ApprovalScope::Run } else { ApprovalScope::Once };
    answer(args.answer, Some(ApprovalTerms { arguments, scope }), out).await
}

/// Refuses a call.
pub(super) async fn deny(args: Answer, out: &mut Output) -> Result {
    answer(args, None, out).await
}

fn read_object(text: &str) -> Result<serde_json::Value> {
    let usage = |why: String| {
        Failed::Usage(format!("--arguments takes a JSON object such as '{{\"command\": \"ls\"}}'; {why}"))
    };
    let read: serde_json::Value = serde_json::from_str(text).map_err(|error| usage(error.to_string()))?;
    if read.is_object() { Ok(read) } else { Err(usage(format!("{} is none", short(text, 60)))) }
}

/// What is sent: the answer, with the terms of an approval.
#[derive(Serialize)]
struct OnTerms {
    #[serde(flatten)]
    answer: ApprovalAnswer,
    #[serde(flatten)]
    terms: Option<ApprovalTerms>,
}

async fn answer(args: Answer, terms: Option<ApprovalTerms>, out: &mut Output) -> Result {
    let approved = terms.is_some();
    let mut target = Target::parse(args.words.words, &["ID", "CALL"])?;
    let run = target.run().await?;
    let open = open_approvals(&run).await?;
    let request = chosen(&open, target.next_word().as_deref(), &run.name())?;
    let answer = ApprovalAnswer { id: request.id.clone(), hash: request.hash.clone(), approved, reason: args.reason };
    // The SDKs answer under the same key, so that the first answer to a call counts, whoever gives it.
    let key = format!("approval {} {}", request.id, request.hash.as_str());
    let payload = Payload::of(&OnTerms { answer, terms })?;
    let stored = run.handle.signal(APPROVAL, payload, Delivery::NextStep, Some(key)).await?;
    if out.is_json() {
        return out.value(&json!({
            "signalId": stored.id, "repeated": stored.repeated, "agentResumed": stored.resumed,
            "call": request.id, "tool": request.name, "approved": approved,
        }));
    }
    let what = match (stored.repeated, approved) {
        (true, _) => "was answered before; that answer stands",
        (false, true) => "is approved",
        (false, false) => "is denied",
    };
    out.line(&format!("{} {what}", line(request)))
}

/// The calls of a run that wait for the approval of a person, in the order in which they were asked for.
pub(super) async fn open_approvals(run: &Run) -> Result<Vec<ApprovalRequest>> {
    let mut open: Vec<ApprovalRequest> = Vec::new();
    for entry in run.handle.messages().await? {
        let content = &entry.new.content;
        match entry.new.entry_type.as_str() {
            "approval_request" => open.extend(content.parse::<ApprovalRequest>()),
            "approval" => {
                if let Ok(answer) = content.parse::<ApprovalAnswer>() {
                    open.retain(|request| request.id != answer.id || request.hash != answer.hash);
                }
            }
            "message" => {
                if let Ok(message) = content.parse::<Message>() {
                    open.retain(|request| message.tool_results().all(|result| result.id != request.id));
                }
            }
            _ => {}
        }
    }
    Ok(open)
}

/// The call that a word names: by its id or the beginning of its hash, or by nothing where only one is open.
fn chosen<'a>(open: &'a [ApprovalRequest], word: Option<&str>, run: &str) -> Result<&'a ApprovalRequest> {
    let list = |calls: &mut dyn Iterator<Item = &ApprovalRequest>| {
        calls.map(|call| format!("\n  {}", line(call))).collect::<String>()
    };
    let refuse = |message: String| Err(Failed::Usage(message));
    if open.is_empty() {
        return refuse(format!("run {run} has no call that waits for an answer"));
    }
    let Some(word) = word else {
        return match open {
            [only] => Ok(only),
            several => refuse(format!("several calls of run {run} wait; name one:{}", list(&mut several.iter()))),
        };
    };
    let digits = word.strip_suffix('…').unwrap_or(word);
    let is_hash =
        |request: &ApprovalRequest| digits.len() >= SHORTEST_HASH && request.hash.as_str().starts_with(digits);
    let named: Vec<_> = match open.iter().any(|request| request.id == word) {
        true => open.iter().filter(|request| request.id == word).collect(),
        false => open.iter().filter(|request| is_hash(request)).collect(),
    };
    match named[..] {
        [only] => Ok(only),
        [] => refuse(format!("run {run} has no open call {word:?}; these wait:{}", list(&mut open.iter()))),
        _ => refuse(format!(
            "{word:?} names several calls of run {run}; name one by its hash:{}",
            list(&mut named.iter().copied())
        )),
    }
}

/// A call as it is listed: its id, its hash, and what it would do.
pub(super) fn line(request: &ApprovalRequest) -> String {
    let hash: String = request.hash.as_str().chars().take(12).collect();
    let arguments = match request.arguments.get("command").and_then(serde_json::Value::as_str) {
        Some(command) => command.to_owned(),
        None => request.arguments.to_string(),
    };
    format!("{} ({hash}…) {} {}", request.id, request.name, short(&arguments, 200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_toolkit::tools::Effect;

    fn request(id: &str, command: &str) -> ApprovalRequest {
        ApprovalRequest::new(id, "bash", Effect::Exec, &json!({ "command": command })).expect("a request")
    }

    #[test]
    fn a_call_is_named_by_its_id_its_hash_or_nothing() {
        let open = [request("call_1", "ls"), request("call_2", "rm x")];
        let id = |open: &[ApprovalRequest], word: Option<&str>| {
            chosen(open, word, "r").map(|request| request.id.clone()).map_err(|failed| failed.to_string())
        };
        assert_eq!(id(&open[..1], None).as_deref(), Ok("call_1"));
        assert_eq!(id(&open, Some("call_2")).as_deref(), Ok("call_2"));
        let hash = open[1].hash.as_str();
        for word in [hash.to_owned(), hash[..8].to_owned(), format!("{}…", &hash[..12])] {
            assert_eq!(id(&open, Some(&word)).as_deref(), Ok("call_2"), "{word}");
        }
        let listed = |error: String| {
            assert!(error.contains("call_1") && error.contains("rm x") && error.contains(&hash[..12]), "{error}")
        };
        listed(id(&open, None).expect_err("two are open"));
        listed(id(&open, Some("call_3")).expect_err("there is none"));
        listed(id(&open, Some(&hash[..4])).expect_err("it is too short"));
        assert!(id(&[], None).expect_err("none is open").contains("no call that waits"));
        let twins = [request("call_1", "ls"), request("call_1", "rm x")];
        assert!(id(&twins, Some("call_1")).expect_err("two have the id").contains("by its hash"));
    }
}
