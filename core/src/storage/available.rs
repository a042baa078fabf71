//! Waits for a store that has no answer yet: an error of an unavailable one means *unknown* (rule 2).

use crate::error::{Error, Kind, Result};
use crate::streaming::Outage;
use std::fmt::Display;
use std::time::Duration;

/// The first pause after an unavailable store; doubled up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// Asks the same again until the store answers, or nobody wants the answer any more. That one waits is told to `outage`.
pub(crate) async fn until_available<T, F: Future<Output = Result<T>>>(
    outage: &Outage,
    whose: &impl Display,
    is_wanted: impl Fn() -> bool,
    ask: impl Fn() -> F,
) -> Result<T> {
    let mut pause = FIRST;
    let mut waits: Option<String> = None;
    loop {
        match ask().await {
            Err(error) if error.kind() == Kind::Unavailable && is_wanted() => {
                tracing::debug!(%whose, %error, "the store has no answer yet; it is asked again");
                outage.refused(waits.get_or_insert_with(|| whose.to_string()), &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
            answer => {
                // Who gives the wait up has not been answered.
                let answered = answer.as_ref().err().is_none_or(|error| error.kind() != Kind::Unavailable);
                if let Some(who) = waits.filter(|_| answered) {
                    outage.kept(&who);
                }
                return answer;
            }
        }
    }
}

/// Notes that something of a loop failed that it tries again. Where the store cannot be had, that is an outage: it is said
/// once, not at every turn of each loop.
pub(crate) fn troubled(outage: &Outage, what: &str, error: &Error) {
    if error.kind() == Kind::Unavailable {
        tracing::debug!(%error, "{what} could not be done; trying again");
        return outage.refused(what, error);
    }
    tracing::warn!(%error, "{what} could not be done; trying again");
}
