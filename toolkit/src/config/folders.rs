//! Flovyn's folders of a user: the default places of sessions and records of calls.

use flovyn_core::error::{Code, Error, Result};
use std::path::PathBuf;

/// Flovyn's folder of this user: `FLOVYN_HOME`, else `~/.flovyn`.
///
/// # Errors
///
/// Neither `FLOVYN_HOME` nor `HOME` is set.
pub fn home() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("FLOVYN_HOME").or_else(|| variable("HOME").map(|home| home.join(".flovyn")));
    home.ok_or_else(|| {
        Error::new(Code::InvalidArgument, "neither FLOVYN_HOME nor HOME is set; set FLOVYN_HOME to a folder for Flovyn")
    })
}

/// The folder for records of calls that belongs to a store, by the store's URL.
///
/// # Errors
///
/// As of [`home`].
pub fn records_of(store: &str) -> Result<PathBuf> {
    let name = blake3::hash(store.as_bytes()).to_hex();
    Ok(home()?.join("records").join(&name[..16]))
}
