//! `flovyn runs show --tree`: a run and all below it, each with what it used itself and with its children.

use super::list::waits_for;
use crate::print::{Output, ago, status};
use crate::target::Run;
use crate::{Result, view};
use comfy_table::Cell;
use flovyn_core::client::Tree;
use flovyn_core::clock::Timestamp;
use flovyn_core::model::Usage;
use serde_json::Value;

/// The most runs that are drawn below one.
const MOST: usize = 1_000;

pub(super) async fn tree(run: &Run, out: &mut Output) -> Result {
    let tree = run.handle.tree(MOST).await?;
    if out.is_json() {
        return out.value(&json(&tree));
    }
    let mut rows = Vec::new();
    draw(&tree, "", "", run.runtime.storage().clock().now(), &mut rows);
    out.table(&["RUN", "KIND", "STATUS", "WAITS FOR", "TOKENS", "IN ALL", "COST IN ALL", "STARTED"], rows)?;
    match tree.left_off() {
        0 => Ok(()),
        more => {
            out.line(&format!("{more} more runs are below; flovyn runs list --parent ID lists the children of one"))
        }
    }
}

fn json(tree: &Tree) -> Value {
    let mut value = view::run_with(&tree.run, &tree.sum);
    value["children"] = tree.children.iter().map(json).collect();
    value["leftOff"] = tree.left_off().into();
    value
}

/// `lead` is drawn before the run's own name, `below` before the lines of its children.
fn draw(tree: &Tree, lead: &str, below: &str, now: Timestamp, rows: &mut Vec<Vec<Cell>>) {
    let run = &tree.run;
    let name = run.new.key.clone().unwrap_or_else(|| run.new.id.to_string());
    let all = |models: &flovyn_core::model::UsageTotals| {
        let mut all = Usage::default();
        models.0.values().for_each(|usage| all.add(usage));
        all
    };
    let tokens = |usage: &Usage| Cell::new(usage.input_tokens + usage.output_tokens);
    let total = all(&tree.sum.usage);
    let cost = total.cost_micros.map(|micros| format!("${:.4}", micros as f64 / 1e6));
    rows.push(vec![
        Cell::new(format!("{lead}{name}")),
        Cell::new(&run.new.kind),
        status(run.status),
        Cell::new(waits_for(run)),
        tokens(&all(&run.usage)),
        tokens(&total),
        Cell::new(cost.unwrap_or_else(|| "-".into())),
        Cell::new(ago(run.created_at, now)),
    ]);
    let last = tree.children.len().saturating_sub(1);
    for (place, child) in tree.children.iter().enumerate() {
        let (branch, space) = if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        draw(child, &format!("{below}{branch}"), &format!("{below}{space}"), now, rows);
    }
}
