//! This process as a machine of a server.

use crate::error::OrRaise;
use crate::handle::Abort;
use crate::hub::{Hub, spawn};
use crate::reply::Reply;
use crate::runtime::Runtime;
use flovyn_core::host::{HostDaemon, HostRuntime};
use flovyn_core::runtime::daemon::MachineSettings;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A machine of a server: checked when it is made, connected later.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Daemon {
    host: HostDaemon,
}

#[pymethods]
impl Daemon {
    #[new]
    #[pyo3(signature = (server_url, auth_token, home, name, workspaces))]
    fn new(
        server_url: Option<String>,
        auth_token: Option<String>,
        home: Option<PathBuf>,
        name: Option<String>,
        workspaces: Vec<PathBuf>,
    ) -> PyResult<Self> {
        let settings = MachineSettings { server_url, auth_token, home, name, workspaces };
        Ok(Self { host: HostDaemon::new(&settings).or_raise()? })
    }

    #[getter]
    fn server_url(&self) -> &str {
        self.host.server_url()
    }

    /// None before it is connected where only the server knows it.
    #[getter]
    fn name(&self) -> Option<String> {
        self.host.name()
    }

    /// The real paths.
    #[getter]
    fn workspaces(&self) -> Vec<String> {
        self.host.workspaces()
    }

    /// Tries once to connect; ends with a `Runtime`, or with the words for why it is to be tried again.
    fn connect(&self, hub: &Hub, token: u64) -> Abort {
        let host = self.host.clone();
        let connected = async move { host.connect().await.map(|answer| answer.map_or_else(Reply::from, Reply::from)) };
        Abort(spawn(&self.host.handle(), &hub.inbox, token, connected))
    }

    /// Tells the server which agents are served here.
    fn announce(&self, hub: &Hub, token: u64, kinds: Vec<String>) -> Abort {
        let host = self.host.clone();
        Abort(spawn(&self.host.handle(), &hub.inbox, token, async move { host.announce(&kinds).await }))
    }

    /// Announces the machine from time to time; ends with the error that it is not let in any more.
    fn until_refused(&self, hub: &Hub, token: u64) -> Abort {
        let host = self.host.clone();
        Abort(spawn(&self.host.handle(), &hub.inbox, token, async move { host.until_refused().await }))
    }
}

impl From<HostRuntime> for Reply {
    fn from(host: HostRuntime) -> Self {
        Self::Object(Box::new(move |py| Ok(Py::new(py, Runtime::of_backend(host))?.into_any())))
    }
}
