//! The client's side of a connection: it says what the client can do, takes notifications of the server, and answers its
//! requests, some of which wait for a person.

use super::open_calls::OpenCalls;
use super::roots::Roots;
use super::sampling::Sampler;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability, Implementation, JsonObject,
    ProgressNotificationParam, RootsCapabilities, SamplingCapability, TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::broadcast;

/// How many reports of progress may wait for a call. If there are more, the oldest are lost. That is fine, because they
/// are previews.
const PROGRESS_QUEUE: usize = 256;

/// The code of the error for a request that the user's configuration does not allow.
const REFUSED: ErrorCode = ErrorCode(-1);
/// The requests that a person may have to answer.
pub(super) const ELICITATION: &str = "elicitation/create";
pub(super) const SAMPLING: &str = "sampling/createMessage";
/// The requests of servers that have an answer of their own.
const KNOWN: &[&str] = &["ping", SAMPLING, "roots/list", ELICITATION];

fn internal(error: serde_json::Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// Whether the parameters of an elicitation have what a person needs.
fn can_be_asked(parameters: &Value) -> bool {
    let is_form = parameters["mode"].as_str().is_none_or(|mode| mode == "form");
    parameters["message"].is_string()
        && match is_form {
            true => parameters["requestedSchema"].is_object(),
            false => parameters["mode"] == "url" && parameters["url"].is_string(),
        }
}

/// Passes reports of progress to the calls that wait.
pub(super) struct Handler {
    progress: broadcast::Sender<ProgressNotificationParam>,
    roots: Arc<Roots>,
    sampler: Option<Arc<Sampler>>,
    calls: Arc<OpenCalls>,
}

impl Handler {
    pub(super) fn new(roots: Arc<Roots>, sampler: Option<Arc<Sampler>>, calls: Arc<OpenCalls>) -> Self {
        Self { progress: broadcast::Sender::new(PROGRESS_QUEUE), roots, sampler, calls }
    }

    /// The calls that have no result yet.
    pub(super) fn open_calls(&self) -> &Arc<OpenCalls> {
        &self.calls
    }

    /// Asks a person what a server of the handshake asks; in the stateless protocol the request is a result of a call.
    async fn elicit(&self, parameters: Value, context: &RequestContext<RoleClient>) -> Result<Value, ErrorData> {
        let answer = self.calls.ask(ELICITATION, parameters, context).await?;
        Ok(answer.unwrap_or_else(|| json!({ "action": "cancel" })))
    }

    /// All reports of progress from now on, of every call.
    pub(super) fn progress(&self) -> broadcast::Receiver<ProgressNotificationParam> {
        self.progress.subscribe()
    }
}

#[expect(deprecated, reason = "servers of the handshake have no other way to ask for directories and models")]
impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let form = FormElicitationCapability::default();
        let mut capabilities = ClientCapabilities::default();
        capabilities.extensions = Some(BTreeMap::from([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())]));
        capabilities.elicitation =
            Some(ElicitationCapability::new().with_form(form).with_url(UrlElicitationCapability::default()));
        capabilities.sampling = self.sampler.as_ref().map(|_| SamplingCapability::default());
        if !self.roots.is_empty() {
            let mut roots = RootsCapabilities::default();
            roots.list_changed = Some(true);
            capabilities.roots = Some(roots);
        }
        ClientConfig::new(capabilities, Implementation::new("flovyn", env!("CARGO_PKG_VERSION")))
    }

    /// The answer of a person to a server of the handshake.
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answer = self.elicit(serde_json::to_value(request).map_err(internal)?, &context).await?;
        serde_json::from_value(answer).map_err(internal)
    }

    /// The answer of a model to a server of the handshake. In the stateless protocol the request is a result of a call.
    async fn create_message(
        &self,
        request: rmcp::model::CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        let refused = |why: &str| ErrorData::new(REFUSED, why.to_owned(), None);
        let Some(sampler) = &self.sampler else {
            let why = "this client lets the server ask no model; \"sampling\" in the server's configuration would";
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None));
        };
        let parameters = serde_json::to_value(request).map_err(internal)?;
        let answer = match sampler.config.asks {
            // The task that goes on with the call asks the model, once a person lets it.
            true => {
                self.calls.ask(SAMPLING, parameters, &context).await?.ok_or_else(|| refused("nobody allowed it"))?
            }
            false => sampler.answer(&parameters).await.map_err(|why| refused(&why))?,
        };
        serde_json::from_value(answer).map_err(internal)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        serde_json::from_value(self.roots.listed()).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// The answer to a request that is not supported, or whose parameters the library cannot read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        // The library reads some schemas of forms only, and a person may be asked by any.
        if method == ELICITATION
            && let Some(parameters) = params.filter(can_be_asked)
        {
            return self.elicit(parameters, &context).await.map(CustomResult);
        }
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
