//! A PgBouncer of the tests' own, before a [`Cluster`]: made in a folder in memory, gone with the process.
//!
//! A small shell looks after it, as one does after the server.

use super::postgres::{Cluster, as_user, unprivileged};
use std::io::{Error, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long starting it may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// So many users are known to it.
const USERS: usize = 5_000;

/// Ends the pooler when the pipe ends. Arguments: the program, its folder.
const WARDEN: &str = r#"
"$1" -q "$2/pgbouncer.ini" >"$2/log" 2>&1 </dev/null &
pooler=$!
cat >/dev/null
kill "$pooler" 2>/dev/null
wait "$pooler"
rm -rf "$2"
"#;

/// A running pooler.
pub struct PgBouncer {
    folder: PathBuf,
    port: u16,
    warden: Child,
}

impl PgBouncer {
    /// Starts one before a server, for those whom [`Cluster::fresh_user`] makes; `mode` is its `pool_mode`, `size` the most
    /// sessions of a user.
    pub fn start(cluster: &Cluster, mode: &str, size: usize) -> Result<Self> {
        let program = program()?;
        let folder = std::env::temp_dir().join(format!("flovyn-pool-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&folder)?;
        let user = unprivileged(&folder)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let users: String = (0..USERS).map(|n| format!("\"user_{n}\" \"\"\n")).collect();
        std::fs::write(folder.join("users.txt"), users)?;
        let settings = format!(
            "[databases]\n* = host={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users.txt\npool_mode = {mode}\n\
             default_pool_size = {size}\nmax_client_conn = 1000\nserver_lifetime = 2\n",
            server = cluster.folder().display(),
            folder = folder.display(),
        );
        std::fs::write(folder.join("pgbouncer.ini"), settings)?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        }
        let warden = as_user("sh", user)
            .args(["-c", WARDEN, "warden"])
            .args([program.as_os_str(), folder.as_os_str()])
            .current_dir(&folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pooler = Self { folder, port, warden };
        let since = Instant::now();
        while std::os::unix::net::UnixStream::connect(pooler.folder.join(format!(".s.PGSQL.{port}"))).is_err() {
            if since.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(pooler.folder.join("log")).unwrap_or_default();
                return Err(Error::other(format!("PgBouncer did not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(pooler)
    }

    /// The URL of a user's database through it, over TCP.
    pub fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// The URL of a user's database through it, by its socket.
    pub fn local_url(&self, user: &str) -> String {
        let folder = self.folder.to_string_lossy().replace('/', "%2F");
        format!("postgres://{user}@{folder}:{}/postgres", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.warden.stdin.take());
        let _ = self.warden.wait();
    }
}

fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("pgbouncer"));
    let debian = Path::new("/usr/sbin/pgbouncer").to_owned();
    on_path
        .chain([debian])
        .find(|program| program.is_file())
        .ok_or_else(|| Error::other("PgBouncer is not installed; install it with `apt-get install pgbouncer`"))
}
