// The built-in agent: a model, its tools and a conversation in a loop, in the engine's own process.

import { Agent } from "../agent.js";
import { InvalidArgument, OutsideAgent } from "../errors.js";
import type { ApprovalPolicy, Decision } from "./approvals.js";
import { type AnyDelegate, Delegate, delegatesOf } from "./delegates.js";
import { absolute, described, type Toolkit } from "./kit.js";
import type { ModelChoice, Thinking } from "./llm.js";
import type { GivenPart } from "./message.js";
import type { Via } from "./native.js";
import { OutcomesOf, type OutputOf, type OutputSchema, formOf } from "./output.js";
import { type AnyTool, made, Tool } from "./tool.js";

/** What a run may use. What is absent is without limit. */
export interface Budget {
  /** Tokens in all: prompts, cached ones included, and answers. */
  maxTokens?: number;
  /** Millionths of a US dollar; calls of unknown price do not count. */
  maxCostMicros?: number;
  /** Model calls. */
  maxCalls?: number;
  /** The most tokens of one answer. */
  maxTokensPerCall?: number;
}

/** How a full window is made room in. */
export interface Compaction {
  enabled?: boolean;
  /** The model's window in tokens, where it shall be taken for another than is known. */
  window?: number;
  /** Tokens that are kept free for the next answer. */
  reserveTokens?: number;
  /** The newest tokens that stay as they are. */
  keepRecentTokens?: number;
}

/** How much of a tool's result a model is shown. It reads the rest with `read_result`. */
export interface ResultLimits {
  /** 50 KB unless given. */
  maxBytes?: number;
  /** 2,000 unless given. */
  maxLines?: number;
}

/** How long a run waits for models that cannot be reached or refuse for the moment, and what it does then. */
export interface Outage {
  /** Seconds, or a text such as `"90s"`, `"15m"`, `"6h"` (the usual) or `"2d"`. */
  maxWait?: number | string;
  /** `pause` unless given: the run makes its last call again when it is resumed. */
  then?: "pause" | "fail";
}

/** Limits and habits of an agent, or of one run. */
export interface AgentConfig {
  /** Model calls after which it stops by itself, counted from the user's last word: 50. */
  maxTurns?: number;
  /** The most tokens of one answer; the model's own limit unless given. */
  maxTokens?: number;
  temperature?: number;
  /** With `"parent"` the workers of the run that has started it make its model calls: it needs no key of its own. */
  via?: Via;
  /** How long the model thinks: `off`. */
  thinking?: Thinking;
  /** What follows the model's last word: the run's end, or, in a chat, the wait for the next message. */
  mode?: "one_shot" | "chat";
  /** The models that are asked, in order, where the chosen one fails. */
  fallback?: readonly ModelChoice[];
  /** Tool calls of one turn that run at the same time: 8. */
  parallelTools?: number;
  budget?: Budget;
  compaction?: Compaction;
  /** How much of a tool's result the model is shown. */
  results?: ResultLimits;
  /** How outages of models are waited for. */
  retry?: Outage;
  /** In how many turns after a message of the user the model may give work to delegates; without limit unless given. */
  maxRounds?: number;
}

/** How the built-in agent is declared. */
export interface ReactAgentOptions<O extends OutputSchema | undefined = OutputSchema | undefined>
  extends AgentConfig, Omit<Toolkit, "tools"> {
  /** The model of runs that name none: `provider/model`. */
  model?: ModelChoice;
  /** How to behave; the agent's own words unless given. */
  systemPrompt?: string;
  /** What the model may call: tasks, what `tool` gave, host tools by name, tools of MCP servers (`mcp__files__*`). */
  tools?: readonly (AnyTool | AnyDelegate)[];
  /** Agents that the model may give work to: each is a tool that starts a child, and its answer is the result. */
  delegates?: readonly AnyDelegate[];
  /** Agents that may go on with the conversation in its place, by the tool `transfer_to_NAME`. */
  handoffs?: readonly AnyDelegate[];
  /** Whether the model may ask whoever has given it its work: the run that has started it, else a person. */
  escalates?: boolean;
  /** Which calls need a person: `ask` before changes and commands (the usual), `allow` or `deny` those, or a policy. */
  approvals?: Decision | ApprovalPolicy;
  /**
   * The form of a run's answer, which is then `outcome.output`: zod, another schema that has a JSON form, or a JSON Schema.
   * An answer that does not fit is told what is wrong and asked for again.
   */
  output?: O;
  /** How often it is asked for again: 2. Then the run fails with the type `invalid_output`. */
  outputRetries?: number;
  /** The limit of a run. */
  timeoutMs?: number;
  /** For people. */
  description?: string;
}

