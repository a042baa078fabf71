//! The configuration of MCP servers: the `mcpServers` object that MCP clients share, with `${VAR}` from the environment.

use super::secrets::Secrets;
use flovyn_core::error::{Code, Error, Result};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may be silent in a call unless it is configured.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to become ready unless it is configured; some download their own program first.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// MCP servers by name.
///
/// ```
/// use flovyn_toolkit::mcp::McpConfig;
///
/// let text = r#"{ "mcpServers": {
///     "files":  { "command": "mcp-server-files", "args": ["${ROOT:-.}"] },
///     "issues": { "url": "https://mcp.example.com/", "headers": { "Authorization": "Bearer ${TOKEN}" } }
/// } }"#;
/// let config = McpConfig::parse(text, |name| (name == "TOKEN").then(|| "secret".to_owned()))?;
/// assert_eq!(config.servers.len(), 2);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), flovyn_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct McpConfig {
    /// By the names that tools carry. Disabled ones are left out.
    pub servers: BTreeMap<String, McpServerConfig>,
}

/// One server.
#[derive(Debug, Clone)]
pub struct McpServerConfig {
    /// How it is reached.
    pub transport: McpTransport,
    /// How long it may be silent in a call. Every report of progress starts this time again.
    pub timeout: Duration,
    /// How long it may take to become ready.
    pub startup_timeout: Duration,
    /// Whether and how it may ask a model; it may not unless given.
    pub sampling: Option<McpSampling>,
}

/// How a server may ask a model (`sampling/createMessage`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSampling {
    /// The model, by its provider and its id. What the server would like has no say.
    pub model: String,
    /// How many calls it may make while this process runs.
    pub max_calls: u32,
    /// How many tokens its calls may use in all while this process runs, prompts included.
    pub max_tokens: u64,
    /// Whether a person is asked before each call.
    pub asks: bool,
}

impl McpSampling {
    /// The model may be asked ten times and for 100,000 tokens, and a person is asked before each call.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), max_calls: 10, max_tokens: 100_000, asks: true }
    }
}

/// How a server is reached. Its `Debug` form shows neither arguments nor values, nor more of an address than its host.
#[derive(Clone)]
pub enum McpTransport {
    /// A process that is spoken to over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables beside the few that it inherits.
        env: BTreeMap<String, String>,
        /// Its working directory; that of this process unless given.
        cwd: Option<PathBuf>,
    },
    /// A server that is spoken to over streamable HTTP.
    Http {
        /// Its address.
        url: Url,
        /// Headers of every request.
        headers: HeaderMap,
    },
}

impl McpConfig {
    /// Reads a file, with variables of this process.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as of [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let invalid = |what: String| wrong(format!("the MCP configuration {}: {what}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| invalid(format!("it cannot be read: {error}")).caused_by(error))?;
        Self::parse(&text, |name| std::env::var(name).ok()).map_err(|error| invalid(error.message().to_owned()))
    }

    /// Reads `{"mcpServers": {NAME: {…}}}`.
    ///
    /// A server has `command`, `args`, `env` and `cwd`, or `url` and `headers`; either may have `type`, `timeout` and
    /// `startupTimeout` (milliseconds), `disabled`, and `sampling` with `model`, `maxCalls`, `maxTokens` and `approvals` (`"ask"`
    /// or `"allow"`). In texts `${VAR}`, `${env:VAR}` and `${VAR:-default}` stand for variables. Other
    /// keys belong to other clients and are ignored.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: the text is no such JSON, a server is incomplete, or a variable without a default is not set. The
    /// message names the server and the field, and no value.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let whole: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| wrong(format!("it is no JSON object: {error}")))?;
        let Some(Value::Object(servers)) = whole.get("mcpServers") else {
            let found = keys(&whole);
            return Err(wrong(format!("there is no object \"mcpServers\" in it, only {found}")));
        };
        let mut config = Self::default();
        for (name, given) in servers {
            let invalid = |what: String| wrong(format!("the MCP server {name:?}: {what}"));
            let Value::Object(given) = given else { return Err(invalid("it is no object".into())) };
            if let Some(server) = server(given, &variable).map_err(invalid)? {
                config.servers.insert(name.clone(), server);
            }
        }
        Ok(config)
    }

    /// Adds a server, in place of one of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, server: McpServerConfig) -> Self {
        self.servers.insert(name.into(), server);
        self
    }
}

