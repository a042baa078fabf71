//! A process that is killed with SIGKILL in the middle of a run, and the next one that goes on.
//!
//! cargo run -p flovyn-examples --bin crash -- [DATABASE]

use flovyn_core::prelude::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command};

const STEPS: u32 = 20;

/// Leaves a trace outside of the database, so that every start can be counted.
#[task]
pub async fn count((log, number): (String, u32)) -> Result<u32> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    writeln!(std::fs::OpenOptions::new().create(true).append(true).open(log)?, "{number}")?;
    Ok(number)
}

/// One step after the other.
#[agent]
pub async fn counter(ctx: Context, log: String) -> Result<u32> {
    let mut total = 0;
    for number in 0..STEPS {
        total += ctx.task(&Count, (log.clone(), number)).await?;
    }
    Ok(total)
}

/// What both processes do: start the run, or go on with it.
#[tokio::main]
async fn child(database: &str, log: &str) -> Result<()> {
    let agents = AgentBuilder::new().storage(format!("sqlite:{database}")).build().await?;
    let total = agents.execute_with(Counter, &log.to_owned(), StartOptions::with_id("count-1")).await?;
    assert_eq!(total, (0..STEPS).sum::<u32>());
    agents.close().await
}

fn again(database: &str, log: &str) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    Command::new(program).args([database, log]).spawn().expect("it can be started again")
}

fn lines(log: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok()).collect()
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [database, log] = &words[..] {
        return child(database, log);
    }
    // A database of its own each time: a run that is over cannot be killed.
    let database = words.first().cloned().unwrap_or_else(|| format!("crash-{}.db", std::process::id()));
    let log = format!("{database}.log");
    let mut first = again(&database, &log);
    while lines(&log).len() < STEPS as usize / 2 {
        assert!(matches!(first.try_wait(), Ok(None)), "the first process ended early");
        std::thread::sleep(Duration::from_millis(1));
    }
    first.kill().and_then(|()| first.wait()).expect("it can be killed");
    println!("killed after {} steps; running again", lines(&log).len());
    let second = again(&database, &log).wait().expect("it ends");
    assert!(second.success(), "the second process ended with {second}");
    let ran = lines(&log);
    let distinct: BTreeSet<_> = ran.iter().copied().collect();
    println!("{} lines, {} of them a step that was in flight", ran.len(), ran.len() - distinct.len());
    assert_eq!(distinct, (0..STEPS).collect());
    // A finished step never runs again; the one the kill interrupted may have left its line already.
    assert!(ran.len() <= distinct.len() + 1, "{ran:?}");
    Ok(())
}
