// Model calls as durable steps of any agent.

import type { Activation } from "../activation.js";
import { AgentContext, type ContextRef } from "../context.js";
import { InvalidArgument, OutsideAgent, TaskFailed } from "../errors.js";
import { hub } from "../hub.js";
import { native } from "../native.js";
import { Step } from "../step.js";
import { described, scriptedBeside, type Toolkit } from "./kit.js";
import {
  type MessageLike,
  messageOf,
  type ModelMessage,
  type Stop,
  textOf,
  type ToolCall,
  type Usage,
} from "./message.js";
import { inAgent, type NativeOptions, queueOf, schedule, type Via } from "./native.js";
import {
  Asking,
  FINAL_ANSWER,
  type OutputOf,
  type OutputSchema,
  refusalOf,
  RETRIES,
  formOf,
  untilItFits,
  valueOf,
} from "./output.js";
import { type AnyTool, made, Tool, type ToolSpec } from "./tool.js";
import type { ToolOutcome } from "./tools.js";

/** How long a model thinks; one without levels takes the nearest it has. */
export type Thinking = "off" | "minimal" | "low" | "medium" | "high" | "max";

/** A model: `provider/model`, or the two apart. */
export type ModelChoice = string | { provider: string; modelId: string };

/** What a model goes on with: an agent's conversation, a reference to where one stood, a prompt, or messages. */
export type About = AgentContext<unknown> | ContextRef | string | readonly MessageLike[];

/** How a model is asked. */
export interface GenerateOptions extends NativeOptions {
  /**
   * With `"parent"` the workers of the run that has started this one make the call, with their providers and keys. What it
   * used is this run's. `NoParent` where nobody has started it.
   */
  via?: Via;
  /** The model: `provider/model`. */
  model: ModelChoice;
  /** What is said after the conversation, for this call alone: it becomes no part of it. */
  messages?: readonly MessageLike[];
  /** How to behave, before what the conversation itself says of it. */
  system?: string;
  /** The tools that it may call; nothing runs them but you. */
  tools?: readonly (AnyTool | ToolSpec)[];
  /** Whether it has to call one: as it sees fit, none, at least one, or this one. */
  toolChoice?: "auto" | "none" | "required" | { tool: string };
  /** The most tokens of the answer; the model's own limit unless given. */
  maxTokens?: number;
  temperature?: number;
  thinking?: Thinking;
  /**
   * The form of the answer, which is then `reply.output`: zod, another schema that has a JSON form, or a JSON Schema. An
   * answer that does not fit is told what is wrong and asked for again, each time as a durable step of its own.
   */
  output?: OutputSchema;
  /** How often it is asked for again: 2. Then the step fails with `InvalidOutput`. */
  outputRetries?: number;
  /** Outside of an agent, the providers; inside of one its worker has them. */
  toolkit?: Pick<Toolkit, "providers">;
}

/** What a model answered. */
export class Reply<O = undefined> {
  /** The message, to be stored with `ctx.appendEntry("assistant", reply.message)`. */
  readonly message: ModelMessage;
  /** The model's window in tokens, where it is known. */
  readonly contextWindow: number | undefined;
  /** Which attempt at the call this was, from 1. */
  readonly attempt: number;
  /** The answer as a value of `output`; undefined where the model calls tools instead, or has refused. */
  readonly output: O;
  /** Whether a form was asked for: then a call may be the answer. */
  private readonly isChecked: boolean;
  /** @internal Why the answer has no such form, before the model is asked again. */
  readonly fault: string | undefined;
  /** @internal What asks for another answer. */
  readonly again: readonly ModelMessage[];

  /** @internal */
  constructor(message: ModelMessage, contextWindow: number | undefined, attempt: number, checked?: Checked) {
    this.message = message;
    this.contextWindow = contextWindow;
    this.attempt = attempt;
    this.isChecked = checked !== undefined;
    this.output = checked?.value as O;
    this.fault = checked?.fault?.message;
    this.again = checked?.fault?.again ?? [];
  }

  /** What it says. */
  get text(): string {
    return textOf(this.message.parts);
  }

  /** What it thought, as far as the provider tells. */
  get thinking(): string {
    return this.message.parts.map((part) => (part.type === "thinking" ? part.text : "")).join("");
  }

