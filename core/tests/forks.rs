//! Children of a process that is at work on a database open it for themselves.
#![cfg(target_os = "linux")]

use flovyn_core::Payload;
use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::NewExecution;
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::storage::{AgentStorage, Catalog, Storage};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use tokio::runtime::{Builder, Runtime};

const ORG: OrgId = OrgId::DEFAULT;

fn open(file: &Path) -> SqliteStorage {
    SqliteStorage::open(file, SqliteOptions::default()).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn start(storage: &SqliteStorage) -> ExecutionId {
    let id = ExecutionId::fresh();
    let new = NewExecution::new(id, "agent", Payload::of("much ".repeat(2_000).as_str()).unwrap()).unwrap();
    storage.create_execution(new).await.unwrap();
    id
}

/// Runs something in a forked child, which is killed where it hangs; gives how it ended.
fn in_child(run: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child runs what it is given and leaves without running destructors of its parent's things.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a signal ends the child where nothing else does.
        unsafe { libc::alarm(20) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_ok();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// Threads that write and read one database until they are told to stop. They have begun when this returns: a child that
/// is forked while a thread makes the process's first runtime could never make its own, since tokio has a lock there.
struct Busy(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Busy {
    fn on(storage: &SqliteStorage, done: &Arc<AtomicU64>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let begun = Arc::new(Barrier::new(5));
        let threads = (0..4).map(|_| {
            let (storage, stop, done, begun) = (storage.clone(), stop.clone(), done.clone(), begun.clone());
            std::thread::spawn(move || {
                let runtime = runtime();
                begun.wait();
                runtime.block_on(async {
                    while !stop.load(Ordering::Relaxed) {
                        let id = start(&storage).await;
                        storage.execution(ORG, id).await.unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        });
        let threads = threads.collect();
        begun.wait();
        Self(stop, threads)
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn children_open_the_database_their_parent_is_writing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let done = Arc::<AtomicU64>::default();
    let busy = Busy::on(&storage, &done);
    for n in 0..40 {
        let before = done.load(Ordering::Relaxed);
        let status = in_child(|| {
            runtime().block_on(async {
                let refused = storage.execution(ORG, ExecutionId::fresh()).await.unwrap_err();
                assert_eq!(refused.code(), Code::ForkedProcess, "{refused}");
                let own = open(&file);
                let id = start(&own).await;
                own.execution(ORG, id).await.unwrap();
                own.close();
            });
        });
        assert_eq!(status, 0, "child {n}");
        while done.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
    }
    busy.end();
}
