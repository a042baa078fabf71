//! Machines: how they are let in, which run goes to which, and how one is revoked. The store records what is done to them.

use super::Service;
use super::requester::Requester;
use crate::access::{Identity, KEY_TTL};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{KeyId, OrgId};
use flovyn_core::model::{CommitRequest, Failure, NewExecution, OpBody, PageRequest, Scopes};
use flovyn_core::storage::machines::{
    Approval, Approved, Machine, Paired, Pairing, check_task, choose, machine_of, machine_queue,
};
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::debug;

/// How often, at most, it is noted that a machine was there.
const SEEN_EVERY: Duration = Duration::from_secs(10);
/// Machines that are remembered for that at a time.
const MAX_SEEN: usize = 10_000;

/// When it was last noted of each machine that it was there.
pub(crate) type SeenMachines = Arc<Mutex<HashMap<(OrgId, String), Instant>>>;

impl Service {
    /// Lets a computer ask to be let in; needs no token, so each address may ask only so often.
    ///
    /// Errors: `RateLimited`; `InvalidArgument` for what is no name.
    pub(crate) async fn request_pairing(&self, from: Option<IpAddr>, name: &str, host: &str) -> Result<Pairing> {
        if let Some(ip) = from {
            self.throttle.count_pairing(ip)?;
        }
        let host = match from {
            Some(ip) => format!("{host} at {}", ip.to_canonical()),
            None => host.to_owned(),
        };
        self.storage.request_pairing(name, &host).await
    }

    /// Gives whoever has the secret of an approved pairing the machine's token, once; none before it is approved. Unknown
    /// secrets are counted as unknown tokens are.
    ///
    /// Errors: `NotFound` for a secret that nothing comes of; `RateLimited` after too many of these.
    pub(crate) async fn collect_pairing(&self, from: Option<IpAddr>, secret: &str) -> Result<Option<Paired>> {
        if let Some(ip) = from {
            self.throttle.check_auth_failures(ip)?;
        }
        let collected = self.storage.collect_pairing(secret).await;
        if let (Some(ip), Err(error)) = (from, &collected)
            && error.code() == Code::NotFound
        {
            self.throttle.record_auth_failure(ip);
        }
        collected
    }

    /// Approves a code for the caller's org. The machine's key gives less than the caller's, and does not outlive it.
    ///
    /// Errors: `NotFound` for a code that is not open; `RateLimited` after too many of these in the org; `AlreadyExists` where the
    /// org has a machine of the name; `PermissionDenied` for a caller that could not make such a key.
    pub(crate) async fn approve_pairing(
        &self,
        by: &Requester,
        code: String,
        name: Option<String>,
        owner: Option<String>,
    ) -> Result<Approved> {
        let any: Scopes = format!("worker:{}", machine_queue(name.as_deref().unwrap_or("any"))).parse()?;
        if !by.who.scopes().cover(&any) {
            let message = "the key of a machine lets it take work, and a key gives no more than it has: approve it with a \
                           key that has the scope worker (or the role admin), besides keys";
            return Err(Error::new(Code::PermissionDenied, message));
        }
        self.throttle.check_wrong_codes(by.org)?;
        let (actor, not_after) = (by.to_string(), by.who.expires_at());
        let owner = owner.or_else(|| Some(by.who.name().to_string()));
        let approved = self.storage.approve_pairing(by.org, Approval { code, name, owner, actor, not_after }).await;
        if approved.as_ref().is_err_and(|error| error.code() == Code::NotFound) {
            self.throttle.record_wrong_code(by.org);
        }
        approved
    }

    /// Revokes a machine with its key. All that its workers hold is free at once for whoever serves its queue next.
    ///
    /// Errors: `NotFound`, with the machines there are.
    pub(crate) async fn revoke_machine(&self, by: &Requester, name: &str) -> Result<Machine> {
        let revoked = self.storage.revoke_machine(by.org, name, &by.to_string()).await;
        let machine = match revoked {
            Ok(machine) => machine,
            Err(error) if error.code() == Code::NotFound => {
                let machines = self.storage.machines(by.org).await?;
                return Err(choose(&machines, name, self.storage.clock().now()).err().unwrap_or(error));
            }
            Err(error) => return Err(error),
        };
        self.forget_key(machine.key);
        self.free_work_of(by.org, name).await;
        let (service, org, name) = (self.clone(), by.org, name.to_owned());
        // Other servers let the key in for some seconds more.
        tokio::spawn(async move {
            tokio::time::sleep(KEY_TTL + Duration::from_secs(1)).await;
            service.free_work_of(org, &name).await;
        });
        Ok(machine)
    }

