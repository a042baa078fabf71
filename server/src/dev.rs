//! The server of one developer: loopback only, one org, one token that the SDKs and the CLI of this machine find.

use crate::access::{Access, Identity};
use crate::disk;
use crate::extensions::Extensions;
use crate::http::console_is_built;
use crate::options::ServeOptions;
use crate::serving::{Bound, Serving};
use crate::startup_log;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::runtime::{Runtime, dev_token_file};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How a developer's server is started.
#[derive(Debug, Clone)]
pub struct DevOptions {
    /// The backend: `sqlite:FILE`, `postgres://…` or `memory:`.
    pub db: String,
    /// The port of HTTP; 0 picks one.
    pub http_port: u16,
    /// The port of gRPC; 0 picks one.
    pub grpc_port: u16,
    /// A further file that gets the token.
    pub token_file: Option<PathBuf>,
    /// Names that a proxy on this machine is called by.
    pub public_hosts: Vec<String>,
    /// Origins of other front ends, whose pages may call with a token.
    pub cors_origins: Vec<String>,
    /// What its program adds to it.
    pub extensions: Extensions,
}

/// A developer's server that is ready.
pub struct Dev {
    serving: Serving,
    runtime: Runtime,
    disk: Option<JoinHandle<()>>,
    token: String,
    token_files: Vec<PathBuf>,
}

/// Starts a developer's server; it is ready, and its token is written, when this returns.
///
/// Errors: `InvalidArgument` (a port in use, a token file that cannot be written) and those of opening the backend.
pub async fn dev(options: DevOptions) -> Result<Dev> {
    let runtime = Runtime::open(&options.db).await?;
    let token = own_token()?;
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let bound = Bound::at(loopback(options.grpc_port), loopback(options.http_port)).await?;
    // The token files are written before the server listens, so that a client that can connect finds the token.
    let token_files: Vec<_> = dev_token_file(bound.grpc().port()).into_iter().chain(options.token_file).collect();
    write_all(&token_files, &token)?;
    let access =
        Access::of([(token.as_str(), Identity::of_org(OrgId::DEFAULT))]).and_keys_of(runtime.storage().clone());
    let DevOptions { public_hosts, cors_origins, extensions, .. } = options;
    let options = ServeOptions { public_hosts, cors_origins, extensions, ..ServeOptions::default() };
    match bound.serve(runtime.storage().clone(), runtime.chunks().clone(), access, &options) {
        Ok(serving) => {
            let db = runtime.storage().describe();
            startup_log::dev_server_started(&serving, &db);
            Ok(Dev { serving, runtime, disk: disk::watch(&db), token, token_files })
        }
        Err(error) => {
            remove_all(&token_files);
            Err(error)
        }
    }
}

impl Dev {
    /// Where it listens.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// The token of its callers.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A link to the console that signs one browser in; none where this server was built without its console.
    pub async fn console_link(&self) -> Result<Option<String>> {
        if !console_is_built() {
            return Ok(None);
        }
        self.serving.sign_in_link(&self.token).await
    }

    /// The files that have the token.
    pub fn token_files(&self) -> &[PathBuf] {
        &self.token_files
    }

    /// Stops listening, removes the token files, closes the backend.
    pub async fn stop(self) -> Result<()> {
        if let Some(disk) = &self.disk {
            disk.abort();
        }
        remove_all(&self.token_files);
        self.serving.stop().await?;
        self.runtime.close().await
    }
}

/// The token of this user's servers. It stays the same over restarts, so that clients go on with the next server: it is stored
/// beside the token files of running servers, and created where there is none.
fn own_token() -> Result<String> {
    let fresh_token = || format!("fd_{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let Some(file) = dev_token_file(0).map(|file| file.with_file_name("dev.token")) else { return Ok(fresh_token()) };
    if let Ok(stored) = std::fs::read_to_string(&file)
        && is_token(stored.trim())
    {
        return Ok(stored.trim().to_owned());
    }
    let token = fresh_token();
    write_all(std::slice::from_ref(&file), &token)?;
    Ok(token)
}

/// Whether a text has the form of a token: a file that was changed by hand is not used.
fn is_token(text: &str) -> bool {
    let random = text.strip_prefix("fd_").unwrap_or_default();
    random.len() == 64 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Writes the token to every file, or to none.
fn write_all(files: &[PathBuf], token: &str) -> Result<()> {
    for (written, file) in files.iter().enumerate() {
        write_private(file, token).map_err(|error| {
            remove_all(&files[..written]);
            let attempt = format!("write the token to {}: {error}", file.display());
            Error::new(Code::InvalidArgument, format!("{attempt}; make it writable, or set FLOVYN_HOME"))
        })?;
    }
    Ok(())
}

fn remove_all(files: &[PathBuf]) {
    for file in files {
        let _ = std::fs::remove_file(file);
    }
}

/// Writes a file that only its owner may read, in one step.
fn write_private(file: &Path, token: &str) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder)?;
    // A temporary file is made readable by its owner alone.
    let mut written = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(written, "{token}")?;
    written.persist(file).map_err(|error| error.error)?;
    Ok(())
}
