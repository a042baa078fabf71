//! Tools that fail, are retried with pauses, time out, and run side by side.
//!
//! cargo run -p flovyn-examples --bin tools -- [DATABASE]

use flovyn_core::prelude::*;

/// Fails its first two attempts.
#[task(retries = 3)]
pub async fn flaky(ctx: &TaskContext, number: u64) -> Result<u64> {
    match ctx.attempt() {
        attempt @ (1 | 2) => Err(Error::other(format!("attempt {attempt} was refused"))),
        _ => Ok(number * number),
    }
}

/// Takes longer than it may.
#[task(timeout = "100ms")]
pub async fn slow() -> Result<u64> {
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(0)
}

/// Would be retried, but says itself that there is no point.
#[task(retries = 5)]
pub async fn hopeless(text: String) -> Result<u64> {
    text.parse().terminal()
}

/// Uses all three.
#[agent]
pub async fn toolbox(ctx: Context) -> Result<(Vec<u64>, Vec<String>)> {
    let squares = futures::future::try_join_all((0..3).map(|number| ctx.task(&Flaky, number))).await?;
    let failures = [ctx.task(&Slow, ()).await, ctx.task(&Hopeless, "seven".into()).await];
    let told = failures.into_iter().filter_map(|ended| ended.err().map(|error| error.error_type().to_owned()));
    Ok((squares, told.collect()))
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "tools.db".into());
    let agents = AgentBuilder::new().storage(format!("sqlite:{database}")).build().await?;
    let (squares, errors) = agents.execute_with(Toolbox, &(), StartOptions::with_id("tools-1")).await?;
    println!("{squares:?}\n{}", errors.join("\n"));
    assert_eq!(squares, [0, 1, 4]);
    assert_eq!(errors, ["TaskTimeout", "ParseIntError"]);
    agents.close().await
}