    /// Notes that a machine is there, with what it offers.
    ///
    /// Errors: `PermissionDenied` for another than the caller.
    pub(crate) async fn announce_machine(
        &self,
        who: &Identity,
        org: OrgId,
        name: &str,
        offers: Option<&str>,
    ) -> Result<()> {
        if !who.serves(&machine_queue(name)) {
            return Err(Error::new(Code::PermissionDenied, format!("the token is not that of the machine {name:?}")));
        }
        self.storage.announce_machine(org, name, offers).await
    }

    /// Notes that the machine whose token this is gave a sign of life.
    pub(crate) async fn note_machine(&self, who: &Identity, org: OrgId) {
        let Some(name) = who.machine() else { return };
        {
            let mut seen = self.seen_machines.lock();
            if seen.len() >= MAX_SEEN {
                seen.retain(|_, at| at.elapsed() < SEEN_EVERY);
            }
            let now = Instant::now();
            let before = seen.insert((org, name.to_owned()), now);
            if before.is_some_and(|at| now.duration_since(at) < SEEN_EVERY) {
                if let Some(at) = before {
                    seen.insert((org, name.to_owned()), at);
                }
                return;
            }
        }
        if let Err(error) = self.storage.announce_machine(org, name, None).await {
            debug!(%error, name, "that a machine was there could not be noted");
        }
    }

    /// Finds the machine that a run is for, if it is for one: its queue is that of a machine from then on.
    ///
    /// Errors: `NotFound`, with the machines there are.
    pub(super) async fn route(&self, new: &mut NewExecution) -> Result<()> {
        let Some(named) = machine_of(&new.queue) else { return Ok(()) };
        let machines = self.storage.machines(new.org).await?;
        match choose(&machines, named, self.storage.clock().now()) {
            Ok(machine) => new.queue = machine_queue(&machine.name),
            // The same start again: the machine was there when the run was started.
            Err(error) => match self.storage.execution(new.org, new.id).await {
                Ok(there) if named.is_empty() => new.queue = there.new.queue,
                Ok(_) => {}
                Err(_) => return Err(error),
            },
        }
        Ok(())
    }

    /// Finds the machines of a commit's children. One for which there is none is not let in: its op is told why, and its parent
    /// goes on.
    pub(crate) async fn route_children(&self, who: &Identity, commit: &mut CommitRequest) -> Result<()> {
        if let Some(own) = who.machine().map(machine_queue) {
            let tasks = commit.batch.ops.iter().filter_map(|op| match &op.body {
                OpBody::Task(task) => Some(&task.queue),
                _ => None,
            });
            // Its own code refuses such a task before: this one is not of ours.
            tasks.into_iter().try_for_each(|queue| check_task(&own, queue))?;
        }
        let of_machine = |body: &OpBody| matches!(body, OpBody::Child(child) if machine_of(&child.queue).is_some());
        if !commit.batch.ops.iter().any(|op| of_machine(&op.body)) {
            return Ok(());
        }
        let (machines, now) = (self.storage.machines(commit.org).await?, self.storage.clock().now());
        for op in &mut commit.batch.ops {
            let OpBody::Child(child) = &mut op.body else { continue };
            let Some(named) = machine_of(&child.queue) else { continue };
            let own = who.machine();
            let chosen = match (own, named) {
                (Some(own), named) if !named.is_empty() && named != own => {
                    let message = format!(
                        "a run of the machine {own:?} may start others on {own:?} itself and on workers that are no \
                         machines, but not on {named:?}"
                    );
                    Err(Error::new(Code::PermissionDenied, message))
                }
                (Some(own), _) => choose(&machines, own, now),
                (None, named) => choose(&machines, named, now),
            };
            match chosen {
                Ok(machine) => child.queue = machine_queue(&machine.name),
                Err(error) => {
                    let why = Failure::new(error.code(), error.code().as_str(), error.message());
                    commit.refused.push((op.sequence, why));
                }
            }
        }
        Ok(())
    }

    /// Takes a key out of what this server remembers, so that it is looked up again.
    fn forget_key(&self, key: KeyId) {
        self.access.forget(key);
    }

    /// Gives back all that the workers of a machine hold. What cannot be given back now ends with its lease.
    async fn free_work_of(&self, org: OrgId, name: &str) {
        let (queue, mut page) = (machine_queue(name), PageRequest { limit: 1_000, after: None });
        loop {
            let Ok(workers) = self.storage.workers(org, page.clone()).await else { return };
            for worker in workers.items.iter().filter(|worker| worker.queues == [queue.as_str()]) {
                if let Err(error) = self.storage.unregister_worker(org, worker.id).await {
                    debug!(%error, name, "the work of a revoked machine ends with its leases");
                }
            }
            match workers.next {
                Some(next) => page.after = Some(next),
                None => return,
            }
        }
    }
}
