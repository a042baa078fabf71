//! The write-ahead log: makes room in it ahead of commits, and folds it into the database (SQLite calls that a
//! checkpoint).
//!
//! Room: if a commit makes the file longer, its fsync also writes the file system's journal, which about doubles its
//! price. So the log is lengthened with zeros in large steps, under the write lock and only beyond its end. SQLite
//! takes what lies behind its last frame for the rest of an older log.
//!
//! Folding: a thread with a connection of its own folds most of the log while the writer goes on. Then the writer folds
//! what was added meanwhile, so that the log can start again from its beginning.

use super::fault::explain;
use super::file_identity::Place;
use super::writer::Setting;
use crate::error::Result;
use crate::forks;
use rusqlite::Connection;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// From so many pages on (16 MiB) the thread folds the log in the background.
const FOLD: i32 = 4_096;
/// From so many pages on (256 MiB) the writer folds the log before it writes anything else.
const FOLD_NOW: i32 = 65_536;
/// Bytes of one page with its frame header.
const FRAME: u64 = 4_096 + 24;
/// Room for the pages of a usual transaction.
const ROOM: u64 = 16 * FRAME;
/// The smallest and the largest step by which the log is lengthened. Between them the step is the size of the log.
const STEP: (u64, u64) = (128 << 10, 1 << 20);
/// A log of this size is not lengthened: it was folded or soon will be, and is then overwritten from its beginning.
const LONG: u64 = FOLD as u64 * FRAME;

pub(super) struct Log {
    path: PathBuf,
    place: Arc<Place>,
    /// The log, opened once it exists. To close it is safe: SQLite has no locks on the log, which closing would drop.
    file: Option<File>,
    /// How many pages the log had after the last commit.
    pages: Arc<AtomicI32>,
    /// Whether the thread folds.
    busy: Arc<AtomicBool>,
    /// Whether the thread has folded, and the writer has not folded the rest yet.
    done: Arc<AtomicBool>,
    wake: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Log {
    /// Watches the log of the writer's connection and starts the thread that folds it.
    pub(super) fn open(connection: &mut Connection, setting: &Setting) -> Result<Self> {
        let told = |error| explain("open a connection for checkpoints", error, "nothing was changed");
        let (pages, busy, done): (_, Arc<AtomicBool>, Arc<AtomicBool>) =
            (Arc::new(AtomicI32::new(0)), Arc::default(), Arc::default());
        let counted = pages.clone();
        connection
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                counted.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(told)?;
        let beside = super::files::open_folder(&setting.path, setting.synchronous).map_err(told)?;
        let place = setting.place.clone();
        let (wake, woken) = mpsc::channel();
        let (folds, folded) = (busy.clone(), done.clone());
        let work = move || {
            for () in woken {
                if place.look().is_err() {
                    continue;
                }
                let _inside = forks::enter();
                let _ = beside.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
                folded.store(true, Ordering::Release);
                folds.store(false, Ordering::Release);
            }
            let _inside = forks::enter();
            drop(beside);
        };
        let thread = crate::spawn::thread("flovyn-sqlite-log", "the database's checkpoints", work)?;
        Ok(Self {
            path: setting.log.clone(),
            place: setting.place.clone(),
            file: None,
            pages,
            busy,
            done,
            wake,
            thread,
        })
    }

    /// Ends the thread. Its connection is closed when this returns.
    pub(super) fn end(self) {
        let Self { wake, thread, .. } = self;
        drop(wake);
        let _ = thread.join();
    }

    /// Lengthens the log if the next commit would lengthen it. Called under the write lock. A failure costs only speed.
    pub(super) fn make_room(&mut self) {
        if self.file.is_none() {
            let file = File::options().write(true).open(&self.path);
            self.file = file.ok().filter(|file| self.place.is_log(file));
        }
        let Some(file) = &mut self.file else { return };
        let Ok(there) = file.metadata().map(|log| log.len()) else { return };
        let used = FRAME * u64::try_from(self.pages.load(Ordering::Relaxed)).unwrap_or(0);
        if there == 0 || there >= LONG || there > used + ROOM {
            return;
        }
        let step = there.clamp(STEP.0, STEP.1);
        let _ = file.seek(SeekFrom::Start(there)).and_then(|_| file.write_all(&vec![0; step as usize]));
    }

    /// Folds the log, or lets the thread fold it, if it is long. Called between two transactions of the writer.
    pub(super) fn fold(&self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < FOLD {
            return;
        }
        if self.done.swap(false, Ordering::Acquire) || pages >= FOLD_NOW {
            let _inside = forks::enter();
            let _ = writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            // The next commit starts the log again, and counts it.
            self.pages.store(0, Ordering::Relaxed);
        } else if !self.busy.swap(true, Ordering::AcqRel) {
            let _ = self.wake.send(());
        }
    }
}
