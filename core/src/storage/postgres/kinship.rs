//! The statements about families.

use super::fault::Done;
use super::run::{execution, execution_columns};
use super::sets::{Value, row};
use super::tx::Tx;
use super::values::Row;
use crate::id::{ExecutionId, OrgId};
use crate::model::{Execution, Relative, Usage};
use crate::storage::sql::{Kinship, UsageBelow};

/// All runs at and below some, each with the one it is below. `$2` is the ids of those.
macro_rules! with_below {
    ($then:literal) => {
        concat!(
            "WITH RECURSIVE below (top, id, run) AS ( \
             SELECT x.id, x.id, x.run FROM UNNEST($2::uuid[]) AS k(id) JOIN agent_execution x ON x.org_id = $1 AND x.id = k.id \
             UNION ALL SELECT b.top, c.id, c.run FROM below b JOIN agent_execution c ON c.org_id = $1 AND c.parent_id = b.id) ",
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

fn ids(runs: &[ExecutionId]) -> Vec<Value> {
    runs.iter().map(|run| Value::from(run.0)).collect()
}

fn relative(row: &Row) -> Done<Relative> {
    Ok(Relative {
        id: ExecutionId(row.get(0)?),
        parent: ExecutionId(row.get(1)?),
        depth: row.get(2)?,
        birth: row.get(3)?,
    })
}

impl Kinship for Tx<'_> {
    fn counts_below(&self, org: OrgId, runs: &[ExecutionId]) -> Done<Vec<(ExecutionId, u64, u64)>> {
        let sql = with_below!(
            "SELECT b.top, count(*) FILTER (WHERE x.parent_id = b.top), count(*) - 1 FROM below b \
             JOIN agent_execution x ON x.org_id = $1 AND x.run = b.run GROUP BY b.top"
        );
        self.all(sql, row![org.0, ids(runs)], |row| Ok((ExecutionId(row.get(0)?), row.get(1)?, row.get(2)?)))
    }

    fn usage_below(&self, org: OrgId, runs: &[ExecutionId]) -> Done<Vec<UsageBelow>> {
        let sql = with_below!(
            "SELECT b.top, m.key, sum((m.value ->> 'calls')::bigint)::bigint, \
             sum((m.value ->> 'input_tokens')::bigint)::bigint, sum((m.value ->> 'output_tokens')::bigint)::bigint, \
             sum((m.value ->> 'cache_read_tokens')::bigint)::bigint, \
             sum((m.value ->> 'cache_write_tokens')::bigint)::bigint, sum((m.value ->> 'cost_micros')::bigint)::bigint \
             FROM below b JOIN agent_execution x ON x.org_id = $1 AND x.run = b.run \
             CROSS JOIN LATERAL json_each(x.usage::json) m GROUP BY b.top, m.key"
        );
        self.all(sql, row![org.0, ids(runs)], |row| {
            let sum = |index| row.get::<Option<u64>>(index);
            let usage = Usage {
                calls: sum(2)?.unwrap_or(0),
                input_tokens: sum(3)?.unwrap_or(0),
                output_tokens: sum(4)?.unwrap_or(0),
                cache_read_tokens: sum(5)?.unwrap_or(0),
                cache_write_tokens: sum(6)?.unwrap_or(0),
                cost_micros: sum(7)?,
            };
            Ok((ExecutionId(row.get(0)?), row.get(1)?, usage))
        })
    }

    fn descendants(&self, org: OrgId, run: ExecutionId, most: usize) -> Done<Vec<Execution>> {
        let sql = concat!(
            "WITH RECURSIVE below (id, run, depth) AS ( \
             SELECT c.id, c.run, c.depth FROM agent_execution c WHERE c.org_id = $1 AND c.parent_id = $2 \
             UNION ALL SELECT c.id, c.run, c.depth FROM below b JOIN agent_execution c ON c.org_id = $1 AND c.parent_id = b.id) \
             SELECT ",
            execution_columns!(),
            " FROM (SELECT run, depth FROM below ORDER BY depth, run LIMIT $3) b \
             JOIN agent_execution x ON x.org_id = $1 AND x.run = b.run ORDER BY b.depth, b.run"
        );
        self.all(sql, row![org.0, run.0, limit(most)], execution)
    }

    fn children_after(&self, org: OrgId, parents: &[(ExecutionId, u64)], most: usize) -> Done<Vec<Relative>> {
        let sql = concat!(
            select_relative!(),
            "JOIN UNNEST($2::uuid[], $3::bigint[]) AS k(parent, after) ON x.parent_id = k.parent AND x.run > k.after \
             WHERE x.org_id = $1 AND x.parent_id IS NOT NULL ORDER BY x.run LIMIT $4"
        );
        let after: Vec<Value> = parents.iter().map(|(_, after)| Value::from(number(*after))).collect();
        let parents: Vec<_> = parents.iter().map(|(parent, _)| *parent).collect();
        self.all(sql, row![org.0, ids(&parents), after, limit(most)], relative)
    }

    fn born(&self, org: OrgId, births: &[u64]) -> Done<Vec<Relative>> {
        let sql = concat!(
            select_relative!(),
            "WHERE x.org_id = $1 AND x.run = ANY($2::bigint[]) AND x.parent_id IS NOT NULL ORDER BY x.run"
        );
        let births: Vec<Value> = births.iter().map(|birth| Value::from(number(*birth))).collect();
        self.all(sql, row![org.0, births], relative)
    }
}

fn number(birth: u64) -> i64 {
    i64::try_from(birth).unwrap_or(i64::MAX)
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
