//! What values cost: in the file, and in memory.

use async_trait::async_trait;
use flovyn_core::clock::ManualClock;
use flovyn_core::model::{AttemptResult, BatchEnd, TaskOptions};
use flovyn_core::storage::conformance::rig::{Rig, ended, json};
use flovyn_core::storage::conformance::{Factory, Subject};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use std::sync::Arc;

struct Sqlite;

#[async_trait]
impl Factory for Sqlite {
    async fn open(&self, clock: ManualClock) -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
        let storage = Arc::new(SqliteStorage::open(folder.path().join("runs.db"), options).unwrap());
        Subject { storage, keeper: None, corrupt: None, keep: Some(Box::new(folder)) }
    }
}

/// The bytes that entries hold themselves.
fn entry_bytes(rig: &Rig) -> i64 {
    let file = rig.storage.describe();
    let tool = rusqlite::Connection::open(file.strip_prefix("sqlite:").unwrap()).unwrap();
    tool.query_row("SELECT coalesce(sum(octet_length(content)), 0) FROM agent_entry", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn what_a_task_gave_is_stored_once() {
    let rig = Rig::new(&Sqlite).await;
    let mut holder = rig.running().await;
    // Answers that compress, answers that do not, across checkpoints.
    for n in 0..20u64 {
        let noise = format!("{:?}", blake3::hash(&n.to_le_bytes()));
        let answer =
            if n % 2 == 0 { noise.repeat(8) } else { noise.chars().chain("and so on ".repeat(300).chars()).collect() };
        let sequence = holder.next;
        let task = holder.inline(TaskOptions::default());
        let mut batch = holder.batch(vec![task], BatchEnd::Continue);
        batch.attempts.push(ended(sequence, 1, AttemptResult::Completed(json(&answer))));
        holder.commit_batch(batch).await;
        let entry = holder.entry(&answer);
        holder.checkpoint(vec![entry], json(&n)).await;
    }
    assert_eq!(entry_bytes(&rig), 0);
    // What no task gave is stored with the entry.
    let entry = holder.entry(&"what the user said ".repeat(50));
    holder.commit(vec![entry]).await;
    assert!(entry_bytes(&rig) > 10);
}

#[cfg(target_os = "linux")]
mod memory {
    //! A value is in memory once: in the hands of who made it. Every size is measured in a process of its own.

    use async_trait::async_trait;
    use flovyn_core::Payload;
    use flovyn_core::agent::{AgentDefinition, NativeHost};
    use flovyn_core::client::StartOptions;
    use flovyn_core::context::{AgentContext, AgentContextExt};
    use flovyn_core::journal::Outcome;
    use flovyn_core::model::{Delivery, Status};
    use flovyn_core::payload::{Body, ByteSource};
    use flovyn_core::runtime::Runtime;
    use flovyn_core::worker::WorkerOptions;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    /// Noise that is made where it is read.
    struct Noise(u64);

    impl ByteSource for Noise {
        fn size(&self) -> u64 {
            self.0
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
            let mut noise = blake3::Hasher::new().finalize_xof();
            noise.set_position(offset);
            noise.fill(into);
            Ok(())
        }
    }

    fn status(line: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        found.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    struct Large(Payload);

    #[async_trait]
    impl AgentDefinition for Large {
        type State = ();
        type Input = ();
        type Output = u64;

        fn kind(&self) -> &str {
            "large"
        }

        async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> flovyn_core::Result<u64> {
            let output = self.0.clone();
            match ctx.run_raw("make", Box::pin(async move { Ok(output) }))?.await? {
                // What is handed over is the value, or where to read it.
                Outcome::Value(value) => {
                    let end = value.size() - 16;
                    let last = match (&value.body, &self.0.body) {
                        (Body::Source(source), Body::Source(given)) => {
                            let given = given.piece(end, 16).unwrap();
                            (source.piece(end, 16).unwrap(), given)
                        }
                        _ => (value.bytes()?.slice(end as usize..), self.0.bytes()?.slice(end as usize..)),
                    };
                    assert_eq!(last.0, last.1);
                    Ok(value.size())
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Stores a value of a form and a size as a step's output; prints how far the memory grew.
    #[test]
    #[ignore = "a child of the others"]
    fn child_stores_a_large_value() {
        let Ok(asked) = std::env::var("FLOVYN_CHILD_VALUE") else { return };
        let (form, size) = asked.split_once(' ').unwrap();
        let size: u64 = size.parse().unwrap();
        let mut bytes = vec![b'x'; if form == "blob" { 0 } else { size as usize }];
        if let Some((last, rest)) = bytes.split_last_mut() {
            Noise(size).read_at(0, rest).unwrap();
            rest.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
            (rest[0], *last) = (b'"', b'"');
        }
        let output = match form {
            "json" => Payload::json(bytes),
            "raw" => Payload::raw(bytes),
            _ => Payload::blob(Arc::new(Noise(size))),
        };
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("runs.db").display());
        let work = async {
            let runtime = Runtime::open(&url).await.unwrap();
            let host = NativeHost::default().agent(Large(output)).unwrap();
            let _worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
            std::fs::write("/proc/self/clear_refs", "5").unwrap();
            let before = status("VmRSS:");
            let handle = runtime.client().start("large", Payload::null(), StartOptions::default()).await.unwrap();
            assert_eq!(handle.result(None).await.unwrap().parse::<u64>().unwrap(), size);
            println!("grown={}", status("VmHWM:").saturating_sub(before));
            runtime.close().await.unwrap();
        };
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work);
    }

    #[test]
    fn a_large_output_is_in_memory_once() {
        for form in ["raw", "json", "blob"] {
            for size in [48 * MIB, 96 * MIB] {
                let child = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "memory::child_stores_a_large_value", "--ignored", "--nocapture"])
                    .env("FLOVYN_CHILD_VALUE", format!("{form} {size}"))
                    .output()
                    .unwrap();
                let told = String::from_utf8_lossy(&child.stdout).into_owned();
                let grown = told.split_once("grown=").and_then(|(_, rest)| rest.split_whitespace().next());
                let grown: u64 = grown.unwrap_or_else(|| panic!("{told}{child:?}")).parse().unwrap();
                assert!(grown < 32 * MIB, "{form} of {} MiB: {} MiB more", size / MIB, grown / MIB);
            }
        }
    }

    /// An agent without state that makes many values, then waits for a word.
    struct Long {
        steps: u64,
        made: Arc<AtomicU64>,
    }

    /// A text of 8,000 bytes that does not compress well, by number.
    fn text(n: u64) -> Vec<u8> {
        let mut bytes = vec![0; 8_000];
        Noise(u64::MAX).read_at(n * 8_000, &mut bytes).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
        (bytes[0], bytes[7_999]) = (b'"', b'"');
        bytes
    }

    #[async_trait]
    impl AgentDefinition for Long {
        type State = ();
        type Input = ();
        type Output = u64;

        fn kind(&self) -> &str {
            "long"
        }

        async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> flovyn_core::Result<u64> {
            let mut right = 0;
            for n in 0..self.steps {
                let made = self.made.clone();
                let make = async move {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(Payload::json(text(n)))
                };
                match ctx.run_raw("make", Box::pin(make))?.await? {
                    Outcome::Value(value) => right += u64::from(value.bytes()?[..] == text(n)),
                    other => panic!("{other:?}"),
                }
            }
            ctx.wait_for_signal::<u64>("go")?.await?;
            Ok(right)
        }
    }

    /// Makes a long tail in one life and recovers it in another; prints how far the memory grew in each.
    #[test]
    #[ignore = "a child of the others"]
    fn child_replays_a_long_tail() {
        let Ok(steps) = std::env::var("FLOVYN_CHILD_STEPS") else { return };
        let steps: u64 = steps.parse().unwrap();
        let ram = std::path::Path::new("/dev/shm");
        let folder = if ram.is_dir() { tempfile::tempdir_in(ram) } else { tempfile::tempdir() }.unwrap();
        let url = format!("sqlite:{}", folder.path().join("runs.db").display());
        let made = Arc::new(AtomicU64::new(0));
        let work = async {
            for life in ["made", "replayed"] {
                let runtime = Runtime::open(&url).await.unwrap();
                let agent = Long { steps, made: made.clone() };
                let host = NativeHost::default().agent(agent).unwrap();
                std::fs::write("/proc/self/clear_refs", "5").unwrap();
                let before = status("VmRSS:");
                let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
                let options = StartOptions::with_id("long");
                let handle = runtime.client().start("long", Payload::null(), options).await.unwrap();
                if life == "made" {
                    while handle.status().await.unwrap() != Status::Waiting {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                } else {
                    handle.signal("go", Payload::of(&1).unwrap(), Delivery::NextStep, None).await.unwrap();
                    assert_eq!(handle.result(None).await.unwrap().parse::<u64>().unwrap(), steps);
                }
                println!("{life}={}", status("VmHWM:").saturating_sub(before));
                worker.kill();
                runtime.close().await.unwrap();
            }
            assert_eq!(made.load(Ordering::Relaxed), steps);
        };
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work);
    }

    /// What a tail's steps have given is in its rows, and in memory a page at a time.
    #[test]
    fn a_long_tail_is_in_memory_a_page_at_a_time() {
        const STEPS: u64 = 12_000;
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory::child_replays_a_long_tail", "--ignored", "--nocapture"])
            .env("FLOVYN_CHILD_STEPS", STEPS.to_string())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout).into_owned();
        for life in ["made=", "replayed="] {
            let grown = told.split_once(life).and_then(|(_, rest)| rest.split_whitespace().next());
            let grown: u64 = grown.unwrap_or_else(|| panic!("{told}{child:?}")).parse().unwrap();
            assert!(grown < 48 * MIB, "{life}{} MiB of {} MiB", grown / MIB, STEPS * 8_000 / MIB);
        }
    }
}
