//! The statements about families.

use super::fault::Done;
use super::run::{execution, select_execution};
use super::tx::Tx;
use super::values::{blob, id};
use crate::error::{Code, Error};
use crate::id::{ExecutionId, OrgId};
use crate::model::{Execution, Relative, Usage};
use crate::storage::sql::{Kinship, UsageBelow};
use rusqlite::{Row, params};

// The planner must not take the index of all runs of an org for each parent, nor read all runs first: it is told the order
// of the joins, and a `+` keeps it from the index of the column.

/// All runs at and below some, each with the one it is below. `?2` is the ids of those, a JSON array of hexadecimal text.
macro_rules! with_below {
    ($then:literal) => {
        concat!(
            "WITH RECURSIVE below (top, id, run) AS ( \
             SELECT x.id, x.id, x.run FROM json_each(?2) k CROSS JOIN agent_execution x ON x.org_id = ?1 AND x.id = unhex(k.value) \
             UNION ALL SELECT b.top, c.id, c.run FROM below b CROSS JOIN agent_execution c ON c.parent_id = b.id AND +c.org_id = ?1) ",
            $then
        )
    };
}

/// The columns of [`Relative`].
macro_rules! select_relative {
    () => {
        "SELECT x.id, x.parent_id, x.depth, x.run FROM agent_execution x "
    };
}

fn ids(runs: &[ExecutionId]) -> Done<String> {
    let ids: Vec<_> = runs.iter().map(|run| run.0.simple().to_string()).collect();
    serde_json::to_string(&ids).map_err(|error| Error::new(Code::Internal, error.to_string()).into())
}

fn relative(row: &Row<'_>) -> rusqlite::Result<Relative> {
    Ok(Relative {
        id: ExecutionId(id(row, 0)?),
        parent: ExecutionId(id(row, 1)?),
        depth: row.get(2)?,
        birth: row.get::<_, i64>(3)?.unsigned_abs(),
    })
}

impl Kinship for Tx<'_> {
    fn counts_below(&self, org: OrgId, runs: &[ExecutionId]) -> Done<Vec<(ExecutionId, u64, u64)>> {
        let sql = with_below!(
            "SELECT b.top, sum(x.parent_id IS NOT NULL AND x.parent_id = b.top), count(*) - 1 FROM below b \
             CROSS JOIN agent_execution x ON x.run = b.run GROUP BY b.top"
        );
        self.all(sql, params![blob(&org.0), ids(runs)?], |row| {
            Ok((ExecutionId(id(row, 0)?), row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs()))
        })
    }

    fn usage_below(&self, org: OrgId, runs: &[ExecutionId]) -> Done<Vec<UsageBelow>> {
        let sql = with_below!(
            "SELECT b.top, m.key, sum(m.value ->> 'calls'), sum(m.value ->> 'input_tokens'), \
             sum(m.value ->> 'output_tokens'), sum(m.value ->> 'cache_read_tokens'), \
             sum(m.value ->> 'cache_write_tokens'), sum(m.value ->> 'cost_micros') \
             FROM below b CROSS JOIN agent_execution x ON x.run = b.run CROSS JOIN json_each(x.usage) m GROUP BY b.top, m.key"
        );
        self.all(sql, params![blob(&org.0), ids(runs)?], |row| {
            let sum = |index| row.get::<_, Option<i64>>(index).map(|sum| sum.map(i64::unsigned_abs));
            let usage = Usage {
                calls: sum(2)?.unwrap_or(0),
                input_tokens: sum(3)?.unwrap_or(0),
                output_tokens: sum(4)?.unwrap_or(0),
                cache_read_tokens: sum(5)?.unwrap_or(0),
                cache_write_tokens: sum(6)?.unwrap_or(0),
                cost_micros: sum(7)?,
            };
            Ok((ExecutionId(id(row, 0)?), row.get(1)?, usage))
        })
    }

    fn descendants(&self, org: OrgId, run: ExecutionId, most: usize) -> Done<Vec<Execution>> {
        let sql = concat!(
            "WITH RECURSIVE below (id, run, depth) AS ( \
             SELECT c.id, c.run, c.depth FROM agent_execution c WHERE c.parent_id = ?2 AND +c.org_id = ?1 \
             UNION ALL SELECT c.id, c.run, c.depth FROM below b CROSS JOIN agent_execution c ON c.parent_id = b.id AND +c.org_id = ?1) ",
            select_execution!(),
            "JOIN (SELECT run, depth FROM below ORDER BY depth, run LIMIT ?3) b ON x.run = b.run ORDER BY b.depth, b.run"
        );
        self.all(sql, params![blob(&org.0), blob(&run.0), limit(most)], execution)
    }

    fn children_after(&self, org: OrgId, parents: &[(ExecutionId, u64)], most: usize) -> Done<Vec<Relative>> {
        let sql = concat!(
            select_relative!(),
            "WHERE x.parent_id = ?2 AND +x.org_id = ?1 AND x.run > ?3 ORDER BY x.run LIMIT ?4"
        );
        let mut found = Vec::new();
        for (parent, after) in parents {
            let left = most.saturating_sub(found.len());
            found.extend(self.all(
                sql,
                params![blob(&org.0), blob(&parent.0), number(*after), limit(left)],
                relative,
            )?);
        }
        Ok(found)
    }

    fn born(&self, org: OrgId, births: &[u64]) -> Done<Vec<Relative>> {
        let sql = concat!(select_relative!(), "WHERE x.run = ?2 AND x.org_id = ?1 AND x.parent_id IS NOT NULL");
        let mut found = Vec::with_capacity(births.len());
        for birth in births {
            found.extend(self.first(sql, params![blob(&org.0), number(*birth)], relative)?);
        }
        Ok(found)
    }
}

fn number(birth: u64) -> i64 {
    i64::try_from(birth).unwrap_or(i64::MAX)
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
