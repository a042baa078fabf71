// One run in the hands of a caller: watch it, steer it, wait for it.

import type { AnyAgent } from "./agent.js";
import type { Persistence } from "./child.js";
import type { Client } from "./client.js";
import { EndCode } from "./codes.js";
import {
  AgentCancelled,
  AgentFailed,
  byCode,
  type FailureFacts,
  InDoubt,
  InvalidArgument,
  messageOf,
  shownFirst,
  Timeout,
  typeName,
  Waiting,
} from "./errors.js";
import { type Event, eventOf } from "./events.js";
import { hub } from "./hub.js";
import { type Message, type Messages, messagesOf } from "./message.js";
import type { NativeAbort, NativeHandle, NativeHub, Wire } from "./native.js";
import { commandOf } from "./quoted.js";
import { decode, encode, facts, json } from "./serde.js";

const PAGE = 200;

/** When a signal reaches the run: at its next step, its next turn, or by interrupting the model call in flight. */
export type Delivery = "next_step" | "next_turn" | "now";

/** A status word, such as `RUNNING`, `WAITING` or `COMPLETED`. */
export type Status = string;

/** How something failed. */
export interface Failure {
  readonly code: string;
  readonly errorType: string;
  readonly message: string;
  readonly traceback: string | null;
  /** The kind of the task that failed. */
  readonly kind: string | null;
  /** The task that failed. */
  readonly task: string | null;
  /** The attempts of it that failed. */
  readonly attempts: number;
  readonly [more: string]: unknown;
}

/** Calls of one model and what they cost; kinds of tokens are disjoint. */
export interface ModelUsage {
  readonly calls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cacheReadTokens: number;
  readonly cacheWriteTokens: number;
  /** Millionths of a US dollar; null where a price is not known. */
  readonly costMicros: number | null;
}

/** Everything known about a run but its input and output. */
export interface Execution {
  readonly id: string;
  /** The id it was started with, where that is no UUID. */
  readonly key: string | null;
  readonly kind: string;
  readonly queue: string;
  readonly status: Status;
  /** Why it does not advance, such as `signal`, `timer`, `in_doubt` or `budget`. */
  readonly waitReason: string | null;
  /** The signals it waits for. */
  readonly waitsFor: readonly string[];
  /** All it waits for; null where it does not wait. */
  readonly waits: { readonly signals: readonly string[]; readonly tasks: boolean; readonly timers: boolean } | null;
  readonly failure: Failure | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly priority: number;
  /** The last checkpoint; 0 before the first. */
  readonly segment: number;
  /** The entry where the conversation stands. */
  readonly leaf: string | null;
  /** The version of the code that ran it last. */
  readonly code: string | null;
  /** Grows with every claim. */
  readonly epoch: number;
  /** The worker that holds it. */
  readonly worker: string | null;
  readonly leaseExpires: Date | null;
  readonly cancelRequested: boolean;
  /** How it is to stop, and until when it may tidy up. */
  readonly cancel: { readonly mode: "graceful" | "hard"; readonly graceEndsAt: Date } | null;
  readonly stepCount: number;
  readonly stepLimit: number | null;
  readonly tailLimit: number;
  /** What its model calls have cost, by model. */
  readonly usage: Readonly<Record<string, ModelUsage>>;
  /** The run that started it. */
  readonly parent: string | null;
  /** The first run of its family. */
  readonly root: string;
  /** How many runs are above it. */
  readonly depth: number;
  /** The run that it has given its work to. */
  readonly handedTo: string | null;
  /** Whether its journal is kept; `"full"` also once one has to be that was started without. */
  readonly persistence: Persistence;
  readonly forkedFrom: { readonly execution: string; readonly segment: number; readonly sequence: number | null } | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly endedAt: Date | null;
  readonly [more: string]: unknown;
}

/** A run with what it and all below it come to, and the kinds it waits for that no live worker serves. */
export interface Described extends Execution {
  /** What its model calls and those of all runs below it have cost, all models together. */
  readonly totalUsage: ModelUsage;
  /** The runs that it has started itself. */
  readonly childCount: number;
  /** All runs below it. */
  readonly descendantCount: number;
  /** The machine that it is for; null for any other queue. */
  readonly machine: { readonly name: string; readonly live: boolean; readonly seenAt: Date | null } | null;
  readonly noWorker: readonly { readonly kind: string; readonly queue: string }[];
}

