//! What an agent asks permission for, and what it has its host do.

use super::*;
use flovyn_core::payload::Payload;
use flovyn_toolkit::react::APPROVAL;
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest, Decision, Otherwise, Rule};

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
    for driver in ["acp", "claude", "pi"] {
        let lab = asks(&[driver]).await;
        let run = lab.start(&chat("ask rm build; say Done")).await;
        answer(&run, &request(&run, 0).await, true).await;
        answers(&run, 1).await;
        say(&run, UserMessage::new("say Again")).await;
        answers(&run, 2).await;
        assert!(told(&run).await.iter().any(|line| line.ends_with("Again")), "{driver}: {:?}", told(&run).await);
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
