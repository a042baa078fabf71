//! Locks the runs of a transaction, all at once and in the order of their keys, so that transactions cannot deadlock.
//!
//! It sends two statements in one round trip. The first takes the row locks. The second reads what the events say of
//! each run. It has to be a statement of its own: its snapshot is taken after the locks were granted, so it sees what
//! the previous holders have written. It also returns PostgreSQL's number of the transaction, which taking a row lock
//! has assigned.

use super::event::{read_opt, request_columns};
use super::fault::Done;
use super::run::{Run, run_columns};
use super::sets::{Value, row};
use super::tx::{Question, Tx};
use super::values::{Key, Row};
use crate::id::{EntryId, ExecutionId, OrgId};
use crate::storage::sql::request::Request;
use std::collections::HashMap;
use std::vec::IntoIter;
use uuid::Uuid;

/// What the events of a locked run say. It is true until the command adds an event, since nobody else can.
#[derive(Debug, Clone, Default)]
pub(super) struct Last {
    /// The number of the last event.
    pub high: u64,
    /// The last commit of the current epoch.
    pub request: Option<Request>,
    /// The run's leaf, with its depth.
    pub leaf: Option<(EntryId, u32)>,
}

/// Runs that were locked and read before the commands began, and those that a command has put back. Each is handed out
/// once, since its rows may have changed after that.
#[derive(Debug, Default)]
pub(super) struct Locked {
    runs: HashMap<Key, Run>,
    keys: HashMap<(OrgId, ExecutionId), Key>,
    /// What the current command has put back.
    own: Vec<Key>,
    /// Some command of the transaction has put a run back, so another one may write the same row.
    shares_rows: bool,
}

impl Locked {
    /// Hands out the run of an id.
    pub(super) fn take(&mut self, org: OrgId, id: ExecutionId) -> Option<Run> {
        let key = self.keys.get(&(org, id))?;
        self.runs.remove(key)
    }

    /// Hands out the run of a key.
    pub(super) fn take_at(&mut self, key: Key) -> Option<Run> {
        self.runs.remove(&key)
    }

    /// Takes a run back as a command has saved it. The next command that asks for it need not read it again.
    pub(super) fn put_back(&mut self, run: Run) {
        self.own.push(run.home.key);
        self.insert(run);
    }

    /// The current command has succeeded. Tells whether commands of the transaction may write the same rows.
    pub(super) fn keep(&mut self) -> bool {
        self.shares_rows |= !self.own.is_empty();
        self.own.clear();
        self.shares_rows
    }

    /// The current command has refused: what it has put back is not so.
    pub(super) fn forget(&mut self) {
        for key in std::mem::take(&mut self.own) {
            self.runs.remove(&key);
        }
    }

    fn insert(&mut self, run: Run) {
        self.keys.insert((run.home.key.org, run.id), run.home.key);
        self.runs.insert(run.home.key, run);
    }
}

pub(super) const LOCK: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM (SELECT * FROM UNNEST($1::uuid[], $2::uuid[]) AS u(org_id, id) LIMIT cardinality($1)) k JOIN agent_execution x ON x.org_id = k.org_id AND x.id = k.id \
     ORDER BY x.org_id, x.run FOR NO KEY UPDATE OF x"
);

/// As [`LOCK`], with the rows of all runs above those for which the third array says so. A run has a higher number than
/// the run that started it, so families are locked from the root downwards.
pub(super) const LOCK_ABOVE: &str = concat!(
    "WITH RECURSIVE up AS (SELECT a.org_id, a.run, a.parent_id, k.above \
     FROM (SELECT * FROM UNNEST($1::uuid[], $2::uuid[], $3::bool[]) AS u(org_id, id, above) LIMIT cardinality($1)) k \
     JOIN agent_execution a ON a.org_id = k.org_id AND a.id = k.id \
     UNION SELECT p.org_id, p.run, p.parent_id, TRUE FROM up \
     JOIN agent_execution p ON up.above AND p.org_id = up.org_id AND p.id = up.parent_id) \
     SELECT ",
    run_columns!(),
    " FROM (SELECT DISTINCT org_id, run FROM up) k JOIN agent_execution x ON x.org_id = k.org_id AND x.run = k.run \
     ORDER BY x.org_id, x.run FOR NO KEY UPDATE OF x"
);

