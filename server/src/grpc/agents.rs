//! The service `Agents`: the calls of clients.

use super::payloads::{receive, send};
use super::streams::{ResponseStream, from_items, page_response, to_wire, until};
use super::{Grpc, refused, to_status};
use flovyn_core::client::FamilyWatching;
use flovyn_core::id::{EntryId, ExecutionId, OpId, RequestId, SignalId, Slot, TaskId};
use flovyn_core::model::{ForkFrom, ForkRequest, NewSignal, PageRequest, Resolution, ResumeRequest};
use flovyn_core::wire::v2::agents_server::Agents;
use flovyn_core::wire::v2::{fork_request, resolve_task_request};
use flovyn_core::wire::{OfOrg, delivery, execution_filter, id, limit_of_queue, of_word, queue_limit, raw, v2};
use futures::{Stream, stream};
use tonic::{Request, Response, Status, Streaming};

/// Runs of one call at most.
const MAX_AT_ONCE: usize = 1_000;

type RpcResult<T> = Result<Response<T>, Status>;

fn execution(bytes: &[u8]) -> Result<ExecutionId, Status> {
    id(bytes, "execution").map(ExecutionId).map_err(to_status)
}

/// The runs that one call names.
fn runs_at_once<B: AsRef<[u8]>>(runs: &[B]) -> Result<Vec<ExecutionId>, Status> {
    if runs.len() > MAX_AT_ONCE {
        let message = format!("{} runs were asked for at once; ask for at most {MAX_AT_ONCE}", runs.len());
        return Err(Status::invalid_argument(message));
    }
    runs.iter().map(|run| execution(run.as_ref())).collect()
}

fn need<T>(value: Option<T>, field: &str) -> Result<T, Status> {
    value.ok_or_else(|| Status::invalid_argument(format!("the field {field} is missing")))
}

fn run_and_page(request: v2::ListRequest) -> Result<(ExecutionId, PageRequest), Status> {
    Ok((execution(&request.execution)?, request.page.map(Into::into).unwrap_or_default()))
}

#[tonic::async_trait]
impl Agents for Grpc {
    type BranchStream = ResponseStream<v2::Entry>;
    type ListEventsStream = ResponseStream<v2::Event>;
    type JournalStream = ResponseStream<v2::RecordedOp>;
    type ListDescendantsStream = ResponseStream<v2::Execution>;
    type WatchStream = ResponseStream<v2::WatchEvent>;
    type GetPayloadStream = ResponseStream<v2::PayloadPart>;

    async fn identify(&self, request: Request<v2::Empty>) -> RpcResult<v2::IdentifyResponse> {
        let org = raw(self.org(&request)?.0);
        let (version, max_payload) = (env!("CARGO_PKG_VERSION").into(), Some(self.service.storage.max_payload()));
        let machine = self.identity(&request)?.machine().map(str::to_owned);
        Ok(Response::new(v2::IdentifyResponse { org, version, max_payload, machine }))
    }

    async fn standings(&self, request: Request<v2::StandingsRequest>) -> RpcResult<v2::StandingsResponse> {
        let org = self.org(&request)?;
        let runs = runs_at_once(&request.get_ref().executions)?;
        let standings = self.service.storage.standings(org, &runs).await.map_err(to_status)?;
        let items = standings.into_iter().map(|standing| v2::Standing {
            execution: raw(standing.execution.0),
            high: standing.high,
            ended: standing.ended,
        });
        Ok(Response::new(v2::StandingsResponse { items: items.collect() }))
    }

    async fn start(&self, request: Request<v2::NewExecution>) -> RpcResult<v2::StartResponse> {
        let org = self.org(&request)?;
        let new = request.into_inner().into_model(org).map_err(to_status)?;
        let created = self.service.start(new).await.map_err(to_status)?;
        let execution = Some((&created.execution).into());
        Ok(Response::new(v2::StartResponse { execution, existing: created.existing }))
    }

