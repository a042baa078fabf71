//! The one error type of the engine.
//!
//! The message of an [`Error`] says what was asked, what was found and what to do. Its code says exactly what happened,
//! and is the same word in every language. Its kind only says how a caller should act. Nothing here knows a backend or
//! a transport.

mod catalog;
mod foreign;

pub use catalog::{Code, Kind};
pub use foreign::ResultExt;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Shorthand for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in a form that crosses languages and processes unchanged.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    outside: Option<String>,
    context: Vec<(Cow<'static, str>, String)>,
    source: Option<std::sync::Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    const RETRY_AFTER: &str = "retry_after";
    const PAUSES: &str = "pauses";

    /// Makes an error of a code with a message that says what was asked, what was found and what to do.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { code, message: message.into(), outside: None, context: Vec::new(), source: None }))
    }

    /// Adds a named fact (an id, a size, a limit) that programs may read without parsing the message.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Self {
        self.0.context.push((name.into(), value.to_string()));
        self
    }

    /// Sets another message for callers on other machines. It is needed where the message names something that only the
    /// host should see: what its database said, or where its files are.
    #[must_use]
    pub fn outside(mut self, message: impl Into<String>) -> Self {
        self.0.outside = Some(message.into());
        self
    }

    /// Adds half a sentence to the messages.
    #[must_use]
    pub fn noting(mut self, more: &str) -> Self {
        self.0.message = format!("{}; {more}", self.0.message);
        self.0.outside = self.0.outside.map(|outside| format!("{outside}; {more}"));
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.with_source(std::sync::Arc::new(source))
    }

    fn with_source(mut self, source: std::sync::Arc<dyn std::error::Error + Send + Sync>) -> Self {
        self.0.source = Some(source);
        self
    }

    /// The precise code, the same word in every language.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// How a caller should act.
    pub fn kind(&self) -> Kind {
        self.0.code.kind()
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The message for callers on other machines. It is the same in most cases.
    pub fn message_outside(&self) -> &str {
        self.0.outside.as_deref().unwrap_or(&self.0.message)
    }

    /// Whether callers on other machines get another message. If so, the host has to log the message, or nobody sees
    /// it.
    pub fn tells_inside(&self) -> bool {
        self.0.outside.is_some()
    }

    /// Named facts in the order they were added.
    pub fn context(&self) -> &[(Cow<'static, str>, String)] {
        &self.0.context
    }

    /// The type of the original error: the fact `error_type`, or the code if there is no such fact.
    pub fn error_type(&self) -> &str {
        self.fact("error_type").unwrap_or(self.0.code.as_str())
    }

    /// A named fact.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.0.context.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Says how long to wait before the work is tried again, as a service does that gets too many requests. The next
    /// attempt of a task then waits that long, whatever its retry policy says.
    #[must_use]
    pub fn retry_after(self, pause: Duration) -> Self {
        self.with(Self::RETRY_AFTER, pause.as_secs_f64())
    }

    /// How long the error asks to wait before the work is tried again, as set with [`retry_after`](Self::retry_after).
    pub fn asked_pause(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.fact(Self::RETRY_AFTER)?.parse().ok()?).ok()
    }

    /// Makes the error pause the run whose agent returns it, where it would otherwise fail the run: its cause is outside
    /// and will go away, or a person has to see to it. When the run is resumed, what failed last is tried again, and
    /// nothing that was done before. A run that was asked to stop is not paused.
    #[must_use]
    pub fn pausing(self) -> Self {
        self.with(Self::PAUSES, true)
    }

    /// Whether the error pauses its run, as set with [`pausing`](Self::pausing).
    pub fn pauses(&self) -> bool {
        self.fact(Self::PAUSES).is_some()
    }

    /// Whether the same request may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        self.0.code.is_retryable()
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.code() == other.code() && self.message() == other.message()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)?;
        for (name, value) in &self.0.context {
            write!(f, "\n  {name} = {value}")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, "\n  caused by: {source:?}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}
