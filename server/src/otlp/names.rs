//! The names of OpenTelemetry's conventions for generative AI, in one place: they are still in development there
//! (`semantic-conventions-genai`, as of its first release after they left the main conventions at 1.42).

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const INVOKE_AGENT: &str = "invoke_agent";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";
pub(super) const CHAT: &str = "chat";

pub(super) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(super) const AGENT_VERSION: &str = "gen_ai.agent.version";
pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const MODEL: &str = "gen_ai.request.model";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
/// Those from the cache included, as the conventions count them.
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub(super) const ERROR_TYPE: &str = "error.type";

pub(super) const RUN: &str = "flovyn.run.id";
pub(super) const PARENT: &str = "flovyn.parent.id";
pub(super) const ORG: &str = "flovyn.org.id";
pub(super) const QUEUE: &str = "flovyn.queue";
pub(super) const STATUS: &str = "flovyn.status";
pub(super) const ATTEMPTS: &str = "flovyn.attempts";
pub(super) const COST: &str = "flovyn.cost_usd";