  /** The calls that are to be answered, in order. */
  get toolCalls(): ToolCall[] {
    const calls = this.message.parts.filter((part) => part.type === "toolCall");
    return calls.filter((call) => call.executedBy !== "provider" && !(this.isChecked && call.name === FINAL_ANSWER));
  }

  /** Tokens and cost; undefined for an answer that a message of the user cut short. */
  get usage(): Usage | undefined {
    return this.message.assistant?.usage;
  }

  /** Why it stopped; `aborted` where a message of the user did not wait. */
  get stop(): Stop {
    return this.message.assistant?.stop ?? "aborted";
  }
}

/** No model answered, and asking again in the same way would not help now. */
export class ModelError extends TaskFailed {
  /** The HTTP status, where there was a response. */
  readonly status: number | undefined;
  /** How long the provider asked to wait. */
  readonly retryAfterMs: number | undefined;

  /** @internal */
  constructor(told: Told) {
    super(told.message, { type: told.kind });
    this.status = told.status;
    this.retryAfterMs = told.retryAfterMs;
  }
}

/** What a provider's failure tells; `kind` says what can be done: `unauthorized`, `contextOverflow`, … */
type Told = { kind: string; message: string; status?: number; retryAfterMs?: number };

type Generated =
  | string
  | { error: Told }
  | { message: ModelMessage; contextWindow?: number; attempt: number; output?: Checked };

/** An answer that was checked against its form. */
type Checked = { value?: unknown; fault?: { message: string; again: readonly ModelMessage[] } };

/** The reply of what the task gave, its answer as a value of `output`. */
function replyOf<O>(given: unknown, output: OutputSchema | undefined): Reply<O> {
  const generated = given as Generated;
  if (typeof generated === "string") {
    return new Reply<O>({ role: "assistant", parts: [{ type: "text", text: generated }] }, undefined, 1);
  }
  if ("error" in generated) throw new ModelError(generated.error);
  const { message, contextWindow, attempt, output: checked } = generated;
  const valued = checked === undefined ? undefined : valuedBy(output, checked, message);
  return new Reply<O>(message, contextWindow, attempt, valued);
}

function valuedBy(output: OutputSchema | undefined, checked: Checked, message: ModelMessage): Checked {
  if (checked.fault !== undefined) return checked;
  try {
    return { value: valueOf(output, checked.value) };
  } catch (error) {
    const fault = refusalOf(error);
    const call = message.parts.find((part) => part.type === "toolCall" && part.name === FINAL_ANSWER);
    const again = call?.type === "toolCall" ? toolResult(call, fault, { isError: true }) : messageOf(fault);
    return { fault: { message: fault, again: [again] } };
  }
}

function inputOf(about: About, options: GenerateOptions): Record<string, unknown> {
  const { model, messages = [], system, tools, toolChoice, maxTokens, temperature, thinking } = options;
  const said = typeof about === "string" ? [about] : Array.isArray(about) ? (about as readonly MessageLike[]) : [];
  const isSaid = typeof about === "string" || Array.isArray(about);
  if (isSaid && said.length + messages.length === 0) {
    throw new InvalidArgument("a model was given nothing to answer; give it ctx, a prompt, or messages");
  }
  const all = [...said, ...messages].map(messageOf);
  const input = {
    model,
    context: isSaid ? undefined : about instanceof AgentContext ? about.contextRef() : about,
    messages: all.length === 0 ? undefined : all,
    system,
    tools: tools?.map(specOf),
    toolChoice,
    maxTokens,
    temperature,
    thinking,
    output: formOf(options.output, options.outputRetries),
  };
  return Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined));
}

/** What is asked after an answer that did not fit. */
function askedAgain(input: Record<string, unknown>, reply: Reply<unknown>): Record<string, unknown> {
  const said = (input["messages"] ?? []) as readonly ModelMessage[];
  const { assistant, ...message } = reply.message;
  // Asked again after a crash the first answer takes another time: what is asked next shall not tell how long it took.
  const { durationMs: _whole, firstTokenMs: _first, ...meta }: Record<string, unknown> = assistant ?? {};
  const answer = assistant === undefined ? message : { ...message, assistant: meta };
  return { ...input, messages: [...said, answer, ...reply.again] };
}

