// Tasks: functions whose calls inside an agent are durable steps.

import { PreviewCode } from "./codes.js";
import { declarable, givenFor, namesBefore } from "./declared.js";
import { InvalidArgument, messageOf, NonRetryable } from "./errors.js";
import { natively, native, type NativeTaskSpec } from "./native.js";
import { Results } from "./results.js";
import type { Retry, RetryIf } from "./retry.js";
import { type StandardSchema, stored } from "./schema.js";
import { IN_TASK, scopes } from "./scope.js";
import { decode, encode, json } from "./serde.js";
import { Own, type Serializer } from "./serializer.js";
import { Step } from "./step.js";
import type { Stored } from "./stored.js";
import { Stop } from "./stop.js";

/** How a running attempt speaks with the engine. */
export interface TaskLink {
  heartbeat(): void;
  progress(fraction: number, message: string): void;
  stream(kind: number, data: string): void;
}

const NOWHERE: TaskLink = { heartbeat: () => undefined, progress: () => undefined, stream: () => undefined };

/** What a task may know and tell while it runs: its second parameter. */
export class TaskContext {
  /** The idempotency key for the outside world: the same in every attempt. */
  readonly taskId: string;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  private readonly stop: Stop;
  private readonly link: TaskLink;

  /** @internal */
  constructor(taskId: string, attempt: number, stop: Stop, link: TaskLink) {
    this.taskId = taskId;
    this.attempt = attempt;
    this.stop = stop;
    this.link = link;
  }

  /** Aborts when the run wants this attempt to stop: pass it to `fetch` and the like. */
  get signal(): AbortSignal {
    return this.stop.signal;
  }

  /** Whether the run wants this attempt to stop. */
  get isCancelled(): boolean {
    return this.stop.isAsked;
  }

  /** Gives a sign of life; needed when `heartbeatTimeoutMs` is set. */
  heartbeat(): void {
    this.link.heartbeat();
  }

  /** Tells how far the task is, from 0 to 1; a sign of life too. `handle.tasks()` shows the latest as `progress`. */
  reportProgress(fraction: number, message = ""): void {
    this.link.progress(fraction, message);
  }

  /** Shows watchers a piece of text; void once the task has a result. */
  streamToken(text: string): void {
    this.link.stream(PreviewCode.Token, text);
  }

  /** Shows watchers structured data; void once the task has a result. */
  streamData(data: unknown): void {
    this.link.stream(PreviewCode.Data, json(data));
  }
}

/** What a task's function is. */
export type TaskFunction<I, R> = (input: I, ctx: TaskContext) => R | Promise<R>;

/** Whether a repetition after a crash is harmless, or must not happen unasked. */
export type SideEffects = "idempotent" | "at_most_once";

/** An error class, or the name of one. */
export type ErrorType = string | (abstract new (...args: never[]) => unknown);

/** How a task is declared. */
export interface TaskOptions<I = unknown, R = unknown> {
  /** `retries: n` allows n + 1 attempts that fail or time out. */
  retries?: number;
  /** The pauses between attempts. */
  retry?: Retry;
  /** Names that it had before: it serves what was recorded under them as well. */
  aliases?: readonly string[];
  /** The limit of one attempt. */
  timeoutMs?: number;
  /** The longest silence of one attempt between two heartbeats. */
  heartbeatTimeoutMs?: number;
  /**
   * How often in a row an attempt may be lost with its process (`process.exit`, abort, out of memory, a kill) before the task
   * is quarantined: its run pauses until somebody resumes it or answers for the task. From 1 to 1000, 20 unless given.
   */
  maxLosses?: number;
  /** Errors that fail at once, as `NonRetryable` does. */
  noRetry?: readonly ErrorType[];
  /** Asked about each other error where it was thrown; what it says no to fails at once. */
  retryIf?: RetryIf;
  /** The queue whose workers may run it; without one it runs in its agent's process. */
  queue?: string;
  /** `"at_most_once"`: a lost attempt waits for a decision instead of running again. */
  sideEffects?: SideEffects;
  /** Settles a lost attempt: its return value is the result, and `NotDone` says that it did not take effect. */
  reconcile?: (input: I) => R | Promise<R>;
  /** A model call that returns the text it streams: a signal sent with `delivery: "now"` ends it with that text. */
  interruptible?: boolean;
  /** What it does and when to use it, for models that call it as a tool. */
  description?: string;
  /** Writes and reads its input and its result, for types that have no form of their own. */
  serializer?: Serializer;
}

/** Options of the calls made through `task.options`. */
export interface CallOptions {
  /** Names a call among identical ones. */
  key?: string;
  retries?: number;
  /** The pauses between attempts. */
  retry?: Retry;
  timeoutMs?: number;
  /** Limits all attempts together. */
  deadlineMs?: number;
  /** How often in a row an attempt may be lost with its process. */
  maxLosses?: number;
  queue?: string;
  sideEffects?: SideEffects;
  /** Lets it outlive its segment. */
  detached?: boolean;
}

/** What a task takes: one input, or none where the input may be missing. */
export type Arguments<I> = unknown extends I ? [input?: I] : undefined extends I ? [input?: I] : [input: I];

