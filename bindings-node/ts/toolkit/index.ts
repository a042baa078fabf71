// The toolkit: the built-in agent, model calls, host tools and MCP tools.
//
// `reactAgent` declares an agent that works with tools. `llm.generate` and `tools.read` are durable steps of any agent. All
// of it runs in the worker's own process.

export { ApprovalRequest, type ApprovalPolicy, type ApprovalTerms, type Decision, type Rule } from "./approvals.js";
export { type AnyDelegate, Delegate, delegate, type DelegateOptions } from "./delegates.js";
export { External, type ExternalOptions } from "./external.js";
export type { Api, McpServer, Provider, Toolkit } from "./kit.js";
export {
  type About,
  type GenerateOptions,
  llm,
  type ModelChoice,
  ModelError,
  Reply,
  type Thinking,
  toolResult,
} from "./llm.js";
export {
  type GivenPart,
  type Media,
  type MessageLike,
  type ModelMessage,
  type Part,
  type Stop,
  textOf,
  type ToolCall,
  type ToolResult,
  type Usage,
} from "./message.js";
export type { NativeOptions, Via } from "./native.js";
export { InvalidOutput, type OutputOf, type OutputSchema } from "./output.js";
export {
  escalate,
  PlanAgent,
  planAndExecute,
  type PlanInput,
  type PlanOptions,
  type PlanOutcome,
  supervisor,
  type SupervisorOptions,
} from "./patterns.js";
export {
  type AgentConfig,
  type Budget,
  type Compaction,
  type ModelUsage,
  type Outage,
  ReactAgent,
  reactAgent,
  type ReactAgentOptions,
  type ResultLimits,
  type RunInput,
  type RunOutcome,
} from "./react.js";
export type { ArgumentsSchema, JsonSchema } from "./schema.js";
export { type AnyTool, type Effect, Tool, tool, type ToolOptions, type ToolSpec } from "./tool.js";
export { type CallOptions, type TodoStep, ToolOutcome, tools } from "./tools.js";
