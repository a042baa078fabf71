//! Repeats a call while the store is unavailable. Such an error means that the outcome is *unknown*, so the same
//! request is sent again (rule 2).

use crate::error::{Error, Kind, Result};
use crate::streaming::Outage;
use std::fmt::Display;
use std::time::Duration;

/// The context field by which the error of a store names a lost file. With such an error, what was acknowledged may be
/// lost too.
pub(crate) const LOST_FILE: &str = "file";

/// The first pause after an unavailable store; doubled up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// Repeats a call until the store answers, or until nobody wants the answer any more. Reports each failure to `outage`.
pub(crate) async fn until_available<T, F: Future<Output = Result<T>>>(
    outage: &Outage,
    whose: &impl Display,
    is_wanted: impl Fn() -> bool,
    ask: impl Fn() -> F,
) -> Result<T> {
    let mut pause = FIRST;
    loop {
        match ask().await {
            Err(error) if error.kind() == Kind::Unavailable && is_wanted() => {
                tracing::debug!(%whose, %error, "the store has no answer yet; it is asked again");
                outage.refused(&error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
            answer => return answer,
        }
    }
}

/// Logs that a loop could not do something and tries again. If the store is unavailable, that is only a debug message:
/// the outage is logged once, and not at every turn of each loop.
pub(crate) fn troubled(outage: &Outage, what: &str, error: &Error) {
    match error.kind() {
        Kind::Unavailable => tracing::debug!(%error, "{what}; trying again"),
        _ => tracing::warn!(%error, "{what}; trying again"),
    }
    outage.refused(error);
}
