//! What only a file can suffer: death of its process, a full disk, other writers, damage, and wrong places.

use flovyn_core::Payload;
use flovyn_core::error::{Code, Result};
use flovyn_core::id::{ExecutionId, OpId, OrgId, RequestId, Slot, TaskId, WorkerId};
use flovyn_core::model::{
    AttemptReport, AttemptResult, Batch, BatchEnd, Claim, CommitRequest, Label, LabelKey, NewExecution, NewKey, NewOp,
    NewTask, OpBody, OpKind, PageRequest, Placement, Status, TaskOptions, TaskStatus, TokenHash,
};
use flovyn_core::payload::{Body, Digest};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage, Synchronous};
use flovyn_core::storage::{
    AgentStorage, Catalog, ClaimRequest, Directory, Housekeeping, Only, Storage, WorkSource, WorkerInfo,
};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ORG: OrgId = OrgId::DEFAULT;

fn open(file: &Path) -> SqliteStorage {
    SqliteStorage::open(file, SqliteOptions::default()).unwrap()
}

async fn start(storage: &SqliteStorage) -> ExecutionId {
    let new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::of("go").unwrap()).unwrap();
    storage.create_execution(new).await.unwrap().execution.new.id
}

async fn claim_as(storage: &SqliteStorage, worker: WorkerId, only: Option<ExecutionId>) -> Vec<Claim> {
    let kinds: Arc<[String]> = Arc::from(vec!["agent".to_owned()]);
    let ttl = Duration::from_secs(30);
    storage
        .claim_agents(ClaimRequest {
            org: ORG,
            worker,
            queue: "default".into(),
            kinds,
            limit: 1,
            ttl,
            only: only.map(Only::Run),
        })
        .await
        .unwrap()
}

async fn held(storage: &SqliteStorage) -> Claim {
    let id = start(storage).await;
    claim_as(storage, WorkerId::fresh(), Some(id)).await.remove(0)
}

fn batch(ops: Vec<NewOp>, attempts: Vec<AttemptReport>, end: BatchEnd) -> Batch {
    Batch { attempts, ..Batch::new(0, ops, end) }
}

fn request(claim: &Claim, base: u64, batch: Batch) -> CommitRequest {
    CommitRequest {
        org: ORG,
        execution: claim.execution.new.id,
        lease: claim.lease,
        request_id: RequestId::fresh(),
        digest: Digest([1; 16]),
        base,
        known: u64::MAX >> 34,
        batch,
        refused: Vec::new(),
        local: None,
    }
}

/// A task that was run by the agent's own worker and has its result.
fn step(claim: &Claim, n: u32, output: Payload) -> CommitRequest {
    let id = OpId { execution: claim.execution.new.id, slot: Slot { segment: 0, sequence: n }, once: None }.uuid();
    let task = NewTask {
        id: TaskId(id),
        kind: "step".into(),
        queue: "default".into(),
        input: Payload::null(),
        options: TaskOptions::default(),
        placement: Placement::Inline,
        entry: None,
    };
    let label = Label { kind: OpKind::Task, name: "step".into(), key: LabelKey::Digest(Digest([7; 16])) };
    let op = NewOp { sequence: n, once: None, label, seen: vec![], body: OpBody::Task(task) };
    let result = AttemptResult::Completed(output);
    let end = AttemptReport { sequence: n, attempt: 1, result, duration: Duration::ZERO, ended_at: None };
    request(claim, u64::from(n), batch(vec![op], vec![end], BatchEnd::Continue))
}

