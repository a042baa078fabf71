//! What an agent asks permission for, and what it has its host do.

use super::*;
use flovyn_core::clock::{ManualClock, Timestamp};
use flovyn_core::payload::Payload;
use flovyn_core::storage::Storage;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_toolkit::react::APPROVAL;
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest, Decision, Otherwise, Rule};
use std::sync::Arc;

async fn asks(words: &[&str]) -> Lab {
    Lab::of(words, |agent| agent.with_approvals(ApprovalPolicy::default())).await
}

pub(super) async fn request(run: &Handle, number: usize) -> ApprovalRequest {
    let asked = async {
        loop {
            if let Some(request) = of_type::<ApprovalRequest>(run, "approval_request").await.into_iter().nth(number) {
                return request;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("somebody is asked")
}

pub(super) async fn answer(run: &Handle, request: &ApprovalRequest, approved: bool) {
    let answer = ApprovalAnswer { id: request.id.clone(), hash: request.hash.clone(), approved, reason: None };
    let payload = Payload::of(&answer).expect("JSON");
    run.signal(APPROVAL, payload, flovyn_core::model::Delivery::NextStep, None).await.expect("the run takes it");
}

#[tokio::test]
async fn a_person_is_asked() {
    let lab = asks(&["acp"]).await;
    for (approved, said) in [(true, "rm build was allowedDone"), (false, "rm build was not allowedDone")] {
        let run = lab.start(&ask("ask rm build; say Done")).await;
        let asked = request(&run, 0).await;
        assert_eq!((asked.name.as_str(), &asked.arguments["command"]), ("execute", &"rm build".into()));
        waits_for(&run, APPROVAL).await;
        answer(&run, &asked, approved).await;
        outcome(&run).await;
        assert!(told(&run).await.iter().any(|line| line.ends_with(said)), "{:?}", told(&run).await);
    }
}

#[tokio::test]
async fn a_chat_goes_on_after_a_person_was_asked() {
    for driver in DRIVERS {
        let lab = asks(&[driver]).await;
        let run = lab.start(&chat("ask rm build; say Done")).await;
        answer(&run, &request(&run, 0).await, true).await;
        answers(&run, 1).await;
        say(&run, UserMessage::new("say Again")).await;
        answers(&run, 2).await;
        assert!(told(&run).await.iter().any(|line| line.ends_with("Again")), "{driver}: {:?}", told(&run).await);
    }
}

/// A person is asked in the evening and answers the next one, with the worker that asked and after that has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_a_day_later() {
    for (driver, worker_goes) in DRIVERS.into_iter().flat_map(|driver| [(driver, false), (driver, true)]) {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
        let ask_all = |agent: ExternalAgent| agent.with_approvals(ApprovalPolicy::default());
        let mut lab = Lab::over(storage.clone(), &[driver], ask_all).await;
        let run = lab.start(&ask("say Hello; ask rm build; tool read; say Done")).await;
        let asked = request(&run, 0).await;
        waits_for(&run, APPROVAL).await;
        if let Some(worker) = lab.worker.take_if(|_| worker_goes) {
            worker.close(Duration::from_secs(1)).await.expect("it closes");
            is_gone(&run.id().to_string()).await;
        }
        for _ in 0..24 {
            clock.advance(Duration::from_secs(3_600));
            storage.pass().await.expect("time passes");
        }
        waits_for(&run, APPROVAL).await;
        answer(&run, &asked, true).await;
        if worker_goes {
            lab.worker = Some(lab.flovyn.worker().await.expect("a worker"));
        }
        assert_eq!(outcome(&run).await.text, "Done", "{driver}");
        let told = told(&run).await[1..].join("\n");
        let count = |text: &str| told.matches(text).count();
        assert_eq!((count("Hello"), count("rm build was allowed")), (1, 1), "{driver}: {told}");
        let asked = of_type::<ApprovalRequest>(&run, "approval_request").await;
        assert_eq!(asked.len(), 1, "{driver}: nobody is asked twice");
        assert!(lab.log("answer").iter().all(|line| line["allowed"] == true), "{driver}: {:?}", lab.log("answer"));
        let ended = run.describe().await.expect("it is there").ended_at.expect("it has ended");
        assert!(ended.0 >= 1_700_000_000_000_000 + 86_400_000_000, "{driver}");
    }
}

#[tokio::test]
async fn policies_answer() {
    let lab = Lab::of(&["acp"], |agent| {
        agent.with_approvals(
            ApprovalPolicy {
                otherwise: Otherwise { exec: Decision::Deny, ..Otherwise::default() },
                ..ApprovalPolicy::default()
            }
            .with(Rule::new("execute", Decision::Allow).with_command("git status")),
        )
    })
    .await;
    let (_, run) = lab.ends("ask git status; ask rm build").await;
    let told = told(&run).await;
    assert!(told.iter().any(|line| line.contains("git status was allowed")), "{told:?}");
    assert!(told.iter().any(|line| line.ends_with("rm build was not allowed")), "{told:?}");
    assert!(of_type::<Value>(&run, "approval_request").await.is_empty());
}

#[tokio::test]
async fn who_says_something_else_has_not_allowed_it() {
    let lab = asks(&["acp"]).await;
    let run = lab.start(&ask("ask rm build; say Never")).await;
    request(&run, 0).await;
    say(&run, UserMessage::new("say Instead")).await;
    assert_eq!(outcome(&run).await.text, "Instead");
    assert_eq!(lab.log("answer").iter().filter(|line| line["allowed"] == true).count(), 0);
}

#[tokio::test]
async fn files_and_commands_are_served_inside_the_workspace() {
    let lab = Lab::new().await;
    let (_, run) = lab.ends("write a/b.txt otters; read a/b.txt; read /etc/passwd; run cat a/b.txt").await;
    let told = told(&run).await;
    assert!(
        told[1].starts_with("assistant: writtenotters\"/etc/passwd\" leads outside the working directory"),
        "{told:?}"
    );
    assert_eq!(told[2], "assistant: otters (0)");
}

#[tokio::test]
async fn a_person_is_asked_before_the_host_changes_anything() {
    let lab = asks(&["acp"]).await;
    let run = lab.start(&ask("write a.txt otters; run cat a.txt")).await;
    let asked = request(&run, 0).await;
    assert_eq!(asked.name, "write");
    assert!(!lab.path().join("work/a.txt").exists());
    answer(&run, &asked, true).await;
    let asked = request(&run, 1).await;
    assert_eq!((asked.name.as_str(), &asked.arguments["command"]), ("bash", &"cat a.txt".into()));
    answer(&run, &asked, false).await;
    assert_eq!(outcome(&run).await.text, "The user did not allow this.");
    assert_eq!(fs::read_to_string(lab.path().join("work/a.txt")).expect("it is there"), "otters");
}

/// An agent of others runs what it has asked about: whoever wants other arguments has not allowed it.
#[tokio::test]
async fn other_arguments_are_a_no() {
    let lab = asks(&["acp"]).await;
    let run = lab.start(&ask("ask rm build; say Done")).await;
    let asked = request(&run, 0).await;
    waits_for(&run, APPROVAL).await;
    let changed =
        serde_json::json!({ "id": asked.id, "hash": asked.hash, "approved": true, "arguments": { "command": "ls" } });
    let payload = Payload::of(&changed).expect("JSON");
    run.signal(APPROVAL, payload, flovyn_core::model::Delivery::NextStep, None).await.expect("the run takes it");
    outcome(&run).await;
    assert!(
        told(&run).await.iter().any(|line| line.ends_with("rm build was not allowedDone")),
        "{:?}",
        told(&run).await
    );
}
