//! Our measured programs in one binary, `flovyn-benches PROGRAM [ARGUMENT]…`, and what they share: the directory,
//! percentiles, memory and CPU of the process, the line they print.

mod conversation;
mod payload;
mod programs;
mod waiting;

use flovyn_core::agent::NativeHost;
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::{Worker, WorkerOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The error of a measured program.
pub type Failure = Box<dyn std::error::Error>;

/// The directory the runner made for this sample, on the medium being measured.
pub fn directory() -> PathBuf {
    std::env::var_os("BENCH_DIR").map_or_else(|| std::env::current_dir().unwrap_or_default(), PathBuf::from)
}

/// Opens what the runner started (`BENCH_URL`), else the sample's database.
pub async fn open(file: &str) -> flovyn_core::Result<Runtime> {
    match std::env::var("BENCH_URL") {
        Ok(url) => Runtime::open(&url).await,
        Err(_) => Runtime::open(&format!("sqlite:{}", directory().join(file).display())).await,
    }
}

/// Starts a worker.
pub async fn serve(runtime: &Runtime, host: NativeHost, max_agents: usize) -> flovyn_core::Result<Worker> {
    runtime.worker(Arc::new(host), WorkerOptions { max_agents, ..WorkerOptions::default() }).await
}

/// An argument of the program by its place, from 1.
pub fn argument<T: std::str::FromStr>(place: usize) -> Result<T, Failure> {
    let text = std::env::args().nth(place + 1).ok_or_else(|| format!("argument {place} is missing"))?;
    text.parse().map_err(|_| format!("argument {place} is {text:?}").into())
}

/// The value below which `share` of the values lie; NaN when there are none.
pub fn percentile(values: &[Duration], share: f64) -> f64 {
    let mut ordered = values.to_vec();
    ordered.sort_unstable();
    let at = ((ordered.len() as f64 * share) as usize).min(ordered.len().saturating_sub(1));
    ordered.get(at).map_or(f64::NAN, Duration::as_secs_f64)
}

/// Prints one line of figures for the runner; units are in the names.
pub fn emit(figures: serde_json::Value) {
    println!("@@{figures}");
}

fn status_mb(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// Resident memory in MiB.
pub fn rss_mb() -> f64 {
    status_mb("VmRSS:")
}

/// The most memory the process ever had, in MiB.
pub fn peak_mb() -> f64 {
    status_mb("VmHWM:")
}

/// Forgets the peak, so that the next one is of what comes now.
pub fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// CPU seconds of the process, all threads.
pub fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}

/// Wall-clock and CPU time since its start.
pub struct Span(Instant, f64);

impl Span {
    /// Starts now.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Instant::now(), cpu_s())
    }

    /// Seconds since the start.
    pub fn wall_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// CPU seconds since the start.
    pub fn cpu_s(&self) -> f64 {
        cpu_s() - self.1
    }
}

/// The size of all files in a directory.
pub fn stored_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => stored_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The result of one small step: about 200 bytes as JSON.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Small {
    /// Always true.
    pub ok: bool,
    /// 170 bytes.
    pub text: String,
}

impl Small {
    /// The same bytes every time.
    pub fn result() -> Self {
        Self { ok: true, text: "x".repeat(170) }
    }
}

/// Wall-clock seconds since the Unix epoch: what processes compare.
pub fn wall() -> f64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64())
}

/// When the runner started this process.
pub fn spawned_at() -> f64 {
    std::env::var("BENCH_SPAWNED").ok().and_then(|at| at.parse().ok()).unwrap_or_else(wall)
}

/// Appends one line of progress in a single write, which survives the kill of this process.
pub fn note(word: &str, number: u32) {
    use std::io::Write;
    let log = std::fs::OpenOptions::new().append(true).create(true).open(directory().join("progress.log"));
    if let Ok(mut log) = log {
        let _ = log.write_all(format!("{word} {number} {:?}\n", wall()).as_bytes());
    }
}

/// Ends this process by `kill -9`: no destructor runs, nothing is flushed.
pub fn die() -> ! {
    let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    std::process::abort()
}

/// The size of a database once its write-ahead log is folded in, measured on a copy.
pub fn settled_bytes(directory: &Path) -> Result<u64, Failure> {
    let copy = directory.with_extension("settled");
    std::fs::create_dir_all(&copy)?;
    for entry in std::fs::read_dir(directory)?.flatten() {
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), copy.join(entry.file_name()))?;
        }
    }
    let fold =
        "import sqlite3, sys; [sqlite3.connect(p).execute('PRAGMA wal_checkpoint(TRUNCATE)') for p in sys.argv[1:]]";
    std::process::Command::new("python3").args(["-c", fold]).arg(copy.join("flovyn.db")).status()?;
    let bytes = stored_bytes(&copy);
    std::fs::remove_dir_all(&copy)?;
    Ok(bytes)
}

/// Word salad that compresses about as well as English: `size` ASCII characters, the same for the same seed.
pub fn prose(size: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut text = String::with_capacity(size + 16);
    while text.len() <= size {
        let word = next() % 4000;
        let mut letters = (word + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
        for _ in 0..2 + word % 9 {
            text.push(char::from(b"etaoinshrdlucmfwyp"[(letters % 18) as usize]));
            letters = letters.rotate_right(7).wrapping_mul(31);
        }
        text.push(' ');
    }
    text.truncate(size);
    text
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    match std::env::args().nth(1).unwrap_or_default().as_str() {
        "fanout" => programs::fanout::main().await,
        "replicas" => programs::replicas::main().await,
        "w1" => programs::w1::main().await,
        "w2" => programs::w2::main().await,
        "w3" => programs::w3::main().await,
        "w3_recover" => programs::w3_recover::main().await,
        "w4" => programs::w4::main().await,
        "w4_read" => programs::w4_read::main().await,
        "w5" => programs::w5::main().await,
        "w5_evicted" => programs::w5_evicted::main().await,
        "w6_recover" => programs::w6_recover::main().await,
        "w7" => programs::w7::main().await,
        other => Err(format!("there is no program {other:?}").into()),
    }
}
