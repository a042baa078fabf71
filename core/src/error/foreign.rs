//! Errors of other libraries as errors of the engine: `?` takes them, and what is recorded names their own type.

use super::{Code, Error, Result};
use std::any::{Any, type_name};
use std::error::Error as StdError;

type Boxed = Box<dyn StdError + Send + Sync>;

impl Error {
    /// Makes an error of any other: of a library, a boxed one, one of `anyhow`, or a text. What a task or an agent returns of
    /// it fails as the engine's own errors do; [`error_type`](Self::error_type) is the name of its type, and the message has
    /// those of its causes. An [`Error`] stays as it is.
    ///
    /// ```
    /// use flovyn_core::prelude::*;
    ///
    /// #[derive(Debug)]
    /// struct OutOfStock(u32);
    ///
    /// impl std::fmt::Display for OutOfStock {
    ///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    ///         write!(f, "only {} left", self.0)
    ///     }
    /// }
    ///
    /// impl std::error::Error for OutOfStock {}
    ///
    /// let error = Error::other(OutOfStock(2));
    /// assert_eq!((error.error_type(), error.message()), ("OutOfStock", "only 2 left"));
    /// assert_eq!(Error::other("the shop is closed").message(), "the shop is closed");
    /// ```
    pub fn other<E: Into<Boxed> + 'static>(error: E) -> Self {
        let mut given = Some(error);
        let any: &mut dyn Any = &mut given;
        if let Some(own) = any.downcast_mut::<Option<Self>>().and_then(Option::take) {
            return own;
        }
        #[cfg(feature = "anyhow")]
        if let Some(wrapped) = any.downcast_mut::<Option<anyhow::Error>>().and_then(Option::take) {
            return wrapped.into();
        }
        match given {
            Some(error) => Self::boxed(error.into(), named(type_name::<E>())),
            None => Self::new(Code::Internal, "an error was lost as it was converted; please report it"),
        }
    }

    fn boxed(error: Boxed, error_type: &str) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(own) => return *own,
            Err(other) => other,
        };
        let error_type = known(&*error).unwrap_or(error_type);
        Self::foreign(&*error, error_type).with_source(error.into())
    }

    fn foreign(error: &(dyn StdError + 'static), error_type: &str) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let words = next.to_string();
            if !message.contains(&words) {
                message = format!("{message}: {words}");
            }
            cause = next.source();
        }
        Self::new(Code::AgentFailed, message).with("error_type", error_type)
    }

    /// Makes the error of a task final: it is not tried again, whatever its retry policy says.
    ///
    /// ```
    /// # use flovyn_core::prelude::*;
    /// #[task(retries = 5)]
    /// async fn number(text: String) -> Result<u64> {
    ///     text.parse().terminal()
    /// }
    /// ```
    #[must_use]
    pub fn terminal(self) -> Self {
        self.coded(Code::NonRetryable)
    }

    /// Leaves the error of a task to its retry policy, also one that says of itself that it is final.
    #[must_use]
    pub fn retryable(self) -> Self {
        if self.code() == Code::NonRetryable { self.coded(Code::TaskFailed) } else { self }
    }

    /// With another code, and the type that it had.
    fn coded(self, code: Code) -> Self {
        let error_type = self.error_type().to_owned();
        let mut error = if self.fact("error_type").is_some() { self } else { self.with("error_type", error_type) };
        error.0.code = code;
        error
    }
}

/// Says of the error of a result whether a task that returns it is tried again.
///
/// ```
/// use flovyn_core::prelude::*;
///
/// #[task(retries = 5)]
/// async fn settings(path: String) -> Result<serde_json::Value> {
///     let text = std::fs::read_to_string(path)?; // may be there a moment later
///     serde_json::from_str(&text).terminal() // what is no JSON stays so
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(settings("Cargo.toml".into()).await.unwrap_err().code(), Code::NonRetryable);
/// # }
/// ```
pub trait ResultExt<T> {
    /// Makes the error final, as [`Error::terminal`].
    fn terminal(self) -> Result<T>;

    /// Leaves the error to the retry policy, as [`Error::retryable`].
    fn retryable(self) -> Result<T>;
}

impl<T, E: Into<Boxed> + 'static> ResultExt<T> for std::result::Result<T, E> {
    fn terminal(self) -> Result<T> {
        self.map_err(|error| Error::other(error).terminal())
    }

    fn retryable(self) -> Result<T> {
        self.map_err(|error| Error::other(error).retryable())
    }
}

/// A type without the path to it, unless all that is left says nothing.
fn named(path: &'static str) -> &'static str {
    if path.contains(['<', '&', '(']) || path.ends_with("::String") {
        return "Error";
    }
    let last = path.rsplit("::").next().unwrap_or(path);
    if last == "Error" { path } else { last }
}

/// The names of errors that are often met, as their users write them.
fn known(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    if error.is::<std::io::Error>() {
        return Some("io::Error");
    }
    error.is::<serde_json::Error>().then_some("serde_json::Error")
}

impl From<Boxed> for Error {
    fn from(error: Boxed) -> Self {
        Self::boxed(error, "Error")
    }
}

#[cfg(feature = "anyhow")]
impl From<anyhow::Error> for Error {
    /// The innermost cause names the type; an [`Error`] inside keeps its code.
    fn from(error: anyhow::Error) -> Self {
        let message = format!("{error:#}");
        if let Some(own) = error.downcast_ref::<Self>() {
            let mut own = own.clone();
            own.0.message = message.replacen(&own.to_string(), &own.0.message, 1);
            return own;
        }
        let error_type = known(error.root_cause()).unwrap_or("anyhow::Error");
        let source = error.into_boxed_dyn_error();
        Self::new(Code::AgentFailed, message).with("error_type", error_type).with_source(source.into())
    }
}

macro_rules! foreign {
    ($($type:ty),+ $(,)?) => {
        $(impl From<$type> for Error {
            fn from(error: $type) -> Self {
                Self::other(error)
            }
        })+
    };
}

foreign!(
    std::io::Error,
    serde_json::Error,
    std::env::VarError,
    std::fmt::Error,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::str::ParseBoolError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::time::SystemTimeError,
    tokio::task::JoinError,
    tokio::time::error::Elapsed,
    uuid::Error,
);
