//! A PostgreSQL server of the tests' own: made in a folder in memory, reached by a socket in that folder, gone with the process.
//!
//! A small shell looks after the server. It reads from a pipe that this process holds open: however the process ends, the
//! pipe ends with it, and then the shell ends the server and removes the folder. The server refuses to run as root, so a
//! root's tests run it as `postgres` or `nobody`.

use crate::storage::Storage as _;
use crate::storage::postgres::{PostgresOptions, PostgresStorage};
use std::ffi::OsStr;
use std::io::{Error, Result, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long making and starting a server may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the server and removes its folder when the pipe ends. Arguments: the folder of the programs, the folder of the server.
const WARDEN: &str = r#"
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c max_connections=300 -c shared_buffers=64MB \
    -c max_wal_size=512MB -c autovacuum_naptime=5s $3 >"$2/log" 2>&1 </dev/null &
server=$!
cat >/dev/null
"$1/pg_ctl" stop -s -w -m fast -D "$2/data"
while kill -INT "$server" 2>/dev/null; do sleep 0.1; done
rm -rf "$2"
"#;

/// Makes the user of the tests, once: its processes may ask at the same time.
const TENANT: &str = "DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); \
                      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenant') THEN CREATE ROLE tenant LOGIN; END IF; \
                      END $$";

/// Removes the copies before one of them that have no session. Their files are in memory, and the server looks after each.
const SWEEP: &str = "SELECT 'DROP DATABASE ' || d.datname FROM pg_database d \
                     WHERE substring(d.datname FROM '^copy_([0-9]+)$')::int < BEFORE \
                     AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datname = d.datname) \\gexec";

/// A running server.
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    schemas: AtomicU64,
    /// Whether the database is there that others are copies of.
    has_template: Mutex<bool>,
    warden: Child,
}

