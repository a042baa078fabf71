//! Reads for people and programs, as calls of a server.

use super::{RemoteStorage, collect};
use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OrgId, TaskId};
use crate::model::{
    Checkpoint, Cursor, Entry, Event, Execution, ExecutionFilter, KnownWorker, Page, PageRequest, QueueLoad,
    RecordedOp, RollUp, Signal, Task,
};
use crate::storage::Catalog;
use crate::wire::{OfOrg, error_of_status, list_executions, raw, v2};
use async_trait::async_trait;

/// Runs of one call at most.
const ROLL_UPS: usize = 1_000;

fn list(execution: ExecutionId, page: PageRequest) -> v2::ListRequest {
    v2::ListRequest { execution: raw(execution.0), page: Some(page.into()) }
}

fn page<W, T>(items: Vec<W>, next: Option<String>, read: impl Fn(W) -> Result<T>) -> Result<Page<T>> {
    Ok(Page { items: items.into_iter().map(read).collect::<Result<_>>()?, next: next.map(Cursor) })
}

#[async_trait]
impl Catalog for RemoteStorage {
    async fn execution(&self, org: OrgId, id: ExecutionId) -> Result<Execution> {
        let answer = self.agents().get_execution(self.ask(org, v2::IdRequest { id: raw(id.0) })).await;
        answer.map_err(|status| error_of_status("look at a run", &status))?.into_inner().into_model(org)
    }

    async fn executions(&self, org: OrgId, filter: ExecutionFilter, of: PageRequest) -> Result<Page<Execution>> {
        let answer = self.agents().list_executions(self.ask(org, list_executions(filter, of))).await;
        let answer = answer.map_err(|status| error_of_status("list runs", &status))?.into_inner();
        page(answer.items, answer.next, |wire| wire.into_model(org))
    }

    async fn roll_ups(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<RollUp>> {
        let mut all = Vec::with_capacity(executions.len());
        for some in executions.chunks(ROLL_UPS) {
            let request = v2::RollUpsRequest { executions: some.iter().map(|id| raw(id.0)).collect() };
            let answer = self.agents().roll_ups(self.ask(org, request)).await;
            let answer = answer.map_err(|status| error_of_status("add up what a family has used", &status))?;
            for item in answer.into_inner().items {
                all.push(item.try_into()?);
            }
        }
        Ok(all)
    }

    async fn descendants(&self, org: OrgId, execution: ExecutionId, limit: usize) -> Result<Vec<Execution>> {
        let asked = "list a family";
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let request = v2::ListDescendantsRequest { execution: raw(execution.0), limit };
        let stream = self.agents().list_descendants(self.ask(org, request)).await;
        let stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        collect(asked, stream, |wire| wire.into_model(org)).await
    }

    async fn entries(&self, org: OrgId, execution: ExecutionId, of: PageRequest) -> Result<Page<Entry>> {
        let answer = self.agents().list_entries(self.ask(org, list(execution, of))).await;
        let answer = answer.map_err(|status| error_of_status("list entries", &status))?.into_inner();
        page(answer.items, answer.next, TryInto::try_into)
    }

    async fn latest_entries(&self, org: OrgId, execution: ExecutionId, of: PageRequest) -> Result<Page<Entry>> {
        let answer = self.agents().list_latest_entries(self.ask(org, list(execution, of))).await;
        let answer = answer.map_err(|status| error_of_status("list entries", &status))?.into_inner();
        page(answer.items, answer.next, TryInto::try_into)
    }

    async fn entry(&self, org: OrgId, id: EntryId) -> Result<Entry> {
        let answer = self.agents().get_entry(self.ask(org, v2::IdRequest { id: raw(id.0) })).await;
        answer.map_err(|status| error_of_status("look at an entry", &status))?.into_inner().try_into()
    }

    async fn tasks(&self, org: OrgId, execution: ExecutionId, of: PageRequest) -> Result<Page<Task>> {
        let answer = self.agents().list_tasks(self.ask(org, list(execution, of))).await;
        let answer = answer.map_err(|status| error_of_status("list tasks", &status))?.into_inner();
        page(answer.items, answer.next, |wire| wire.into_model(org))
    }

    async fn task(&self, org: OrgId, execution: ExecutionId, id: TaskId) -> Result<Task> {
        let answer =
            self.agents().get_task(self.ask(org, v2::TaskRequest { execution: raw(execution.0), id: raw(id.0) })).await;
        answer.map_err(|status| error_of_status("look at a task", &status))?.into_inner().into_model(org)
    }

    async fn checkpoints(&self, org: OrgId, execution: ExecutionId, of: PageRequest) -> Result<Page<Checkpoint>> {
        let answer = self.agents().list_checkpoints(self.ask(org, list(execution, of))).await;
        let answer = answer.map_err(|status| error_of_status("list checkpoints", &status))?.into_inner();
        page(answer.items, answer.next, TryInto::try_into)
    }

    async fn signals(&self, org: OrgId, execution: ExecutionId, of: PageRequest) -> Result<Page<Signal>> {
        let answer = self.agents().list_signals(self.ask(org, list(execution, of))).await;
        let answer = answer.map_err(|status| error_of_status("list signals", &status))?.into_inner();
        page(answer.items, answer.next, TryInto::try_into)
    }

    async fn events(&self, org: OrgId, execution: ExecutionId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let asked = "read events";
        let request = v2::ListEventsRequest { execution: raw(execution.0), after, limit: limit as u64 };
        let stream = self.agents().list_events(self.ask(org, request)).await;
        let stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        collect(asked, stream, TryInto::try_into).await
    }

    async fn last_event(&self, org: OrgId, execution: ExecutionId) -> Result<u64> {
        let answer = self.agents().last_event(self.ask(org, v2::IdRequest { id: raw(execution.0) })).await;
        Ok(answer.map_err(|status| error_of_status("read events", &status))?.into_inner().number)
    }

    async fn journal(&self, org: OrgId, execution: ExecutionId, segment: u32) -> Result<Vec<RecordedOp>> {
        let asked = "read a journal";
        let request = v2::JournalRequest { execution: raw(execution.0), segment };
        let stream = self.agents().journal(self.ask(org, request)).await;
        let stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        collect(asked, stream, TryInto::try_into).await
    }

    async fn queues(&self, org: OrgId) -> Result<Vec<QueueLoad>> {
        let answer = self.agents().list_queues(self.ask(org, v2::Empty {})).await;
        let answer = answer.map_err(|status| error_of_status("look at the queues", &status))?.into_inner();
        Ok(answer.items.into_iter().map(Into::into).collect())
    }

    async fn workers(&self, org: OrgId, of: PageRequest) -> Result<Page<KnownWorker>> {
        let answer = self.agents().list_workers(self.ask(org, v2::PageRequest::from(of))).await;
        let answer = answer.map_err(|status| error_of_status("list workers", &status))?.into_inner();
        page(answer.items, answer.next, TryInto::try_into)
    }

    async fn unserved(&self, org: OrgId) -> Result<Vec<(String, String, u64)>> {
        let answer = self.agents().unserved(self.ask(org, v2::Empty {})).await;
        let answer = answer.map_err(|status| error_of_status("ask what nobody serves", &status))?.into_inner();
        Ok(answer.kinds.into_iter().map(|kind| (kind.kind, kind.queue, kind.waiting)).collect())
    }
}
