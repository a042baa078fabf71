//! One of three workers that serve the same agent, each in its language: this one in Rust.
//!
//! relay-worker URL [STEPS]: with STEPS it is killed once it has done so many.

use flovyn_core::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

static DONE: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU32 = AtomicU32::new(u32::MAX);

/// Tells who did it.
#[task]
pub async fn step(number: u32) -> Result<(u32, String)> {
    if DONE.fetch_add(1, Ordering::Relaxed) == LAST.load(Ordering::Relaxed) {
        let me = std::process::id().to_string();
        let _ = std::process::Command::new("kill").args(["-9", &me]).status();
    }
    Ok((number, "Rust".into()))
}

/// The same steps as in the other languages.
#[agent(version = "1")]
pub async fn relay(ctx: Context, steps: u32) -> Result<Vec<(u32, String)>> {
    let mut ran = Vec::new();
    for number in 0..steps {
        ran.push(ctx.task(&Step, number).await?);
    }
    Ok(ran)
}

/// A part of the Python team's work.
#[task]
pub async fn count_letters(text: String) -> Result<usize> {
    Ok(text.chars().filter(|letter| letter.is_alphabetic()).count())
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let url = words.first().map_or("sqlite:three.db", String::as_str);
    if let Some(last) = words.get(1).and_then(|word| word.parse().ok()) {
        LAST.store(last, Ordering::Relaxed);
    }
    let flovyn = FlovynClient::builder().url(url).agent(Relay).task(Step).task(CountLetters).build().await?;
    flovyn.worker().await?.closed().await;
    flovyn.close().await
}
