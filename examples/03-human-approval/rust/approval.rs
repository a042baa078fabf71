//! An agent that asks a person, is put away while it waits, and goes on in another process.
//!
//! cargo run -p flovyn-examples --bin approval -- ask [DATABASE]         asks, and ends: the agent waits as a row in the file
//! cargo run -p flovyn-examples --bin approval -- answer yes [DATABASE]
//! cargo run -p flovyn-examples --bin approval -- both [DATABASE]        shows the two, each in a process of its own

use flovyn_core::model::{Delivery, Status};
use flovyn_core::prelude::*;
use flovyn_core::runtime::Runtime;
use std::process::Command;

/// A mail must not go out twice, whatever happens.
#[task(name = "send", at_most_once)]
pub async fn send_mail(text: String) -> Result<String> {
    Ok(format!("sent: {text}"))
}

/// Drafts, asks, and sends only what was approved.
#[agent]
pub async fn mailer(ctx: Context, subject: String) -> Result<String> {
    let draft = ctx.inline("draft", || async { Ok(format!("Dear all, {subject}.")) }).await?;
    ctx.append_entry("assistant", &draft)?;
    let answer: String = ctx.wait_for_signal("approval")?.await?;
    ctx.append_entry("user", &answer)?;
    if answer == "yes" { ctx.task(&SendMail, draft).await } else { Ok("not sent".into()) }
}

/// Runs the agent until it ends or waits for a person.
async fn ask(url: &str) -> Result<()> {
    let flovyn = FlovynClient::builder().url(url).agent(Mailer).build().await?;
    flovyn.worker().await?;
    let handle = flovyn.start(&Mailer, &"the build is green".into(), StartOptions::with_id("mail-1")).await?;
    match handle.halted().await? {
        Halted::Ended(Outcome::Completed(output)) => println!("{}", output.parse::<String>()?),
        Halted::Ended(ended) => panic!("the agent should not end so: {ended:?}"),
        Halted::Waits(_) => println!("waiting for approval; run again after the answer"),
    }
    flovyn.close().await
}

/// Needs no worker: the signal is a row that the next worker finds.
async fn answer(url: &str, word: &str) -> Result<()> {
    let runtime = Runtime::open(url).await?;
    let handle = runtime.client().handle("mail-1").await?;
    handle.signal("approval", Payload::of(word)?, Delivery::default(), Some("answer-1".into())).await?;
    println!("answered");
    runtime.close().await
}

async fn status(url: &str) -> Result<Status> {
    let runtime = Runtime::open(url).await?;
    let status = runtime.client().handle("mail-1").await?.status().await?;
    runtime.close().await?;
    Ok(status)
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let url = |database: Option<&&str>| format!("sqlite:{}", database.unwrap_or(&"approval.db"));
    match words[..] {
        ["ask", ..] => return ask(&url(words.get(1))).await,
        ["answer", word, ..] => return answer(&url(words.get(2)), word).await,
        _ => {}
    }
    let database = words.get(1).unwrap_or(&"approval.db");
    let program = std::env::current_exe().expect("this program has a path");
    let process = |words: &[&str]| {
        let ended = Command::new(&program).args(words).arg(database).status().expect("it can be started again");
        assert!(ended.success(), "{words:?} ended with {ended}");
    };
    process(&["ask"]);
    assert!(matches!(status(&url(Some(database))).await?, Status::Waiting | Status::Completed));
    process(&["answer", "yes"]);
    process(&["ask"]);
    assert_eq!(status(&url(Some(database))).await?, Status::Completed);
    Ok(())
}
