//! Schedules.

use super::Dialect;
use super::backend::Backend;
use super::database_error::unknown;
use super::pages::{cursor, cut};
use super::tables::{Columns, Tables, json_opt, moment, moment_opt};
use super::values::{row, text_of};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::{Page, PageRequest, Schedule, ScheduleSpec};
use crate::storage::Schedules;
use crate::storage::schedules::{SHARE, first_tick};
use async_trait::async_trait;

/// A SELECT of the columns of [`read`], without its WHERE clause.
macro_rules! select_schedule {
    () => {
        "SELECT org_id, spec, next_at, created_at FROM schedule "
    };
}

#[async_trait]
impl<B: Backend> Schedules for B {
    async fn put_schedule(&self, org: OrgId, spec: ScheduleSpec) -> Result<Schedule> {
        self.write_alone("make a schedule", move |tx| {
            let next = first_tick(&spec, tx.now())?;
            let schedule = Schedule { org, spec: spec.clone(), next_at: next, created_at: tx.now() };
            tx.apply(
                "INSERT INTO schedule (org_id, id, spec, next_at, created_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (org_id, id) DO UPDATE SET spec = excluded.spec, next_at = excluded.next_at, \
                 created_at = excluded.created_at",
                row![org.0, &spec.id, text_of(&spec)?, next, tx.now()],
            )?;
            if let Some(next) = next {
                tx.due(next.0);
            }
            Ok(schedule)
        })
        .await
    }

    async fn schedule(&self, org: OrgId, id: &str) -> Result<Schedule> {
        let id = id.to_owned();
        self.read("look at a schedule", org, move |tx| {
            let sql = concat!(select_schedule!(), "WHERE org_id = $1 AND id = $2");
            tx.one(sql, row![org.0, &id], read)?.ok_or_else(|| unknown("schedule", &id).into())
        })
        .await
    }

    async fn schedules(&self, org: OrgId, page: PageRequest) -> Result<Page<Schedule>> {
        self.read("list schedules", org, move |tx| {
            let after = cursor(&page, |text| Some(text.to_owned()))?.unwrap_or_default();
            let sql = concat!(select_schedule!(), "WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3");
            let rows = tx.query(sql, row![org.0, after, page.limit as i64 + 1], read)?;
            Ok(cut(rows, &page, |row| row.spec.id.clone()))
        })
        .await
    }

    async fn delete_schedule(&self, org: OrgId, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.write_alone("remove a schedule", move |tx| {
            let sql = "DELETE FROM schedule WHERE org_id = $1 AND id = $2 RETURNING id";
            match tx.changes_any(sql, row![org.0, &id])? {
                true => Ok(()),
                false => Err(unknown("schedule", &id).into()),
            }
        })
        .await
    }

    async fn due_schedules(&self) -> Result<Vec<Schedule>> {
        let now = self.now();
        self.read_all("look for scheduled runs", move |tx| {
            let sql = concat!(select_schedule!(), "WHERE next_at <= $1 ORDER BY next_at, org_id, id LIMIT $2");
            tx.query(sql, row![now, SHARE as i64], read)
        })
        .await
    }

    async fn advance_schedule(&self, org: OrgId, id: &str, from: Timestamp, to: Option<Timestamp>) -> Result<()> {
        let id = id.to_owned();
        self.write_alone("move a schedule on", move |tx| {
            tx.apply(
                "UPDATE schedule SET next_at = $1 WHERE org_id = $2 AND id = $3 AND next_at = $4",
                row![to, org.0, &id, from],
            )
        })
        .await
    }
}

fn read<F>(row: &dyn Columns<F>) -> Result<Schedule, F> {
    Ok(Schedule {
        org: OrgId(row.id(0)?),
        spec: json_opt(row, 1)?.ok_or_else(|| row.wrong(1, "JSON"))?,
        next_at: moment_opt(row, 2)?,
        created_at: moment(row, 3)?,
    })
}