    async fn signal(&self, request: Request<v2::SignalRequest>) -> RpcResult<v2::SignalResponse> {
        let by = self.requester(&request)?;
        let wire = request.into_inner();
        let signal = NewSignal {
            org: by.org,
            execution: execution(&wire.execution)?,
            id: SignalId(id(&wire.id, "signal.id").map_err(to_status)?),
            name: wire.name,
            payload: need(wire.payload, "payload")?.try_into().map_err(to_status)?,
            delivery: delivery(wire.delivery).map_err(to_status)?,
            idempotency_key: wire.idempotency_key,
        };
        let stored = self.service.signal(&by, signal).await.map_err(to_status)?;
        let id = raw(stored.id.0);
        Ok(Response::new(v2::SignalResponse { id, repeated: stored.repeated, resumed: stored.resumed }))
    }

    async fn cancel(&self, request: Request<v2::CancelRequest>) -> RpcResult<v2::Execution> {
        let by = self.requester(&request)?;
        let wire = request.into_inner();
        let (run, cancel) = (execution(&wire.execution)?, need(wire.cancel, "cancel")?.into());
        let run = self.service.cancel(&by, run, cancel).await.map_err(to_status)?;
        Ok(Response::new((&run).into()))
    }

    async fn remove(&self, request: Request<v2::IdRequest>) -> RpcResult<v2::Empty> {
        let (by, run) = (self.requester(&request)?, execution(&request.get_ref().id)?);
        self.service.remove(&by, run).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn resume(&self, request: Request<v2::ResumeRequest>) -> RpcResult<v2::Execution> {
        let by = self.requester(&request)?;
        let wire = request.into_inner();
        let request_id = if wire.request_id.is_empty() {
            None
        } else {
            Some(RequestId(id(&wire.request_id, "request_id").map_err(to_status)?))
        };
        let resume = ResumeRequest {
            retry: wire.retry,
            max_steps: wire.max_steps,
            max_tail: wire.max_tail,
            budget: wire.budget,
            message: wire.message.map(TryInto::try_into).transpose().map_err(to_status)?,
            request_id,
        };
        let run = self.service.resume(&by, execution(&wire.execution)?, resume).await.map_err(to_status)?;
        Ok(Response::new((&run).into()))
    }

    async fn resolve_task(&self, request: Request<v2::ResolveTaskRequest>) -> RpcResult<v2::Task> {
        let named = &request.get_ref().op_id;
        let op = OpId::parse(named)
            .ok_or_else(|| Status::invalid_argument(format!("{named:?} is no op id; pass the one of `describe`")))?;
        let by = self.requester(&request)?;
        let wire = request.into_inner();
        let resolution = match need(wire.resolution, "resolution")? {
            resolve_task_request::Resolution::Result(result) => {
                Resolution::Result(result.try_into().map_err(to_status)?)
            }
            resolve_task_request::Resolution::Error(error) => Resolution::Error(error.try_into().map_err(to_status)?),
            resolve_task_request::Resolution::Retry(_) => Resolution::Retry,
        };
        let task = self.service.resolve_task(&by, op, resolution).await.map_err(to_status)?;
        Ok(Response::new((&task).into()))
    }

    async fn resolve_divergence(&self, request: Request<v2::ResolveDivergenceRequest>) -> RpcResult<v2::Execution> {
        let by = self.requester(&request)?;
        let wire = request.into_inner();
        let decision = of_word(&wire.decision, "decision").map_err(to_status)?;
        let run = self.service.decide(&by, execution(&wire.execution)?, decision).await.map_err(to_status)?;
        Ok(Response::new((&run).into()))
    }

    async fn fork(&self, request: Request<v2::ForkRequest>) -> RpcResult<v2::Execution> {
        let by = self.requester(&request)?;
        let wire = request.into_inner();
        let from = match need(wire.from, "from")? {
            fork_request::From::Checkpoint(sequence) => ForkFrom::Checkpoint(sequence),
            fork_request::From::Entry(entry) => ForkFrom::Entry(EntryId(id(&entry, "from.entry").map_err(to_status)?)),
            fork_request::From::Op(slot) => ForkFrom::Op(Slot::from(slot)),
            fork_request::From::Latest(_) => ForkFrom::Latest,
        };
        let fork = ForkRequest {
            org: by.org,
            execution: execution(&wire.execution)?,
            id: execution(&wire.id)?,
            key: wire.key,
            from,
            state: wire.state.map(TryInto::try_into).transpose().map_err(to_status)?,
            input: wire.input.map(TryInto::try_into).transpose().map_err(to_status)?,
        };
        let run = self.service.fork(&by, fork).await.map_err(to_status)?;
        Ok(Response::new((&run).into()))
    }

    async fn get_execution(&self, request: Request<v2::IdRequest>) -> RpcResult<v2::Execution> {
        let (org, run) = (self.org(&request)?, execution(&request.get_ref().id)?);
        self.service.check_may_read(&self.identity(&request)?, org, run).await.map_err(refused)?;
        let run = self.service.storage.execution(org, run).await.map_err(to_status)?;
        Ok(Response::new((&run).into()))
    }

    async fn list_executions(
        &self,
        request: Request<v2::ListExecutionsRequest>,
    ) -> RpcResult<v2::ListExecutionsResponse> {
        let org = self.org(&request)?;
        let (filter, page) = execution_filter(request.into_inner()).map_err(to_status)?;
        page_response(
            page,
            |page| self.service.storage.executions(org, filter.clone(), page),
            |items, next| v2::ListExecutionsResponse { items, next },
        )
        .await
    }

    async fn roll_ups(&self, request: Request<v2::RollUpsRequest>) -> RpcResult<v2::RollUpsResponse> {
        let org = self.org(&request)?;
        let runs = runs_at_once(&request.get_ref().executions)?;
        let sums = self.service.storage.roll_ups(org, &runs).await.map_err(to_status)?;
        Ok(Response::new(v2::RollUpsResponse { items: to_wire(&sums) }))
    }

    async fn list_descendants(
        &self,
        request: Request<v2::ListDescendantsRequest>,
    ) -> RpcResult<Self::ListDescendantsStream> {
        let org = self.org(&request)?;
        let v2::ListDescendantsRequest { execution: run, limit } = request.into_inner();
        let limit = MAX_AT_ONCE.min(limit as usize);
        let runs = self.service.storage.descendants(org, execution(&run)?, limit).await.map_err(to_status)?;
        Ok(Response::new(from_items(to_wire(&runs))))
    }

    async fn list_entries(&self, request: Request<v2::ListRequest>) -> RpcResult<v2::ListEntriesResponse> {
        let org = self.org(&request)?;
        let (execution, page) = run_and_page(request.into_inner())?;
        page_response(
            page,
            |page| self.service.storage.entries(org, execution, page),
            |items, next| v2::ListEntriesResponse { items, next },
        )
        .await
    }

    async fn list_latest_entries(&self, request: Request<v2::ListRequest>) -> RpcResult<v2::ListEntriesResponse> {
        let org = self.org(&request)?;
        let (execution, page) = run_and_page(request.into_inner())?;
        page_response(
            page,
            |page| self.service.storage.latest_entries(org, execution, page),
            |items, next| v2::ListEntriesResponse { items, next },
        )
        .await
    }

    async fn get_entry(&self, request: Request<v2::IdRequest>) -> RpcResult<v2::Entry> {
        let org = self.org(&request)?;
        let id = EntryId(id(&request.get_ref().id, "entry").map_err(to_status)?);
        let entry = self.service.storage.entry(org, id).await.map_err(to_status)?;
        Ok(Response::new((&entry).into()))
    }

    async fn branch(&self, request: Request<v2::BranchRequest>) -> RpcResult<Self::BranchStream> {
        let org = self.org(&request)?;
        let v2::BranchRequest { leaf, after } = request.into_inner();
        let leaf = EntryId(id(&leaf, "entry").map_err(to_status)?);
        let after = after.map(|after| id(&after, "entry").map(EntryId)).transpose().map_err(to_status)?;
        let entries = self.service.storage.branch(org, leaf, after).await.map_err(to_status)?;
        Ok(Response::new(from_items(to_wire(&entries))))
    }

    async fn put_schedule(&self, request: Request<v2::ScheduleSpec>) -> RpcResult<v2::Schedule> {
        let by = self.requester(&request)?;
        let schedule = self.service.put_schedule(&by, request.into_inner().into()).await.map_err(to_status)?;
        Ok(Response::new((&schedule).into()))
    }

    async fn get_schedule(&self, request: Request<v2::ScheduleRequest>) -> RpcResult<v2::Schedule> {
        let org = self.org(&request)?;
        let schedule = self.service.storage.schedule(org, &request.get_ref().id).await.map_err(to_status)?;
        Ok(Response::new((&schedule).into()))
    }

    async fn list_schedules(&self, request: Request<v2::PageRequest>) -> RpcResult<v2::ListSchedulesResponse> {
        let org = self.org(&request)?;
        let page = request.into_inner().into();
        page_response(
            page,
            |page| self.service.storage.schedules(org, page),
            |items, next| v2::ListSchedulesResponse { items, next },
        )
        .await
    }

    async fn delete_schedule(&self, request: Request<v2::ScheduleRequest>) -> RpcResult<v2::Empty> {
        let by = self.requester(&request)?;
        self.service.delete_schedule(&by, &request.get_ref().id).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn limit_queue(&self, request: Request<v2::QueueLimit>) -> RpcResult<v2::Empty> {
        let by = self.requester(&request)?;
        let (queue, limit) = limit_of_queue(request.into_inner());
        self.service.limit_queue(&by, &queue, limit).await.map_err(to_status)?;
        Ok(Response::new(v2::Empty {}))
    }

    async fn list_queue_limits(&self, request: Request<v2::Empty>) -> RpcResult<v2::ListQueueLimitsResponse> {
        let org = self.org(&request)?;
        let limits = self.service.storage.queue_limits(org).await.map_err(to_status)?;
        let items = limits.iter().map(|(queue, limit)| queue_limit(queue, limit)).collect();
        Ok(Response::new(v2::ListQueueLimitsResponse { items }))
    }

    async fn list_tasks(&self, request: Request<v2::ListRequest>) -> RpcResult<v2::ListTasksResponse> {
        let org = self.org(&request)?;
        let (execution, page) = run_and_page(request.into_inner())?;
        page_response(
            page,
            |page| self.service.storage.tasks(org, execution, page),
            |items, next| v2::ListTasksResponse { items, next },
        )
        .await
    }

    async fn get_task(&self, request: Request<v2::TaskRequest>) -> RpcResult<v2::Task> {
        let org = self.org(&request)?;
        let runs = request.get_ref();
        let execution = ExecutionId(id(&runs.execution, "execution").map_err(to_status)?);
        let task = TaskId(id(&runs.id, "task").map_err(to_status)?);
        let task = self.service.storage.task(org, execution, task).await.map_err(to_status)?;
        Ok(Response::new((&task).into()))
    }

    async fn list_checkpoints(&self, request: Request<v2::ListRequest>) -> RpcResult<v2::ListCheckpointsResponse> {
        let org = self.org(&request)?;
        let (execution, page) = run_and_page(request.into_inner())?;
        page_response(
            page,
            |page| self.service.storage.checkpoints(org, execution, page),
            |items, next| v2::ListCheckpointsResponse { items, next },
        )
        .await
    }

    async fn list_signals(&self, request: Request<v2::ListRequest>) -> RpcResult<v2::ListSignalsResponse> {
        let org = self.org(&request)?;
        let (execution, page) = run_and_page(request.into_inner())?;
        page_response(
            page,
            |page| self.service.storage.signals(org, execution, page),
            |items, next| v2::ListSignalsResponse { items, next },
        )
        .await
    }

    async fn list_events(&self, request: Request<v2::ListEventsRequest>) -> RpcResult<Self::ListEventsStream> {
        let org = self.org(&request)?;
        let wire = request.into_inner();
        let limit = usize::try_from(wire.limit).unwrap_or(usize::MAX);
        let events = self.service.storage.events(org, execution(&wire.execution)?, wire.after, limit).await;
        Ok(Response::new(from_items(to_wire(&events.map_err(to_status)?))))
    }

    async fn last_event(&self, request: Request<v2::IdRequest>) -> RpcResult<v2::LastEventResponse> {
        let org = self.org(&request)?;
        let number = self.service.storage.last_event(org, execution(&request.get_ref().id)?).await;
        Ok(Response::new(v2::LastEventResponse { number: number.map_err(to_status)? }))
    }

    async fn journal(&self, request: Request<v2::JournalRequest>) -> RpcResult<Self::JournalStream> {
        let org = self.org(&request)?;
        let wire = request.into_inner();
        let ops =
            self.service.storage.journal(org, execution(&wire.execution)?, wire.segment).await.map_err(to_status)?;
        Ok(Response::new(from_items(to_wire(&ops))))
    }

    async fn list_queues(&self, request: Request<v2::Empty>) -> RpcResult<v2::ListQueuesResponse> {
        let org = self.org(&request)?;
        let loads = self.service.storage.queues(org).await.map_err(to_status)?;
        Ok(Response::new(v2::ListQueuesResponse { items: to_wire(&loads) }))
    }

    async fn list_workers(&self, request: Request<v2::PageRequest>) -> RpcResult<v2::ListWorkersResponse> {
        let org = self.org(&request)?;
        let page = request.into_inner().into();
        page_response(
            page,
            |page| self.service.storage.workers(org, page),
            |items, next| v2::ListWorkersResponse { items, next },
        )
        .await
    }

    async fn unserved(&self, request: Request<v2::Empty>) -> RpcResult<v2::UnservedResponse> {
        let org = self.org(&request)?;
        let kinds = self.service.storage.unserved(org).await.map_err(to_status)?;
        let kind = |(kind, queue, waiting)| v2::UnservedKind { kind, queue, waiting };
        Ok(Response::new(v2::UnservedResponse { kinds: kinds.into_iter().map(kind).collect() }))
    }

    async fn watch(&self, request: Request<v2::WatchRequest>) -> RpcResult<Self::WatchStream> {
        let org = self.org(&request)?;
        let open = self.service.open_stream(org, &self.identity(&request)?).await.map_err(to_status)?;
        let wire = request.into_inner();
        if wire.children {
            let watching = self.service.watch_family(org, execution(&wire.execution)?, &wire.after);
            let watching = watching.with_content_up_to(wire.content_up_to.unwrap_or(u64::MAX));
            let ended = self.ended(open.who());
            return Ok(Response::new(until(family_events(watching, open), ended)));
        }
        let after = if wire.after.is_empty() { Ok(Default::default()) } else { wire.after.parse() };
        let watching = self.service.watch(org, execution(&wire.execution)?, after.map_err(to_status)?);
        let watching = watching.with_content_up_to(wire.content_up_to.unwrap_or(u64::MAX));
        let ended = self.ended(open.who());
        let events = stream::unfold(Some((watching, open)), |watching| async {
            let (mut watching, open) = watching?;
            match watching.next().await {
                Ok(Some(event)) => Some((Ok((&event).into()), Some((watching, open)))),
                Ok(None) => None,
                Err(error) => Some((Err(to_status(error)), None)),
            }
        });
        Ok(Response::new(until(events, ended)))
    }

    async fn get_payload(&self, request: Request<v2::GetPayloadRequest>) -> RpcResult<Self::GetPayloadStream> {
        let org = self.org(&request)?;
        Ok(Response::new(send(&self.service.storage, org, request.into_inner())?))
    }

    async fn put_payload(&self, request: Request<Streaming<v2::PayloadPart>>) -> RpcResult<v2::Stored> {
        let org = self.org(&request)?;
        let stored = receive(&self.service.storage, org, request.into_inner()).await?;
        self.service.metrics.uploaded(stored.size);
        Ok(Response::new(stored))
    }
}

/// The events of a run and of all below it; the last message, without an event, says that there are no more.
fn family_events<O: Send + 'static>(
    watching: FamilyWatching,
    open: O,
) -> impl Stream<Item = Result<v2::WatchEvent, Status>> + Send + 'static {
    stream::unfold(Some((watching, open)), |watching| async {
        let (mut watching, open) = watching?;
        match watching.next().await {
            Ok(Some(event)) => Some((Ok((&event).into()), Some((watching, open)))),
            Ok(None) => Some((Ok(v2::WatchEvent::default()), None)),
            Err(error) => Some((Err(to_status(error)), None)),
        }
    })
}
