//! The file that `flovyn server --config` reads.

use crate::certificate::Certificate;
use crate::limits::Limits;
use crate::oidc::OidcSettings;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::runtime::parse_age;
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// How a server is started for others than its developer. In TOML; what is left out is as said here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The backend: `postgres://…` or `sqlite:FILE`; without it, `FLOVYN_DB`, which keeps a password out of the file.
    pub db: Option<String>,
    /// Where gRPC listens: `127.0.0.1:9090`.
    pub grpc: SocketAddr,
    /// Where HTTP listens: `127.0.0.1:8080`.
    pub http: SocketAddr,
    /// Removes runs so long after their end: `"30d"` or `"12h"`. All are kept without it.
    pub retention: Option<String>,
    /// How long the server goes on taking calls after it was told to end, while it says that it is not ready: until whatever
    /// distributes calls has noticed. `"5s"`.
    pub drain: String,
    /// Listens without TLS on other addresses than loopback: something in front ends TLS. False.
    pub plaintext: bool,
    /// Names that a proxy on this machine is called by: `["agents.example.com"]`. A server whose HTTP listens on loopback answers
    /// those who call it so, too.
    pub public_hosts: Vec<String>,
    /// Origins of other front ends, whose pages may call this server from a browser with a token: `https://app.example.com`.
    pub cors_origins: Vec<String>,
    /// Where `GET /metrics` listens, for whoever can reach it: no token is asked. Without it those who have a token are told, on
    /// the port of HTTP.
    pub metrics: Option<SocketAddr>,
    /// A NATS that the servers of the installation share: `nats://HOST:4222`. It saves time; without it all works.
    pub nats: Option<String>,
    /// What the subjects of that NATS begin with, for installations that share one: `flovyn`.
    pub nats_prefix: String,
    /// How the log is written, unless the command line or `FLOVYN_LOG_FORMAT` says it: `"text"` or `"json"`.
    pub log_format: Option<LogFormat>,
    /// A call of the storage that takes longer is named in the log: `"1s"`.
    pub slow_call: String,
    /// Where traces go.
    pub otlp: Otlp,
    /// By which issuer of OpenID Connect people sign in to the console, beside keys.
    pub oidc: Option<OidcSettings>,
    /// Encrypts what both ports carry.
    pub tls: Option<Certificate>,
    /// How much a key may ask for.
    pub limits: Limits,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where traces go: the table `[otlp]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Otlp {
    /// A collector that takes OTLP over gRPC: `http://HOST:4317`; without it, `OTEL_EXPORTER_OTLP_ENDPOINT`, or nowhere.
    pub endpoint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            db: None,
            grpc: (Ipv4Addr::LOCALHOST, 9090).into(),
            http: (Ipv4Addr::LOCALHOST, 8080).into(),
            retention: None,
            drain: "5s".to_owned(),
            plaintext: false,
            public_hosts: Vec::new(),
            cors_origins: Vec::new(),
            metrics: None,
            nats: None,
            nats_prefix: "flovyn".to_owned(),
            log_format: None,
            slow_call: "1s".to_owned(),
            otlp: Otlp::default(),
            oidc: None,
            tls: None,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// Errors: `InvalidArgument` for one that cannot be read or says what means nothing, with its place.
    pub fn read(file: &Path) -> Result<Self> {
        let wrong = |why: String| Error::new(Code::InvalidArgument, format!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(format!("{error}; give a file in TOML")))?;
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    /// How long ended runs are kept; for ever without an age.
    ///
    /// Errors: `InvalidArgument`.
    pub fn retention(&self) -> Result<Option<Duration>> {
        self.retention.as_deref().map(parse_age).transpose()
    }

    /// How long the server goes on taking calls after it was told to end.
    ///
    /// Errors: `InvalidArgument`.
    pub fn drain(&self) -> Result<Duration> {
        time("drain", &self.drain)
    }

    /// What a call of the storage may take before the log names it.
    ///
    /// Errors: `InvalidArgument`.
    pub fn slow_call(&self) -> Result<Duration> {
        time("slow_call", &self.slow_call)
    }

    /// The settings in which another file differs and that a server which is running cannot change.
    pub fn fixed(&self, other: &Self) -> Vec<&'static str> {
        let (limits, theirs) = (&self.limits, &other.limits);
        let pairs = [
            ("db", self.db != other.db),
            ("grpc", self.grpc != other.grpc),
            ("http", self.http != other.http),
            ("plaintext", self.plaintext != other.plaintext),
            ("public_hosts", self.public_hosts != other.public_hosts),
            ("cors_origins", self.cors_origins != other.cors_origins),
            ("metrics", self.metrics != other.metrics),
            ("nats", self.nats != other.nats),
            ("nats_prefix", self.nats_prefix != other.nats_prefix),
            ("log_format", self.log_format != other.log_format),
            ("slow_call", self.slow_call != other.slow_call),
            ("otlp", self.otlp != other.otlp),
            ("oidc", self.oidc != other.oidc),
            ("tls, to have one or none", self.tls.is_some() != other.tls.is_some()),
            ("limits.connections", limits.connections != theirs.connections),
            ("limits.connections_each", limits.connections_each != theirs.connections_each),
        ];
        pairs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }

    /// The URL of the backend.
    pub fn db(&self) -> Result<String> {
        let from_environment = || std::env::var("FLOVYN_DB").ok().filter(|url| !url.is_empty());
        self.db.clone().or_else(from_environment).ok_or_else(|| {
            let message =
                "no database is named; write db = \"postgres://USER@HOST/NAME\" in the file, or set FLOVYN_DB";
            Error::new(Code::InvalidArgument, message)
        })
    }

    /// The collector of traces, if there is one.
    pub fn otlp(&self) -> Option<String> {
        let from_environment = || std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|url| !url.is_empty());
        self.otlp.endpoint.clone().or_else(from_environment)
    }

    /// Refuses to send tokens and payloads in clear to other machines.
    pub fn check_addresses(&self) -> Result<()> {
        let served = [self.grpc, self.http].into_iter().filter(|_| self.tls.is_none());
        // Metrics are never encrypted.
        let open = served.chain(self.metrics).find(|address| !address.ip().is_loopback());
        match open {
            Some(address) if !self.plaintext => Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "{address} is reached from other machines in clear: write [tls] with cert and key (metrics have none), or put \
                     a proxy in front that ends TLS and write plaintext = true, or listen on loopback"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Reads a time that passes.
fn time(setting: &str, word: &str) -> Result<Duration> {
    let read = [("ms", 1), ("s", 1_000), ("m", 60_000)].into_iter().find_map(|(unit, millis)| {
        let number: u32 = word.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_millis(u64::from(number) * millis))
    });
    let wrong = || format!("{setting} = {word:?} is no time that passes; write 5s, 500ms or 1m");
    read.ok_or_else(|| Error::new(Code::InvalidArgument, wrong()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(file.path())
    }

    #[test]
    fn what_is_left_out_is_loopback() {
        let config = read("db = \"postgres://u@h/d\"").unwrap();
        assert_eq!((config.grpc.to_string().as_str(), config.http.port()), ("127.0.0.1:9090", 8080));
        assert_eq!(config.db().unwrap(), "postgres://u@h/d");
        config.check_addresses().unwrap();
    }

    #[test]
    fn the_open_network_needs_a_word() {
        let open = "grpc = \"0.0.0.0:9090\"\n";
        for open in [open, "metrics = \"0.0.0.0:9464\"\n"] {
            let refused = read(open).unwrap().check_addresses().unwrap_err();
            assert!(refused.message().contains("plaintext = true"), "{refused}");
        }
        read(&format!("{open}plaintext = true")).unwrap().check_addresses().unwrap();
        read(&format!("{open}[tls]\ncert = \"c\"\nkey = \"k\"")).unwrap().check_addresses().unwrap();
    }

    #[test]
    fn limits_are_on_unless_they_are_set_to_nothing() {
        assert_eq!((read("").unwrap().limits, Config::default().limits), (Limits::default(), Limits::default()));
        let limits = read("[limits]\npoll = 0\ncreate = 7").unwrap().limits;
        assert_eq!((limits.poll, limits.create, limits.signal), (0, 7, Limits::default().signal));
        assert!(read("[limits]\npools = 1").unwrap_err().message().contains("pools"));
    }

    #[test]
    fn an_age_is_read() {
        let kept = |text: &str| read(text).unwrap().retention();
        assert_eq!(kept("").unwrap(), None);
        assert_eq!(kept("retention = \"30d\"").unwrap(), Some(Duration::from_secs(30 * 86_400)));
        assert!(kept("retention = \"soon\"").unwrap_err().message().contains("30d"));
    }

    #[test]
    fn a_time_to_drain_is_read() {
        let drain = |text: &str| read(text).unwrap().drain();
        assert_eq!(drain("").unwrap(), Duration::from_secs(5));
        for (word, millis) in [("0s", 0), ("250ms", 250), ("2m", 120_000)] {
            assert_eq!(drain(&format!("drain = {word:?}")).unwrap(), Duration::from_millis(millis));
        }
        for wrong in ["5", "s", "-1s", "soon", "5 s"] {
            assert!(drain(&format!("drain = {wrong:?}")).unwrap_err().message().contains("500ms"), "{wrong}");
        }
    }

    #[test]
    fn what_needs_another_start_is_named() {
        let fixed = |text: &str| Config::default().fixed(&read(text).unwrap());
        assert!(fixed("drain = \"1s\"\nretention = \"9d\"\n[limits]\npoll = 1\nstrangers = 5").is_empty());
        assert_eq!(fixed("grpc = \"127.0.0.1:1\"\n[limits]\nconnections = 1"), ["grpc", "limits.connections"]);
    }

    #[test]
    fn what_means_nothing_is_refused_with_its_place() {
        for wrong in ["grcp = \"127.0.0.1:1\"", "grpc = 9090", "db ="] {
            let refused = read(wrong).unwrap_err();
            assert!(refused.code() == Code::InvalidArgument && refused.message().contains("line 1"), "{refused}");
        }
        assert!(Config::read(Path::new("/nowhere/flovyn.toml")).is_err());
    }
}
