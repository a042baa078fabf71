//! `flovyn backup`: a copy of a database that is in use.

use crate::Result;
use crate::args::Words;
use crate::print::Output;
use crate::target::Target;
use serde_json::json;

/// Copies the database to a new file.
pub(super) async fn backup(args: Words, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words, &["FILE"])?;
    let file = target.word("the FILE of the copy")?;
    let runtime = target.open().await?;
    let size = runtime.client().backup(&file).await?;
    runtime.close().await?;
    if out.is_json() {
        return out.value(&json!({ "file": file, "bytes": size }));
    }
    out.line(&format!("copied to {file}, {size} bytes"))
}
