//! Conversations that outgrow the window.

use super::*;
use flovyn_toolkit::fake_llm::{Fault, FaultKind, When};
use flovyn_toolkit::react::{Budget, Compacted};

/// Answers requests for a summary.
fn summary() -> Turn {
    let asked = When { last_user_contains: Some("Summarise the conversation above".into()), ..When::default() };
    Turn::text("They spoke of otter {{i}}.").when(asked)
}

fn prefix() -> Turn {
    let asked = When { last_user_contains: Some("the beginning of one long turn".into()), ..When::default() };
    Turn::text("They began with otters.").when(asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_window_is_made_room_in() {
    let script =
        Script { otherwise: Some(Box::new(Turn::text("Otter: {{pad:4000}}"))), ..Script::new([summary(), prefix()]) };
    let lab = Lab::of("memory:", script, agent()).await;
    let mut input = ask("Otter one?").chat();
    input.config.compaction.window = Some(8_000);
    input.config.compaction.keep_recent_tokens = 1_500;
    let run = lab.start(&input).await;
    waits_for(&run, USER_MESSAGE).await;
    for number in 2..=14 {
        let before = lab.fake.requests().len();
        say(&run, UserMessage::new(format!("Otter number {number}?"))).await;
        lab.asked(before + 1).await;
        waits_for(&run, USER_MESSAGE).await;
    }
    let compacted: Vec<Compacted> = of_type(&run, "compaction").await;
    assert!(compacted.len() >= 2, "{compacted:?}");
    assert!(compacted.iter().all(|one| one.tokens_before > 6_000 && one.usage.output > 0), "{compacted:?}");
    let requests = lab.fake.requests();
    let last = requests.last().expect("requests").body.to_string();
    assert!(last.contains("They spoke of otter") && last.contains("Otter number 14?") && !last.contains("Otter one?"));
    let longest = requests.iter().map(|request| request.body.to_string().len()).max();
    assert!(longest < Some(4 * 8_000), "no request outgrew the window: {longest:?} bytes");
    assert!(told(&run).await.contains(&"user: Otter one?".to_owned()), "nothing was deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_does_not_fit_is_compacted_and_asked_once_more() {
    let overflow = |times| Fault {
        kind: FaultKind::Status { code: 400, retry_after: None, message: Some("prompt is too long: 9 > 8".into()) },
        times,
    };
    for (times, fits) in [(1, true), (2, false)] {
        let full = Turn { faults: vec![overflow(times)], ..Turn::text("It fits.") };
        let turns = [summary(), prefix(), Turn::call("note", json!({"text": "{{pad:2000}}"})), full];
        let lab = Lab::new(turns).await;
        let run = lab.start(&ask(&"otter ".repeat(500))).await;
        let result = run.result(Some(PATIENCE)).await;
        assert_eq!(result.is_ok(), fits, "{result:?}");
        assert_eq!(of_type::<Compacted>(&run, "compaction").await.len(), 1);
    }
}

/// A second turn that outgrows the window: the first one and its own beginning are summarised beside each other, and the
/// provider refuses the summary of the first. With the most calls that the budget has.
async fn two_summaries_of_which_one_is_refused(max_calls: Option<u64>) -> (Lab, Handle) {
    let kind = FaultKind::Status { code: 400, retry_after: None, message: Some("not that".into()) };
    let refused = Turn { faults: vec![Fault { kind, times: 100 }], ..summary() };
    let note = Turn::call("note", json!({"text": "{{pad:4000}}"}));
    let said = [Turn::text("Otter: {{pad:4000}}"), note.times(3), Turn::text("Noted.")];
    let lab = Lab::new([refused, prefix()].into_iter().chain(said)).await;
    let mut input = ask("Otter one?").chat();
    input.config.compaction.window = Some(6_000);
    input.config.compaction.keep_recent_tokens = 1_500;
    input.config.budget = max_calls.map(|most| Budget { max_calls: Some(most), ..Budget::default() });
    let run = lab.start(&input).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("Take notes.")).await;
    (lab, run)
}

fn of_prefixes(lab: &Lab) -> usize {
    let asks = |body: String| body.contains("the beginning of one long turn");
    lab.fake.requests().into_iter().filter(|request| asks(request.body.to_string())).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_accounted_for_beside_one_that_is_refused() {
    let (lab, run) = two_summaries_of_which_one_is_refused(None).await;
    let noted = async {
        while told(&run).await.last().map(String::as_str) != Some("assistant: Noted.") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.expect("the conversation goes on as it is");
    assert_eq!(of_type::<Value>(&run, "compaction").await, Vec::<Value>::new());
    let calls = of_type::<Value>(&run, "llm_call").await;
    let accounted = calls.iter().filter(|call| call["purpose"] == "compaction").count();
    assert!(accounted > 0 && accounted == of_prefixes(&lab), "{accounted} of {} summaries", of_prefixes(&lab));
    assert_eq!(calls.len(), lab.fake.paid(), "what was paid for is accounted for");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_summary_is_begun_where_the_budget_does_not_have_room_for_all() {
    // The first turn is a call, and two notes, which fill the window. That leaves one.
    let (lab, run) = two_summaries_of_which_one_is_refused(Some(4)).await;
    lab.asked(4).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!((of_prefixes(&lab), lab.fake.paid()), (0, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_the_conversation_summarised() {
    let script = Script { otherwise: Some(Box::new(Turn::text("Otter."))), ..Script::new([summary(), prefix()]) };
    let lab = Lab::of("memory:", script, agent()).await;
    let run = lab.start(&ask("Otter one?").chat()).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::compact("the names of the otters")).await;
    lab.asked(2).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(of_type::<Compacted>(&run, "compaction").await.len(), 1);
    assert!(lab.fake.requests()[1].body.to_string().contains("the names of the otters"));
    say(&run, UserMessage::new("And two?")).await;
    lab.asked(3).await;
    waits_for(&run, USER_MESSAGE).await;
    let last = lab.fake.requests().last().expect("a request").body.to_string();
    assert!(last.contains("began with otters") && last.contains("And two?") && !last.contains("Otter one?"), "{last}");
}