/// Every commit that was acknowledged is there in full, and the file is sound.
async fn check(file: &Path, id: ExecutionId, acknowledged: u32) {
    let storage = open(file);
    let tasks = storage.journal(ORG, id, 0).await.unwrap();
    assert!(tasks.len() >= acknowledged as usize, "{} of {acknowledged} steps are there", tasks.len());
    assert!(tasks.iter().enumerate().all(|(n, op)| op.sequence as usize == n));
    let events = storage.events(ORG, id, 0, usize::MAX).await.unwrap();
    assert!(events.iter().enumerate().all(|(n, event)| event.number == n as u64 + 1));
    storage.close();
    let connection = rusqlite::Connection::open(file).unwrap();
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

/// Runs one of the tests that write in a process of its own, where it goes on until it is killed.
fn child(name: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("FLOVYN_CHILD_FILE", file)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// The file of the parent and no end, in a process of its own; else a file of this test's and a few rounds.
fn file_and_rounds(folder: &tempfile::TempDir) -> (PathBuf, u32) {
    match std::env::var_os("FLOVYN_CHILD_FILE") {
        Some(file) => (file.into(), u32::MAX),
        None => (folder.path().join("runs.db"), 20),
    }
}

/// The next line a child tells after a word.
fn told(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Option<String> {
    lines.find_map(|line| line.ok()?.split_once(word).map(|(_, rest)| rest.trim().to_owned()))
}

#[tokio::test]
async fn a_process_commits_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rounds) = file_and_rounds(&folder);
    let storage = open(&file);
    let worker = WorkerId::fresh();
    let name = "child".to_owned();
    storage.register_worker(WorkerInfo { org: ORG, id: worker, name, queues: vec![], elsewhere: false }).await.unwrap();
    let id = start(&storage).await;
    let claim = claim_as(&storage, worker, Some(id)).await.remove(0);
    println!("\nrun: {id}");
    for n in 0..rounds {
        storage.commit(step(&claim, n, Payload::of(&n).unwrap())).await.unwrap();
        println!("kept: {n}");
        std::io::stdout().flush().unwrap();
    }
    storage.close();
    check(&file, id, rounds).await;
}

#[tokio::test]
async fn a_process_starts_runs_all_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rounds) = file_and_rounds(&folder);
    let storage = open(&file);
    println!("\nwrites: yes");
    for _ in 0..rounds {
        let id = start(&storage).await;
        assert_eq!(storage.execution(ORG, id).await.unwrap().status, Status::Pending);
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_with_the_process() {
    for round in 1..=4 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.db");
        let mut child = child("a_process_commits_step_by_step", &file);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let id: ExecutionId = told(&mut lines, "run: ").unwrap().parse().unwrap();
        let mut kept = 0;
        while kept < 40 * round {
            kept = told(&mut lines, "kept: ").unwrap().parse::<u32>().unwrap() + 1;
        }
        child.kill().unwrap();
        while let Some(more) = told(&mut lines, "kept: ") {
            kept = more.parse::<u32>().unwrap() + 1;
        }
        child.wait().unwrap();
        check(&file, id, kept).await;
    }
}

#[tokio::test]
async fn the_next_process_goes_on_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let mut child = child("a_process_commits_step_by_step", &file);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let id: ExecutionId = told(&mut lines, "run: ").unwrap().parse().unwrap();
    told(&mut lines, "kept: ").unwrap();
    let storage = open(&file);
    // While it lives, its lease holds, and the next look is soon.
    let next = storage.pass().await.unwrap().unwrap();
    let now = storage.clock().now();
    assert!(next.since(now) <= Duration::from_millis(40), "{:?}", next.since(now));
    assert!(claim_as(&storage, WorkerId::fresh(), Some(id)).await.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    let claim = loop {
        let next = storage.pass().await.unwrap();
        if let Some(claim) = claim_as(&storage, WorkerId::fresh(), Some(id)).await.pop() {
            break claim;
        }
        assert!(killed.elapsed() < Duration::from_secs(10), "the run of a dead process was not taken over");
        let pause = next.map_or(Duration::from_millis(40), |next| next.since(storage.clock().now()));
        tokio::time::sleep(pause.min(Duration::from_millis(40))).await;
    };
    assert_eq!((claim.lease.epoch, claim.execution.losses), (2, 1));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_database_is_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let held = || {
        let open =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let ours = [file.clone(), file.with_extension("db-wal"), file.with_extension("db-shm")];
        open.filter(|path| ours.contains(path)).count()
    };
    for _ in 0..20 {
        let storage = open(&file);
        start(&storage).await;
        assert!(held() > 0);
        storage.close();
        assert_eq!(held(), 0, "whoever closes a database may move its file away");
    }
}