/** A declared task. Calling it inside an agent schedules a durable step; outside it just runs. */
export interface Task<I = unknown, R = unknown> {
  (...args: Arguments<I>): Step<R>;
  /** Its name in journals. */
  readonly kind: string;
  /** The plain function. */
  readonly fn: TaskFunction<never, R>;
  /** The same task with other options for the calls made through it. */
  options(changed: CallOptions): Task<I, R>;
  /** @internal */
  readonly declared: Declared;
}

interface Settings extends CallOptions {
  aliases?: readonly string[];
  description?: string;
  heartbeatTimeoutMs?: number;
  noRetry: string[];
  retryIf?: RetryIf;
  interruptible: boolean;
  reconciles: boolean;
  /** Tried again where it runs, by the session that holds it. */
  inPlace?: boolean;
  /** The run whose code has made its function, which may hold what is that run's. */
  origin?: Origin;
}

/** The run whose code has declared something, and whether others call it by now: a module that is loaded late is everybody's. */
export class Origin {
  isShared = false;

  constructor(readonly run: string) {}

  /** That of what is declared here; undefined outside of agents. */
  static here(): Origin | undefined {
    const activation = scopes.getStore()?.activation;
    return activation == null ? undefined : new Origin(activation.session.executionId);
  }
}

type AnyFunction = (input: never, ctx: never) => unknown;

const NONE = new Own(undefined, "");

/** What is known of a declared task, beside the function that it is to its callers. */
export class Declared {
  readonly spec: NativeTaskSpec;
  readonly inline: boolean;
  /** Whether it runs natively, where the toolkit is served. */
  readonly isOfToolkit: boolean;
  /** Whether it is tried again where it is called, for its function is that of a run. */
  private readonly isKept: boolean;
  /** What writes and reads its results. */
  readonly results: Results;

  constructor(
    readonly kind: string,
    readonly fn: AnyFunction,
    readonly settings: Settings,
    readonly reconcile: AnyFunction | undefined,
    readonly schema: StandardSchema | undefined,
    /** What writes and reads its values. */
    readonly own: Own = NONE,
    /** What its results must fit. */
    readonly output?: StandardSchema,
    given?: NativeTaskSpec,
  ) {
    this.results = new Results(own, output, `task "${kind}"`);
    this.isOfToolkit = given !== undefined;
    this.inline = !this.isOfToolkit && settings.queue === undefined && settings.detached !== true;
    this.isKept = this.isOfRun && this.inline && this.retries > 0;
    this.spec = given ?? natively(
      () =>
        new native.TaskSpec(kind, {
          retries: settings.retries ?? 0,
          retry: settings.retry,
          timeoutMs: settings.timeoutMs,
          heartbeatTimeoutMs: settings.heartbeatTimeoutMs,
          deadlineMs: settings.deadlineMs,
          maxLosses: settings.maxLosses,
          noRetry: settings.noRetry,
          queue: settings.queue,
          sideEffects: settings.reconciles ? "reconcile" : (settings.sideEffects ?? "idempotent"),
          detached: settings.detached ?? false,
          interruptible: settings.interruptible,
          inPlace: settings.inPlace ?? this.isKept,
          inline: this.inline,
          aliases: [...(settings.aliases ?? [])],
        }),
    );
  }

  /** A task of the toolkit. */
  static ofToolkit(kind: string, spec: NativeTaskSpec, key: string | undefined): Declared {
    const settings = { key, queue: spec.queue ?? undefined, noRetry: [], interruptible: false, reconciles: false };
    return new Declared(kind, ofTheToolkit, settings, undefined, undefined, NONE, undefined, spec);
  }

  /** Its name and those that it had before. */
  get names(): readonly string[] {
    return [this.kind, ...(this.settings.aliases ?? [])];
  }

  get key(): string | undefined {
    return this.settings.key;
  }

  /** Whether the code of a run has made it, and no other process has its function. */
  get isOfRun(): boolean {
    return this.settings.origin?.isShared === false;
  }

  /** The task as a run calls it. */
  calledBy(run: string): Declared {
    const { origin } = this.settings;
    if (origin === undefined) return this;
    if (origin.run !== run) origin.isShared = true;
    return this.isKept && !this.isOfRun ? this.with({}) : this;
  }

  /** How often it is tried again. */
  get retries(): number {
    return this.settings.retries ?? 0;
  }

  /** Asked whether an error allows another attempt. */
  get retryIf(): RetryIf | undefined {
    return this.settings.retryIf;
  }

  /** Whether it outlives the run that calls it. */
  get detached(): boolean {
    return this.settings.detached === true;
  }

  /** Runs a function of it with a stored input. */
  execute(fn: AnyFunction, input: unknown, ctx: unknown): Promise<unknown> {
    return scopes.run(IN_TASK, async () => {
      const loaded = this.own.load(input);
      let value = givenFor(fn, 0, loaded);
      if (this.schema !== undefined) {
        try {
          value = await stored(this.schema, loaded, `input of task "${this.kind}"`);
        } catch (error) {
          throw new NonRetryable(messageOf(error), { cause: error });
        }
      }
      return fn(value as never, ctx as never);
    });
  }

