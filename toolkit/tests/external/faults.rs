//! Agents that are not there, that speak no protocol, that hang and that die: clear errors, and never a hang.

use super::*;

#[tokio::test]
async fn a_program_that_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = ExternalAgent::acp("no-such-agent", ["--acp"], folder.path());
    let flovyn = FlovynClient::builder().storage("memory:").agent(agent.clone()).task(agent.turns());
    let flovyn = flovyn.build().await.expect("a backend");
    let _worker = flovyn.worker().await.expect("a worker");
    let run = flovyn.start(&agent, &ask("say Hello"), StartOptions::default()).await.expect("it starts");
    let error = run.result(Some(PATIENCE)).await.expect_err("it fails");
    assert!(error.message().contains("\"no-such-agent\" is not installed here"), "{error}");
    assert!(error.message().contains("PATH ("), "{error}");
}

#[tokio::test]
async fn a_program_that_speaks_no_protocol() {
    // Long enough for its words to come before, however busy the machine is.
    let short = |agent: ExternalAgent| agent.with_start_timeout(Duration::from_secs(3));
    for (mode, printed) in [
        ("mute", "usage: fake [options]\nNo protocol is spoken here."),
        ("flood", "All work and no play"),
        ("brief", "usage: fake [options]"),
    ] {
        let fails = async |driver: &str| {
            let lab = Lab::of(&[driver, mode], short).await;
            let error = lab.fails("say Hello").await;
            assert!(error.message().contains(printed), "{driver}, {mode}: {error}");
            if mode == "brief" {
                assert!(error.message().contains("it cannot be used so"), "its standard error is told: {error}");
            }
        };
        tokio::join!(fails(DRIVERS[0]), fails(DRIVERS[1]), fails(DRIVERS[2]));
    }
}

#[tokio::test]
async fn a_slow_start_is_waited_for() {
    let lab = Lab::of(&["acp", "slow"], |agent| agent).await;
    assert_eq!(lab.ends("say Hello").await.0.text, "Hello");
}

#[tokio::test]
async fn a_record_that_is_too_long_ends_the_process() {
    let lab = Lab::new().await;
    let (outcome, run) = lab.ends("say Hello; huge; say Done").await;
    assert_eq!(outcome.text, "Done");
    let warnings = of_type::<Value>(&run, "warning").await;
    assert!(warnings[0]["text"].as_str().is_some_and(|text| text.contains("a record of more than")), "{warnings:?}");
}

#[tokio::test]
async fn family_15_an_agent_that_dies_is_resumed() {
    let lab = Lab::new().await;
    let (outcome, run) = lab.ends("say Hello; tool read; die once; say Done").await;
    assert_eq!(outcome.text, "Done");
    let expected = [
        "user: say Hello; tool read; die once; say Done",
        "assistant: Hello",
        "assistant: call read",
        "tool_result: read = read is done",
        "assistant: Done",
    ];
    assert_eq!(told(&run).await, expected, "nothing twice, nothing lost");
    let warnings = of_type::<Value>(&run, "warning").await;
    assert!(warnings[0]["text"].as_str().is_some_and(|text| text.contains("the fake agent dies now")), "{warnings:?}");
    assert_eq!((lab.log("new").len(), lab.log("session/load").len()), (1, 1));
}

#[tokio::test]
async fn family_15_an_agent_that_keeps_dying_fails_the_run() {
    let lab = Lab::new().await;
    let error = lab.fails("say Hello; die").await;
    assert!(error.message().contains("4 processes in a row"), "{error}");
    assert!(
        error.message().contains("the fake agent dies now") && error.message().contains("exit status: 7"),
        "{error}"
    );
}

#[tokio::test]
async fn family_15_an_agent_that_cannot_be_resumed_says_so() {
    let lab = Lab::of(&["acp", "forgetful"], |agent| agent).await;
    let error = lab.fails("say Hello; tool read; die once").await;
    assert!(error.message().contains("can neither load nor resume a session"), "{error}");
    let lab = Lab::of(&["acp", "resuming"], |agent| agent).await;
    let (outcome, run) = lab.ends("say Hello; tool read; die once; say Done").await;
    assert_eq!((outcome.text.as_str(), told(&run).await.len()), ("Done", 5));
}

#[tokio::test]
async fn family_15_silence_is_watched() {
    for driver in DRIVERS {
        let lab = Lab::of(&[driver], |agent| agent.with_inactivity(Duration::from_millis(500))).await;
        let error = lab.fails("say Hello; hang").await;
        assert!(error.message().contains("has said nothing for 0.5 s"), "{driver}: {error}");
        assert_eq!(lab.log("hang").len(), 4, "{driver}: once, and three times more");
    }
}

#[tokio::test]
async fn what_hangs_once_is_resumed() {
    for driver in DRIVERS {
        let lab = Lab::of(&[driver], |agent| agent.with_inactivity(Duration::from_millis(500))).await;
        let (outcome, run) = lab.ends("say Hello; tool read; hang once; say Done").await;
        let told = told(&run).await;
        assert_eq!(outcome.text, "Done", "{driver}");
        assert_eq!((told.len(), told[1].as_str()), (5, "assistant: Hello"), "{driver}: {told:?}");
        assert_eq!(lab.log("hang").len(), 1, "{driver}");
        let warnings = of_type::<Value>(&run, "warning").await;
        let text = warnings[0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("has said nothing for 0.5 s"), "{driver}: {warnings:?}");
    }
}

#[tokio::test]
async fn lines_that_are_no_records_are_passed_over() {
    for driver in DRIVERS {
        let lab = Lab::of(&[driver], |agent| agent).await;
        let (outcome, run) = lab.ends("garbage; say Hello; noise; tool read; garbage; noise; say Done").await;
        assert_eq!(outcome.text, "Done", "{driver}");
        let expected =
            ["assistant: Hello", "assistant: call read", "tool_result: read = read is done", "assistant: Done"];
        assert_eq!(told(&run).await[1..], expected, "{driver}");
        assert!(of_type::<Value>(&run, "warning").await.is_empty(), "{driver}");
        assert_eq!(lab.log("new").len(), 1, "{driver}: one process did it all");
    }
}

/// U+2028, U+2029 and U+0085 end lines for many readers of text, and no records.
#[tokio::test]
async fn separators_of_lines_in_a_text_end_no_record() {
    for driver in DRIVERS {
        let lab = Lab::of(&[driver], |agent| agent).await;
        let (outcome, run) = lab.ends("separators; tool read; separators").await;
        let text = "a\u{2028}b\u{2029}c\u{85}d";
        assert_eq!(outcome.text, text, "{driver}");
        let told = told(&run).await;
        assert_eq!(told.iter().filter(|line| **line == format!("assistant: {text}")).count(), 2, "{driver}: {told:?}");
        let (tokens, _) = shown(run).await;
        assert_eq!(tokens.matches(text).count(), 2, "{driver}: {tokens:?}");
    }
}

#[tokio::test]
async fn a_call_ends_with_its_process() {
    for driver in DRIVERS {
        let lab = Lab::of(&[driver], |agent| agent).await;
        let run = lab.start(&ask("open build; say Done")).await;
        lab.logged("open", 1).await;
        keeps(&run, "assistant: call build").await;
        super::published::kill(&run);
        keeps(&run, "assistant: call build").await;
        lab.release("go");
        assert_eq!(outcome(&run).await.text, "Done");
        let told = told(&run).await;
        assert_eq!(told[1], "assistant: call build", "{driver}");
        assert!(told[2].starts_with("tool_result: build = The agent's process ended"), "{driver}: {told:?}");
    }
}