impl McpServerConfig {
    /// A server with the usual limits.
    pub fn new(transport: McpTransport) -> Self {
        Self { transport, timeout: TIMEOUT, startup_timeout: STARTUP_TIMEOUT, sampling: None }
    }

    /// Its secrets, which no message may contain.
    pub(super) fn secrets(&self) -> Secrets {
        match &self.transport {
            McpTransport::Stdio { env, .. } => Secrets::new(env.values().cloned(), None),
            McpTransport::Http { url, headers } => {
                let values = headers.values().filter_map(|value| value.to_str().ok());
                // A message may contain the token of `Bearer TOKEN` alone, so each word is a secret too.
                let secrets = values.flat_map(|value| [value].into_iter().chain(value.split_whitespace()));
                Secrets::new(secrets.map(str::to_owned), Some(url))
            }
        }
    }
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } => f
                .debug_struct("Http")
                .field("origin", &url.origin().ascii_serialization())
                .field("headers", &headers.keys().collect::<Vec<_>>())
                .finish(),
        }
    }
}

#[derive(Deserialize)]
struct ServerEntry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    timeout: Option<f64>,
    #[serde(rename = "startupTimeout")]
    startup_timeout: Option<f64>,
    sampling: Option<SamplingEntry>,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SamplingEntry {
    model: String,
    max_calls: Option<u32>,
    max_tokens: Option<u64>,
    #[serde(default)]
    approvals: SamplingApprovals,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SamplingApprovals {
    #[default]
    Ask,
    Allow,
}

impl From<SamplingEntry> for McpSampling {
    fn from(written: SamplingEntry) -> Self {
        let usual = Self::new(written.model);
        Self {
            max_calls: written.max_calls.unwrap_or(usual.max_calls),
            max_tokens: written.max_tokens.unwrap_or(usual.max_tokens),
            asks: written.approvals == SamplingApprovals::Ask,
            ..usual
        }
    }
}

fn server(
    given: &Map<String, Value>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<McpServerConfig>, String> {
    let written: ServerEntry =
        serde_json::from_value(Value::Object(given.clone())).map_err(|error| format!("it cannot be used: {error}"))?;
    if written.disabled {
        return Ok(None);
    }
    let fill = |field: &str, text: &str| expand(text, variable).map_err(|why| format!("its {field}: {why}"));
    let fill_all = |field: &str, texts: BTreeMap<String, String>| {
        let filled = texts.into_iter().map(|(name, text)| {
            let text = fill(&format!("{field} {name:?}"), &text)?;
            Ok((name, text))
        });
        filled.collect::<Result<BTreeMap<_, _>, String>>()
    };
    let kind = written.kind.as_deref().unwrap_or(if written.command.is_some() { "stdio" } else { "http" });
    let transport = match (kind, &written.command, &written.url) {
        (_, None, None) => return Err(format!("it needs a \"command\" or a \"url\"; it has {}", keys(given))),
        (_, Some(_), Some(_)) => return Err("it has a \"command\" and a \"url\"; leave one out".into()),
        ("stdio", Some(command), None) => McpTransport::Stdio {
            command: fill("command", command)?,
            args: written.args.iter().map(|text| fill("args", text)).collect::<Result<_, _>>()?,
            env: fill_all("env", written.env)?,
            cwd: written.cwd.map(|text| fill("cwd", &text)).transpose()?.map(PathBuf::from),
        },
        ("http" | "streamable-http" | "streamableHttp", None, Some(url)) => McpTransport::Http {
            url: address(&fill("url", url)?)?,
            headers: header_map(fill_all("headers", written.headers)?)?,
        },
        ("sse", ..) => {
            return Err("its type is \"sse\", a transport that MCP gave up for streamable HTTP; ask for the server's \
                        streamable HTTP address and write \"type\": \"http\""
                .into());
        }
        (other, ..) => {
            return Err(format!(
                "its type is {other:?}; write \"stdio\" with a \"command\" or \"http\" with a \"url\""
            ));
        }
    };
    let timeout = duration("timeout", written.timeout, TIMEOUT)?;
    let startup_timeout = duration("startupTimeout", written.startup_timeout, STARTUP_TIMEOUT)?;
    let sampling = written.sampling.map(McpSampling::from);
    Ok(Some(McpServerConfig { transport, timeout, startup_timeout, sampling }))
}

/// A time in milliseconds. Languages with one kind of number write 5000.0 too.
fn duration(field: &str, given: Option<f64>, usual: Duration) -> Result<Duration, String> {
    let Some(given) = given else { return Ok(usual) };
    match Duration::try_from_secs_f64(given / 1_000.0) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(format!("its {field} is {given}; give milliseconds or leave it out")),
    }
}

fn address(text: &str) -> Result<Url, String> {
    // The address may contain a key, so no message shows it.
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        Ok(url) => Err(format!("its url begins with {:?}; it has to be an http or https address", url.scheme())),
        Err(error) => Err(format!("its url is no address: {error}")),
    }
}