pub(super) const LAST: &str = concat!(
    "SELECT x.org_id, x.run, h.number, e.depth, x.leaf, ",
    request_columns!(),
    ", pg_current_xact_id_if_assigned()::text::bigint \
     FROM (SELECT * FROM UNNEST($1::uuid[], $2::uuid[]) AS u(org_id, id) LIMIT cardinality($1)) k JOIN agent_execution x ON x.org_id = k.org_id AND x.id = k.id \
     LEFT JOIN LATERAL (SELECT number FROM event WHERE org_id = x.org_id AND run = x.run ORDER BY number DESC LIMIT 1) h \
     ON TRUE \
     LEFT JOIN LATERAL (SELECT * FROM event WHERE org_id = x.org_id AND run = x.run AND number >= x.claim_number \
     AND commit_number IS NOT NULL ORDER BY number DESC LIMIT 1) r ON TRUE \
     LEFT JOIN agent_entry e ON e.org_id = x.org_id AND e.id = x.leaf"
);

pub(super) fn ids(targets: &[(OrgId, ExecutionId)]) -> Vec<Value> {
    let (orgs, ids): (Vec<Value>, Vec<Value>) =
        targets.iter().map(|(org, id)| (Value::from(org.0), Value::from(id.0))).unzip();
    row![orgs, ids]
}

/// A run to lock, and whether all runs above it are locked with it.
pub(super) type Target = ((OrgId, ExecutionId), bool);

/// Locks runs and reads them.
pub(super) fn lock(tx: &Tx, targets: &[(OrgId, ExecutionId)]) -> Done<()> {
    let targets: Vec<_> = targets.iter().map(|target| (*target, false)).collect();
    lock_and_ask(tx, &targets, Vec::new()).map(|_| ())
}

/// Locks runs and reads them, and returns the answers to more queries in the same round trip. Without targets nothing
/// is asked.
pub(super) fn lock_and_ask(tx: &Tx, targets: &[Target], more: Vec<Question>) -> Done<IntoIter<Vec<Row>>> {
    let mut answers = Vec::new();
    let named: Vec<_> = targets.iter().map(|(target, _)| *target).collect();
    if !targets.is_empty() {
        let lock = match targets.iter().any(|(_, above)| *above) {
            true => {
                let mut params = ids(&named);
                params.push(Value::from(targets.iter().map(|(_, above)| Value::from(*above)).collect::<Vec<_>>()));
                (LOCK_ABOVE, params)
            }
            false => (LOCK, ids(&named)),
        };
        let mut questions = vec![lock, (LAST, ids(&named))];
        questions.extend(more);
        answers = tx.ask_all(&questions)?;
    }
    let mut answers = answers.into_iter();
    let mut runs = answers.next().unwrap_or_default().iter().map(Run::read).collect::<Done<Vec<_>>>()?;
    // Those above are locked alone. Whoever needs them reads them, after what was written to them here.
    runs.retain(|run| named.contains(&(run.home.key.org, run.id)));
    fill(tx, runs, &answers.next().unwrap_or_default())?;
    Ok(answers)
}

/// Reads what the events say of runs that are locked already, and returns the answers to more queries in the same round
/// trip.
pub(super) fn adopt(tx: &Tx, runs: Vec<Run>, more: Vec<Question>) -> Done<IntoIter<Vec<Row>>> {
    let mut answers = Vec::new();
    if !runs.is_empty() {
        let targets: Vec<_> = runs.iter().map(|run| (run.home.key.org, run.id)).collect();
        let mut questions = vec![(LAST, ids(&targets))];
        questions.extend(more);
        answers = tx.ask_all(&questions)?;
    }
    let mut answers = answers.into_iter();
    fill(tx, runs, &answers.next().unwrap_or_default())?;
    Ok(answers)
}

fn fill(tx: &Tx, runs: Vec<Run>, lasts: &[Row]) -> Done<()> {
    let runs = with_last(tx, runs, lasts)?;
    let mut locked = tx.locked.borrow_mut();
    runs.into_iter().for_each(|run| locked.insert(run));
    Ok(())
}

/// Runs that are locked, with what their events say.
pub(super) fn with_last(tx: &Tx, mut runs: Vec<Run>, lasts: &[Row]) -> Done<Vec<Run>> {
    let mut last_of: HashMap<Key, Last> = HashMap::with_capacity(lasts.len());
    for row in lasts {
        let key = Key { org: OrgId(row.get(0)?), run: row.get(1)? };
        let last = Last {
            high: row.get::<Option<u64>>(2)?.unwrap_or(0),
            leaf: row.get::<Option<Uuid>>(4)?.map(EntryId).zip(row.get(3)?),
            request: read_opt(row, 5)?,
        };
        last_of.insert(key, last);
        tx.number.set(row.get(14)?);
    }
    for run in &mut runs {
        run.home.last = last_of.remove(&run.home.key);
    }
    Ok(runs)
}