/** A task of a run. */
export interface TaskFacts {
  readonly id: string;
  /** The run. */
  readonly execution: string;
  /** The op that scheduled it: what `resolve` takes. */
  readonly op: string;
  readonly kind: string;
  readonly queue: string;
  readonly placement: "inline" | "queue";
  readonly status: Status;
  /** The attempt that runs or ran last, from 1. */
  readonly attempt: number;
  readonly failedAttempts: number;
  /** Failed attempts after which it is not tried again. */
  readonly retries: number;
  readonly sideEffects: string;
  /** The entry at which the conversation stood when it was asked for. */
  readonly entry: string | null;
  readonly failure: Failure | null;
  readonly progress: { readonly fraction: number; readonly message: string } | null;
  readonly createdAt: Date;
  readonly startedAt: Date | null;
  readonly endedAt: Date | null;
}

/** A checkpoint of a run, without its state. */
export interface CheckpointFacts {
  readonly sequence: number;
  /** The entry at which the conversation stood. */
  readonly leaf: string | null;
  /** Bytes of the state. */
  readonly stateSize: number;
  readonly metadata: unknown;
  /** What the run's model calls had cost by then, by model. */
  readonly usage: Readonly<Record<string, ModelUsage>>;
  readonly createdAt: Date;
  /** What it saved, where it was asked for. */
  readonly state?: unknown;
}

/** How a run goes on: fresh limits, and a user message to append first. */
export interface ResumeOptions {
  maxSteps?: number;
  maxTail?: number;
  budget?: unknown;
  message?: unknown;
}

/** Where a fork starts, and what it starts with. */
export interface ForkOptions {
  checkpoint?: number;
  entry?: string;
  op?: string;
  id?: string;
  state?: unknown;
  input?: unknown;
}

/** Starts a native call about a run. @internal */
export type Asking = (native: NativeHandle, hub: NativeHub, token: number) => NativeAbort | void;

/** One run. Handles are cheap, and any number of them may speak of the same run. */
export class Handle<R = unknown> {
  /** The run's UUID. */
  readonly id: string;
  /** The id it was started with, where that is no UUID. */
  readonly key: string | null;
  /** @internal */
  client: Client;
  /** @internal */
  protected native: NativeHandle;

  /** @internal */
  constructor(
    client: Client,
    native: NativeHandle,
    /** @internal What says how its values are written and read. */
    protected readonly agent?: AnyAgent,
  ) {
    this.client = client;
    this.native = native;
    this.id = native.id;
    this.key = native.key ?? null;
  }

  /** @internal Asks the engine for something about the run. */
  protected ask<T>(start: Asking, signal?: AbortSignal): Promise<T> {
    return hub.call<T>((hub, token) => start(this.native, hub, token), signal);
  }

  /** @internal The handle of a run that goes on from this one. */
  protected beside(native: NativeHandle): Handle<R> {
    return new Handle<R>(this.client, native, this.agent);
  }

  /** The status word, such as `RUNNING`, `WAITING` or `COMPLETED`. */
  status(): Promise<Status> {
    return this.ask((native, hub, token) => native.status(hub, token));
  }

  /** Everything known about the run; `noWorker` lists the kinds it waits for that no live worker serves. */
  async describe(): Promise<Described> {
    return facts(await this.ask((native, hub, token) => native.describe(hub, token)));
  }

