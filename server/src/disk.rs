//! Watches the disk of a SQLite database, and warns in the log before it is full.

use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// The disk counts as nearly full when less is free than this many bytes and than this part of it.
const LITTLE: u64 = 1 << 30;
const PART: u64 = 20;

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    free: u64,
    size: u64,
}

impl Room {
    fn is_little(self) -> bool {
        self.free < LITTLE && self.free < self.size / PART
    }
}

/// Looks after the disk until it is aborted, where the backend is a file: `db` as it describes itself.
pub(crate) fn look_after(db: &str) -> Option<JoinHandle<()>> {
    let file = Path::new(db.strip_prefix("sqlite:")?);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => Path::new(".").to_owned(),
    };
    Some(tokio::spawn(async move {
        let mut was_little = false;
        while let Some(room) = room(&folder) {
            let Room { free, size } = room;
            let path = folder.display();
            match (room.is_little(), was_little) {
                (true, false) => warn!(%path, free, size, "the disk of the database is nearly full; make room"),
                (false, true) => info!(%path, free, size, "the disk of the database has room again"),
                _ => {}
            }
            was_little = room.is_little();
            tokio::time::sleep(LOOK).await;
        }
    }))
}

#[cfg(unix)]
fn room(folder: &Path) -> Option<Room> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(Room { free: found.f_bavail * found.f_frsize, size: found.f_blocks * found.f_frsize })
}

/// Not known on this system.
#[cfg(not(unix))]
fn room(_folder: &Path) -> Option<Room> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_both_few_bytes_and_a_small_part() {
        let is_little = |free, size| Room { free, size }.is_little();
        assert!(is_little(LITTLE - 1, 1 << 40) && is_little(1, 100));
        assert!(!is_little(LITTLE, 1 << 40), "there is a gigabyte");
        assert!(!is_little(10, 100), "a small disk with a tenth of it free");
    }
}
