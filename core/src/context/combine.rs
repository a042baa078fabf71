//! Waiting for several steps at once.

use super::Step;
use crate::error::{Code, Error, Result};
use crate::journal::Outcome;
use futures::future::select_all;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// The first of several steps to end.
pub struct Selected {
    /// Its place in the list.
    pub index: usize,
    /// What it ended with.
    pub outcome: Result<Outcome>,
    /// The others, still open.
    pub rest: Vec<Step>,
}

impl Selected {
    /// Waits for the first of several steps. The others stay open in `rest`; whoever drops one waits for it no longer.
    pub async fn first_of(steps: Vec<Step>) -> Self {
        let (outcome, index, rest) = select_all(steps).await;
        Self { index, outcome, rest }
    }
}

/// Begins a step for each input, at most `limit` at a time, and returns how each ended, in the order of the inputs.
///
/// The steps are polled with the agent's own waker. Do not replace the loop by `FuturesUnordered`: it has wakers of its
/// own, and the driver would take it for something outside that the agent waits for.
pub(super) async fn mapped<I, O, S>(
    inputs: Vec<I>,
    limit: usize,
    schedule: impl Fn(&I) -> Result<S>,
) -> Result<Vec<Result<O>>>
where
    S: Future<Output = Result<O>> + Unpin,
{
    if limit == 0 {
        return Err(Error::new(Code::InvalidArgument, "ctx.map has the limit 0; at least one input is run at a time"));
    }
    let mut ended: Vec<Option<Result<O>>> = inputs.iter().map(|_| None).collect();
    let mut open: Vec<(usize, S)> = Vec::new();
    let mut left = inputs.iter().enumerate();
    loop {
        while open.len() < limit
            && let Some((index, input)) = left.next()
        {
            open.push((index, schedule(input)?));
        }
        if open.is_empty() {
            return Ok(ended.into_iter().flatten().collect());
        }
        let (place, result) = poll_fn(|cx| {
            let mut each = open.iter_mut().enumerate();
            each.find_map(|(place, (_, step))| match std::pin::Pin::new(step).poll(cx) {
                Poll::Ready(result) => Some(Poll::Ready((place, result))),
                Poll::Pending => None,
            })
            .unwrap_or(Poll::Pending)
        })
        .await;
        let (index, _) = open.swap_remove(place);
        if let Err(error) = &result
            && error.code() == Code::Cancelled
        {
            return Err(error.clone());
        }
        ended[index] = Some(result);
    }
}