fn header_map(texts: BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, text) in texts {
        let known =
            HeaderName::try_from(name.as_str()).map_err(|_| format!("its headers: {name:?} is no header name"))?;
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| format!("its headers: the value of {name:?} has characters that no header may have"))?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

/// Puts variables into a text.
fn expand(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, after)) = after.split_once('}') else {
            return Err("a \"${\" in it has no \"}\"".into());
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let value = variable(name).filter(|value| !value.is_empty() || default.is_none());
        let Some(value) = value.or_else(|| default.map(str::to_owned)) else {
            return Err(format!("the variable {name} is not set; set it, or write ${{{name}:-default}}"));
        };
        filled.push_str(before);
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn keys(object: &Map<String, Value>) -> String {
    let keys: Vec<_> = object.keys().map(|key| format!("{key:?}")).collect();
    if keys.is_empty() { "nothing".into() } else { keys.join(", ") }
}

fn wrong(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(server: &str) -> Result<McpServerConfig, String> {
        let known = |name: &str| match name {
            "KEY" => Some("k-123456789".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let text = format!(r#"{{ "mcpServers": {{ "s": {server} }} }}"#);
        let config = McpConfig::parse(&text, known).map_err(|error| error.message().to_owned())?;
        config.servers.into_values().next().ok_or_else(|| "disabled".to_owned())
    }

    #[test]
    fn both_transports_are_read_with_their_variables() {
        let server = parse(
            r#"{ "command": "${SHELL_OF:-sh}", "args": ["-c", "x${KEY}y", "$KEY"], "env": { "A": "${env:KEY}", "B": "${EMPTY:-b}" },
                 "cwd": "/tmp", "timeout": 1500.0, "startupTimeout": 250, "alwaysAllow": ["x"] }"#,
        )
        .expect("it is read");
        assert_eq!(server.timeout, Duration::from_millis(1500));
        assert_eq!(server.startup_timeout, Duration::from_millis(250));
        let McpTransport::Stdio { command, args, env, cwd } = &server.transport else { panic!("{server:?}") };
        assert_eq!((command.as_str(), cwd.as_deref()), ("sh", Some(Path::new("/tmp"))));
        assert_eq!(args, &["-c", "xk-123456789y", "$KEY"]);
        assert_eq!((env["A"].as_str(), env["B"].as_str()), ("k-123456789", "b"));
        let server =
            parse(r#"{ "type": "http", "url": "http://127.0.0.1:9/mcp?key=${KEY}", "headers": { "Authorization": "Bearer ${KEY}" } }"#)
                .expect("it is read");
        let McpTransport::Http { url, headers } = &server.transport else { panic!("{server:?}") };
        assert_eq!(url.query(), Some("key=k-123456789"));
        assert_eq!(headers["authorization"], "Bearer k-123456789");
    }

    #[test]
    fn a_server_may_ask_a_model_only_as_its_configuration_says() {
        let sampling = |given: &str| parse(given).expect("it is read").sampling;
        assert_eq!(sampling(r#"{ "command": "x" }"#), None);
        let usual = McpSampling { model: "p/m".into(), max_calls: 10, max_tokens: 100_000, asks: true };
        assert_eq!(sampling(r#"{ "command": "x", "sampling": { "model": "p/m" } }"#), Some(usual.clone()));
        let given = r#"{ "command": "x", "sampling": { "model": "p/m", "maxCalls": 1, "maxTokens": 9, "approvals": "allow" } }"#;
        assert_eq!(sampling(given), Some(McpSampling { max_calls: 1, max_tokens: 9, asks: false, ..usual }));
    }

    #[test]
    fn no_secret_is_shown() {
        for server in [
            r#"{ "command": "run", "args": ["--token=${KEY}"], "env": { "TOKEN": "${KEY}" } }"#,
            r#"{ "url": "http://u:${KEY}@h/${KEY}?key=${KEY}", "headers": { "X-Key": "${KEY}" } }"#,
        ] {
            let shown = format!("{:?}", parse(server).expect("it is read"));
            assert!(!shown.contains("k-123456789"), "{shown}");
            assert!(shown.contains("TOKEN") || shown.contains("http://h") && shown.contains("x-key"), "{shown}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_server_and_the_field() {
        for (server, said) in [
            ("3", "it is no object"),
            ("{}", "needs a \"command\" or a \"url\"; it has nothing"),
            (r#"{ "comand": "x" }"#, "it has \"comand\""),
            (r#"{ "command": "x", "url": "http://h" }"#, "leave one out"),
            (r#"{ "command": ["x"] }"#, "expected a string"),
            (r#"{ "command": "x", "env": { "A": "${NONE}" } }"#, "its env \"A\": the variable NONE is not set"),
            (r#"{ "command": "x", "args": ["${KEY"] }"#, "has no \"}\""),
            (r#"{ "command": "x", "timeout": 0 }"#, "its timeout is 0"),
            (r#"{ "command": "x", "startupTimeout": -1 }"#, "its startupTimeout is -1"),
            (r#"{ "command": "x", "sampling": {} }"#, "missing field `model`"),
            (r#"{ "command": "x", "sampling": { "model": "m", "approvals": "deny" } }"#, "unknown variant `deny`"),
            (r#"{ "type": "sse", "url": "http://h" }"#, "gave up for streamable HTTP"),
            (r#"{ "type": "stdio", "url": "http://h" }"#, "write \"stdio\" with a \"command\""),
            (r#"{ "type": "ws", "url": "http://h" }"#, "its type is \"ws\""),
            (r#"{ "url": "ftp://h" }"#, "http or https"),
            (r#"{ "url": "nowhere" }"#, "no address"),
            (r#"{ "url": "http://h", "headers": { "a b": "" } }"#, "\"a b\" is no header name"),
            (r#"{ "url": "http://h", "headers": { "a": "x\ny${KEY}" } }"#, "the value of \"a\""),
        ] {
            let error = parse(server).expect_err(server);
            assert!(error.contains(said) && error.contains("the MCP server \"s\""), "{server}: {error}");
            assert!(!error.contains("k-123456789"), "{error}");
        }
        assert_eq!(parse(r#"{ "command": "${NONE}", "disabled": true }"#).expect_err("it is left out"), "disabled");
        let error = McpConfig::parse(r#"{ "servers": {} }"#, |_| None).expect_err("no servers");
        assert!(error.message().contains("only \"servers\""), "{error}");
    }
}
