//! The certificates to trust: only those in the file that `FLOVYN_CA` names, or without it the system's.

use crate::error::{Code, Error, Result};
use std::path::{Path, PathBuf};

/// The file that `FLOVYN_CA` names.
pub(super) fn named() -> Option<PathBuf> {
    std::env::var_os("FLOVYN_CA").filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// The certificates of a file, in PEM.
pub(super) fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| unusable(file, &error.to_string()))
}

/// The error for a file that cannot be used.
pub(super) fn unusable(file: &Path, why: &str) -> Error {
    let message =
        format!("the certificates to trust cannot be read from {}: {why}; name a file in PEM", file.display());
    Error::new(Code::InvalidArgument, message)
}
