//! Acknowledged means stored: what is acknowledged is in the files that the next process opens, whatever other programs, and
//! other copies of SQLite in this process, do to them.

use flovyn_core::Payload;
use flovyn_core::clock::SystemClock;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{NewExecution, Status};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::storage::{AgentStorage, Catalog, ClaimRequest, Housekeeping, Storage, WorkSource, WorkerInfo};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const ORG: OrgId = OrgId::DEFAULT;

fn open(file: &Path) -> SqliteStorage {
    SqliteStorage::open(file, SqliteOptions::default()).unwrap()
}

async fn try_start(storage: &SqliteStorage) -> Result<ExecutionId, Error> {
    let new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::of("go").unwrap()).unwrap();
    Ok(storage.create_execution(new).await?.execution.new.id)
}

async fn start(storage: &SqliteStorage) -> ExecutionId {
    try_start(storage).await.unwrap()
}

/// Starts a run once the database can be gone on with, which is tried every second.
async fn start_again(storage: &SqliteStorage) -> ExecutionId {
    for _ in 0..200 {
        match try_start(storage).await {
            Ok(run) => return run,
            Err(error) => assert_eq!(error.code(), Code::StorageUnavailable, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it was not gone on with")
}

fn log_of(file: &Path) -> PathBuf {
    file.with_extension("db-wal")
}

fn memory_of(file: &Path) -> PathBuf {
    file.with_extension("db-shm")
}

/// Opens the file in a process of its own, finds the runs and closes it, as the last connection if it takes itself for that.
fn another_process(file: &Path, runs: &[ExecutionId]) {
    let runs: Vec<_> = runs.iter().map(|run| run.0.simple().to_string().to_uppercase()).collect();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_looks_at_the_runs", "--nocapture", "--test-threads=1"])
        .env("FLOVYN_CHILD_FILE", file)
        .env("FLOVYN_CHILD_RUNS", runs.join(" "))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_process_looks_at_the_runs() {
    let Some(file) = std::env::var_os("FLOVYN_CHILD_FILE") else { return };
    let connection = rusqlite::Connection::open(file).unwrap();
    let mut there = connection.prepare("SELECT 1 FROM agent_execution WHERE hex(id) = ?1").unwrap();
    for run in std::env::var("FLOVYN_CHILD_RUNS").unwrap().split_whitespace() {
        assert!(there.exists([run]).unwrap(), "the run {run} was acknowledged and is not there");
    }
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

/// What closing a descriptor of the three files does to the POSIX locks of this process: as another copy of SQLite does, or
/// whoever copies the file.
fn let_locks_go(file: &Path) {
    for file in [file.to_owned(), log_of(file), memory_of(file)] {
        std::fs::read(file).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn locks_outlive_the_descriptors_of_others_in_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(start(&storage).await);
        let_locks_go(&file);
        another_process(&file, &runs);
        assert!(log_of(&file).exists(), "the log was removed under its writer");
    }
    runs.push(start(&storage).await);
    another_process(&file, &runs);
    storage.close();
    assert!(!log_of(&file).exists(), "the last connection left the log");
    another_process(&file, &runs);
}

/// The write lock is one that the rest of the process meets: two copies of SQLite in a process write one after the other.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_lock_of_the_process_is_met() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = SqliteStorage::open(
        &file,
        SqliteOptions { busy_timeout: Duration::from_millis(50), ..SqliteOptions::default() },
    )
    .unwrap();
    let first = start(&storage).await;
    // Byte 120 of the shared memory is SQLite's lock of who writes.
    let memory = std::fs::File::options().read(true).write(true).open(memory_of(&file)).unwrap();
    let set = |kind: libc::c_int| {
        // SAFETY: `flock` is plain data for which all zeroes is a valid value; the descriptor is open.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as _, libc::SEEK_SET as _, 120, 1);
            libc::fcntl(memory.as_raw_fd(), libc::F_SETLK, &lock)
        }
    };
    assert_eq!(set(libc::F_WRLCK as _), 0);
    let error = try_start(&storage).await.unwrap_err();
    assert!(error.code() == Code::StorageUnavailable && error.message().contains("lock"), "{error}");
    assert_eq!(set(libc::F_UNLCK as _), 0);
    let second = start(&storage).await;
    another_process(&file, &[first, second]);
}

/// A forked child neither takes its parent's locks along nor drops them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_forked_child_has_no_locks_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let mut runs = vec![start(&storage).await];
    // SAFETY: the child only waits to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    runs.push(start(&storage).await);
    another_process(&file, &runs);
    assert!(log_of(&file).exists(), "the log was removed under its writer");
    runs.push(start(&storage).await);
    storage.close();
    // The child reads still, as far as anybody can see; it keeps nobody from writing.
    let storage = open(&file);
    runs.push(start(&storage).await);
    another_process(&file, &runs);
    // SAFETY: ends and reaps the child just made.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    storage.close();
    another_process(&file, &runs);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_dies_in_a_transaction_and_leaves_a_forked_child() {
    use std::io::Write;
    let Some(file) = std::env::var_os("FLOVYN_CHILD_FILE") else { return };
    let _storage = open(Path::new(&file));
    let writes = rusqlite::Connection::open(&file).unwrap();
    writes.execute_batch("BEGIN IMMEDIATE").unwrap();
    // SAFETY: the child only waits to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    println!("\nchild: {child}");
    std::io::stdout().flush().unwrap();
    // SAFETY: ends this process as a kill does, with the transaction and the database open.
    unsafe { libc::_exit(0) };
}

/// A child that lives on keeps no lock of the process that forked it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_dead_process_had_locked_is_free() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_dies_in_a_transaction_and_leaves_a_forked_child", "--nocapture"])
        .env("FLOVYN_CHILD_FILE", &file)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let child: i32 = lines.find_map(|line| line.unwrap().strip_prefix("child: ")?.parse().ok()).unwrap();
    process.wait().unwrap();
    let started = match SqliteStorage::open(&file, SqliteOptions::default()) {
        Ok(storage) => try_start(&storage).await,
        Err(error) => Err(error),
    };
    // SAFETY: ends the child that was made for this test; its parent is gone, so nobody else takes its number before.
    unsafe { libc::kill(child, libc::SIGKILL) };
    another_process(&file, &[started.unwrap()]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_dies_with_a_run_and_leaves_a_forked_child() {
    use std::io::Write;
    let Some(file) = std::env::var_os("FLOVYN_CHILD_FILE") else { return };
    let storage = open(Path::new(&file));
    let run = start(&storage).await;
    let worker = WorkerId::fresh();
    let info = WorkerInfo { org: ORG, id: worker, name: "a parent".into(), queues: Vec::new(), elsewhere: false };
    storage.register_worker(info).await.unwrap();
    let claim = ClaimRequest {
        org: ORG,
        worker,
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_secs(3_600),
        only: None,
    };
    assert_eq!(storage.claim_agents(claim).await.unwrap().len(), 1);
    // SAFETY: the child only waits to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    println!("\nchild: {child} {run}");
    std::io::stdout().flush().unwrap();
    // SAFETY: ends this process as a kill does.
    unsafe { libc::_exit(0) };
}

/// What a dead process held goes on at once elsewhere, though its child lives on with all its descriptors.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_forked_child_does_not_keep_a_worker_alive() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_dies_with_a_run_and_leaves_a_forked_child", "--nocapture"])
        .env("FLOVYN_CHILD_FILE", &file)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let told = lines.find_map(|line| Some(line.unwrap().strip_prefix("child: ")?.to_owned())).unwrap();
    let (child, run) = told.split_once(' ').unwrap();
    process.wait().unwrap();
    let storage = open(&file);
    storage.pass().await.unwrap();
    let status = storage.execution(ORG, run.parse().unwrap()).await.unwrap().status;
    // SAFETY: ends the child that was made for this test; its parent is gone, so nobody else takes its number before.
    unsafe { libc::kill(child.parse().unwrap(), libc::SIGKILL) };
    assert_eq!(status, Status::Pending);
}

/// Neither writes nor reads are answered from files that are not at their path.
async fn is_refused(storage: &SqliteStorage, known: ExecutionId, word: &str) {
    let wrote = try_start(storage).await.unwrap_err();
    let read = storage.execution(ORG, known).await.unwrap_err();
    let again = try_start(storage).await.unwrap_err();
    for error in [&wrote, &read, &again] {
        assert_eq!(error.code(), Code::StorageUnavailable, "{error}");
        assert!(error.is_retryable(), "{error}");
    }
    for error in [&wrote, &again] {
        assert!(error.message().contains(word), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_removed_file_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    std::fs::remove_file(&file).unwrap();
    is_refused(&storage, run, "no longer there").await;
    storage.close();
    assert!(!file.exists(), "a database was made where one was removed");
}

#[cfg(unix)]
#[tokio::test]
async fn a_removed_log_is_folded_in_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    std::fs::remove_file(log_of(&file)).unwrap();
    let next = start_again(&storage).await;
    assert_eq!(storage.execution(ORG, run).await.unwrap().status, Status::Pending);
    another_process(&file, &[run, next]);
}

/// Of two that lost the same log, the one that is left alone folds it in; the other follows.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_lost_the_same_log_goes_on_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let (one, other) = (open(&file), open(&file));
    let first = start(&one).await;
    std::fs::remove_file(log_of(&file)).unwrap();
    let (one_more, another) = futures::join!(start_again(&one), start_again(&other));
    for storage in [&one, &other] {
        for run in [first, one_more, another] {
            assert_eq!(storage.execution(ORG, run).await.unwrap().status, Status::Pending);
        }
    }
    another_process(&file, &[first, one_more, another]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_replaced_log_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    std::fs::remove_file(log_of(&file)).unwrap();
    std::fs::write(log_of(&file), b"").unwrap();
    is_refused(&storage, run, "").await;
    storage.close();
}

#[cfg(unix)]
#[tokio::test]
async fn a_renamed_folder_is_gone_on_with_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    let file = here.join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    std::fs::rename(&here, &there).unwrap();
    is_refused(&storage, run, "no longer there").await;
    std::fs::rename(&there, &here).unwrap();
    let next = start_again(&storage).await;
    assert_eq!(storage.execution(ORG, run).await.unwrap().status, Status::Pending);
    storage.close();
    another_process(&file, &[run, next]);
}

#[cfg(unix)]
#[tokio::test]
async fn another_database_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("runs.db"), folder.path().join("other.db"));
    let theirs = open(&other);
    let other_run = start(&theirs).await;
    theirs.close();
    let storage = open(&file);
    let run = start(&storage).await;
    for name in [log_of(&file), memory_of(&file)] {
        std::fs::remove_file(name).unwrap();
    }
    std::fs::rename(&other, &file).unwrap();
    is_refused(&storage, run, "replaced").await;
    storage.close();
    another_process(&file, &[other_run]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_copy_with_everything_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("runs.db"), folder.path().join("copy.db"));
    let storage = open(&file);
    let run = start(&storage).await;
    let beside = rusqlite::Connection::open(&file).unwrap();
    beside.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    drop(beside);
    for name in [log_of(&file), memory_of(&file)] {
        std::fs::remove_file(name).unwrap();
    }
    std::fs::rename(&copy, &file).unwrap();
    let next = start_again(&storage).await;
    assert_eq!(storage.execution(ORG, run).await.unwrap().status, Status::Pending);
    storage.close();
    another_process(&file, &[run, next]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_copied_over_the_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("runs.db"), folder.path().join("other.db"));
    let theirs = open(&other);
    start(&theirs).await;
    theirs.close();
    let storage = open(&file);
    let run = start(&storage).await;
    for _ in 0..200 {
        start(&storage).await;
    }
    // Most of it is in the file alone: the log does not have it.
    let beside = rusqlite::Connection::open(&file).unwrap();
    while beside.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)).unwrap() != 0 {}
    drop(beside);
    start(&storage).await;
    // Else all of it would be one moment to the file's clock.
    tokio::time::sleep(Duration::from_millis(50)).await;
    std::fs::write(&file, std::fs::read(&other).unwrap()).unwrap();
    assert_eq!(try_start(&storage).await.unwrap_err().code(), Code::StorageUnavailable);
    // For longer than it takes to try the database at the path again: that attempt removes the log.
    let until = std::time::Instant::now() + Duration::from_secs(3);
    while std::time::Instant::now() < until {
        let error = try_start(&storage).await.unwrap_err();
        assert!(error.message().contains("written over"), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(storage.execution(ORG, run).await.is_err());
    storage.close();
}

#[cfg(target_os = "linux")]
/// Another program that folds the log again and again is not taken for one that copies something over the database.
#[tokio::test(flavor = "multi_thread")]
async fn who_folds_the_log_writes_over_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let other = rusqlite::Connection::open(&file).unwrap();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other.execute_batch("PRAGMA synchronous = OFF; CREATE TABLE other (bytes BLOB)").unwrap();
    let folds = std::thread::spawn({
        let ended = ended.clone();
        move || {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                other.execute_batch("INSERT INTO other VALUES (randomblob(20000000))").unwrap();
                other.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
                other.execute_batch("DELETE FROM other").unwrap();
            }
        }
    });
    let until = std::time::Instant::now() + Duration::from_secs(4);
    let mut refused = Ok(ExecutionId::fresh());
    while refused.is_ok() && std::time::Instant::now() < until {
        refused = try_start(&storage).await;
    }
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    folds.join().unwrap();
    refused.unwrap();
}