/** What a run is started with, where it is more than its prompt. */
export interface RunInput {
  userPrompt?: string;
  /** Images and documents that go with it. */
  userParts?: readonly GivenPart[];
  systemPrompt?: string;
  model?: ModelChoice;
  /** The tools that the model may call, of those that the agent has. */
  tools?: string[];
  config?: AgentConfig;
  workingDirectory?: string;
  /** May be stricter than the agent's, not laxer. */
  approvals?: ApprovalPolicy;
}

/** Tokens and cost of the calls of one model. */
export interface ModelUsage {
  calls: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  /** Millionths of a US dollar; calls of unknown price do not count. */
  cost_micros?: number | null;
}

/** What a run ends with. */
export interface RunOutcome<O = unknown> {
  /** The model's last words. */
  text: string;
  stopReason: "end" | "length" | "refusal" | "max_turns" | "budget" | "interrupted" | "invalid_output" | "error";
  /** Model calls that got an answer. */
  turns: number;
  /** The model that spoke last. */
  model: { provider: string; modelId: string };
  /** By `provider/model`. */
  usage: Record<string, ModelUsage>;
  /** The answer as a value of the agent's `output`; absent where the run has stopped before. */
  output?: O;
}

/** A built-in agent. `run`, `client.start` and `client.worker` take it like any other. */
export class ReactAgent<O = unknown> extends Agent<string | RunInput, RunOutcome<O>, undefined> {
  /** What its models may call. */
  readonly tools: readonly (Tool | string)[];
  /** @internal */
  override readonly results: OutcomesOf;

  /** @internal */
  constructor(kind: string, options: ReactAgentOptions) {
    const offered = options.tools ?? [];
    const tools = offered.filter((one): one is AnyTool => !isDelegate(one)).map(made);
    const helpers = delegatesOf("delegates", [...(options.delegates ?? []), ...offered.filter(isDelegate)]);
    const successors = delegatesOf("handoffs", options.handoffs ?? []);
    const children = [...helpers, ...successors].flatMap(({ agent }) => (agent === undefined ? [] : [agent]));
    const tasks = tools.flatMap((tool) => (tool instanceof Tool ? [tool.task] : []));
    const { timeoutMs, description } = options;
    const shown = descriptionOf(kind, tools, options, helpers, successors);
    super(kind, native, { tasks, children, timeoutMs, description }, {}, shown);
    this.tools = tools;
    this.results = new OutcomesOf(this.own, options.output, `agent "${kind}"`);
  }
}

function isDelegate(given: unknown): given is AnyDelegate {
  return given instanceof Agent || given instanceof Delegate;
}

function native(): never {
  throw new OutsideAgent("the built-in agent has no function to call; start a run of it, with run(…) or client.start(…)");
}

function descriptionOf(
  kind: string,
  tools: (Tool | string)[],
  options: ReactAgentOptions,
  helpers: Delegate[],
  successors: Delegate[],
): object {
  const { maxTurns, maxTokens, temperature, via, thinking, mode, fallback, parallelTools, budget } = options;
  const { compaction, results, retry, maxRounds, escalates } = options;
  const { supervises } = options as { supervises?: boolean };
  const agent = {
    kind,
    model: options.model,
    systemPrompt: options.systemPrompt,
    tools: tools.map((tool) => (tool instanceof Tool ? tool.describe() : tool)),
    delegates: helpers.map((helper) => helper.describe()),
    handoffs: successors.map((successor) => successor.describe()),
    escalates,
    supervises,
    approvals: options.approvals,
    config: {
      maxTurns,
      maxTokens,
      temperature,
      via,
      thinking,
      mode,
      fallback,
      parallelTools,
      budget,
      compaction,
      results,
      retry,
      maxRounds,
      output: formOf(options.output, options.outputRetries),
    },
    workingDirectory: absolute(options.workingDirectory),
  };
  return { ...described({ ...options, tools: undefined, workingDirectory: undefined }), agents: [agent] };
}

/**
 * Declares the built-in agent: a model with tools that works in a loop until it has said what it had to say. A run is
 * started with a prompt, or a `RunInput`; it ends with a `RunOutcome`.
 *
 * ```ts
 * const assistant = reactAgent("assistant", { model: "anthropic/claude-sonnet-5-5", tools: [lookUp, "read", "grep"] });
 * const { text } = await run(assistant, "Why do the tests fail?", { url: "sqlite:agents.db" });
 * ```
 */
export function reactAgent<const O extends OutputSchema | undefined = undefined>(
  kind: string,
  options: ReactAgentOptions<O> = {},
): ReactAgent<OutputOf<O>> {
  if (typeof kind !== "string" || kind === "") throw new InvalidArgument("an agent needs a kind, its name in journals");
  return new ReactAgent<OutputOf<O>>(kind, options);
}
