//! The folder of the user for what stays on this computer.

use std::path::PathBuf;

/// `FLOVYN_HOME`, else `~/.flovyn`. None where neither is known.
pub(super) fn home() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    variable("FLOVYN_HOME").or_else(|| variable("HOME").map(|home| home.join(".flovyn")))
}
