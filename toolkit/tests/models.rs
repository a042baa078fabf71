//! Every wire against the scripted server: what goes round, what goes wrong, what is asked again.

mod models {
    pub(crate) mod cuts;
    pub(crate) mod faults;
    pub(crate) mod rounds;
    pub(crate) mod scripts;

    use flovyn_toolkit::fake_llm::{FakeLlm, Script};
    use flovyn_toolkit::message::Message;
    use flovyn_toolkit::provider::{
        Api, CancellationToken, Endpoint, HttpProvider, ModelError, ModelInfo, ModelRequest, Provider, Quirks,
        StreamEvent, ThinkingField, ThinkingLevel, ThinkingSupport, Timeouts, ToolSpec,
    };
    use serde_json::json;
    use std::time::Duration;

    pub(crate) const APIS: [Api; 3] = [Api::AnthropicMessages, Api::OpenaiChat, Api::OpenaiResponses];

    pub(crate) fn fake(script: Script) -> FakeLlm {
        FakeLlm::start(script).expect("a server")
    }

    /// The server as a provider of a wire, with a model that thinks and has a price.
    pub(crate) fn endpoint(api: Api, fake: &FakeLlm) -> Endpoint {
        let (provider, url, model, thinking) = match api {
            Api::AnthropicMessages => ("anthropic", fake.url(), "claude-haiku-4-5", ThinkingSupport::Adaptive),
            Api::OpenaiChat => ("deepseek", fake.openai_url(), "deepseek-v4-pro", ThinkingSupport::Toggle),
            Api::OpenaiResponses => ("openai", fake.openai_url(), "gpt-5", ThinkingSupport::Effort),
        };
        let quirks = Quirks {
            thinking: ThinkingField::Typed,
            reasoning_field: Some("reasoning_content".into()),
            reasoning_required: true,
            ..Quirks::default()
        };
        let info = ModelInfo { id: model.into(), thinking, images: true, ..ModelInfo::default() };
        let brief = Timeouts { response: Duration::from_secs(5), idle: Duration::from_secs(5) };
        let endpoint = Endpoint::new(provider, url).models([info]).timeouts(brief);
        if api == Api::OpenaiChat { endpoint.quirks(quirks) } else { endpoint }
    }

    pub(crate) fn provider(api: Api, fake: &FakeLlm) -> HttpProvider {
        HttpProvider::new(api, endpoint(api, fake)).expect("a provider")
    }

    /// A request of the provider's one model, which thinks and may call a tool.
    pub(crate) fn request(provider: &HttpProvider, messages: Vec<Message>) -> ModelRequest {
        let mut request = ModelRequest::new(&provider.endpoint().models[0].id, messages);
        request.system = Some("Be brief.".into());
        request.thinking = ThinkingLevel::Medium;
        request.max_tokens = Some(4_000);
        request.tools = vec![ToolSpec {
            name: "read".into(),
            description: "Reads a file.".into(),
            parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        }];
        request
    }

    pub(crate) async fn streamed(
        provider: &dyn Provider,
        request: &ModelRequest,
    ) -> (Result<Message, ModelError>, Vec<StreamEvent>) {
        let mut events = Vec::new();
        let done = provider.stream(request, &mut |event| events.push(event), &CancellationToken::new()).await;
        (done, events)
    }
}