function specOf(given: AnyTool | ToolSpec): ToolSpec {
  const tool = typeof given === "object" && !(given instanceof Tool) ? given : made(given);
  if (typeof tool === "string") {
    throw new InvalidArgument(
      `tools: "${tool}" is a name; a model call of one's own takes tasks, what tool(…) gave, or { name, description, ` +
        "parameters }",
    );
  }
  return { name: tool.name, description: tool.description, parameters: tool.parameters };
}

async function alone<O>(options: GenerateOptions, input: Record<string, unknown>): Promise<Reply<O>> {
  let asked = input;
  return untilItFits(askAlone<O>(options, asked), options.outputRetries ?? RETRIES, (reply) => {
    asked = askedAgain(asked, reply);
    return askAlone<O>(options, asked);
  });
}

async function askAlone<O>(options: GenerateOptions, input: object): Promise<Reply<O>> {
  const { providers } = options.toolkit ?? {};
  const all = { ...scriptedBeside([{ providers }]).providers, ...providers };
  const description = JSON.stringify(described({ providers: all }));
  const text = await hub.call<string>((hub, token) => native.askModel(hub, token, description, JSON.stringify(input)));
  return replyOf<O>(JSON.parse(text), options.output);
}

/** Schedules a model call, and where its answer has a form the calls that ask for another. */
function scheduled<O>(activation: Activation, input: Record<string, unknown>, given: GenerateOptions): Step<Reply<O>> {
  const { output, outputRetries = RETRIES } = given;
  const options = { ...given, queue: queueOf(given.via) ?? given.queue };
  const rebuild = (given: unknown): Reply<O> => replyOf<O>(given, output);
  const first = schedule(activation, "llm.generate", input, options, rebuild);
  if (output === undefined) return first;
  let asked = input;
  return new Asking(first, outputRetries, (reply) => {
    asked = askedAgain(asked, reply);
    return schedule(activation, "llm.generate", asked, options, rebuild);
  });
}

/**
 * Model calls as durable steps of any agent: each is recorded once, and asked again only if it was lost. Where no model
 * answers and asking again would not help they throw `ModelError`.
 */
export const llm = {
  /** Asks a model; readers of the run see nothing of it. Outside of an agent it just asks, and takes no context. */
  generate<const G extends GenerateOptions>(about: About, options: G): Step<Reply<OutputOf<G["output"]>>> {
    const input = inputOf(about, options);
    const activation = inAgent();
    if (activation !== undefined) {
      return scheduled(activation, { ...input, quiet: true }, options);
    }
    if (input["context"] !== undefined) {
      throw new OutsideAgent(
        "a context stands for the conversation of a run, which only its agent can ask with; outside of one give " +
          "llm.generate a prompt or messages",
      );
    }
    return Step.local(alone(options, input));
  },

  /**
   * Asks as `generate` does, and shows the run's readers its words while they come: `token` events, void when the call is
   * made again, replaced by the entry that keeps the reply.
   */
  stream<const G extends GenerateOptions>(about: About, options: G): Step<Reply<OutputOf<G["output"]>>> {
    const input = inputOf(about, options);
    const activation = inAgent();
    if (activation === undefined) {
      throw new OutsideAgent(
        "llm.stream shows an answer to the readers of a run; outside of an agent use llm.generate",
      );
    }
    return scheduled(activation, input, options);
  },
} as const;

/**
 * The message that answers a call: `ctx.appendEntry("tool_result", toolResult(call, found))`. Text is shown as it is, a
 * `ToolOutcome` with all its parts, and anything else as JSON.
 */
export function toolResult(call: ToolCall, content: unknown, options: { isError?: boolean } = {}): ModelMessage {
  const outcome = typeof content === "object" && content !== null && "content" in content ? content : undefined;
  const { content: shown, isError = false } = (outcome ?? {}) as Partial<ToolOutcome>;
  const text = typeof content === "string" ? content : JSON.stringify(content ?? null);
  const parts = Array.isArray(shown) ? shown : [{ type: "text" as const, text }];
  const result = { type: "toolResult" as const, id: call.id, name: call.name, content: parts };
  return { role: "tool", parts: [isError || options.isError === true ? { ...result, isError: true } : result] };
}
