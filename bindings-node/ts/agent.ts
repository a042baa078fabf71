// Agents: functions over a durable context.

import { createHash } from "node:crypto";

import type { AgentContext } from "./context.js";
import { checkInput, declarable, givenFor, type InputOf, namesBefore } from "./declared.js";
import { InvalidArgument, messageOf, misfit, typeName, WrongStateType } from "./errors.js";
import { Results } from "./results.js";
import { decode } from "./serde.js";
import { Own, type Serializer } from "./serializer.js";
import type { Stored } from "./stored.js";
import { checked, storable, type StandardSchema, stored } from "./schema.js";

/** What an agent's function is. */
export type AgentFunction<I, R, S> = (ctx: AgentContext<S>, input: I) => R | Promise<R>;

/** An agent's function with any input: what `agent` infers the input from. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyAgentFunction<S> = (ctx: AgentContext<S>, input: any) => unknown;

/** The same with a result that a schema takes. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ShapedAgentFunction<S, Made> = (ctx: AgentContext<S>, input: any) => Made | Promise<Made>;

/** What happens when edited code no longer matches a recorded run. */
export type OnDivergence = "continue" | "fail" | "pause";

/** What an error that leaves the agent's function does to its run. */
export type OnError = "fail" | "pause";

/** Joins the new value of a field with the old one; see `ctx.update`. */
export type Reducer<T> = (old: T, value: never) => T;

/** How an agent is declared. */
export interface AgentOptions<S> {
  /**
   * Makes the state to start with. Without it recovery replays the recorded run, so linear code just works. With it
   * recovery enters the function at its top with `ctx.state` as of the last checkpoint: read it, then loop.
   */
  state?: () => S;
  /** How `ctx.update` joins new values with old ones, by field. */
  reducers?: { [K in keyof S]?: Reducer<S[K]> };
  /** Identifies the code; else a fingerprint of the function does. */
  version?: string;
  /** Turns an older stored state into the present one. */
  migrate?: (stored: unknown) => S;
  /** What happens when edited code no longer matches a recorded run. */
  onDivergence?: OnDivergence;
  /**
   * What an error that leaves the function does to its run. Unless given it fails the run, and `handle.retry()` goes on with
   * it; but the run is PAUSED, for the next deploy and `handle.resume()`, where the error says more of the code than of its
   * work: it comes before all that is recorded was called again, before edited code has done anything, or from a state, an
   * input, a result or a signal that does not fit its schema.
   */
  onError?: OnError;
  /**
   * How long, after a crash, its unchanged code is waited for that has not made a recorded call again and holds up what
   * other branches were told: a branch may wait for something else than its context. Then the run is PAUSED and says what
   * is missing. 60,000 ms unless given.
   */
  replayTimeoutMs?: number;
  /**
   * What its signals must fit, by name: the handle that `client.start(agent)` gave refuses to send what does not.
   * `ctx.waitForSignalAs` checks whatever others send.
   */
  signals?: Readonly<Record<string, StandardSchema>>;
  /** Writes and reads its input, its result, its state and its signals, for types that have no form of their own. */
  serializer?: Serializer;
  /** Names that it had before: it goes on with the runs that were recorded under them. */
  aliases?: readonly string[];
  /** The limit of a run. */
  timeoutMs?: number;
  /**
   * Tasks that its code calls. A worker that takes up a run of a process that is gone serves them at once; others it
   * meets when the code has called them again.
   */
  tasks?: readonly { readonly kind: string }[];
  /** Agents that its code starts as children: whoever serves it serves them too. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  children?: readonly Agent<any, any, any>[];
  /** For people. */
  name?: string;
  /** For people. */
  description?: string;
  /** For people. */
  tags?: readonly string[];
  /** Whether `handle.cancel()` reaches its awaits. */
  cancellable?: boolean;
}

/**
 * A stored state that the present code cannot read. It is no failure of the run: other code, or this one with another
 * `migrate`, goes on with it.
 * @internal
 */
export class UnreadableState extends WrongStateType {
  override readonly code: string = "WrongStateType";
}

