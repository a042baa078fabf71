//! Tokens while they are made, durable entries when they are done, and a reader that resumes after any event.
//!
//! cargo run -p flovyn-examples --bin streaming -- [DATABASE]

use flovyn_core::client::StreamEvent;
use flovyn_core::model::{ChunkKind, EventKind};
use flovyn_core::prelude::*;
use std::io::Write;

/// What is said.
pub const WORDS: &str = "durable agents survive kill -9";

/// Stands for a model: one word at a time.
#[task]
pub async fn say(ctx: TaskContext, text: String) -> Result<String> {
    for word in text.split_inclusive(' ') {
        ctx.stream_token(word);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(text)
}

/// Says it, then keeps it as an entry.
#[agent]
pub async fn speaker(ctx: Context) -> Result<String> {
    let text = ctx.task(&Say, WORDS.to_owned()).await?;
    ctx.append_entry("assistant", &text)?;
    Ok(text)
}

#[tokio::main]
async fn main() -> Result<()> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "streaming.db".into());
    let flovyn = FlovynClient::builder().url(&format!("sqlite:{database}")).agent(Speaker).build().await?;
    flovyn.worker().await?;
    let handle = flovyn.start(&Speaker, &(), StartOptions::with_id("speech-1")).await?;
    let (mut tokens, mut entries, mut last) = (String::new(), 0, None);
    let mut stream = handle.stream(None);
    while let Some(event) = stream.next().await? {
        last = Some(event.id());
        match event {
            StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token => {
                tokens.push_str(&chunk.data);
                print!("{}", chunk.data);
                let _ = std::io::stdout().flush();
            }
            StreamEvent::Durable(event) if event.kind == EventKind::Entry => entries += 1,
            _ => {}
        }
    }
    println!();
    assert_eq!(entries, 1);
    // Previews are for those who look on while the words are made: a run that ended before has none.
    assert!(tokens.is_empty() || tokens == WORDS, "{tokens:?}");
    assert_eq!(handle.result_as::<String>(None).await?, WORDS);
    // Resuming after the last event: nothing comes twice, and the stream ends at once.
    assert_eq!(handle.stream(last).next().await?, None);
    flovyn.close().await
}
