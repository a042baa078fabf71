//! Opens the database file: refuses places that cannot hold a database safely, and sets up connections.

use super::fault::{explain, is_busy};
use crate::error::{Code, Error, Result};
use crate::forks;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// When an acknowledged commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Before it is acknowledged: survives power loss.
    #[default]
    Full,
    /// Soon after: survives the death of every process, not power loss.
    Normal,
}

impl Synchronous {
    pub(super) fn pragma(self) -> &'static str {
        match self {
            Self::Full => "PRAGMA synchronous=FULL",
            Self::Normal => "PRAGMA synchronous=NORMAL",
        }
    }
}

/// Refuses a path that is not a file, or a new file, in an existing folder of a local file system. Returns the path
/// without links.
pub(super) fn check(path: &Path) -> Result<PathBuf> {
    let wrong = |found: &str, advice: &str| {
        Error::new(
            Code::InvalidArgument,
            format!("the database {} cannot be opened: {found}; {advice}", path.display()),
        )
    };
    if path.as_os_str().is_empty() {
        return Err(wrong("the path is empty", "name a file, such as agents.db"));
    }
    if path.is_dir() {
        return Err(wrong("it is a folder", "name a file in it"));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(wrong(&format!("the folder {} does not exist", parent.display()), "create it first"));
    }
    if let Some(kind) = network_file_system(parent) {
        return Err(Error::new(
            Code::UnsupportedFilesystem,
            format!(
                "the database {} is on {kind}: locks and shared memory of a network file system cannot be trusted; \
                 use a local disk, or PostgreSQL for several machines",
                path.display()
            ),
        )
        .with("filesystem", kind));
    }
    // Links are followed, so that all processes use the same lock file, whatever path they were given.
    Ok(std::fs::canonicalize(path)
        .or_else(|_| std::fs::canonicalize(parent).map(|parent| parent.join(path.file_name().unwrap_or_default())))
        .unwrap_or_else(|_| path.to_owned()))
}

/// The path of a file beside the database: the database's name with this suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens the connection that writes.
pub(super) fn open_writer(path: &Path, synchronous: Synchronous, busy: Duration) -> Result<Connection> {
    forks::check(path)?;
    let _inside = forks::enter();
    super::process_locks::watch(path);
    let asked = format!("open the database {}", path.display());
    let told = |error: rusqlite::Error| {
        match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::CannotOpen) => Error::new(
            Code::InvalidArgument,
            format!(
                "{asked}: SQLite says \"{error}\"; make the file and its folder writable for this user (the write-ahead \
                 log lives beside the file)"
            ),
        )
        .caused_by(error),
        _ => explain(&asked, error, "nothing was changed"),
    }
    };
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(told)?;
    connection.busy_timeout(busy).map_err(told)?;
    if connection.is_readonly("main").map_err(told)? {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("{asked}: the file is read-only; make it and its folder writable for this user"),
        ));
    }
    let mode = patiently(busy, || connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0)));
    let mode = mode.map_err(told)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Error::new(
            Code::UnsupportedFilesystem,
            format!("{asked}: its file system has no shared memory for a write-ahead log; use a local disk"),
        ));
    }
    connection
        .execute_batch(
            "PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; PRAGMA cache_size=-4096;
             PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=67108864; PRAGMA trusted_schema=OFF;",
        )
        .map_err(told)?;
    connection.execute_batch(synchronous.pragma()).map_err(told)?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(connection)
}

/// Repeats a statement while another process holds a lock. SQLite does not wait by itself when the journal mode is
/// changed.
fn patiently<T>(patience: Duration, mut ask: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let since = crate::clock::instant();
    loop {
        match ask() {
            Err(error) if is_busy(&error) && since.elapsed() < patience => {
                crate::clock::block(Duration::from_millis(2));
            }
            answer => return answer,
        }
    }
}

/// Opens a connection that reads.
pub(super) fn open_reader(path: &Path, busy: Duration) -> rusqlite::Result<Connection> {
    let _inside = forks::enter();
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(busy)?;
    leave_log(&connection)?;
    connection.execute_batch(
        "PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; PRAGMA cache_size=-4096;
         PRAGMA trusted_schema=OFF;",
    )?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Opens a connection that only folds the log into the database.
pub(super) fn open_folder(path: &Path, synchronous: Synchronous) -> rusqlite::Result<Connection> {
    let _inside = forks::enter();
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::ZERO)?;
    leave_log(&connection)?;
    connection.execute_batch("PRAGMA mmap_size=0; PRAGMA cache_size=-256; PRAGMA wal_autocheckpoint=0;")?;
    connection.execute_batch(synchronous.pragma())?;
    Ok(connection)
}

/// Opens a connection that copies the database. The caller has called [`forks::enter`].
pub(super) fn open_copier(path: &Path, busy: Duration) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(busy)?;
    leave_log(&connection)?;
    connection.execute_batch("PRAGMA mmap_size=0; PRAGMA trusted_schema=OFF;")?;
    Ok(connection)
}

/// Keeps a connection from folding the log when it is closed. Only the writer does that, since only the writer knows
/// whether the log still belongs to the database at the path.
fn leave_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
}

/// Reads from a database that may not be ours, and changes nothing in it. With `alone` it fails as busy if somebody
/// else has it open.
pub(super) fn try_out<T>(
    path: &Path,
    alone: bool,
    ask: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let _inside = forks::enter();
    super::process_locks::watch(path);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    leave_log(&connection)?;
    connection.busy_timeout(Duration::ZERO)?;
    if alone {
        // This has to come before the first read: a connection that has read uses the shared memory.
        connection.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |_| Ok(()))?;
    }
    connection.execute_batch("PRAGMA query_only=ON; PRAGMA mmap_size=0; PRAGMA trusted_schema=OFF;")?;
    ask(&connection)
}

/// The name of the network file system that a folder is on. None if it is on a local one.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Option<&'static str> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statfs` is plain data; the path ends with a zero; the call writes into the structure only.
    let found = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut stat) == 0).then_some(stat)
    }?;
    name_of(found.f_type as u64 & 0xffff_ffff)
}

#[cfg(not(target_os = "linux"))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// The name of a remote file system by the magic number that `statfs` gives.
fn name_of(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0102_1997 => "9p",
        0x6573_5546 => "a FUSE file system",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x564c => "NCP",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x786f_4256 => "a VirtualBox shared folder",
        0xbacb_acbc => "a VMware shared folder",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_have_names_and_local_ones_do_not() {
        assert_eq!(name_of(0x6969), Some("NFS"));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert_eq!(name_of(local), None, "{local:x}");
        }
    }

    #[test]
    fn a_folder_and_a_missing_parent_are_named() {
        let folder = std::env::temp_dir();
        assert!(check(&folder).unwrap_err().message().contains("folder"));
        let error = check(&folder.join("is-not-there/agents.db")).unwrap_err();
        assert!(error.code() == Code::InvalidArgument && error.message().contains("is-not-there"), "{error}");
    }
}
