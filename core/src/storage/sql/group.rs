//! Commands that share a transaction: how one is asked for, how an attempt of it went, and what became of the group.
//!
//! A command that refuses has changed nothing that lasts, so its neighbours go on. DatabaseError with the database undoes the group,
//! whose commands are then run one by one. Nothing is answered before its COMMIT has returned.

use super::Failing;
use super::database_error::closed;
use super::news::News;
use crate::error::{Code, Error, Result};
use crate::streaming::Hints;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicI64;
use tokio::sync::oneshot;

/// How often a command is tried again when other writers were in its way.
const TRIES: usize = 5;

/// A backend whose commands share transactions.
pub(in crate::storage) trait Grouped: 'static {
    type Tx<'t>;
    type Fault: Failing;
    /// What a command wants of the transaction it is in.
    type Wants: Send;
}

/// How one attempt of a command went.
pub(in crate::storage) enum Attempt<F> {
    Kept,
    Refused,
    Broken(F),
}

/// A command that waits.
pub(in crate::storage) trait Work<B: Grouped>: Send {
    fn attempt(&mut self, tx: &B::Tx<'_>) -> Attempt<B::Fault>;
    /// Answers with what the last attempt gave, or with the error that undid it.
    fn answer(self: Box<Self>, undone: Option<Error>);
    fn asked(&self) -> &'static str;
    fn wants(&self) -> &B::Wants;
}

/// Commands that share a transaction, in the order they came.
pub(in crate::storage) type Group<B> = Vec<Box<dyn Work<B>>>;

struct Command<B: Grouped, F, T> {
    asked: &'static str,
    wants: B::Wants,
    run: F,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

/// A command, and where its answer comes.
pub(in crate::storage) fn command<B, F, T>(
    asked: &'static str,
    wants: B::Wants,
    run: F,
) -> (Box<dyn Work<B>>, oneshot::Receiver<Result<T>>)
where
    B: Grouped,
    T: Send + 'static,
    F: FnMut(&B::Tx<'_>) -> Result<T, B::Fault> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Command::<B, F, T> { asked, wants, run, result: None, reply }), answer)
}

impl<B, F, T> Work<B> for Command<B, F, T>
where
    B: Grouped,
    T: Send,
    F: FnMut(&B::Tx<'_>) -> Result<T, B::Fault> + Send,
{
    fn attempt(&mut self, tx: &B::Tx<'_>) -> Attempt<B::Fault> {
        let (result, attempt) = match catch_unwind(AssertUnwindSafe(|| (self.run)(tx))) {
            Ok(Ok(value)) => (Some(Ok(value)), Attempt::Kept),
            Ok(Err(fault)) => match fault.refusal(self.asked) {
                Ok(error) => (Some(Err(error)), Attempt::Refused),
                Err(fault) => (None, Attempt::Broken(fault)),
            },
            Err(_) => {
                let message = format!("{}: the storage backend met a bug; please report it with this run", self.asked);
                (Some(Err(Error::new(Code::Internal, message))), Attempt::Refused)
            }
        };
        self.result = result;
        attempt
    }

    fn answer(self: Box<Self>, undone: Option<Error>) {
        let result = match (undone, self.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => result,
            (None, None) => Err(closed(self.asked)),
        };
        let _ = self.reply.send(result);
    }

    fn asked(&self) -> &'static str {
        self.asked
    }

    fn wants(&self) -> &B::Wants {
        &self.wants
    }
}

/// What became of a group.
pub(in crate::storage) enum Outcome {
    /// Durable.
    Committed(News),
    /// Undone because of one of the commands, or of the connection; the same may be tried again.
    Undone { error: Error, again: bool },
    /// The only command wrote, then refused; it was undone and its own answer stands.
    Refused,
    /// Nobody's fault: every command gets the error.
    Failed(Error),
}

/// Who runs groups, one after the other.
pub(in crate::storage) trait Serves<B: Grouped> {
    /// Runs a group in one transaction.
    fn transaction(&mut self, group: &mut Group<B>) -> Outcome;
    /// Where news go.
    fn hints(&self) -> &Hints;
    /// The moment at which housekeeping will look next.
    fn next_due(&self) -> &AtomicI64;

    /// Runs a group and answers its commands.
    fn serve(&mut self, mut group: Group<B>) {
        if group.is_empty() {
            return;
        }
        for tried in 1.. {
            match self.transaction(&mut group) {
                Outcome::Committed(news) => {
                    group.into_iter().for_each(|work| work.answer(None));
                    return news.publish(self.hints(), self.next_due());
                }
                // One of them is to blame, or stands in the way: alone, the others can be kept.
                Outcome::Undone { .. } if group.len() > 1 => {
                    return group.into_iter().for_each(|work| self.serve(vec![work]));
                }
                Outcome::Undone { again: true, .. } if tried < TRIES => {}
                Outcome::Refused => return group.into_iter().for_each(|work| work.answer(None)),
                Outcome::Undone { error, .. } | Outcome::Failed(error) => {
                    self.hints().outage().refused(&error);
                    return group.into_iter().for_each(|work| work.answer(Some(error.clone())));
                }
            }
        }
    }
}
