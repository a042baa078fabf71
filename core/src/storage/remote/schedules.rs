//! Schedules, as calls of a server. The server starts their runs, so none is ever due here.

use super::RemoteStorage;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::{Cursor, Page, PageRequest, Schedule, ScheduleSpec};
use crate::storage::Schedules;
use crate::wire::{OfOrg, error_of_status, v2};
use async_trait::async_trait;

#[async_trait]
impl Schedules for RemoteStorage {
    async fn put_schedule(&self, org: OrgId, spec: ScheduleSpec) -> Result<Schedule> {
        let answer = self.agents().put_schedule(self.ask(org, v2::ScheduleSpec::from(&spec))).await;
        answer.map_err(|status| error_of_status("make a schedule", &status))?.into_inner().into_model(org)
    }

    async fn schedule(&self, org: OrgId, id: &str) -> Result<Schedule> {
        let answer = self.agents().get_schedule(self.ask(org, v2::ScheduleRequest { id: id.to_owned() })).await;
        answer.map_err(|status| error_of_status("look at a schedule", &status))?.into_inner().into_model(org)
    }

    async fn schedules(&self, org: OrgId, page: PageRequest) -> Result<Page<Schedule>> {
        let answer = self.agents().list_schedules(self.ask(org, v2::PageRequest::from(page))).await;
        let answer = answer.map_err(|status| error_of_status("list schedules", &status))?.into_inner();
        let items = answer.items.into_iter().map(|wire| wire.into_model(org)).collect::<Result<_>>()?;
        Ok(Page { items, next: answer.next.map(Cursor) })
    }

    async fn delete_schedule(&self, org: OrgId, id: &str) -> Result<()> {
        let answer = self.agents().delete_schedule(self.ask(org, v2::ScheduleRequest { id: id.to_owned() })).await;
        answer.map(|_| ()).map_err(|status| error_of_status("remove a schedule", &status))
    }

    async fn due_schedules(&self) -> Result<Vec<Schedule>> {
        Ok(Vec::new())
    }

    async fn advance_schedule(&self, _: OrgId, _: &str, _: Timestamp, _: Option<Timestamp>) -> Result<()> {
        Ok(())
    }
}