  /**
   * Waits for the end and gives the agent's result.
   *
   * Throws `AgentFailed` or `AgentCancelled`; past `timeoutMs` `Timeout`, or `InDoubt` where a decision is waited for. A
   * `signal` that aborts gives up the wait.
   */
  async result(options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<R> {
    const { timeoutMs, signal } = options;
    return this.explained(async () =>
      this.ended(await this.ask((native, hub, token) => native.outcome(hub, token, timeoutMs), signal)),
    );
  }

  /** @internal Waits for the end, but not for signals and decisions. */
  async resultOrWait(options: { signal?: AbortSignal } = {}): Promise<R> {
    return this.explained(async () =>
      this.ended(await this.ask((native, hub, token) => native.outcomeOrWait(hub, token), options.signal)),
    );
  }

  /** @internal Throws what tells who has waited so long what the run waits for. */
  async late(limitMs: number): Promise<never> {
    return this.explained(() => this.ask<never>((native, hub, token) => native.late(hub, token, limitMs)));
  }

  /** Says of a run that has not ended what it waits for, and what goes on with it. */
  private async explained<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof InDoubt || error instanceof Timeout)) throw error;
      const made = error instanceof InDoubt ? InDoubt : Timeout;
      // What is known already is worth more than why no more is.
      const more = await this.facts().catch(() => []);
      throw new made([error.message, ...more].join("; "), { context: error.context, retryable: error.retryable });
    }
  }

  private async facts(): Promise<string[]> {
    const { machine, noWorker, status, waitReason } = await this.describe();
    const { url } = this.client;
    const more = noWorker.map(
      ({ kind, queue }) => `no worker serves kind "${kind}" of queue "${queue}": start one that does`,
    );
    if (machine !== null && status === "PENDING") {
      const seen = machine.seenAt === null ? "was never seen" : `was last seen at ${machine.seenAt.toISOString()}`;
      const gone = machine.live ? "" : ", and is not let in, or no more";
      more.push(`it waits for the machine "${machine.name}", which ${seen}${gone}`);
    }
    for (const { kind, op, status } of waitReason === "in_doubt" ? await this.tasks() : []) {
      if (status !== "IN_DOUBT") continue;
      const command = `${commandOf("resolve", url, op)} --retry (or --result JSON, --error MESSAGE)`;
      more.push(
        `task "${kind}" (op ${op}) may or may not have taken effect; say so with ${command}, or handle.resolve("${op}", …)`,
      );
    }
    if (status === "PAUSED") more.push(`go on with: ${commandOf("resume", url, this.key ?? this.id)}`);
    return more;
  }

  private ended([code, value]: [number, unknown]): R {
    const name = this.key ?? this.id;
    if (code === EndCode.Completed) {
      return this.rebuilt(decode(value)) as R;
    }
    if (code === EndCode.Failed) {
      const failure = JSON.parse(value as string) as FailureFacts;
      const { error_type: type, message, traceback } = failure;
      const context = { goOn: commandOf("retry", this.client.url, name) };
      const made = new AgentFailed(`run "${name}" failed: ${type}: ${message}`, { type, traceback, context, ...causeOf(failure) });
      throw shownFirst(made, traceback);
    }
    if (code === EndCode.Cancelled) throw new AgentCancelled(`run "${name}" was cancelled`, { output: decode(value) });
    const { status, waitReason, waitsFor, failure } = facts<Execution>(value as string);
    const reason = waitReason ?? status;
    const context = { status, waitReason: reason, waitsFor, failure };
    if (reason === "in_doubt") {
      const message = `run "${name}" waits for a decision on a task in doubt; answer with resolve()`;
      throw new InDoubt(message, { context });
    }
    const what = waitsFor?.join(", ") || reason;
    const why = failure ? ` (${failure.errorType}: ${failure.message})` : "";
    const cause = failure ? causeOf(failure) : {};
    throw new Waiting(`run "${name}" has not ended: it waits for ${what}${why}`, { context, ...cause });
  }

  /**
   * The run's events from the start, or after the id of one; ends after the terminal event. `event.type` tells them apart. A
   * run that hands off tells of whoever has its work then, and of its own end last.
   *
   * With `children` the events of all runs below it come too, also of those that are born meanwhile: `event.run` and
   * `event.depth` say whose each is. It then ends when the run has ended and all is told of those below it that have ended.
   */
  async *stream(
    options: { after?: string; children?: boolean; signal?: AbortSignal } = {},
  ): AsyncGenerator<Event, void, void> {
    const watching = this.native.stream(options.after, options.children ?? false);
    for (;;) {
      const events = await hub.call<unknown[][]>((hub, token) => watching.next(hub, token), options.signal);
      if (events.length === 0) return;
      for (const parts of events) {
        const event = eventOf(parts);
        const hasResult = event.type === "lifecycle" && event.name === "completed";
        if (!hasResult) yield event;
        else yield { ...event, result: await (event.run === this.id ? this : await this.client.handle(event.run)).output() };
      }
    }
  }

  /**
   * The run's events as server-sent events, with the names and bodies of the server's own: the body of a `Response`.
   *
   * Pass a `Last-Event-ID` as `after`. Ends as `stream` does, and takes `children` like it.
   */
  sse(options: { after?: string; children?: boolean } = {}): ReadableStream<Uint8Array> {
    const watching = this.native.stream(options.after, options.children ?? false);
    const gone = new AbortController();
    return new ReadableStream<Uint8Array>({
      async pull(controller): Promise<void> {
        const sent = await hub.call<Buffer>((hub, token) => watching.nextSent(hub, token), gone.signal);
        if (sent.length === 0) controller.close();
        else controller.enqueue(new Uint8Array(sent));
      },
      cancel(reason): void {
        gone.abort(reason);
      },
    });
  }

  /**
   * Sends a signal and gives its UUID; it is durable when this resolves. It may come before the agent waits for it.
   *
   * A repeated `idempotencyKey` stores one signal and gives its id. What does not fit the schema that the agent declares for
   * it is `InvalidArgument`, and its serializer writes the value, where this handle was made by `client.start(agent)`.
   */
  async signal(
    name: string,
    payload?: unknown,
    options: { idempotencyKey?: string; delivery?: Delivery } = {},
  ): Promise<string> {
    const { idempotencyKey, delivery = "next_step" } = options;
    const value = encode(this.agent === undefined ? payload : await this.agent.signalled(name, payload));
    return this.ask((native, hub, token) => native.signal(hub, token, name, value, delivery, idempotencyKey));
  }

  /**
   * Asks the run to stop and gives its status. Graceful: awaits throw `Cancelled`, and the run may tidy up for
   * `timeoutMs` (30 s). Hard: it ends at once.
   */
  cancel(options: { mode?: "graceful" | "hard"; timeoutMs?: number } = {}): Promise<Status> {
    const { mode = "graceful", timeoutMs } = options;
    return this.ask((native, hub, token) => native.cancel(hub, token, mode, timeoutMs));
  }

  /** Removes the run, which has ended, with all it has; see `client.delete`. */
  delete(): Promise<void> {
    return this.client.delete(this.id);
  }

  /** Continues a paused run, with fresh limits, and gives its status. */
  resume(options: ResumeOptions = {}): Promise<Status> {
    return this.goOn(false, options);
  }

  /**
   * Goes on with a run that has failed, or is paused, from its last commit, and gives its status. It keeps its id, its
   * conversation and its signals. What is done stays done; steps that failed, and of which the code knew no more than the
   * error, are tried again, and so are those that went down with the run. One that must not run twice keeps its failure.
   */
  retry(options: ResumeOptions = {}): Promise<Status> {
    return this.goOn(true, options);
  }

  private goOn(retry: boolean, options: ResumeOptions): Promise<Status> {
    const { maxSteps, maxTail, budget, message } = options;
    const settings = { retry, maxSteps, maxTail, budget: budget === undefined ? undefined : json(budget) };
    const said = message === undefined ? undefined : encode(message);
    return this.ask((native, hub, token) => native.resume(hub, token, settings, said));
  }

  /** Starts a run that shares this one's past up to a checkpoint, an entry or an op; the last point without one. */
  async fork(options: ForkOptions = {}): Promise<Handle<R>> {
    const { state, input, ...place } = options;
    const made = await this.ask<NativeHandle>((native, hub, token) =>
      native.fork(
        hub,
        token,
        place,
        state === undefined ? undefined : encode(state),
        input === undefined ? undefined : encode(input),
      ),
    );
    return this.beside(made);
  }

  /** Answers for a task in doubt: it has this result, or failed with this error, or shall run again. */
  async resolve(
    op: string,
    answer: { result: unknown } | { error: unknown } | { retry: true },
  ): Promise<TaskFacts> {
    const given = ["result", "error", "retry"].filter((name) => name in answer);
    if (given.length !== 1) throw new InvalidArgument("resolve() takes exactly one of result, error and retry: true");
    const result = "result" in answer ? encode(answer.result) : undefined;
    const failure =
      "error" in answer
        ? { code: "TaskFailed", errorType: typeName(answer.error), message: messageOf(answer.error) }
        : undefined;
    return facts(await this.ask((native, hub, token) => native.resolve(hub, token, op, result, failure)));
  }

  /** Decides a divergence; gives the handle of the run that goes on, the fork's for `fork`. */
  async resolveDivergence(decision: "continue" | "fork" | "stay"): Promise<Handle<R>> {
    const made = await this.ask<NativeHandle>((native, hub, token) => native.resolveDivergence(hub, token, decision));
    return this.beside(made);
  }

  /**
   * The conversation as of the last commit, from its root to its leaf. Its `position` is where it ends:
   * `stream({ after: messages.position })` goes on behind it, with nothing twice and nothing left out.
   */
  async messages(): Promise<Messages> {
    const [items, position] = await this.ask<[unknown[][], string]>((native, hub, token) => native.messages(hub, token));
    return Object.assign(messagesOf(items), { position });
  }

  /** What the run was started with. */
  async input(): Promise<unknown> {
    return this.value("input");
  }

  /** What the run has returned, or kept when it was cancelled; undefined before its end. */
  async output(): Promise<R | undefined> {
    const output = await this.value("output");
    return (output === undefined ? undefined : this.rebuilt(output)) as R | undefined;
  }

  /** The state of a checkpoint by its sequence, or of the last one; undefined where there is none. */
  async state<T = unknown>(checkpoint?: number): Promise<T | undefined> {
    return this.value("state", checkpoint) as Promise<T | undefined>;
  }

  /** A result as its agent's serializer and schema make it. */
  private rebuilt(stored: unknown): unknown {
    return this.agent === undefined ? stored : this.agent.results.read(stored);
  }

  private async value(what: string, checkpoint?: number): Promise<unknown> {
    const values = await this.ask<Wire[]>((native, hub, token) => native.value(hub, token, what, checkpoint));
    return values.length === 0 ? undefined : decode(values[0]);
  }

  /** All entries the run appended, on whatever branch. */
  async entries(): Promise<Message[]> {
    const found: Message[] = [];
    for (let after: string | undefined; ; ) {
      const [items, next] = await this.ask<[unknown[][], string | null]>((native, hub, token) =>
        native.entries(hub, token, PAGE, after),
      );
      found.push(...messagesOf(items));
      if (next == null) return found;
      after = next;
    }
  }

  /** The run's checkpoints, oldest first; with `states` each has its `state`. */
  async checkpoints(options: { states?: boolean } = {}): Promise<CheckpointFacts[]> {
    const found = await this.listed<CheckpointFacts>((after) =>
      this.ask((native, hub, token) => native.checkpoints(hub, token, PAGE, after)),
    );
    if (options.states !== true) return found;
    const withState: CheckpointFacts[] = [];
    for (const each of found) withState.push({ ...each, state: await this.state(each.sequence) });
    return withState;
  }

  /** The run's tasks in order. */
  tasks(): Promise<TaskFacts[]> {
    return this.listed((after) => this.ask((native, hub, token) => native.tasks(hub, token, PAGE, after)));
  }

  private async listed<T>(ask: (after: string | undefined) => Promise<string>): Promise<T[]> {
    const found: T[] = [];
    for (let after: string | undefined; ; ) {
      const page = facts<{ items: T[]; next: string | null }>(await ask(after));
      found.push(...page.items);
      if (page.next === null) return found;
      after = page.next;
    }
  }
}

/** The error that made an agent fail, where it is one of ours. */
function causeOf(failure: { readonly code: string; readonly message: string; readonly traceback?: string | null }): {
  cause?: Error;
} {
  const made = byCode.get(failure.code);
  if (made === undefined || made === AgentFailed) return {};
  const cause = new made(failure.message);
  // It was thrown in the user's code, not where it is made anew.
  if (failure.traceback) cause.stack = failure.traceback;
  return { cause };
}
