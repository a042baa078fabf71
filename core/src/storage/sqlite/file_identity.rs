//! Checks whether the open files are those at their path: what is acknowledged has to be in the files that the next
//! process opens.
//!
//! A file that was removed, renamed or replaced still takes writes, but nobody will find them. So no command is
//! answered before its files were compared with those at the path: for a write after its commit, for a read after its
//! snapshot. That is three system calls.
//!
//! A database that another program has overwritten in place is noticed by its modification time. SQLite changes the
//! database file only when it folds the log into it, and the shared memory counts that; any other change is somebody
//! else's.

use super::files::beside;
use super::lock::probe;
use crate::error::{Code, Error};
use crate::storage::available::LOST_FILE;
use crate::sync::RwLock;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Offset and length of three fields of the shared memory: the salts of the log, how far it is folded, and how far
/// folding was meant to go (`walIndexHdr` and `WalCkptInfo`, which are part of SQLite's file format).
const FOLDED: [(u64, usize); 3] = [(32, 8), (96, 4), (128, 4)];
/// The byte of the shared memory that SQLite locks while it folds the log.
const FOLDING: i64 = 121;

/// Device and inode.
type Identity = (u64, u64);

/// The three files of a database.
#[derive(Debug)]
pub(super) struct Place {
    files: [PathBuf; 3],
    opened: RwLock<Opened>,
}

#[derive(Debug)]
struct Opened {
    identities: [Identity; 3],
    /// The length of the shared memory when it was opened. If it is shorter now, SQLite must not touch it: access to a
    /// mapped page beyond the end kills the process (SIGBUS).
    memory: u64,
    /// The shared memory. None once the database is closed.
    shared: Option<File>,
}

/// What is wrong with the files.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    file: PathBuf,
    found: &'static str,
    /// Another program wrote into the database itself, so the log does not fit it any more.
    pub over: bool,
}

/// Length and modification time of the database file: they change when it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written(u64, SystemTime);

/// How far the log is folded into the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folded([u8; 16]);

impl Place {
    /// The files of a connection that has read.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let files = [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")];
        let opened = RwLock::new(Opened::at(&files)?);
        Ok(Self { files, opened })
    }

    /// The path of the database.
    pub(super) fn path(&self) -> &Path {
        &self.files[0]
    }

    /// Takes the files that are at the path now for the open ones. Called after they were opened anew.
    pub(super) fn adopt(&self) -> std::io::Result<()> {
        *self.opened.write() = Opened::at(&self.files)?;
        Ok(())
    }

    /// Compares the files at the path with those that were opened. Returns when the database was written.
    pub(super) fn look(&self) -> Result<Written, Lost> {
        let opened = self.opened.read();
        let database = self.one(&opened, 0)?;
        self.one(&opened, 1)?;
        if self.one(&opened, 2)?.len() < opened.memory {
            return Err(self.lost(2, "was cut off by another program"));
        }
        Ok(Written::of(&database))
    }

    /// When the database at the path was written.
    pub(super) fn written(&self) -> std::io::Result<Written> {
        Ok(Written::of(&std::fs::metadata(&self.files[0])?))
    }

    /// Checks that the shared memory was not cut off, so that SQLite may touch it.
    pub(super) fn memory(&self) -> Result<(), Lost> {
        let opened = self.opened.read();
        let length = opened.shared.as_ref().and_then(|shared| Some(shared.metadata().ok()?.len()));
        match length {
            Some(length) if length < opened.memory => Err(self.lost(2, "was cut off by another program")),
            _ => Ok(()),
        }
    }

    /// Whether the shared memory at the path is the one that was opened, or there is none yet. The old file is still
    /// open here, so no new file can have its inode and be taken for it.
    pub(super) fn has_old_memory(&self) -> bool {
        let old = self.opened.read().identities[2];
        std::fs::metadata(&self.files[2]).map_or(true, |found| identity(&found) == old)
    }

    /// Lets go of the files.
    pub(super) fn close(&self) {
        self.opened.write().shared = None;
    }

    /// Whether the database is open.
    pub(super) fn is_open(&self) -> bool {
        self.opened.read().shared.is_some()
    }

    fn one(&self, opened: &Opened, which: usize) -> Result<Metadata, Lost> {
        match std::fs::metadata(&self.files[which]) {
            Ok(found) if identity(&found) == opened.identities[which] => Ok(found),
            Ok(_) => Err(self.lost(which, "was replaced by another file while it was open")),
            Err(_) => {
                Err(self.lost(which, "is no longer there: it or its folder was removed or renamed while it was open"))
            }
        }
    }

    fn lost(&self, which: usize, found: &'static str) -> Lost {
        Lost { file: self.files[which].clone(), found, over: false }
    }

    /// Whether a file is the log that is open.
    pub(super) fn is_log(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|found| identity(&found) == self.opened.read().identities[1])
    }

    /// Another program has written into the database itself.
    pub(super) fn overwritten(&self) -> Lost {
        Lost { over: true, ..self.lost(0, "was written over by another program while it was open") }
    }

    /// Whether the open log may be folded into the database when the last connection closes. It may if the database is
    /// the one that was opened, and no other log is at the path: then nobody else has written.
    pub(super) fn may_fold(&self) -> bool {
        let opened = self.opened.read();
        self.one(&opened, 0).is_ok() && (self.one(&opened, 1).is_ok() || !self.files[1].exists())
    }

    /// How far the log is folded. None while somebody folds it.
    pub(super) fn folded(&self) -> Option<Folded> {
        let opened = self.opened.read();
        // The lock is looked at before the fields are read. Whoever folds writes the fields before it releases the
        // lock, so if nobody holds the lock, the fields are complete.
        let shared = opened.shared.as_ref()?;
        if probe(shared, FOLDING)? {
            return None;
        }
        let (mut bytes, mut at) = ([0; 16], 0);
        for (offset, length) in FOLDED {
            read_at(shared, bytes.get_mut(at..at + length)?, offset).ok()?;
            at += length;
        }
        Some(Folded(bytes))
    }
}

impl Written {
    fn of(database: &Metadata) -> Self {
        Self(database.len(), database.modified().unwrap_or(SystemTime::UNIX_EPOCH))
    }
}

impl Opened {
    fn at(files: &[PathBuf; 3]) -> std::io::Result<Self> {
        let [database, log, memory] = files;
        let shared = File::open(memory)?;
        let memory = shared.metadata()?;
        let identities = [identity(&database.metadata()?), identity(&log.metadata()?), identity(&memory)];
        Ok(Self { identities, memory: memory.len(), shared: Some(shared) })
    }
}

impl Lost {
    /// The error of a command. `outcome` says what became of it.
    pub(super) fn to_error(&self, asked: &str, outcome: &str) -> Error {
        let tell = |file: String| {
            format!(
                "{asked}: {file} {}; {outcome}, because a process that opens the database now would not find it; put the \
                 files back as they were, or end this process, restore the database from a backup and start again",
                self.found
            )
        };
        Error::new(Code::StorageUnavailable, tell(self.file.display().to_string()))
            .outside(tell("the database's file".to_owned()))
            .with(LOST_FILE, self.file.file_name().unwrap_or_default().display())
    }
}

#[cfg(unix)]
fn identity(found: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

/// On other systems an open file can be neither removed nor replaced.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.read_exact_at(bytes, offset)
}

#[cfg(not(unix))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
