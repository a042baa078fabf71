//! Byte locks on one small file beside the database. They tell which workers live, and whose turn it is to write.
//!
//! They are open-file-description locks where the system has them (Linux). Such a lock belongs to this handle, ends
//! with the process however it ends, and does not end when another handle of the file is closed. A forked child has
//! none of them. A lock is only a hint: the fence of each commit decides.

use super::process_locks;
use crate::forks;
use crate::id::{OrgId, WorkerId};
use crate::sync::Mutex;
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The byte that a process holds while it waits for SQLite's write lock.
const TURN: i64 = 0;
/// The byte of the process whose time counts (see `file_time.rs`).
const LEAD: i64 = 1;
/// The byte on which every process that has the database open holds a shared lock.
const OPEN: i64 = 2;

/// The lock file of a database, opened once; the standard library opens it close-on-exec.
#[derive(Debug)]
pub(super) struct Locks {
    file: File,
    held: Mutex<HashSet<i64>>,
}

impl Locks {
    /// Opens or creates the lock file.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let _inside = forks::enter();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        process_locks::keep(&file);
        share(&file, OPEN);
        Ok(Self { file, held: Mutex::default() })
    }

    /// The byte that stands for a worker.
    pub(super) fn byte_of(org: OrgId, worker: WorkerId) -> i64 {
        let hash = blake3::hash(&[*org.0.as_bytes(), *worker.0.as_bytes()].concat());
        let mut number = [0; 8];
        number.copy_from_slice(&hash.as_bytes()[..8]);
        (i64::from_le_bytes(number) & (i64::MAX >> 2)) | (1 << 32)
    }

    /// Takes a worker's byte for as long as this handle lives. False when another process has it.
    pub(super) fn hold(&self, byte: i64) -> bool {
        let taken = set(&self.file, byte, true);
        if taken {
            self.held.lock().insert(byte);
        }
        taken
    }

    /// Gives a worker's byte back.
    pub(super) fn let_go(&self, byte: i64) {
        if self.held.lock().remove(&byte) {
            set(&self.file, byte, false);
        }
    }

    /// Whether the byte is this handle's own.
    pub(super) fn is_own(&self, byte: i64) -> bool {
        self.held.lock().contains(&byte)
    }

    /// Whether somebody holds a byte. If that cannot be found out, it counts as held: then a lease runs out by its
    /// time.
    pub(super) fn is_held(&self, byte: i64) -> bool {
        self.is_own(byte) || probe(&self.file, byte).unwrap_or(true)
    }

    /// Makes this process the one whose time counts, for as long as this handle lives. False if another process is.
    pub(super) fn lead(&self) -> bool {
        set(&self.file, LEAD, true)
    }

    /// Whether nobody else has the database open. True also if that cannot be found out.
    pub(super) fn is_alone(&self) -> bool {
        !probe(&self.file, OPEN).unwrap_or(false)
    }

    /// Writes the time for the others. After a failure they keep their own time.
    pub(super) fn write_time(&self, time: i64) {
        let _ = system::write(&self.file, &time.to_le_bytes());
    }

    /// The time that was written last. None if there is none.
    pub(super) fn time(&self) -> Option<i64> {
        let mut time = [0; 8];
        system::read(&self.file, &mut time).ok()?;
        Some(i64::from_le_bytes(time))
    }

    /// Whether somebody stands in line for the write lock.
    pub(super) fn is_awaited(&self) -> bool {
        probe(&self.file, TURN).unwrap_or(false)
    }

    /// Waits in line for SQLite's write lock, for a bounded time. A process holds this byte while it polls for the
    /// write lock, so one that has just committed cannot overtake it. A process that is stopped while it holds the byte
    /// delays the others by `patience` only.
    pub(super) fn turn(&self, patience: Duration) -> Turn<'_> {
        let mut since = None;
        loop {
            if set(&self.file, TURN, true) {
                return Turn(Some(self));
            }
            if since.get_or_insert_with(Instant::now).elapsed() > patience {
                return Turn(None);
            }
            crate::clock::block(Duration::from_micros(50));
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        process_locks::let_go(&self.file);
    }
}