/** A declared agent. Start it with `run` or `client.start`. */
export class Agent<I = unknown, R = unknown, S = unknown> {
  /** The plain function, for tests: `agent.fn(ctx, input)`. */
  readonly fn: AgentFunction<never, R, S>;
  /** Its name in journals. */
  readonly kind: string;
  /** How it was declared. */
  readonly options: AgentOptions<S>;
  /** What its input must fit. */
  readonly schema: StandardSchema | undefined;
  /** @internal What a worker opens of the toolkit to serve it, where it is no function of JavaScript. */
  readonly toolkit: object | undefined;
  /** @internal What writes and reads its values. */
  readonly own: Own;
  /** @internal What writes and reads its results. */
  readonly results: Results;
  /** The type of its input; there is no value. */
  declare readonly inputType: I;

  /** @internal */
  constructor(
    kind: string,
    fn: AgentFunction<never, R, S>,
    options: AgentOptions<S>,
    schemas: { input?: StandardSchema | undefined; output?: StandardSchema | undefined },
    toolkit?: object,
  ) {
    this.kind = kind;
    this.fn = fn;
    this.options = options;
    this.schema = schemas.input;
    this.toolkit = toolkit;
    this.own = new Own(options.serializer, `agent "${kind}"`);
    this.results = new Results(this.own, schemas.output, `agent "${kind}"`);
  }

  /** Names that it had before. */
  get aliases(): readonly string[] {
    return this.options.aliases ?? [];
  }

  /** @internal Its name and those that it had before. */
  get names(): readonly string[] {
    return [this.kind, ...this.aliases];
  }

  /** Whether it was declared with `state`. */
  get isStateful(): boolean {
    return this.options.state !== undefined;
  }

  /** What identifies its code: the version, else a fingerprint of the function's text. */
  get code(): string {
    const { version } = this.options;
    return version ?? createHash("sha256").update(this.fn.toString()).digest("hex").slice(0, 24);
  }

  /** @internal Refuses an input that it cannot be started with; gives what is to be stored. */
  async startable(input: unknown): Promise<unknown> {
    this.checkTaken(input);
    const stored = this.own.dump(input);
    if (this.schema !== undefined) {
      const what = `input of agent "${this.kind}"`;
      await (this.own.isNone ? storable(this.schema, input, what) : checked(this.schema, input, what));
    }
    return stored;
  }

  /** @internal Refuses an input that its function does not take; what fits a schema is for the schema to say. */
  checkTaken(input: unknown): void {
    if (this.schema === undefined && this.toolkit === undefined) checkInput(this.kind, this.fn, input);
  }

  /** @internal What the function gets for a stored input. */
  async entered(input: unknown): Promise<unknown> {
    if (this.schema === undefined) return givenFor(this.fn, 1, input);
    return stored(this.schema, input, `input of agent "${this.kind}"`);
  }

  /** @internal What is stored for a signal; refuses a value that does not fit the schema declared for it. */
  async signalled(name: string, payload: unknown): Promise<unknown> {
    const { signals = {} } = this.options;
    const schema = Object.hasOwn(signals, name) ? signals[name] : undefined;
    if (schema !== undefined) {
      const what = `signal "${name}"`;
      await (this.own.isNone ? storable(schema, payload, what) : checked(schema, payload, what));
    }
    return this.own.dump(payload);
  }

  /** @internal The state to start with: the stored one, migrated, or a new one. */
  initialState(stored: [unknown] | undefined): S | undefined {
    const { state, migrate } = this.options;
    if (state === undefined) return undefined;
    if (stored === undefined) return state();
    if (migrate === undefined) return stored[0] as S;
    let made: S;
    try {
      made = migrate(stored[0]);
    } catch (error) {
      throw this.unreadable(`migrate threw ${typeName(error)}: ${messageOf(error)}`, error);
    }
    if (made instanceof Promise) {
      made.catch(() => undefined);
      throw this.unreadable("migrate gave a promise, but the state is wanted at once");
    }
    return made;
  }

  /** @internal The state to start with, of what is stored of it; throws `UnreadableState`. */
  readState(stored: unknown): S | undefined {
    if (stored === undefined) return this.initialState(undefined);
    let value: unknown;
    try {
      value = this.own.load(decode(stored));
    } catch (error) {
      throw this.unreadable(messageOf(error), error);
    }
    return this.initialState([value]);
  }

  private unreadable(why: string, cause?: unknown): UnreadableState {
    const message =
      `the stored state of agent "${this.kind}" cannot be read: ${why}. Correct migrate, or deploy the code that wrote ` +
      "it; then resume the run";
    return misfit(new UnreadableState(message, { context: { agent: this.kind, why }, cause }));
  }

