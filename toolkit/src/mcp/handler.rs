//! The client's side of a connection: it says what the client can do, and takes notifications of the server.

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability, Implementation,
    ProgressNotificationParam, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RoleClient};
use tokio::sync::broadcast;

/// How many reports of progress may wait for a call. If there are more, the oldest are lost. That is fine, because they
/// are previews.
const PROGRESS_QUEUE: usize = 256;

/// Passes reports of progress to the calls that wait.
pub(super) struct Handler {
    progress: broadcast::Sender<ProgressNotificationParam>,
}

impl Handler {
    pub(super) fn new() -> Self {
        Self { progress: broadcast::Sender::new(PROGRESS_QUEUE) }
    }

    /// All reports of progress from now on, of every call.
    pub(super) fn progress(&self) -> broadcast::Receiver<ProgressNotificationParam> {
        self.progress.subscribe()
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let form = FormElicitationCapability::default();
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation =
            Some(ElicitationCapability::new().with_form(form).with_url(UrlElicitationCapability::default()));
        ClientConfig::new(capabilities, Implementation::new("flovyn", env!("CARGO_PKG_VERSION")))
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        // An error means that no call runs, so nobody listens.
        let _ = self.progress.send(progress);
    }
}
