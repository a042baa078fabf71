//! All runs below a run, read at once, for a command that asks them to stop one by one.
//!
//! Two round trips lock and read a family of any size. Each row is handed out once, since the command changes it then.
//! What it asks for that is not here, it reads: a child that was born while the locks were waited for.

use super::fault::Done;
use super::locks::{LAST, ids, with_last};
use super::run::{Run, run_columns, then};
use super::sets::{Value, row};
use super::task::{TaskRow, select_task};
use super::tx::Tx;
use super::values::Key;
use crate::id::{ExecutionId, OrgId};
use crate::model::OnParentEnd;
use std::collections::HashMap;

/// The rows, by the run that they belong to.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    runs: HashMap<(OrgId, ExecutionId), Run>,
    open_tasks: HashMap<Key, Vec<TaskRow>>,
    open_children: HashMap<ExecutionId, Vec<(ExecutionId, OnParentEnd)>>,
}

impl Gathered {
    /// Hands out a run.
    pub(super) fn take_run(&mut self, org: OrgId, id: ExecutionId) -> Option<Run> {
        self.runs.remove(&(org, id))
    }

    /// Hands out the open tasks of a run.
    pub(super) fn take_tasks(&mut self, run: Key) -> Option<Vec<TaskRow>> {
        self.open_tasks.remove(&run)
    }

    /// Hands out the children of a run that have not ended.
    pub(super) fn take_children(&mut self, run: ExecutionId) -> Option<Vec<(ExecutionId, OnParentEnd)>> {
        self.open_children.remove(&run)
    }
}

/// Locks the runs below a run. A run has a higher number than the run that started it.
const LOCK_BELOW: &str = concat!(
    "WITH RECURSIVE down AS (SELECT org_id, run, id, detached FROM agent_execution \
     WHERE org_id = $1 AND parent_id = $2 AND ended_at IS NULL \
     UNION ALL SELECT c.org_id, c.run, c.id, c.detached FROM down \
     JOIN agent_execution c ON c.org_id = down.org_id AND c.parent_id = down.id AND c.ended_at IS NULL \
     WHERE down.detached IS NOT TRUE) \
     SELECT ",
    run_columns!(),
    " FROM down JOIN agent_execution x ON x.org_id = down.org_id AND x.run = down.run WHERE x.ended_at IS NULL \
     ORDER BY x.run FOR NO KEY UPDATE OF x"
);

const OPEN_TASKS: &str = concat!(
    select_task!(),
    "JOIN (SELECT * FROM UNNEST($1::uuid[], $2::bigint[]) AS u(org_id, run) LIMIT cardinality($1)) k \
     ON t.org_id = k.org_id AND t.run = k.run WHERE t.ended_at IS NULL ORDER BY t.run, t.segment, t.sequence"
);

const OPEN_CHILDREN: &str = "SELECT c.parent_id, c.id, c.detached \
     FROM (SELECT * FROM UNNEST($1::uuid[], $2::uuid[]) AS u(org_id, id) LIMIT cardinality($1)) k \
     JOIN agent_execution c ON c.org_id = k.org_id AND c.parent_id = k.id AND c.ended_at IS NULL ORDER BY c.run";

/// Reads all runs below a run, if that was not done by a request to a run above it.
pub(super) fn gather_below(tx: &Tx, top: &Run) -> Done<()> {
    if tx.gathered.borrow().open_children.contains_key(&top.id) {
        return Ok(());
    }
    let org = top.home.key.org;
    let runs = tx.all(LOCK_BELOW, row![org.0, top.id.0], Run::read)?;
    let named: Vec<_> = runs.iter().map(|run| (org, run.id)).collect();
    let parents: Vec<_> = named.iter().copied().chain([(org, top.id)]).collect();
    let (orgs, numbers): (Vec<Value>, Vec<Value>) =
        runs.iter().map(|run| (Value::from(org.0), Value::from(run.home.key.run))).unzip();
    let asked = [(LAST, ids(&named)), (OPEN_TASKS, row![orgs, numbers]), (OPEN_CHILDREN, ids(&parents))];
    let [lasts, tasks, children]: [_; 3] = tx.ask_all(&asked)?.try_into().unwrap_or_default();
    let mut gathered = tx.gathered.borrow_mut();
    gathered.open_children.extend(parents.iter().map(|(_, id)| (*id, Vec::new())));
    gathered.open_tasks.extend(runs.iter().map(|run| (run.home.key, Vec::new())));
    for run in with_last(tx, runs, &lasts)? {
        // It is handed out once, whatever it was locked for before.
        tx.locked.borrow_mut().take(org, run.id);
        gathered.runs.insert((org, run.id), run);
    }
    for task in tasks.iter().map(TaskRow::read) {
        let task = task?;
        gathered.open_tasks.entry(task.place.key).or_default().push(task);
    }
    for row in &children {
        let (parent, child) = (ExecutionId(row.get(0)?), ExecutionId(row.get(1)?));
        gathered.open_children.entry(parent).or_default().push((child, then(row.get(2)?)));
    }
    Ok(())
}