#[tokio::test]
async fn processes_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let claim = held(&storage).await;
    let mut others: Vec<_> = (0..2).map(|_| child("a_process_starts_runs_all_the_time", &file)).collect();
    for other in &mut others {
        told(&mut BufReader::new(other.stdout.take().unwrap()).lines(), "writes: ").unwrap();
    }
    let mut waits = Vec::new();
    for n in 0..200 {
        let at = Instant::now();
        storage.commit(step(&claim, n, Payload::null())).await.unwrap();
        waits.push(at.elapsed());
    }
    for mut other in others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    waits.sort_unstable();
    assert!(waits[100] < Duration::from_secs(1), "half of the commits waited over {:?}", waits[100]);
    assert!(waits[199] < Duration::from_secs(10), "a commit waited {:?}", waits[199]);
}

#[tokio::test]
async fn another_process_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let (here, there) = (open(&file), open(&file));
    let id = start(&here).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let mut watch = here.hints().watch(OrgId::DEFAULT, id);
    claim_as(&there, WorkerId::fresh(), Some(id)).await;
    tokio::time::timeout(Duration::from_secs(20), watch.changed()).await.expect("a write elsewhere is a hint here");
    assert_eq!(here.execution(ORG, id).await.unwrap().status, Status::Running);
}

#[tokio::test]
async fn a_held_lock_is_waited_for_and_then_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(100), ..SqliteOptions::default() };
    let storage = SqliteStorage::open(&file, options).unwrap();
    let claim = held(&storage).await;
    let tool = rusqlite::Connection::open(&file).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = step(&claim, 0, Payload::null());
    let error = storage.commit(first.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::StorageUnavailable);
    assert!(error.is_retryable() && error.message().contains("lock"), "{error}");
    // Reads go on meanwhile.
    assert_eq!(storage.execution(ORG, claim.execution.new.id).await.unwrap().base, 0);
    tool.execute_batch("COMMIT").unwrap();
    assert_eq!(storage.commit(first).await.unwrap().number, 1);
}

#[tokio::test]
async fn a_database_opens_while_somebody_holds_its_write_lock() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let id = start(&open(&file)).await;
    let tool = rusqlite::Connection::open(&file).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let options = SqliteOptions { busy_timeout: Duration::from_millis(100), ..SqliteOptions::default() };
    let storage = SqliteStorage::open(&file, options).unwrap();
    assert_eq!(storage.execution(ORG, id).await.unwrap().status, Status::Pending);
}

/// A small RAM disk, where this user may mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Disk {
    /// A copy of a file on this disk, which takes no more writes from now on.
    fn read_only_copy(&self, file: &Path) -> PathBuf {
        let copy = self.0.path().join("runs.db");
        std::fs::copy(file, &copy).unwrap();
        let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(self.0.path()).status().unwrap();
        assert!(remounted.success());
        copy
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let Some(disk) = Disk::new("6m") else {
        eprintln!("this user may mount no RAM disk that can be filled");
        return;
    };
    let file = disk.0.path().join("runs.db");
    let filler = disk.0.path().join("filler");
    std::fs::write(&filler, vec![0; 1 << 20]).unwrap();
    let storage = open(&file);
    let claim = held(&storage).await;
    let output = || Payload::json(format!("\"{}\"", "x".repeat(4000)));
    let mut kept = 0;
    let refused = loop {
        let request = step(&claim, kept, output());
        match storage.commit(request.clone()).await {
            Ok(_) => kept += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::StorageUnavailable, "{error:?}");
                break request;
            }
        }
        assert!(kept < 10_000, "the disk never filled");
    };
    // Reads go on, and what was acknowledged is there.
    let tasks = storage.journal(ORG, claim.execution.new.id, 0).await.unwrap();
    assert_eq!(tasks.len() as u32, kept);
    assert_eq!(storage.commit(refused.clone()).await.unwrap_err().code(), Code::StorageUnavailable);
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(storage.commit(refused).await.unwrap().number, u64::from(kept) + 1);
    storage.close();
    check(&file, claim.execution.new.id, kept + 1).await;
}

fn refused(result: Result<SqliteStorage>) -> (Code, String) {
    match result {
        Ok(_) => panic!("it was opened"),
        Err(error) => (error.code(), error.message().to_owned()),
    }
}

