//! Conversations that outgrow the window.

use super::*;
use flovyn_toolkit::fake_llm::{FaultKind, When};
use flovyn_toolkit::react::Compacted;

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
    let overflow = |times| flovyn_toolkit::fake_llm::Fault {
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
