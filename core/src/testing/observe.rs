//! What a run left behind, in a form that can be compared.

use crate::client::{Client, Handle, Outcome};
use crate::error::Result;
use crate::model::{PageRequest, RecordedBody, RecordedOp, Status};
use crate::payload::Payload;
use std::collections::{BTreeMap, BTreeSet};

/// The most runs of a family that are read.
const MOST: usize = 1_000;

/// A run's outcome, entries, tasks and journal as text, without what a crash may change: attempt numbers and times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// How it ended.
    pub outcome: String,
    /// Role and content, in order of the tree.
    pub entries: Vec<String>,
    /// Kind, input, status and result or error, with failed attempts, in order of the journal.
    pub tasks: Vec<String>,
    /// The recorded ops of every segment.
    pub journal: Vec<String>,
    /// The runs below it, by kind and input. Of one that was stopped, or still runs, nothing is known but that it was born: how
    /// far it has come depends on when that was.
    pub family: BTreeMap<String, Vec<Option<Observed>>>,
}

impl Observed {
    /// Reads it all.
    pub async fn of(client: &Client, handle: &Handle) -> Result<Self> {
        let mut observed = Self::alone(client, handle).await?;
        for run in client.storage().descendants(client.org(), handle.id(), MOST).await? {
            let left = match run.status {
                Status::Completed | Status::Failed => {
                    Some(Self::alone(client, &client.handle(&run.new.id.to_string()).await?).await?)
                }
                _ => None,
            };
            observed.family.entry(format!("{}({})", run.new.kind, text(&run.new.input))).or_default().push(left);
        }
        Ok(observed)
    }

    /// Reads a run without those below it.
    async fn alone(client: &Client, handle: &Handle) -> Result<Self> {
        let storage = client.storage();
        let execution = handle.describe().await?;
        let org = execution.new.org;
        let outcome = match handle.outcome(None).await? {
            Outcome::Completed(output) => format!("completed with {}", text(&output)),
            Outcome::Failed(failure) => format!("failed: {}: {}", failure.error_type, failure.message),
            Outcome::Cancelled(kept) => format!("cancelled, kept {}", kept.as_ref().map_or("nothing".into(), text)),
        };
        if !execution.new.persistence.keeps_journal() {
            return Ok(Self { outcome, ..Self::default() });
        }
        let messages = handle.messages().await?;
        let entries = messages.iter().map(|entry| format!("{}: {}", entry.new.role, text(&entry.new.content)));
        let page = PageRequest { limit: 1_000, ..PageRequest::default() };
        let tasks = storage.tasks(org, handle.id(), page).await?.items;
        let tasks = tasks.iter().map(|task| {
            let end = match (&task.output, &task.failure) {
                (Some(output), _) => text(output),
                (None, Some(failure)) => failure.message.clone(),
                (None, None) => "nothing".into(),
            };
            let (kind, input) = (&task.new.kind, text(&task.new.input));
            format!("{kind}({input}) is {:?} after {} failures: {end}", task.status, task.failed_attempts)
        });
        let mut journal = Vec::new();
        for segment in 0..=execution.segment {
            let ops = storage.journal(org, handle.id(), segment).await?;
            journal.extend(ops.iter().map(line));
        }
        let (entries, tasks) = (entries.collect(), tasks.collect());
        Ok(Self { outcome, entries, tasks, journal, family: BTreeMap::new() })
    }

    /// Forgets the order in which branches came to their turn.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        // Ops are named by their place, which is a matter of order too.
        for line in &mut self.journal {
            if let Some((_, label)) = line.split_once(' ') {
                *line = label.split(" after ").next().unwrap_or_default().to_owned();
            }
        }
        self.tasks.sort();
        self.journal.sort();
        self.of_family(Self::unordered)
    }

    fn of_family(mut self, change: impl Fn(Self) -> Self) -> Self {
        let all = self.family.values_mut().flatten().flatten();
        all.for_each(|left| *left = change(std::mem::take(left)));
        self
    }

    /// Forgets how often attempts failed.
    #[must_use]
    pub fn whatever_attempt(mut self) -> Self {
        for line in &mut self.tasks {
            if let Some((start, rest)) = line.rsplit_once(" after ")
                && let Some((_, end)) = rest.split_once(" failures")
            {
                *line = format!("{start}{end}");
            }
        }
        self.of_family(Self::whatever_attempt)
    }

    /// The first difference in words.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.outcome != other.outcome {
            return Some(format!("the run {} instead of {}", other.outcome, self.outcome));
        }
        let lists = [
            ("entry", &self.entries, &other.entries),
            ("task", &self.tasks, &other.tasks),
            ("op", &self.journal, &other.journal),
        ];
        let own = lists.into_iter().find_map(|(what, one, two)| {
            let at = (0..one.len().max(two.len())).find(|at| one.get(*at) != two.get(*at))?;
            let show = |list: &[String]| list.get(at).map_or_else(|| "missing".to_owned(), |line| format!("«{line}»"));
            Some(format!("{what} {at} is {} instead of {}", show(two), show(one)))
        });
        own.or_else(|| self.difference_of_family(other))
    }

    fn difference_of_family(&self, other: &Self) -> Option<String> {
        let names: BTreeSet<_> = self.family.keys().chain(other.family.keys()).collect();
        names.into_iter().find_map(|name| {
            let sorted = |of: &Self| {
                let mut all = of.family.get(name).cloned().unwrap_or_default();
                all.sort_by_cached_key(|one| format!("{one:?}"));
                all
            };
            let (one, two) = (sorted(self), sorted(other));
            if one.len() != two.len() {
                return Some(format!("the child {name} was started {} times instead of {}", two.len(), one.len()));
            }
            let stopped = one.iter().chain(&two).any(Option::is_none);
            let pairs = one.iter().flatten().zip(two.iter().flatten()).filter(|_| !stopped);
            let differs = pairs.into_iter().find_map(|(one, two)| one.difference(two))?;
            Some(format!("in the child {name}: {differs}"))
        })
    }
}

fn line(op: &RecordedOp) -> String {
    let seen: Vec<String> = op.seen.iter().map(|seen| seen.0.to_string()).collect();
    let body = match &op.body {
        // Where a task runs now is not part of it: one that is answered "run it again" goes to its queue.
        RecordedBody::Task { detached, .. } => format!(" detached={detached}"),
        RecordedBody::Read { answer, count } => format!(" answered {} {count} times", text(answer)),
        RecordedBody::Once { value } => format!(" gave {}", text(value)),
        _ => String::new(),
    };
    format!("{}-{} {}{body} after [{}]", op.segment, op.sequence, op.label, seen.join(" "))
}

fn text(payload: &Payload) -> String {
    match payload.bytes() {
        Ok(bytes) if bytes.len() <= 200 => String::from_utf8_lossy(bytes).into_owned(),
        _ => format!("{} bytes", payload.size()),
    }
}