#[tokio::test]
async fn wrong_places_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::default;
    let (code, message) = refused(SqliteStorage::open(folder.path(), options()));
    assert!(code == Code::InvalidArgument && message.contains("folder"), "{message}");
    let (code, message) = refused(SqliteStorage::open(folder.path().join("no/runs.db"), options()));
    assert!(code == Code::InvalidArgument && message.contains("does not exist"), "{message}");
    let noise = folder.path().join("noise.db");
    std::fs::write(&noise, vec![0x5a; 40_000]).unwrap();
    let (code, message) = refused(SqliteStorage::open(&noise, options()));
    assert!(code == Code::CorruptCheckpoint && message.contains("not a database"), "{message}");
    let theirs = folder.path().join("theirs.db");
    rusqlite::Connection::open(&theirs).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert_eq!(refused(SqliteStorage::open(&theirs, options())).0, Code::InvalidArgument);
    let newer = folder.path().join("newer.db");
    open(&newer).close();
    rusqlite::Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    assert_eq!(refused(SqliteStorage::open(&newer, options())).0, Code::SchemaTooNew);
}

#[tokio::test]
async fn a_read_only_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    open(&file).close();
    let mut permissions = std::fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&file, permissions).unwrap();
    // Some users may write whatever its permissions are, but not to a disk that takes no writes.
    let disk = std::fs::File::options().write(true).open(&file).is_ok().then(|| Disk::new("8m").expect("a RAM disk"));
    let file = match &disk {
        Some(disk) => disk.read_only_copy(&file),
        None => file,
    };
    let (code, message) = refused(SqliteStorage::open(&file, SqliteOptions::default()));
    assert!(code == Code::InvalidArgument && message.contains("writable"), "{message}");
}

#[tokio::test]
async fn what_was_closed_is_there_when_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let options = SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::default() };
    let storage = SqliteStorage::open(&file, options).unwrap();
    let claim = held(&storage).await;
    let id = claim.execution.new.id;
    storage.commit(step(&claim, 0, Payload::of("kept").unwrap())).await.unwrap();
    storage.close();
    assert_eq!(storage.execution(ORG, id).await.unwrap_err().code(), Code::StorageUnavailable);
    let error = storage.commit(step(&claim, 1, Payload::null())).await.unwrap_err();
    assert_eq!(error.code(), Code::StorageUnavailable);
    drop(storage);
    let storage = open(&file);
    let tasks = storage.tasks(ORG, id, PageRequest::default()).await.unwrap().items;
    assert_eq!(tasks.len(), 1);
    assert_eq!((tasks[0].status, &tasks[0].output), (TaskStatus::Completed, &Some(Payload::of("kept").unwrap())));
}

#[tokio::test]
async fn a_log_with_room_behind_its_last_frame_is_read_to_its_last_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("agents.db"), folder.path().join("copy.db"));
    let storage = open(&file);
    let claim = held(&storage).await;
    for n in 0..40 {
        storage.commit(step(&claim, n, Payload::of(&n).unwrap())).await.unwrap();
    }
    // What a power cut leaves: the file and its log as they are, no shared memory.
    let log = std::fs::read(folder.path().join("agents.db-wal")).unwrap();
    assert!(log.ends_with(&[0; 4096]), "the log has no room ahead");
    std::fs::copy(&file, &copy).unwrap();
    std::fs::write(folder.path().join("copy.db-wal"), log).unwrap();
    check(&copy, claim.execution.new.id, 40).await;
}

/// A step costs the page of its task and that of its event, and now and then a new one.
#[tokio::test]
async fn a_step_writes_two_pages() {
    const STEPS: u32 = 200;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let storage = open(&file);
    let claim = held(&storage).await;
    let beside = rusqlite::Connection::open(&file).unwrap();
    let frames = || beside.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, f64>(1)).unwrap();
    // What the making of the file and of the run wrote is no step's.
    frames();
    let mut total = 0.0;
    for n in 0..STEPS {
        storage.commit(step(&claim, n, Payload::of(&n).unwrap())).await.unwrap();
        total += frames();
    }
    let each = total / f64::from(STEPS);
    println!("{each:.2} pages a step");
    assert!(each < 2.6, "{each:.2} pages a step");
}

