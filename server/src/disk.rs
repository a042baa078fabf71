//! Watches the disk of a SQLite database, and warns in the log before it is full.

use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// How often it is looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The disk counts as nearly full when less is free than this many bytes and than this part of it.
const MIN_FREE_BYTES: u64 = 1 << 30;
const MIN_FREE_PART: u64 = 20;

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy)]
struct DiskSpace {
    free: u64,
    size: u64,
}

impl DiskSpace {
    fn is_nearly_full(self) -> bool {
        self.free < MIN_FREE_BYTES && self.free < self.size / MIN_FREE_PART
    }
}

/// Looks after the disk until it is aborted, where the backend is a file: `db` as it describes itself.
pub(crate) fn watch(db: &str) -> Option<JoinHandle<()>> {
    let file = Path::new(db.strip_prefix("sqlite:")?);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => Path::new(".").to_owned(),
    };
    Some(tokio::spawn(async move {
        let mut was_nearly_full = false;
        while let Some(space) = disk_space(&folder) {
            let DiskSpace { free, size } = space;
            let path = folder.display();
            match (space.is_nearly_full(), was_nearly_full) {
                (true, false) => warn!(%path, free, size, "the disk of the database is nearly full; make room"),
                (false, true) => info!(%path, free, size, "the disk of the database has room again"),
                _ => {}
            }
            was_nearly_full = space.is_nearly_full();
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }))
}

#[cfg(unix)]
fn disk_space(folder: &Path) -> Option<DiskSpace> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(DiskSpace { free: stat.f_bavail * stat.f_frsize, size: stat.f_blocks * stat.f_frsize })
}

/// Not known on this system.
#[cfg(not(unix))]
fn disk_space(_folder: &Path) -> Option<DiskSpace> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_both_few_bytes_and_a_small_part() {
        let is_nearly_full = |free, size| DiskSpace { free, size }.is_nearly_full();
        assert!(is_nearly_full(MIN_FREE_BYTES - 1, 1 << 40) && is_nearly_full(1, 100));
        assert!(!is_nearly_full(MIN_FREE_BYTES, 1 << 40), "there is a gigabyte");
        assert!(!is_nearly_full(10, 100), "a small disk with a tenth of it free");
    }
}
