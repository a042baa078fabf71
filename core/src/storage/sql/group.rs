//! Group commit: commands that wait at the same time share a transaction, and so its one fsync.
//!
//! A command that refuses leaves nothing in the transaction, so the others go on. A fault of the database undoes the
//! whole group; then its commands are run one by one, so that only the one at fault gets the error. No command is
//! answered before the COMMIT has returned.

use super::Failing;
use super::database_error::closed;
use super::news::News;
use crate::error::{Code, Error, Result};
use crate::streaming::Hints;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicI64;
use tokio::sync::oneshot;

/// How often a command is tried when other writers are in its way.
const TRIES: usize = 5;

/// A backend whose commands share transactions.
pub(in crate::storage) trait Grouped: 'static {
    type Tx<'t>;
    type Fault: Failing;
    /// What a command needs of its transaction.
    type Wants: Send;
}

/// How one attempt of a command went.
pub(in crate::storage) enum Attempt<F> {
    /// It succeeded. Its writes go with the COMMIT.
    Kept,
    /// It refused, or panicked. Its answer is an error, and its writes must not go with the COMMIT.
    Refused,
    /// The database failed, and the transaction with it.
    Broken(F),
}

/// A command that waits. It can be run several times, since a group may be undone.
pub(in crate::storage) trait Work<B: Grouped>: Send {
    fn attempt(&mut self, tx: &B::Tx<'_>) -> Attempt<B::Fault>;
    /// Answers the caller: with the result of the last attempt, or with the error that undid it.
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

/// Makes a command, and the receiver of its answer.
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
    /// It is durable.
    Committed(News),
    /// It was undone, because of one of the commands or of the connection. `again` tells that a repetition may succeed.
    Undone { error: Error, again: bool },
    /// The only command wrote and then refused. It was undone, and its own answer counts.
    Refused,
    /// It failed, and no command alone would do better: each gets the error.
    Failed(Error),
}

/// Runs groups, one after the other.
pub(in crate::storage) trait Serves<B: Grouped> {
    /// Runs a group in one transaction.
    fn transaction(&mut self, group: &mut Group<B>) -> Outcome;
    /// The hints by which changes are announced.
    fn hints(&self) -> &Hints;
    /// The moment at which housekeeping runs next.
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
                // One of them is at fault, or conflicts with another writer. One by one, the others can succeed.
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
