//! Waits for a store that has no answer yet: an error of an unavailable one means *unknown* (rule 2).

use crate::error::{Kind, Result};
use std::fmt::Display;
use std::time::Duration;

/// The first pause after an unavailable store; doubled up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// Asks the same again until the store answers, or nobody wants the answer any more.
pub(crate) async fn until_available<T, F: Future<Output = Result<T>>>(
    whose: &impl Display,
    is_wanted: impl Fn() -> bool,
    ask: impl Fn() -> F,
) -> Result<T> {
    let mut pause = FIRST;
    loop {
        match ask().await {
            Err(error) if error.kind() == Kind::Unavailable && is_wanted() => {
                tracing::warn!(%whose, %error, "the store has no answer yet; it is asked again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
            answer => return answer,
        }
    }
}
