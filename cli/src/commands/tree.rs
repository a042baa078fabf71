//! `flovyn runs show --tree`: a run and all below it, each with what it used itself and with its children.

use super::list::waits_for;
use crate::print::{Output, ago, status};
use crate::target::Run;
use crate::{Result, view};
use comfy_table::Cell;
use flovyn_core::clock::Timestamp;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{Execution, ExecutionFilter, PageRequest, Usage};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Runs read at a time.
const PAGE: usize = 1_000;

pub(super) async fn tree(run: &Run, out: &mut Output) -> Result {
    let family = Family::read(run).await?;
    let top = family.below(0);
    if out.is_json() {
        return out.value(&top.json());
    }
    let mut rows = Vec::new();
    top.rows("", "", run.runtime.storage().clock().now(), &mut rows);
    out.table(&["RUN", "KIND", "STATUS", "WAITS FOR", "TOKENS", "IN ALL", "COST IN ALL", "STARTED"], rows)
}

/// A run, in the first place, and its family.
struct Family {
    runs: Vec<Execution>,
    children: HashMap<ExecutionId, Vec<usize>>,
}

impl Family {
    async fn read(run: &Run) -> Result<Self> {
        let top = run.handle.describe().await?;
        let (id, filter) = (top.new.id, ExecutionFilter { root: Some(top.root), ..ExecutionFilter::default() });
        let mut runs = vec![top];
        let mut page = PageRequest { limit: PAGE, after: None };
        loop {
            let found = run.client().runs(filter.clone(), page.clone()).await?;
            runs.extend(found.items.into_iter().filter(|run| run.new.id != id));
            match found.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for (place, run) in runs.iter().enumerate() {
            if let Some(parent) = run.parent {
                children.entry(parent).or_default().push(place);
            }
        }
        // They come newest first.
        children.values_mut().for_each(|places| places.sort_by_key(|place| (runs[*place].created_at, *place)));
        Ok(Self { runs, children })
    }

    /// A run with its children. Families are no deeper than the store allows.
    fn below(&self, place: usize) -> Branch<'_> {
        let run = &self.runs[place];
        let places = self.children.get(&run.new.id).into_iter().flatten();
        let children: Vec<_> = places.map(|place| self.below(*place)).collect();
        let mut own = Usage::default();
        run.usage.0.values().for_each(|usage| own.add(usage));
        let mut total = own.clone();
        children.iter().for_each(|child| total.add(&child.total));
        Branch { run, own, total, children }
    }
}

/// A run, with the usage of its own calls and that of all runs below it too.
struct Branch<'a> {
    run: &'a Execution,
    own: Usage,
    total: Usage,
    children: Vec<Branch<'a>>,
}

impl Branch<'_> {
    fn json(&self) -> Value {
        let mut value = view::run(self.run);
        value["totalUsage"] = json!(flovyn_core::view::Usage::of(&self.total));
        value["children"] = self.children.iter().map(Self::json).collect();
        value
    }

    /// `lead` is drawn before the run's own name, `below` before the lines of its children.
    fn rows(&self, lead: &str, below: &str, now: Timestamp, rows: &mut Vec<Vec<Cell>>) {
        let run = self.run;
        let name = run.new.key.clone().unwrap_or_else(|| run.new.id.to_string());
        let tokens = |usage: &Usage| Cell::new(usage.input_tokens + usage.output_tokens);
        let cost = self.total.cost_micros.map(|micros| format!("${:.4}", micros as f64 / 1e6));
        rows.push(vec![
            Cell::new(format!("{lead}{name}")),
            Cell::new(&run.new.kind),
            status(run.status),
            Cell::new(waits_for(run)),
            tokens(&self.own),
            tokens(&self.total),
            Cell::new(cost.unwrap_or_else(|| "-".into())),
            Cell::new(ago(run.created_at, now)),
        ]);
        let last = self.children.len().saturating_sub(1);
        for (place, child) in self.children.iter().enumerate() {
            let (branch, space) = if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            child.rows(&format!("{below}{branch}"), &format!("{below}{space}"), now, rows);
        }
    }
}
