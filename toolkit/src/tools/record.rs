//! Records of tool calls, beside the engine's journal. They say what a call was about to do and how it ended. If the
//! worker dies between the effect of a call and the commit of its result, the next attempt reads the record.
//!
//! A record is a file, named after the task. A change of a file records the hashes before and after it. A command
//! records that it has started, and keeps its output. `task` decides by the record what the next attempt does.

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

/// How long records are kept. An older one belongs to a run that will not be resumed any more.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The folder of the records. It has to be on the machine that has the working directories. Each store of runs has its
/// own folder.
#[derive(Debug, Clone)]
pub struct CallRecords(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Removes the folder when it is dropped, if it is of no use after this process.
    _temporary: Option<TempDir>,
}

/// The record of one call.
#[derive(Debug, Clone)]
pub(crate) struct CallRecord {
    folder: Arc<Folder>,
    name: String,
}

/// How far a call has got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Progress {
    /// Its effects may have begun.
    Started,
    /// It was about to replace a file.
    Replacing {
        /// The file, relative to the working directory.
        path: PathBuf,
        /// The hash of the content before; none if there was no file.
        before: Option<String>,
        /// The hash of the content after.
        after: String,
        /// The outcome that it has when the content is replaced.
        outcome: ToolOutcome,
    },
    /// It has ended. The store may not know that yet.
    Ended {
        /// Its outcome.
        outcome: ToolOutcome,
    },
}

impl CallRecords {
    /// Opens a folder, or makes it if it does not exist. Only its owner can read it. Records older than thirty days are
    /// removed.
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

    /// Makes a folder that is removed with the last of its records. It is for runs that end with this process.
    pub fn temporary() -> Result<Self> {
        let created = tempfile::Builder::new().prefix("flovyn-records-").tempdir().map_err(|error| {
            Error::new(Code::InvalidArgument, format!("no folder for records of tool calls can be made: {error}"))
                .caused_by(error)
        })?;
        Ok(Self(Arc::new(Folder { path: created.path().to_owned(), _temporary: Some(created) })))
    }

    /// The file with the changes that a session has made.
    pub(crate) fn changes_of(&self, session: &str) -> PathBuf {
        // The name of a session may be longer than that of a file.
        self.0.path.join(format!("session-{}.changes", &blake3::hash(session.as_bytes()).to_hex()[..32]))
    }

    /// The record of a call. `name` has to be unique among calls and valid as the name of a file.
    pub(crate) fn of(&self, name: String) -> CallRecord {
        CallRecord { folder: self.0.clone(), name }
    }
}

impl CallRecord {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file that keeps a command's whole output.
    pub(crate) fn output(&self) -> PathBuf {
        self.folder.path.join(format!("{}.out", self.name))
    }

    fn path(&self) -> PathBuf {
        self.folder.path.join(format!("{}.json", self.name))
    }

    /// Removes what an earlier call of this name has left.
    pub(crate) fn clear(&self) -> Result<()> {
        [self.path(), self.output()].iter().try_for_each(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unusable(error)),
            _ => Ok(()),
        })
    }

    /// Makes the file for a command's whole output.
    pub(crate) fn create_output(&self) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.output())
            .map_err(|error| self.unusable(error))
    }

    /// Records how far the call has got. The record is durable when this returns.
    pub(crate) fn note(&self, progress: &Progress) -> Result<()> {
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

    /// How far the call has got; none if it has had no effect yet.
    pub(crate) fn load(&self) -> Result<Option<Progress>> {
        let text = match fs::read(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| self.unusable(error))?,
        };
        // A record is written to another file and renamed, so it is never half written. One that cannot be read was
        // written by another version, so all that is known is that the call had started.
        Ok(Some(serde_json::from_slice(&text).unwrap_or(Progress::Started)))
    }

    fn unusable(&self, error: io::Error) -> Error {
        let folder: &Path = &self.folder.path;
        let message = format!("the record of a tool call in {} cannot be kept: {error}", folder.display());
        Error::new(Code::TaskFailed, message).caused_by(error)
    }
}
