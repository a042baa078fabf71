//! A value that stays in its file or store until Python asks for its bytes.

use crate::error::Failure;
use flovyn_core::error::{Code, Error};
use flovyn_core::payload::ByteSource;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are read at once while a blob is saved.
const PIECE: usize = 1 << 20;

/// The bytes behind a `flovyn.Blob`.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Source(pub(crate) Arc<dyn ByteSource>);

#[pymethods]
impl Source {
    #[getter]
    fn size(&self) -> u64 {
        self.0.size()
    }

    /// Bytes from `offset` on, at most `length`, all without one.
    #[pyo3(signature = (offset=0, length=None))]
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: Option<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.0.size().saturating_sub(offset);
        let wanted = length.map_or(left, |length| length.min(left)) as usize;
        PyBytes::new_with(py, wanted, |into| {
            py.detach(|| {
                into.chunks_mut(PIECE).enumerate().try_for_each(|(n, piece)| {
                    self.0.read_at(offset + (n * PIECE) as u64, piece).map_err(|error| unreadable(&error))
                })
            })
            .map_err(PyErr::from)
        })
    }

    /// Writes the bytes into a file, piece by piece.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let mut file = std::fs::File::create(path)?;
            let size = self.0.size();
            for offset in (0..size).step_by(PIECE) {
                file.write_all(&self.0.piece(offset, PIECE.min((size - offset) as usize))?)?;
            }
            file.flush()
        })
        .map_err(PyErr::from)
    }
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::Engine(Error::new(Code::InvalidArgument, format!("a blob could not be read: {error}")))
}
