// Agents that the built-in agent may give work to: what its models are shown of them, and how a run of one is started.

import { Agent, type AnyAgent } from "../agent.js";
import type { SpawnOptions } from "../child.js";
import { InvalidArgument } from "../errors.js";
import { type ArgumentsSchema, descriptionOf, parametersOf } from "./schema.js";
import type { Effect } from "./tool.js";

/** How an agent is shown to the model of another one, and how its run is started. */
export interface DelegateOptions
  extends Pick<SpawnOptions, "budget" | "timeoutMs" | "maxSteps" | "queue" | "sharedContext"> {
  /** The name that models use: letters, digits, `_` and `-`; the agent's kind unless given. A handoff is `transfer_to_NAME`. */
  name?: string;
  /** When to give it work; the agent's own `description` unless given, else that of its input's schema. */
  description?: string;
  /** What approvals go by; `read` unless given, since the agent has approvals of its own. */
  effect?: Effect;
  /** What it takes: zod, another schema with a JSON form, or a JSON Schema; the agent's `input` unless given, else a text. */
  parameters?: ArgumentsSchema;
}

/** An agent as the model of another one sees it. Made by `delegate`. */
export class Delegate {
  /** The agent, which whoever serves the other one serves too; absent for one that is named by its kind. */
  readonly agent: AnyAgent | undefined;
  readonly kind: string;
  readonly name: string;
  /** When to give it work. */
  readonly description: string;
  private readonly given: object;

  /** @internal */
  constructor(agent: AnyAgent | string, options: DelegateOptions) {
    this.agent = typeof agent === "string" ? undefined : agent;
    this.kind = typeof agent === "string" ? agent : agent.kind;
    this.name = options.name ?? this.kind.replaceAll(/[^a-zA-Z0-9_-]/g, "_");
    if (!/^[a-zA-Z0-9_-]{1,52}$/.test(this.name)) {
      throw new InvalidArgument(
        `the agent "${this.kind}" is named "${this.name}" as a tool; use 1 to 52 letters, digits, _ and -`,
      );
    }
    const isNative = this.agent?.toolkit !== undefined;
    const schema = options.parameters ?? (isNative ? undefined : (this.agent?.schema as ArgumentsSchema | undefined));
    const description = options.description ?? this.agent?.options.description ?? descriptionOf(schema);
    if (description === undefined || description === "") {
      throw new InvalidArgument(
        `the agent "${this.kind}" has no description, so a model would not know when to give it work; declare it with ` +
          `description: "…", or write delegate(agent, { description: "…" })`,
      );
    }
    this.description = description;
    const { effect, budget, timeoutMs = this.agent?.options.timeoutMs, maxSteps, queue, sharedContext } = options;
    if (effect !== undefined && !["read", "write", "exec"].includes(effect)) {
      throw new InvalidArgument(`the effect of the agent "${this.kind}" is "${String(effect)}"; write "read", "write" or "exec"`);
    }
    const takes = schema === undefined ? this.taken(isNative) : parametersOf(schema, `input of the agent "${this.kind}"`);
    const { schema: parameters, argument } = takes;
    const takesPrompt = isNative || undefined;
    this.given = { takesPrompt, parameters, argument, effect, budget, timeoutMs, maxSteps, queue, sharedContext };
  }

  /** What an agent takes that no schema describes: a text, or nothing where its function takes none. */
  private taken(isNative: boolean): { schema?: object; argument?: string } {
    if (isNative || this.agent === undefined || this.agent.fn.length !== 1) return {};
    return { schema: { type: "object", properties: {}, additionalProperties: false }, argument: "input" };
  }

  /** @internal The agent as the kit reads it. */
  describe(): object {
    return { kind: this.kind, name: this.name, description: this.description, ...this.given };
  }
}

/**
 * Makes an agent one that `reactAgent`'s `delegates` and `handoffs` take, with options: an agent of either kind, or the kind of
 * one that other workers serve.
 */
export function delegate(agent: AnyAgent | string, options: DelegateOptions = {}): Delegate {
  if (typeof agent !== "string" && !((agent as unknown) instanceof Agent)) {
    throw new InvalidArgument("a delegate is made of what agent(…) or reactAgent(…) gave, or of a kind");
  }
  return new Delegate(agent, options);
}

/** An agent that may be given work, as it may be given: made, or an agent. */
export type AnyDelegate = Delegate | AnyAgent;

/** @internal Delegates made of what was given. */
export function delegatesOf(what: string, given: readonly AnyDelegate[]): Delegate[] {
  return given.map((one: unknown) => {
    if (one instanceof Delegate) return one;
    if (one instanceof Agent) return delegate(one as AnyAgent);
    throw new InvalidArgument(
      `${what} takes agents, and what delegate(…) gave` +
        (typeof one === "string" ? `; write delegate("${one}", { description: "…" })` : ""),
    );
  });
}
