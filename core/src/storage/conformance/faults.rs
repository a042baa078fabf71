//! A backend that fails on purpose: before a call is carried out, or after it with the answer lost.
//!
//! Wraps any backend; crash-injection tests choose the n-th call of a kind, or let a seed choose.

use crate::error::{Code, Error, Result};
use crate::storage::Storage;
use crate::storage::guarded::{Call, Gate, Guarded};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a call fails. The caller sees `StorageUnavailable` either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was done.
    FailBefore,
    /// It was done and the answer is lost.
    ExecuteThenError,
}

/// A backend with faults.
pub type FaultyStorage = Guarded<Faults>;

/// Which calls fail.
#[derive(Default)]
pub struct Faults {
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    counts: BTreeMap<Call, u64>,
    planned: BTreeMap<(Call, u64), Fault>,
    /// State of the generator and how many calls in a thousand fail.
    seeded: Option<(u64, u64, Vec<Call>)>,
    injected: u64,
}

impl FaultyStorage {
    /// Wraps a backend; without faults it behaves as that one.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self::over(inner, Faults::default())
    }
}

impl Faults {
    /// Lets the `n`-th call of a kind from now (from 1) fail.
    pub fn inject(&self, call: Call, n: u64, fault: Fault) {
        let mut plan = self.plan.lock();
        let made = plan.counts.get(&call).copied().unwrap_or(0);
        plan.planned.insert((call, made + n), fault);
    }

    /// Lets so many of a thousand calls of these kinds fail, chosen by a seed.
    pub fn seed(&self, seed: u64, per_mille: u64, calls: &[Call]) {
        self.plan.lock().seeded = Some((seed, per_mille, calls.to_vec()));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut plan = self.plan.lock();
        plan.planned.clear();
        plan.seeded = None;
    }

    /// How many calls of a kind were made.
    pub fn count(&self, call: Call) -> u64 {
        self.plan.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// How many calls failed on purpose.
    pub fn injected(&self) -> u64 {
        self.plan.lock().injected
    }

    fn next(&self, call: Call) -> Option<Fault> {
        let mut plan = self.plan.lock();
        let count = plan.counts.entry(call).or_default();
        *count += 1;
        let place = (call, *count);
        let planned = plan.planned.remove(&place);
        let fault = planned.or_else(|| {
            let (state, per_mille, calls) = plan.seeded.as_mut()?;
            if !calls.contains(&call) {
                return None;
            }
            let drawn = super::random::next(state);
            let fault = if drawn & 1 == 0 { Fault::FailBefore } else { Fault::ExecuteThenError };
            ((drawn >> 1) % 1_000 < *per_mille).then_some(fault)
        });
        plan.injected += u64::from(fault.is_some());
        fault
    }
}

impl Gate for Faults {
    async fn pass<T: Send>(&self, call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let lost =
            || Error::new(Code::StorageUnavailable, format!("{call:?} failed on purpose; its outcome is unknown"));
        match self.next(call) {
            None => body.await,
            Some(Fault::FailBefore) => Err(lost()),
            Some(Fault::ExecuteThenError) => {
                let _ = body.await;
                Err(lost())
            }
        }
    }
}
