//! Copies a database that is in use: one consistent state, in one file, without a log beside it.

use super::SqliteStorage;
use super::fault::explain;
use super::file_identity::Place;
use super::files::open_copier;
use crate::error::{Code, Error, Result};
use crate::forks;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ASKED: &str = "back the database up";

impl SqliteStorage {
    /// Writes a copy to a path where there is no file, and returns its size in bytes. Runs go on meanwhile.
    pub(super) async fn back_up(&self, to: &Path) -> Result<u64> {
        self.check_process()?;
        if !self.0.place.is_open() {
            return Err(crate::storage::sql::database_error::closed(ASKED));
        }
        let (place, busy) = (self.0.place.clone(), self.0.options.busy_timeout);
        let to = to.to_owned();
        let (reply, answer) = tokio::sync::oneshot::channel();
        // It has a thread of its own, since a large database takes long and the reader threads have others to serve.
        let work = move || drop(reply.send(copy(&place, &to, busy)));
        crate::spawn::thread("flovyn-sqlite-copy", "a backup", work)?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::new(Code::StorageUnavailable, format!("{ASKED}: its thread ended; please report it")))
        })
    }
}

/// The unfinished copy. Dropping it removes the file.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn copy(place: &Arc<Place>, to: &Path, busy: Duration) -> Result<u64> {
    let wrong = |found: String| Error::new(Code::InvalidArgument, format!("{ASKED} to {}: {found}", to.display()));
    let taken = || wrong("there is a file already, which stays as it is; name one that is not there".into());
    if to.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let name = to.file_name().ok_or_else(|| wrong("it is no name of a file; name one, such as backup.db".into()))?;
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = std::fs::canonicalize(parent)
        .map_err(|error| wrong(format!("the folder cannot be used ({error}); create it first")).caused_by(error))?;
    // It has another name until it is complete, so that nobody takes an incomplete copy for a backup.
    let partial = Partial(folder.join(format!(".flovyn-backup-{}", crate::id::random())));
    let path = partial.0.to_str().ok_or_else(|| wrong("its folder's name is no UTF-8; name another".into()))?;
    let lost = |lost: super::file_identity::Lost| lost.to_error(ASKED, "no backup was made");
    place.memory().map_err(lost)?;
    let inside = forks::enter();
    open_copier(place.path(), busy)
        .and_then(|from| from.execute("VACUUM INTO ?1", [path]))
        .map_err(|error| explain(&format!("{ASKED} to {}", to.display()), error, "no backup was made"))?;
    drop(inside);
    place.look().map_err(lost)?;
    let io = |error: std::io::Error| {
        let message = format!("{ASKED} to {}: {error}; no backup was made; check the disk", to.display());
        Error::new(Code::StorageUnavailable, message).caused_by(error)
    };
    let file = File::options().write(true).open(&partial.0).map_err(io)?;
    file.sync_all().map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let whole = folder.join(name);
    // A hard link never replaces a file, unlike a rename. Where the file system has no hard links, it is renamed if the
    // name is still free.
    match std::fs::hard_link(&partial.0, &whole) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(taken()),
        Err(_) if whole.symlink_metadata().is_ok() => return Err(taken()),
        Err(_) => std::fs::rename(&partial.0, &whole).map_err(io)?,
    }
    drop(partial);
    #[cfg(unix)]
    File::open(&folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    Ok(size)
}
