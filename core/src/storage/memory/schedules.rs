//! Schedules.

use super::MemoryStorage;
use super::catalog::{cursor, cut};
use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::{Page, PageRequest, Schedule, ScheduleSpec};
use crate::storage::Schedules;
use crate::storage::schedules::{SHARE, first_tick};
use async_trait::async_trait;

#[async_trait]
impl Schedules for MemoryStorage {
    async fn put_schedule(&self, org: OrgId, spec: ScheduleSpec) -> Result<Schedule> {
        self.call(|state, now| {
            let next_at = first_tick(&spec, now)?;
            let schedule = Schedule { org, spec, next_at, created_at: now };
            state.schedules.insert((org, schedule.spec.id.clone()), schedule.clone());
            state.news.timers = true;
            Ok(schedule)
        })
    }

    async fn schedule(&self, org: OrgId, id: &str) -> Result<Schedule> {
        self.call(|state, _| {
            state.schedules.get(&(org, id.to_owned())).cloned().ok_or_else(|| not_found("schedule", id))
        })
    }

    async fn schedules(&self, org: OrgId, page: PageRequest) -> Result<Page<Schedule>> {
        self.call(|state, _| {
            let after = cursor(&page, |text| Some(text.to_owned()))?.unwrap_or_default();
            let all = state.schedules.range((org, after.clone())..).take_while(|((of, _), _)| *of == org);
            let rest = all.filter(|((_, id), _)| *id > after).map(|((_, id), row)| (id.clone(), row.clone()));
            Ok(cut(rest, &page, String::clone))
        })
    }

    async fn delete_schedule(&self, org: OrgId, id: &str) -> Result<()> {
        self.call(|state, _| match state.schedules.remove(&(org, id.to_owned())) {
            Some(_) => Ok(()),
            None => Err(not_found("schedule", id)),
        })
    }

    async fn due_schedules(&self) -> Result<Vec<Schedule>> {
        Ok(self.call(|state, now| {
            let due = state.schedules.values().filter(|row| row.next_at.is_some_and(|at| at <= now));
            let mut due: Vec<Schedule> = due.cloned().collect();
            due.sort_by(|a, b| (a.next_at, a.org, &a.spec.id).cmp(&(b.next_at, b.org, &b.spec.id)));
            due.truncate(SHARE);
            due
        }))
    }

    async fn advance_schedule(&self, org: OrgId, id: &str, from: Timestamp, to: Option<Timestamp>) -> Result<()> {
        self.call(|state, _| {
            let row = state.schedules.get_mut(&(org, id.to_owned()));
            if let Some(row) = row.filter(|row| row.next_at == Some(from)) {
                row.next_at = to;
            }
        });
        Ok(())
    }
}

impl State {
    /// The earliest next tick of all schedules.
    pub(super) fn next_tick(&self) -> Option<Timestamp> {
        self.schedules.values().filter_map(|row| row.next_at).min()
    }
}
