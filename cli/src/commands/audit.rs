//! `flovyn audit`: shows the audit of an organization, and checks that no row was changed.

use super::keys::{directory, find};
use crate::Result;
use crate::args::Audit;
use crate::print::{Output, moment};
use crate::target::Target;
use comfy_table::Cell;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OrgId;
use flovyn_core::model::{AuditRow, PageRequest};
use flovyn_core::storage::ServerSide;
use serde_json::{Value, json};

/// Rows that are read at a time.
const PAGE: usize = 1_000;

/// The result of a check of all rows.
#[derive(Default)]
struct AuditCheck {
    /// The newest rows, as many as are shown.
    newest: Vec<AuditRow>,
    rows: u64,
    /// The oldest row that does not follow the one before it.
    broken: Option<u64>,
}

/// Shows the newest rows, and checks all of them.
pub(super) async fn audit(args: Audit, out: &mut Output) -> Result {
    let target = Target::parse(args.of.words.words, &[])?;
    let runtime = target.open().await?;
    let directory = directory(&runtime)?;
    let org = find(directory, &args.of.org).await?;
    let checked = check_rows(directory, org, args.limit).await?;
    let seal = checked.newest.first().and_then(|row| row.seal).map(|seal| seal.to_string());
    if out.is_json() {
        let items: Vec<_> = checked.newest.iter().map(view).collect();
        out.value(&json!({ "items": items, "rows": checked.rows, "seal": seal, "broken": checked.broken }))?;
    } else {
        let row = |row: &AuditRow| {
            vec![Cell::new(moment(row.at)), Cell::new(&row.actor), Cell::new(&row.action), Cell::new(&row.subject)]
        };
        out.table(&["AT", "WHO", "DID", "TO WHAT"], checked.newest.iter().map(row).collect())?;
        if checked.broken.is_none() {
            let sealed = seal.map_or_else(String::new, |seal| format!(", sealed by {seal}"));
            out.line(&out.dim(&format!("{} rows, none changed{sealed}", checked.rows)))?;
        }
    }
    let Some(number) = checked.broken else { return Ok(()) };
    let message = format!(
        "row {number} of the audit does not follow the one before it: rows were changed, taken out or added by other means than \
         Flovyn; compare with what GET …/audit told before"
    );
    Err(Error::new(Code::InvalidArgument, message).into())
}

/// Reads all rows, newest first, and checks each against the one before it.
async fn check_rows(directory: &dyn ServerSide, org: OrgId, limit: usize) -> Result<AuditCheck> {
    let mut checked = AuditCheck::default();
    let (mut later, mut after) = (None::<AuditRow>, None);
    loop {
        let page = directory.audit(org, PageRequest { limit: PAGE, after }).await?;
        for row in page.items {
            checked.rows += 1;
            checked.check(org, later.as_ref(), Some(&row));
            if checked.newest.len() < limit {
                checked.newest.push(row.clone());
            }
            later = Some(row);
        }
        after = page.next;
        if after.is_none() {
            checked.check(org, later.as_ref(), None);
            return Ok(checked);
        }
    }
}

impl AuditCheck {
    fn check(&mut self, org: OrgId, later: Option<&AuditRow>, before: Option<&AuditRow>) {
        if let Some(later) = later.filter(|later| !later.follows(org, before)) {
            self.broken = Some(later.number);
        }
    }
}

fn view(row: &AuditRow) -> Value {
    json!({
        "id": row.number,
        "at": moment(row.at),
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "seal": row.seal.map(|seal| seal.to_string()),
    })
}