/// A place at the head of the line; dropped once the write lock is held.
pub(super) struct Turn<'a>(Option<&'a Locks>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(locks) = self.0 {
            set(&locks.file, TURN, false);
        }
    }
}

#[cfg(unix)]
mod system {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    pub(super) fn write(file: &File, bytes: &[u8]) -> std::io::Result<()> {
        file.write_all_at(bytes, 0)
    }

    pub(super) fn read(file: &File, bytes: &mut [u8]) -> std::io::Result<()> {
        file.read_exact_at(bytes, 0)
    }

    #[cfg(target_os = "linux")]
    const COMMANDS: (libc::c_int, libc::c_int) = (libc::F_OFD_SETLK, libc::F_OFD_GETLK);
    #[cfg(not(target_os = "linux"))]
    const COMMANDS: (libc::c_int, libc::c_int) = (libc::F_SETLK, libc::F_GETLK);

    fn range(byte: i64, kind: libc::c_int) -> libc::flock {
        // SAFETY: `flock` is plain data for which all zeroes is a valid value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as _;
        lock.l_whence = libc::SEEK_SET as _;
        lock.l_start = byte as _;
        lock.l_len = 1;
        lock
    }

    /// Takes or frees a byte without waiting.
    pub(super) fn set(file: &File, byte: i64, take: bool) -> bool {
        let lock = range(byte, if take { libc::F_WRLCK as _ } else { libc::F_UNLCK as _ });
        // SAFETY: the descriptor is open for as long as `file` lives and the structure is valid for the call.
        unsafe { libc::fcntl(file.as_raw_fd(), COMMANDS.0, &lock) == 0 }
    }

    /// Takes a byte beside others who do so, until the file is closed.
    pub(super) fn share(file: &File, byte: i64) -> bool {
        let lock = range(byte, libc::F_RDLCK as _);
        // SAFETY: as above.
        unsafe { libc::fcntl(file.as_raw_fd(), COMMANDS.0, &lock) == 0 }
    }

    /// Whether another handle holds a byte.
    pub(in crate::storage::sqlite) fn probe(file: &File, byte: i64) -> Option<bool> {
        let mut lock = range(byte, libc::F_WRLCK as _);
        // SAFETY: as above; the call writes into the structure only.
        let answered = unsafe { libc::fcntl(file.as_raw_fd(), COMMANDS.1, &mut lock) == 0 };
        answered.then_some(lock.l_type as libc::c_int != libc::F_UNLCK as libc::c_int)
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::File;

    pub(super) fn write(_: &File, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn read(_: &File, _: &mut [u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(super) fn set(_: &File, _: i64, _: bool) -> bool {
        true
    }

    pub(super) fn share(_: &File, _: i64) -> bool {
        true
    }

    pub(in crate::storage::sqlite) fn probe(_: &File, _: i64) -> Option<bool> {
        None
    }
}

pub(super) use system::probe;
use system::{set, share};

/// Names this machine since its last start; locks mean something only between processes that share it.
pub(super) fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    format!("{}/{}", read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_held_until_its_handle_closes() {
        let path = std::env::temp_dir().join(format!("flovyn-lock-{}", uuid::Uuid::now_v7()));
        let (one, other) = (Locks::open(&path).unwrap(), Locks::open(&path).unwrap());
        let byte = Locks::byte_of(OrgId::DEFAULT, WorkerId::fresh());
        assert!(!other.is_held(byte));
        assert!(one.hold(byte));
        assert!(other.is_held(byte) && !other.hold(byte));
        drop(one);
        assert!(!other.is_held(byte));
        std::fs::remove_file(path).unwrap();
    }
}