impl Cluster {
    /// The server of this process, started by whoever asks first.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("").unwrap_or_else(|error| panic!("PostgreSQL for the tests: {error}")))
    }

    /// Starts a server; `settings` are options of `postgres`, such as `-c wal_level=logical`.
    pub fn start(settings: &str) -> Result<Self> {
        let programs = programs()?;
        let ram = Path::new("/dev/shm");
        let parent = if ram.is_dir() { ram.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("flovyn-pg-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&folder)?;
        let user = unprivileged(&folder)?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        }
        let made = as_user(programs.join("initdb"), user)
            .args(["-U", "flovyn", "--auth=trust", "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C", "-D"])
            .arg(folder.join("data"))
            .current_dir(&folder)
            .output()?;
        if !made.status.success() {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(Error::other(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr))));
        }
        let warden = as_user("sh", user)
            .args(["-c", WARDEN, "warden"])
            .args([programs.as_os_str(), folder.as_os_str(), OsStr::new(settings)])
            .current_dir(&folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let (schemas, has_template) = (AtomicU64::new(0), Mutex::new(false));
        let cluster = Self { folder, programs, user, schemas, has_template, warden };
        cluster.wait()?;
        Ok(cluster)
    }

    fn wait(&self) -> Result<()> {
        let since = Instant::now();
        loop {
            let asked =
                Command::new(self.programs.join("pg_isready")).arg("-q").arg("-h").arg(&self.folder).status()?;
            if asked.success() {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(Error::other(format!("the server did not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The URL of a database of the server.
    pub fn url(&self, database: &str) -> String {
        let host = self.folder.to_string_lossy().replace('/', "%2F");
        format!("postgres://flovyn@{host}/{database}")
    }

    /// The URL of an empty schema that nobody else uses, for a user whom row-level security holds.
    pub fn fresh(&self) -> Result<String> {
        let name = format!("test_{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("{TENANT}; CREATE SCHEMA {name} AUTHORIZATION tenant"))?;
        let url = self.url("postgres").replacen("flovyn@", "tenant@", 1);
        Ok(format!("{url}?options=-csearch_path%3D{name}"))
    }

    /// The URL of a database with this version's schema that nobody else uses, for a user whom row-level security holds. It is a
    /// copy of one that was migrated, which is sooner there than an empty one is migrated.
    pub fn migrated(&self) -> Result<String> {
        let url = |database| self.url(database).replacen("flovyn@", "tenant@", 1);
        let mut has_template = self.has_template.lock().unwrap_or_else(PoisonError::into_inner);
        if !*has_template {
            self.sql("postgres", TENANT)?;
            self.sql("postgres", "CREATE DATABASE migrated OWNER tenant")?;
            PostgresStorage::connect(&url("migrated"), PostgresOptions::default()).map_err(Error::other)?.close();
            *has_template = true;
        }
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        let name = format!("copy_{number}");
        let copied = format!("CREATE DATABASE {name} TEMPLATE migrated OWNER tenant;\n");
        // As many tests run at a time as there are processors, and one that has just asked has no session yet.
        let cases = std::thread::available_parallelism().map_or(64, usize::from) as u64;
        self.script("postgres", &(copied + &SWEEP.replace("BEFORE", &number.saturating_sub(8 * cases).to_string())))?;
        Ok(url(&name))
    }

    /// The name of a user who has an empty schema of that name, and whom row-level security holds: also where a URL can say
    /// nothing of schemas, as behind a pooler.
    pub fn fresh_user(&self) -> Result<String> {
        let name = format!("user_{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        let made = "CREATE ROLE $ LOGIN; ALTER ROLE $ SET search_path = $; CREATE SCHEMA $ AUTHORIZATION $";
        self.sql("postgres", &made.replace('$', &name))?;
        Ok(name)
    }

    /// Where its socket is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs statements by `psql`, all in one transaction; what they print, without decoration.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String> {
        printed(self.psql(database).args(["-c", statements]).output()?)
    }

    /// Runs the lines of a script by `psql`, one after another.
    fn script(&self, database: &str, lines: &str) -> Result<String> {
        let mut psql = self.psql(database);
        let mut running = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut input) = running.stdin.take() {
            input.write_all(lines.as_bytes())?;
        }
        printed(running.wait_with_output()?)
    }

    fn psql(&self, database: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "flovyn", "-d", database, "-h"])
            .arg(&self.folder);
        psql
    }

    /// What the server has told since its start.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.folder.join("log"))
    }

    /// Stops the server at once, as a power loss would, and starts it again.
    pub fn crash_and_restart(&self) -> Result<()> {
        let control = |action: &[&str]| {
            as_user(self.programs.join("pg_ctl"), self.user)
                .args(action)
                .arg("-D")
                .arg(self.folder.join("data"))
                .current_dir(&self.folder)
                .stdout(Stdio::null())
                .status()
        };
        control(&["stop", "-m", "immediate"])?;
        let options = format!("-k {} -c listen_addresses= -c max_connections=300", self.folder.display());
        control(&["start", "-w", "-l", "log", "-o", &options])?;
        self.wait()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.warden.stdin.take());
        let _ = self.warden.wait();
    }
}

fn printed(run: Output) -> Result<String> {
    match run.status.success() {
        true => Ok(String::from_utf8_lossy(&run.stdout).trim().to_owned()),
        false => Err(Error::other(String::from_utf8_lossy(&run.stderr).into_owned())),
    }
}

/// Where PostgreSQL's programs are: on the path, or where Debian puts them, the newest.
fn programs() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A link on the path may have none of the other programs beside it.
    let linked = std::env::split_paths(&path).find_map(|folder| folder.join("initdb").canonicalize().ok());
    if let Some(there) = linked.as_deref().and_then(Path::parent) {
        return Ok(there.to_owned());
    }
    let folders = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = folders.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").is_file());
    found
        .max_by_key(|bin| bin.parent().and_then(|v| v.file_name()?.to_str()?.parse::<u32>().ok()))
        .ok_or_else(|| Error::other("PostgreSQL is not installed; install it with `apt-get install postgresql`"))
}

/// Whom to run the server as, where this process is root.
pub(super) fn unprivileged(folder: &Path) -> Result<Option<(u32, u32)>> {
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(folder)?.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let id_of = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':')).find(|line| line.clone().next() == Some(name))?;
        Some((fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let found = id_of("postgres").or_else(|| id_of("nobody"));
    found.map(Some).ok_or_else(|| Error::other("PostgreSQL refuses to run as root, and there is no user nobody"))
}

pub(super) fn as_user(program: impl AsRef<OsStr>, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}