  /** The function that it is to its callers. */
  task<I, R>(): Task<I, R> {
    const call = (...args: unknown[]): Step<R> => {
      if (args.length > 1) throw new InvalidArgument(`task "${this.kind}" takes one input; make it an object`);
      const activation = scopes.getStore()?.activation;
      if (activation != null) return activation.schedule(this, args[0]) as Step<R>;
      const ctx = new TaskContext("00000000-0000-0000-0000-000000000000", 1, new Stop(), NOWHERE);
      const input = this.own.isNone ? args[0] : decode(encode(this.own.dump(args[0])));
      const running = this.execute(this.fn, input, ctx);
      const shaped = this.output === undefined ? running : running.then((result) => this.results.returned(result));
      return Step.local(shaped as Promise<R>);
    };
    Object.defineProperty(call, "name", { value: this.kind });
    return Object.assign(call, {
      kind: this.kind,
      fn: this.fn as TaskFunction<never, R>,
      declared: this,
      options: (changed: CallOptions) => this.with(changed).task<I, R>(),
    }) as Task<I, R>;
  }

  /** The same task with other options for the calls made through it. */
  with(changed: CallOptions): Declared {
    const settings: Settings = { ...this.settings };
    for (const [name, value] of Object.entries(changed)) {
      if (value !== undefined) Object.assign(settings, { [name]: value });
    }
    return new Declared(this.kind, this.fn, settings, this.reconcile, this.schema, this.own, this.output);
  }
}

function ofTheToolkit(): never {
  throw new InvalidArgument("a task of the toolkit runs natively");
}

/** The kinds that this process has declared: what a test that names a task by its kind may mean. It serves nothing. */
export const declaredKinds = new Set<string>();

/** Whether something was declared with `task`. */
export function isTask(thing: unknown): thing is Task<never, unknown> {
  return typeof thing === "function" && (thing as { declared?: unknown }).declared instanceof Declared;
}

/**
 * Declares a task: a function of one input (or none) whose calls inside an agent are durable steps.
 *
 * `input:` in the options takes a zod schema, or any other that speaks Standard Schema; an input that does not fit fails
 * the task at once. `output:` takes one for the result: an attempt whose result does not fit has failed, and an await gives
 * what the schema makes of what is stored.
 *
 * A task that is declared inside an agent's function belongs to that run. It is tried again where it was called, as a step
 * of `ctx.run` is, with the pauses waited for in memory; given a `queue` it fails, in words, where an attempt comes to a
 * process that does not have the run.
 */
export function task<I, R>(kind: string, fn: TaskFunction<I, R>): Task<I, Stored<Awaited<R>>>;
export function task<In, Out, Made, Given>(
  kind: string,
  options: TaskOptions<Out, Made> & { input: StandardSchema<In, Out>; output: StandardSchema<Made, Given> },
  fn: TaskFunction<Out, Made>,
): Task<In, Given>;
export function task<I, Made, Given>(
  kind: string,
  options: TaskOptions<I, Made> & { output: StandardSchema<Made, Given> },
  fn: TaskFunction<I, Made>,
): Task<I, Given>;
export function task<In, Out, R>(
  kind: string,
  options: TaskOptions<Out, Awaited<R>> & { input: StandardSchema<In, Out>; serializer: Serializer },
  fn: TaskFunction<Out, R>,
): Task<In, Awaited<R>>;
export function task<I, R>(
  kind: string,
  options: TaskOptions<I, Awaited<R>> & { serializer: Serializer },
  fn: TaskFunction<I, R>,
): Task<I, Awaited<R>>;
export function task<In, Out, R>(
  kind: string,
  options: TaskOptions<Out, Awaited<R>> & { input: StandardSchema<In, Out> },
  fn: TaskFunction<Out, R>,
): Task<In, Stored<Awaited<R>>>;
export function task<I, R>(
  kind: string,
  options: TaskOptions<I, Awaited<R>>,
  fn: TaskFunction<I, R>,
): Task<I, Stored<Awaited<R>>>;
export function task(
  kind: string,
  given: (TaskOptions<never> & { input?: StandardSchema; output?: StandardSchema }) | AnyFunction,
  last?: AnyFunction,
): Task<never, unknown> {
  const options = typeof given === "function" ? {} : given;
  const fn: AnyFunction = declarable("task", kind, typeof given === "function" ? given : last);
  if (options.reconcile !== undefined && options.sideEffects === "at_most_once") {
    throw new InvalidArgument("a task is either at_most_once or has reconcile; drop one of the two");
  }
  declaredKinds.add(kind);
  const { reconcile, input, output, serializer, noRetry = [], interruptible = false, ...rest } = options;
  const own = new Own(serializer, `task "${kind}"`);
  const settings: Settings = {
    ...rest,
    aliases: namesBefore("task", kind, options.aliases),
    noRetry: noRetry.map((each) => (typeof each === "string" ? each : each.name)),
    interruptible,
    reconciles: reconcile !== undefined,
    origin: Origin.here(),
  };
  return new Declared(kind, fn, settings, reconcile as AnyFunction | undefined, input, own, output).task();
}
