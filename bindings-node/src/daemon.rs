//! This process as a machine of a server.

use crate::error::thrown;
use crate::hub::{Abort, Hub, Reply};
use crate::runtime::Runtime;
use flovyn_core::host::HostDaemon;
use flovyn_core::runtime::daemon::MachineSettings;
use napi_derive::napi;
use std::sync::Arc;
use tokio::sync::Notify;

/// What a program says of the machine that it is.
#[napi(object)]
pub struct DaemonSettings {
    pub server_url: Option<String>,
    pub auth_token: Option<String>,
    pub home: Option<String>,
    pub name: Option<String>,
    pub workspaces: Vec<String>,
}

/// A machine of a server: checked when it is made, connected later.
#[napi]
pub struct Daemon {
    host: HostDaemon,
    dropped: Arc<Notify>,
}

/// A terminated thread of JavaScript closes nothing: without this the machine would be announced for ever.
impl Drop for Daemon {
    fn drop(&mut self) {
        self.dropped.notify_one();
    }
}

#[napi]
impl Daemon {
    #[napi(constructor)]
    pub fn new(settings: DaemonSettings) -> napi::Result<Self> {
        let DaemonSettings { server_url, auth_token, home, name, workspaces } = settings;
        let settings = MachineSettings {
            server_url,
            auth_token,
            home: home.map(Into::into),
            name,
            workspaces: workspaces.into_iter().map(Into::into).collect(),
        };
        Ok(Self { host: HostDaemon::new(&settings).map_err(thrown)?, dropped: Arc::default() })
    }

    #[napi(getter)]
    pub fn server_url(&self) -> &str {
        self.host.server_url()
    }

    /// Null before it is connected where only the server knows it.
    #[napi(getter)]
    pub fn name(&self) -> Option<String> {
        self.host.name()
    }

    /// The real paths.
    #[napi(getter)]
    pub fn workspaces(&self) -> Vec<String> {
        self.host.workspaces()
    }

    /// Tries once to connect; ends with a `Runtime`, or with the words for why it is to be tried again.
    #[napi]
    pub fn connect(&self, hub: &Hub, token: u32) -> Abort {
        let host = self.host.clone();
        hub.inbox.spawn(&self.host.handle(), token, async move {
            Ok(match host.connect().await? {
                Ok(opened) => Reply::Runtime(Box::new(Runtime::of_backend(opened))),
                Err(why) => Reply::Text(why),
            })
        })
    }

    /// Tells the server which agents are served here.
    #[napi]
    pub fn announce(&self, hub: &Hub, token: u32, kinds: Vec<String>) -> Abort {
        let host = self.host.clone();
        hub.inbox.spawn(&self.host.handle(), token, async move { host.announce(&kinds).await.map(|()| Reply::Nothing) })
    }

    /// Announces the machine from time to time; ends with the error that it is not let in any more.
    #[napi]
    pub fn until_refused(&self, hub: &Hub, token: u32) -> Abort {
        let (host, dropped) = (self.host.clone(), self.dropped.clone());
        hub.inbox.spawn(&self.host.handle(), token, async move {
            tokio::select! {
                refused = host.until_refused() => refused?,
                () = dropped.notified() => {}
            }
            Ok(Reply::Nothing)
        })
    }
}