  /** @internal The state with fields changed by their reducers. */
  reduced(state: S, fields: Partial<Record<keyof S, unknown>>): S {
    const changed = { ...state };
    for (const name of Object.keys(fields) as (keyof S)[]) {
      const reducer = this.options.reducers?.[name];
      const value = fields[name];
      changed[name] = reducer === undefined ? (value as S[keyof S]) : reducer(state[name], value as never);
    }
    return changed;
  }
}

/** Any declared agent. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyAgent = Agent<any, any, any>;

/** Adds items to a list: one item, or each of a list. A reducer. */
export function append<T>(old: T[], value: T | T[]): T[] {
  return Array.isArray(value) ? [...old, ...value] : [...old, value];
}

/** Joins two objects, the new one's values counting. A reducer. */
export function merge<T extends object>(old: T, value: Partial<T>): T {
  return { ...old, ...value };
}

/**
 * Declares an agent: a function over an `AgentContext` and one input or none.
 *
 * `input:` in the options takes a zod schema, or any other that speaks Standard Schema; `start` refuses an input that does
 * not fit, and the function gets what the schema makes of it. A run that has begun is not stopped by a schema that is
 * stricter by now: then the function gets the input as it is stored. `output:` takes a schema for the result: one that does
 * not fit pauses the run, as any value does that does not fit, and `handle.result()` gives what the schema makes of it.
 */
export function agent<F extends AnyAgentFunction<undefined>>(
  kind: string,
  fn: F,
): Agent<InputOf<Parameters<F>>, Stored<Awaited<ReturnType<F>>>, undefined>;
export function agent<I, R>(kind: string, fn: AgentFunction<I, R, undefined>): Agent<I, Stored<Awaited<R>>, undefined>;
export function agent<In, Out, Made, Given, S = undefined>(
  kind: string,
  options: AgentOptions<S> & { input: StandardSchema<In, Out>; output: StandardSchema<Made, Given> },
  fn: AgentFunction<Out, Made, S>,
): Agent<In, Given, S>;
export function agent<Made, Given, S = undefined, F extends ShapedAgentFunction<S, Made> = ShapedAgentFunction<S, Made>>(
  kind: string,
  options: AgentOptions<S> & { output: StandardSchema<Made, Given> },
  fn: F,
): Agent<InputOf<Parameters<F>>, Given, S>;
export function agent<In, Out, R, S = undefined>(
  kind: string,
  options: AgentOptions<S> & { input: StandardSchema<In, Out>; serializer: Serializer },
  fn: AgentFunction<Out, R, S>,
): Agent<In, Awaited<R>, S>;
export function agent<S = undefined, F extends AnyAgentFunction<S> = AnyAgentFunction<S>>(
  kind: string,
  options: AgentOptions<S> & { serializer: Serializer },
  fn: F,
): Agent<InputOf<Parameters<F>>, Awaited<ReturnType<F>>, S>;
export function agent<In, Out, R, S = undefined>(
  kind: string,
  options: AgentOptions<S> & { input: StandardSchema<In, Out> },
  fn: AgentFunction<Out, R, S>,
): Agent<In, Stored<Awaited<R>>, S>;
export function agent<S = undefined, F extends AnyAgentFunction<S> = AnyAgentFunction<S>>(
  kind: string,
  options: AgentOptions<S>,
  fn: F,
): Agent<InputOf<Parameters<F>>, Stored<Awaited<ReturnType<F>>>, S>;
export function agent<I, R, S = undefined>(
  kind: string,
  options: AgentOptions<S>,
  fn: AgentFunction<I, R, S>,
): Agent<I, Stored<Awaited<R>>, S>;
export function agent(kind: string, ...rest: unknown[]): unknown {
  const given = rest.length > 1 ? (rest[0] as AgentOptions<unknown> & { input?: StandardSchema; output?: StandardSchema }) : {};
  const { input, output, ...options } = given;
  const fn: AgentFunction<never, unknown, unknown> = declarable("agent", kind, rest[rest.length - 1]);
  const { replayTimeoutMs } = options;
  if (replayTimeoutMs !== undefined && !(typeof replayTimeoutMs === "number" && replayTimeoutMs > 0)) {
    const given = String(replayTimeoutMs);
    throw new InvalidArgument(`replayTimeoutMs of agent "${kind}" is a number of milliseconds above 0, not ${given}`);
  }
  const aliases = namesBefore("agent", kind, options.aliases);
  return new Agent<unknown, unknown, unknown>(kind, fn, { ...options, aliases }, { input, output });
}
