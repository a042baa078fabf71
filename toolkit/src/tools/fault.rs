//! Why a tool could not do its work: an outcome for the model, or an error of the machine.

use super::ToolOutcome;
use flovyn_core::error::{Code, Error, Result};
use std::io;

/// Why a tool could not do its work.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The model can do something about it. It gets a stable code and a message.
    ForModel(&'static str, String),
    /// The engine has to handle it: the call was stopped, or the machine failed.
    Machine(Error),
}

impl Fault {
    pub(crate) fn for_model(code: &'static str, message: impl Into<String>) -> Self {
        Self::ForModel(code, message.into())
    }

    /// The fault for an error of the file system. `path` is the path as the model has written it.
    pub(crate) fn of_file(path: &str, error: io::Error) -> Self {
        use rustix::io::Errno;
        let number = error.raw_os_error();
        let is = |errno: Errno| number == Some(errno.raw_os_error());
        if is(Errno::XDEV) || (number.is_none() && error.kind() == io::ErrorKind::PermissionDenied) {
            return Self::outside(path);
        }
        let full = [Errno::MFILE, Errno::NFILE, Errno::IO, Errno::NOMEM].into_iter().any(is);
        match error.kind() {
            _ if full => Self::machine(format!("the file {path:?} could not be used"), error),
            io::ErrorKind::NotFound => Self::for_model("not_found", format!("There is no file or directory {path:?}.")),
            io::ErrorKind::NotADirectory => {
                Self::for_model("not_a_directory", format!("{path:?} goes through a file as if it were a directory."))
            }
            io::ErrorKind::IsADirectory => Self::for_model("is_directory", format!("{path:?} is a directory.")),
            io::ErrorKind::PermissionDenied => {
                Self::for_model("permission_denied", format!("The file system does not permit this for {path:?}."))
            }
            _ => Self::for_model("file_error", format!("{path:?} could not be used: {error}.")),
        }
    }

    pub(crate) fn outside(path: &str) -> Self {
        let message = format!(
            "{path:?} leads outside the working directory. Use a path inside it: relative, or absolute below it; links \
             that lead out are not followed."
        );
        Self::ForModel("outside", message)
    }

    pub(crate) fn machine(message: String, error: io::Error) -> Self {
        Self::Machine(Error::new(Code::TaskFailed, format!("{message}: {error}")).caused_by(error))
    }

    pub(crate) fn stopped() -> Self {
        Self::Machine(Error::new(Code::Cancelled, "the tool call was asked to stop"))
    }

    /// The outcome of a call.
    pub(crate) fn into_outcome(ended: Result<ToolOutcome, Self>) -> Result<ToolOutcome> {
        match ended {
            Ok(outcome) => Ok(outcome),
            Err(Self::ForModel(code, message)) => Ok(ToolOutcome::error(code, message)),
            Err(Self::Machine(error)) => Err(error),
        }
    }
}

/// Runs blocking work of a tool on a thread for blocking work.
pub(crate) async fn blocking(
    work: impl FnOnce() -> Result<ToolOutcome, Fault> + Send + 'static,
) -> Result<ToolOutcome> {
    match tokio::task::spawn_blocking(work).await {
        Ok(ended) => Fault::into_outcome(ended),
        Err(error) => Err(Error::new(Code::TaskFailed, format!("a tool's thread ended early: {error}"))),
    }
}