#[tokio::test]
async fn what_is_done_to_keys_is_audited() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let storage = open(&file);
    let org = storage.create_organization("otters", "ann").await.unwrap().id;
    storage.create_organization("otters", "ann").await.unwrap();
    let (scopes, hash) = ("viewer".parse().unwrap(), TokenHash::of("fk_secret"));
    let new = NewKey { org, name: "ci".into(), scopes, expires_in: None, not_after: None, hash, actor: "ben".into() };
    let key = storage.create_key(new).await.unwrap().id;
    for _ in 0..2 {
        storage.revoke_key(org, key, "cy").await.unwrap();
    }
    let beside = rusqlite::Connection::open(&file).unwrap();
    let mut rows = beside.prepare("SELECT actor, action, subject FROM audit ORDER BY id").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let rows: Vec<(String, String, String)> = rows.collect::<rusqlite::Result<_>>().unwrap();
    let done = |actor: &str, action: &str, subject: &str| (actor.to_owned(), action.to_owned(), subject.to_owned());
    let key = key.to_string();
    assert_eq!(
        rows,
        [
            done("ann", "organization.created", "otters"),
            done("ben", "key.created", &key),
            done("cy", "key.revoked", &key)
        ]
    );
}

#[tokio::test]
async fn many_processes_may_make_a_file_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let opens: Vec<_> = (0..8)
        .map(|_| {
            let file = file.clone();
            std::thread::spawn(move || open(&file))
        })
        .collect();
    for open in opens {
        start(&open.join().unwrap()).await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_forked_process_is_told_to_open_its_own() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    let folder = tempfile::tempdir().unwrap();
    let storage = open(&folder.path().join("runs.db"));
    let id = start(&storage).await;
    // SAFETY: the child only polls a future that is ready at once, then leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut read = std::pin::pin!(storage.execution(ORG, id));
        let answer = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let told = matches!(&answer, Poll::Ready(Err(error)) if error.code() == Code::ForkedProcess);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if told { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child was served");
    assert_eq!(storage.execution(ORG, id).await.unwrap().status, Status::Pending);
}

#[tokio::test]
async fn a_damaged_payload_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let storage = open(&file);
    let text = Payload::json(format!("\"{}\"", "all the same ".repeat(200_000)));
    let new = NewExecution::new(ExecutionId::fresh(), "agent", text.clone()).unwrap();
    let stored = storage.create_execution(new).await.unwrap().execution.new.input;
    assert!(matches!(stored.body, Body::Stored { .. }));
    assert_eq!(&storage.read_payload(ORG, &stored).await.unwrap(), text.bytes().unwrap());
    let tool = rusqlite::Connection::open(&file).unwrap();
    let pieces: i64 = tool.query_row("SELECT sum(length(data)) FROM payload_piece", [], |row| row.get(0)).unwrap();
    assert!(pieces < 100_000, "{pieces} bytes for 2.6 MB that repeat");
    tool.execute_batch("UPDATE payload_piece SET data = zeroblob(length(data)) WHERE key & 1048575 = 1").unwrap();
    assert_eq!(storage.read_payload(ORG, &stored).await.unwrap_err().code(), Code::CorruptCheckpoint);
    tool.execute_batch("DELETE FROM payload_piece WHERE key & 1048575 = 1").unwrap();
    assert_eq!(storage.read_payload(ORG, &stored).await.unwrap_err().code(), Code::CorruptCheckpoint);
}

#[tokio::test]
async fn one_bad_command_does_not_fail_its_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(&folder.path().join("runs.db"));
    let mut claims = Vec::new();
    for _ in 0..20 {
        claims.push(held(&storage).await);
    }
    let commits = claims.iter().enumerate().map(|(n, claim)| {
        let mut request = step(claim, 0, Payload::null());
        if n % 5 == 0 {
            // Named by no stored payload: refused after its first write.
            let body = Body::Stored { hash: flovyn_core::payload::ContentHash([9; 32]), size: 10_000 };
            let output = Payload { encoding: flovyn_core::payload::Encoding::Raw, body };
            request.batch.end = BatchEnd::Complete(output);
        }
        storage.commit(request)
    });
    let answers = futures::future::join_all(commits).await;
    for (n, answer) in answers.into_iter().enumerate() {
        match n % 5 {
            0 => assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument),
            _ => assert_eq!(answer.unwrap().number, 1),
        }
    }
    let untouched = storage.journal(ORG, claims[0].execution.new.id, 0).await.unwrap();
    assert!(untouched.is_empty());
}
