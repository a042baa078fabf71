//! The client's side of a connection: it says what the client can do, and takes notifications of the server.

use super::roots::Roots;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitationCapability, ErrorCode, ErrorData,
    FormElicitationCapability, Implementation, ProgressNotificationParam, RootsCapabilities, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use std::sync::Arc;
use tokio::sync::broadcast;

/// How many reports of progress may wait for a call. If there are more, the oldest are lost. That is fine, because they
/// are previews.
const PROGRESS_QUEUE: usize = 256;

/// The requests of servers that have an answer of their own.
const KNOWN: &[&str] = &["ping", "sampling/createMessage", "roots/list", "elicitation/create"];

/// Passes reports of progress to the calls that wait.
pub(super) struct Handler {
    progress: broadcast::Sender<ProgressNotificationParam>,
    roots: Arc<Roots>,
}

impl Handler {
    pub(super) fn new(roots: Arc<Roots>) -> Self {
        Self { progress: broadcast::Sender::new(PROGRESS_QUEUE), roots }
    }

    /// All reports of progress from now on, of every call.
    pub(super) fn progress(&self) -> broadcast::Receiver<ProgressNotificationParam> {
        self.progress.subscribe()
    }
}

#[expect(deprecated, reason = "servers of the handshake have no other way to ask for directories")]
impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let form = FormElicitationCapability::default();
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation =
            Some(ElicitationCapability::new().with_form(form).with_url(UrlElicitationCapability::default()));
        if !self.roots.is_empty() {
            let mut roots = RootsCapabilities::default();
            roots.list_changed = Some(true);
            capabilities.roots = Some(roots);
        }
        ClientConfig::new(capabilities, Implementation::new("flovyn", env!("CARGO_PKG_VERSION")))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        serde_json::from_value(self.roots.listed()).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// The answer to a request that is not supported, or whose parameters the library cannot read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        Err(match KNOWN.contains(&method.as_str()) {
            true => ErrorData::invalid_params(format!("the parameters of {method} cannot be read"), None),
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("this client has no {method}"), None),
        })
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        // An error means that no call runs, so nobody listens.
        let _ = self.progress.send(progress);
    }
}
