//! What is known of the tools of one server: its last list, the tools that it had before, and whether it has to be listed again.

use super::known_tools::KnownTools;
use super::parsing::TASK_SUPPORT;
use flovyn_core::sync::Mutex;
use rmcp::model::Tool;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The pause after the first list that failed. Each further one that fails doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two attempts to list.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How many tools are known that the server has no more.
const MAX_PAST: usize = 200;

/// The tools of a server.
#[derive(Default)]
pub(super) struct ToolList {
    state: Mutex<State>,
    outdated: Outdated,
    /// How many lists are on their way.
    listings: AtomicUsize,
}

/// A list that is on its way.
pub(super) struct Listing<'a>(&'a AtomicUsize);

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the list of a server is not what it was. Set where its notifications arrive, before what comes after them.
#[derive(Clone, Default)]
pub(super) struct Outdated(Arc<(AtomicBool, Notify)>);

#[derive(Default)]
struct State {
    listed: Option<Vec<Tool>>,
    /// What is wrong with single tools.
    problems: Vec<String>,
    /// Why the last attempt to list them has failed.
    error: Option<String>,
    /// The tools that the server had in an earlier process, as long as it has not listed them in this one.
    remembered: Vec<Tool>,
    /// The tools that it had once.
    past: BTreeMap<String, Tool>,
    /// Whether one tool stood for all of them in this process.
    had_stand_in: bool,
    failures: u32,
    due: Option<Instant>,
    changes: u64,
    is_followed: bool,
    last_answer: Option<Instant>,
}

/// The tools of a server at one moment.
pub(super) struct ToolsNow {
    pub tools: Vec<Tool>,
    pub past: Vec<Tool>,
    pub problems: Vec<String>,
    /// Whether the server cannot be used, and no tool of it is known.
    pub is_unknown: bool,
    pub had_stand_in: bool,
}

impl Outdated {
    pub(super) fn set(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify_one();
    }

    fn is_set(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Resolves once it is not what it was, and takes note of that. Cancel-safe.
    pub(super) async fn taken(&self) {
        while !self.0.0.swap(false, Ordering::AcqRel) {
            self.0.1.notified().await;
        }
    }
}

impl ToolList {
    pub(super) fn outdated(&self) -> &Outdated {
        &self.outdated
    }

    /// A list begins.
    pub(super) fn listing(&self) -> Listing<'_> {
        self.listings.fetch_add(1, Ordering::AcqRel);
        Listing(&self.listings)
    }

    /// The server is asked now. What it says changed later makes another list necessary.
    pub(super) fn begin(&self) {
        self.outdated.0.0.store(false, Ordering::Release);
    }

    /// Takes over what the server has listed, or why it has not. `known` is what is known from earlier processes.
    pub(super) fn settle(&self, listed: &Result<(Vec<Tool>, Vec<String>), String>, known: impl FnOnce() -> KnownTools) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let is_first = state.listed.is_none() && state.error.is_none();
        if is_first {
            let KnownTools { tools, past, .. } = known();
            state.past = past.into_iter().map(|tool| (tool.name.to_string(), tool)).collect();
            state.remembered = tools;
        }
        match listed {
            Ok((tools, problems)) => {
                let before = state.listed.take().unwrap_or_else(|| std::mem::take(&mut state.remembered));
                let is_news = is_first || state.error.is_some() || before != *tools || state.problems != *problems;
                state.changes += u64::from(is_news);
                state.past.extend(before.into_iter().map(|tool| (tool.name.to_string(), tool)));
                tools.iter().for_each(|tool| drop(state.past.remove(tool.name.as_ref())));
                while state.past.len() > MAX_PAST {
                    state.past.pop_first();
                }
                (state.listed, state.problems) = (Some(tools.clone()), problems.clone());
                (state.error, state.failures, state.due) = (None, 0, None);
            }
            Err(why) => {
                state.changes += u64::from(state.error.as_ref() != Some(why));
                state.error = Some(why.clone());
                state.had_stand_in |= state.listed.is_none() && state.remembered.is_empty();
                let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(state.failures)).min(LONGEST_PAUSE);
                state.failures = state.failures.saturating_add(1);
                state.due = Some(Instant::now() + pause);
            }
        }
    }

    pub(super) fn now(&self) -> ToolsNow {
        let state = self.state.lock();
        let tools = state.listed.clone().unwrap_or_else(|| state.remembered.clone());
        let mut problems = state.problems.clone();
        let is_unknown = state.error.is_some() && tools.is_empty();
        problems.extend(state.error.as_ref().map(|why| match is_unknown {
            true => why.clone(),
            false => format!("{why}. Its tools are those that it had the last time"),
        }));
        let past = state.past.values().cloned().collect();
        ToolsNow { tools, past, problems, is_unknown, had_stand_in: state.had_stand_in }
    }

    /// Whether the server has listed its tools in this process.
    pub(super) fn is_listed(&self) -> bool {
        self.state.lock().listed.is_some()
    }

    /// Whether the server had a tool once, and does not list it any more.
    pub(super) fn is_past(&self, tool: &str) -> bool {
        self.state.lock().past.contains_key(tool)
    }

    /// Whether a tool is called as a task of the handshake, and not otherwise.
    pub(super) fn needs_task(&self, tool: &str) -> bool {
        let state = self.state.lock();
        let listed = state.listed.as_ref().unwrap_or(&state.remembered).iter().find(|listed| listed.name == tool);
        let meta = listed.and_then(|listed| listed.meta.as_ref());
        meta.and_then(|meta| meta.0.get(TASK_SUPPORT)).is_some_and(|support| support == "required")
    }

    /// The server has answered a call, and may have said something beside it.
    pub(super) fn note_answer(&self) {
        self.state.lock().last_answer = Some(Instant::now());
    }

    pub(super) fn last_answer(&self) -> Option<Instant> {
        self.state.lock().last_answer
    }

    /// The tools that the server had once, to be remembered.
    pub(super) fn past(&self) -> Vec<Tool> {
        self.state.lock().past.values().cloned().collect()
    }

    /// How often something has changed.
    pub(super) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Whether a list is on its way that is likely to come. A server that cannot be used is not waited for.
    pub(super) fn is_coming(&self) -> bool {
        let is_wanted = self.outdated.is_set() || self.listings.load(Ordering::Acquire) > 0;
        is_wanted && self.state.lock().error.is_none()
    }

    /// Somebody lists the server again when that is due, and offers models what it has then.
    pub(super) fn set_followed(&self) {
        self.state.lock().is_followed = true;
    }

    pub(super) fn is_followed(&self) -> bool {
        self.state.lock().is_followed
    }

    /// Resolves when the server has to be listed again: it has said that its tools have changed, or the last attempt failed some
    /// time ago.
    pub(super) async fn is_due(&self) {
        loop {
            if self.outdated.is_set() {
                return;
            }
            let due = self.state.lock().due;
            tokio::select! {
                () = self.outdated.0.1.notified() => {}
                () = async { match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                } } => return,
            }
        }
    }
}
