//! Records of tool calls beside the engine's journal: what a call was about to do and how it ended, for recovery after a crash between.
//!
//! A record is a file of its own, named by the task. A change of a file notes the hashes before and after it; a command
//! notes that it started and keeps its output. The attempt after a death decides by the record (`task`).

use super::ToolOutcome;
use flovyn_core::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Records older than this belong to runs that will not be resumed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The folder of the records. It belongs to the machine that has the working directories, one folder to each store of runs.
#[derive(Debug, Clone)]
pub struct CallRecords(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Removes the folder at the end, where it is of no use after this process.
    _temporary: Option<TempDir>,
}

/// The record of one call.
#[derive(Debug, Clone)]
pub(crate) struct CallRecord {
    folder: Arc<Folder>,
    name: String,
}

/// How far a call was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Progress {
    /// Its effects may have begun.
    Started,
    /// It was about to replace a file.
    Replacing {
        /// The file, relative to the working directory.
        path: PathBuf,
        /// The content before; none where there was no file.
        before: Option<String>,
        /// The content after.
        after: String,
        /// What it ends with once the content is replaced.
        outcome: ToolOutcome,
    },
    /// It ended, and the store may not know.
    Ended {
        /// With this.
        outcome: ToolOutcome,
    },
}

impl CallRecords {
    /// Opens a folder, made where there is none, readable by its owner alone. Removes records older than thirty days.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        let records = created.and_then(|()| fs::read_dir(&folder)).map_err(|error| {
            let message = format!("the folder {} for records of tool calls cannot be used: {error}", folder.display());
            Error::new(Code::InvalidArgument, message).caused_by(error)
        })?;
        for record in records.flatten() {
            let age = record.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > KEPT) {
                let _ = fs::remove_file(record.path());
            }
        }
        Ok(Self(Arc::new(Folder { path: folder, _temporary: None })))
    }

    /// Makes a folder that is gone with the last of its records: for runs that end with this process.
    pub fn temporary() -> Result<Self> {
        let created = tempfile::Builder::new().prefix("flovyn-records-").tempdir().map_err(|error| {
            Error::new(Code::InvalidArgument, format!("no folder for records of tool calls can be made: {error}"))
                .caused_by(error)
        })?;
        Ok(Self(Arc::new(Folder { path: created.path().to_owned(), _temporary: Some(created) })))
    }

    /// The record of a call, by a name that is unique among calls and fit for a file.
    pub(crate) fn of(&self, name: String) -> CallRecord {
        CallRecord { folder: self.0.clone(), name }
    }
}

impl CallRecord {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that keeps a command's whole output.
    pub fn output(&self) -> PathBuf {
        self.folder.path.join(format!("{}.out", self.name))
    }

    fn path(&self) -> PathBuf {
        self.folder.path.join(format!("{}.json", self.name))
    }

    /// Forgets what an earlier call of this name left.
    pub fn clear(&self) -> Result<()> {
        [self.path(), self.output()].iter().try_for_each(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unusable(error)),
            _ => Ok(()),
        })
    }

    /// Makes the file for a command's whole output.
    pub fn create_output(&self) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.output())
            .map_err(|error| self.unusable(error))
    }

    /// Notes how far the call is. Durable when it returns.
    pub fn note(&self, progress: &Progress) -> Result<()> {
        let text = serde_json::to_vec(progress).map_err(|error| {
            Error::new(Code::NotSerializable, format!("a tool's outcome has no JSON form: {error}"))
        })?;
        let written = self.folder.path.join(format!("{}.new", self.name));
        let noted = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&written)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&written, self.path())?;
            File::open(&self.folder.path)?.sync_all()
        };
        noted().map_err(|error| self.unusable(error))
    }

    /// How far the call was; none where it had no effect yet.
    pub fn load(&self) -> Result<Option<Progress>> {
        let text = match fs::read(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| self.unusable(error))?,
        };
        // Renamed whole, so what cannot be read was written by another version: the call began.
        Ok(Some(serde_json::from_slice(&text).unwrap_or(Progress::Started)))
    }

    fn unusable(&self, error: io::Error) -> Error {
        let folder: &Path = &self.folder.path;
        let message = format!("the record of a tool call in {} cannot be kept: {error}", folder.display());
        Error::new(Code::TaskFailed, message).caused_by(error)
    }
}
