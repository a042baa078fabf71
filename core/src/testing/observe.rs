//! What a run left behind, in a form that can be compared.

use crate::client::{Handle, Outcome};
use crate::error::Result;
use crate::model::{PageRequest, RecordedBody, RecordedOp};
use crate::payload::Payload;
use crate::storage::Storage;
use std::sync::Arc;

/// A run's outcome, entries, tasks and journal as text, without what a crash may change: attempt numbers and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// How it ended.
    pub outcome: String,
    /// Role and content, in order of the tree.
    pub entries: Vec<String>,
    /// Kind, input, status and result or error, with failed attempts, in order of the journal.
    pub tasks: Vec<String>,
    /// The recorded ops of every segment.
    pub journal: Vec<String>,
}

impl Observed {
    /// Reads it all.
    pub async fn of(storage: &Arc<dyn Storage>, handle: &Handle) -> Result<Self> {
        let execution = handle.describe().await?;
        let org = execution.new.org;
        let outcome = match handle.outcome(None).await? {
            Outcome::Completed(output) => format!("completed with {}", text(&output)),
            Outcome::Failed(failure) => format!("failed: {}: {}", failure.error_type, failure.message),
            Outcome::Cancelled(kept) => format!("cancelled, kept {}", kept.as_ref().map_or("nothing".into(), text)),
        };
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
        Ok(Self { outcome, entries: entries.collect(), tasks: tasks.collect(), journal })
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
        self
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
        lists.into_iter().find_map(|(what, one, two)| {
            let at = (0..one.len().max(two.len())).find(|at| one.get(*at) != two.get(*at))?;
            let show = |list: &[String]| list.get(at).map_or_else(|| "missing".to_owned(), |line| format!("«{line}»"));
            Some(format!("{what} {at} is {} instead of {}", show(two), show(one)))
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