#[tokio::test]
async fn a_file_that_was_only_touched_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    let touched = std::fs::File::options().write(true).open(&file).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let next = start_again(&storage).await;
    another_process(&file, &[run, next]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn shared_memory_that_was_cut_off_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    std::fs::File::options().write(true).open(memory_of(&file)).unwrap().set_len(0).unwrap();
    if let Err(error) = storage.execution(ORG, run).await {
        assert_eq!(error.code(), Code::StorageUnavailable, "{error}");
    }
    let next = start_again(&storage).await;
    another_process(&file, &[run, next]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_mount_that_vanished_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(folder.path()).output();
    if !mounted.is_ok_and(|done| done.status.success()) {
        eprintln!("this user may mount no RAM disk");
        return;
    }
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let run = start(&storage).await;
    // As good as full: a backup is refused, and nothing of it stays.
    let filler = folder.path().join("filler");
    let full = std::fs::write(&filler, vec![0; 16 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let copy = folder.path().join("copy.db");
    let error = storage.backup(&copy).await.unwrap_err();
    assert!(error.code() == Code::StorageUnavailable && error.message().contains("full"), "{error}");
    std::fs::remove_file(&filler).unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names().all(|name| name.to_string_lossy().starts_with("runs.db")), "{:?}", names().collect::<Vec<_>>());
    start(&storage).await;
    assert!(Command::new("umount").arg("-l").arg(folder.path()).status().unwrap().success());
    is_refused(&storage, run, "no longer there").await;
    storage.close();
    assert!(!file.exists(), "a database was made where one vanished");
}

#[tokio::test]
async fn a_backup_is_a_database_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("runs.db"), folder.path().join("copy.db"));
    let storage = open(&file);
    let run = start(&storage).await;
    let size = storage.backup(&copy).await.unwrap();
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), size);
    let later = start(&storage).await;
    another_process(&copy, &[run]);
    let before = std::fs::read(&copy).unwrap();
    for taken in [&copy, &file] {
        let error = storage.backup(taken).await.unwrap_err();
        assert!(error.code() == Code::InvalidArgument && error.message().contains("already"), "{error}");
    }
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    let nowhere = storage.backup(&folder.path().join("no/copy.db")).await.unwrap_err();
    assert!(nowhere.code() == Code::InvalidArgument && nowhere.message().contains("folder"), "{nowhere}");
    storage.close();
    assert_eq!(storage.backup(&folder.path().join("late.db")).await.unwrap_err().code(), Code::StorageUnavailable);
    let copied = open(&copy);
    assert_eq!(copied.execution(ORG, run).await.unwrap().status, Status::Pending);
    assert_eq!(copied.execution(ORG, later).await.unwrap_err().code(), Code::ExecutionNotFound);
    let next = start(&copied).await;
    copied.close();
    another_process(&copy, &[run, next]);
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')), "something was left");
}

#[tokio::test]
async fn another_backend_says_how_to_back_it_up() {
    let storage = flovyn_core::storage::memory::MemoryStorage::new(Arc::new(SystemClock::default()));
    let error = storage.backup(Path::new("copy.db")).await.unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("pg_dump"), "{error}");
    assert!(!Path::new("copy.db").exists());
}
