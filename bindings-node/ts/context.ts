// What agent code sees: the durable context.
//
// Plain methods take their place in the journal when called and join the batch; nothing leaves the process before an
// await that cannot be served. The others give a `Step`: await it, or hand it to `Promise.all` and the like.

import type { Activation } from "./activation.js";
import type { Agent, AnyAgent } from "./agent.js";
import { type Child, checkChildren, type HandoffOptions, type SpawnOptions } from "./child.js";
import { type AnyChild, answered, asked, type ChildEvent, news, stopped, toChild, toParent } from "./childEvents.js";
import { OnceCode, PreviewCode } from "./codes.js";
import { checkStep } from "./declared.js";
import { Cancelled, InvalidArgument, InvalidTransition, isA, messageOf, StateNotDeclared, Suspended, typeName } from "./errors.js";
import type { Delivery } from "./handle.js";
import { hub } from "./hub.js";
import { type Message, messagesOf } from "./message.js";
import { counted } from "./outside.js";
import type { Retry, RetryIf } from "./retry.js";
import type { StandardSchema } from "./schema.js";
import { checked } from "./schema.js";
import { scopes } from "./scope.js";
import { decode, encode, encodeState, json } from "./serde.js";
import type { Stored } from "./stored.js";
import { Step } from "./step.js";
import { type Arguments, type CallOptions, Declared, isTask, Origin, type Task, type TaskContext } from "./task.js";
import { limited } from "./timeouts.js";

/** More about an entry. */
export interface EntryOptions {
  /** `message` where nothing else is said. */
  entryType?: string;
  turnId?: string;
  metadata?: Record<string, unknown>;
}

/** What a model call cost. */
export interface UsageOptions {
  inputTokens?: number;
  outputTokens?: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
  costUsd?: number;
}

/** How an inline step is run. */
export interface StepOptions {
  /** `retries: n` allows n + 1 tries that fail or time out. */
  retries?: number;
  /** The pauses between tries. */
  retry?: Retry;
  /** Asked about each error where it was thrown; what it says no to fails at once. */
  retryIf?: RetryIf;
  /** The limit of one try: past it `TaskTimeout`. */
  timeoutMs?: number;
  /** Names this call among identical ones. */
  key?: string;
}

/** A small value that stands for a conversation at one point. */
export interface ContextRef {
  execution: string;
  thread: string;
  leaf: string | null;
}

/** What is awaited together: steps or any other promises. */
type Awaitables = readonly unknown[];
type Results<T extends Awaitables> = { -readonly [K in keyof T]: Awaited<T[K]> };

/** The durable context of a running agent. */
export class AgentContext<S = unknown> {
  private readonly activation: Activation;
  private readonly branch: string;

  /** @internal */
  constructor(activation: Activation, branch = "") {
    this.activation = activation;
    this.branch = branch;
  }

  // ── who and what ──────────────────────────────────────────────────────────────────────────────────────────────

  /** The run's UUID. */
  get agentExecutionId(): string {
    return this.activation.session.executionId;
  }

  /** The tenant's UUID. */
  get orgId(): string {
    return this.activation.session.orgId;
  }

  /** The id the run was started with, where that is no UUID. */
  get key(): string | null {
    return this.activation.session.key;
  }

  /** What the run that has started this one gave it of its conversation; see `spawnAgent`. */
  get sharedContext(): unknown {
    const given = this.activation.session.sharedContext;
    return given == null ? undefined : JSON.parse(given);
  }

  /** The input as JSON, as it was given to start. */
  get input(): unknown {
    return this.activation.input;
  }

  /** The state as of the last checkpoint, or what the code has made of it since. */
  get state(): S {
    this.checkStateful("ctx.state");
    return this.activation.state as S;
  }

  set state(value: S) {
    this.checkStateful("ctx.state");
    this.activation.state = value;
  }

  /** Changes fields of the state by the reducers of the declaration; gives the state. */
  update(fields: Partial<Record<keyof S, unknown>>): S {
    this.checkStateful("ctx.update");
    this.activation.state = this.activation.agent.reduced(this.activation.state, fields);
    return this.activation.state as S;
  }

  /** Whether this copy is being put away: leave the outside as it is. */
  get isSuspending(): boolean {
    return this.activation.sealed;
  }

  /** Whether the run was asked to stop, as far as this process knows. Not recorded. */
  get isCancellationRequested(): boolean {
    return this.activation.session.isCancelRequested;
  }

  // ── conversation ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Appends an entry to the conversation and gives its UUID; durable with the next commit. */
  appendEntry(role: string, content: unknown, options: EntryOptions = {}): string {
    const scope = this.activation.check();
    const { entryType = "message", turnId, metadata } = options;
    const entry = this.activation.session.callEntry(
      { role, entryType, turnId, metadata: metadata && json(metadata), thread: this.branch },
      encode(content),
      scope.once,
    );
    this.activation.touched();
    return entry;
  }

  /** Reads the conversation at this point of the journal, from its root to its leaf. Blocks for the time it takes. */
  loadMessages(): Message[] {
    return messagesOf(this.activation.session.branchNow(this.branch));
  }

  /** Reads the conversation at this point of the journal without blocking the loop. */
  async messages(): Promise<Message[]> {
    const { session } = this.activation;
    const read = hub.call<unknown[][]>((hub, token) => session.branch(hub, token, this.branch));
    return messagesOf(await counted(this.activation, read));
  }

  /** A small value that stands for the conversation at this point, to be passed to a task. */
  contextRef(): ContextRef {
    const { session } = this.activation;
    return { execution: session.executionId, thread: this.branch, leaf: session.leaf(this.branch) };
  }

  /** The same context on a branch of the conversation with a leaf of its own. */
  thread(name: string): AgentContext<S> {
    this.activation.session.openThread(name);
    return new AgentContext<S>(this.activation, name);
  }

  // ── time, chance, cost ────────────────────────────────────────────────────────────────────────────────────────

  /** The run's time: the same on replay, never going back. */
  currentTime(): Date {
    return new Date(this.activation.session.time());
  }

  /** A number from 0 to 1, the same on replay. */
  random(): number {
    return this.activation.session.randomNumber();
  }

  /** A UUID (version 4), the same on replay. */
  randomUuid(): string {
    const bytes = this.activation.session.random();
    bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
    bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
    return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  }

  /** Records what a model call cost; sums are in the checkpoint and in `describe()`. */
  recordUsage(model: string, usage: UsageOptions): void {
    const scope = this.activation.check();
    const { inputTokens = 0, outputTokens = 0, cacheReadTokens = 0, cacheWriteTokens = 0, costUsd } = usage;
    const costMicros = costUsd === undefined ? undefined : Math.round(costUsd * 1e6);
    const draft = { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, costMicros };
    this.activation.session.callUsage(model, draft, scope.once);
    this.activation.touched();
  }

  // ── streaming ─────────────────────────────────────────────────────────────────────────────────────────────────

  /** Shows watchers a piece of text before it is durable. */
  streamToken(text: string): void {
    this.activation.session.stream(PreviewCode.Token, text);
  }

  /** Shows watchers structured data before it is durable. */
  streamData(data: unknown): void {
    this.activation.session.stream(PreviewCode.Data, json(data));
  }

  /** Shows watchers an error worth seeing, whatever was thrown: its type and its message. */
  streamError(error: unknown): void {
    this.activation.session.stream(PreviewCode.Error, json({ type: typeName(error), message: messageOf(error) }));
  }

  // ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Schedules a task: takes its place now, starts when the code next awaits; await the step for its result. */
  scheduleTask<I, R>(task: Task<I, R>, ...args: Arguments<I>): Step<R>;
  /** Schedules a task by its kind, which this worker or another one serves: one of the queue that the options name. */
  scheduleTask<R = unknown>(kind: string, input?: unknown, options?: CallOptions): Step<R>;
  scheduleTask(task: Task<never, unknown> | string, input?: unknown, options?: CallOptions): Step<unknown> {
    if (isTask(task)) return this.activation.schedule(task.declared, input);
    if (typeof task !== "string") throw new InvalidArgument("scheduleTask takes a declared task or a kind");
    const named = this.activation.worker.taskOf(task);
    return this.activation.schedule(options === undefined ? named : named.with(options), input);
  }

  /** Runs the function of a task as a durable inline step of this name. */
  run<I, R>(name: string, task: Task<I, R>, ...args: Arguments<I>): Step<R>;
  /** Runs any function as a durable inline step of this name. */
  run<A extends unknown[], R>(name: string, fn: (...args: A) => R | Promise<R>, ...args: A): Step<Stored<Awaited<R>>>;
  /**
   * Runs a function as a durable inline step of this name, with retries and a limit of time, as those of a task. Its `signal`
   * aborts when the try is over: past its time, or when the run wants it to stop. It is tried again here, with the pauses
   * waited for in memory, and anew where another process goes on with the run.
   */
  run<R>(name: string, options: StepOptions, fn: (signal: AbortSignal) => R | Promise<R>): Step<Stored<Awaited<R>>>;
  run(name: string, ...given: unknown[]): Step<unknown> {
    const hasOptions = isStepOptions(given[0]);
    const [fn, ...args] = hasOptions ? given.slice(1) : given;
    checkStep("run", name, fn);
    const plain = (isTask(fn) ? fn.fn : fn) as (...args: unknown[]) => unknown;
    if (hasOptions) {
      const { key, retries, retry, timeoutMs, retryIf } = given[0] as StepOptions;
      // The function is a closure, which no other process has.
      const inPlace = retries !== undefined && retries > 0;
      const own = { noRetry: [], interruptible: false, reconciles: false, origin: Origin.here() };
      const settings = { key, retries, retry, timeoutMs, retryIf, inPlace, ...own };
      const call = (_: never, ctx: TaskContext): unknown => plain(ctx.signal);
      return this.activation.schedule(new Declared(name, call, settings, undefined, undefined), undefined);
    }
    const many = args.length > 1;
    const inline = new Declared(
      name,
      // Without arguments it is called without any: what has a default has it.
      (input: never) => plain(...((many ? input : args.length === 0 ? [] : [input]) as unknown[])),
      { noRetry: [], interruptible: false, reconciles: false, origin: isTask(fn) ? undefined : Origin.here() },
      undefined,
      undefined,
      isTask(fn) ? fn.declared.own : undefined,
      isTask(fn) ? fn.declared.output : undefined,
    );
    return this.activation.schedule(inline, many ? args : args[0]);
  }

  /** Runs something once per execution, across checkpoints; later calls give the first result. */
  async once<A extends unknown[], R>(
    name: string,
    fn: (...args: A) => R | Promise<R>,
    ...args: A
  ): Promise<Stored<Awaited<R>>> {
    const scope = this.activation.check();
    checkStep("once", name, fn);
    const { session } = this.activation;
    const given = encode(args);
    const [how, value] = session.onceBegin(name, given);
    if (how === OnceCode.Done) {
      this.activation.touched();
      return decode(value) as Stored<Awaited<R>>;
    }
    if (how === OnceCode.Recorded) return this.activation.step<Stored<Awaited<R>>>(value as number, scope);
    const result = await scopes.run({ ...scope, once: name }, () => fn(...args));
    return this.activation.step<Stored<Awaited<R>>>(session.onceEnd(name, given, encode(result)), this.activation.check());
  }

  // ── children ──────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Starts a run of another agent as a child; await it for its output. It takes its place now and is born with the next
   * commit, once, whatever crashes. The worker that serves this run serves an agent that is handed over as an object, and
   * after a crash those that the agent names as its `children`; a kind is served by whoever has it on the queue. The await
   * throws `ChildFailed` or `ChildCancelled` where there is no output, `BudgetExceeded` where its budget stopped it, and
   * `LimitReached` for a child too many; inside of `once` the call throws `InvalidArgument`. Children that run when this run
   * ends are cancelled unless they are detached.
   */
  spawnAgent<I, R, C>(agent: Agent<I, R, C>, ...args: [...Arguments<I>, options?: SpawnOptions]): Child<R>;
  /** Starts a child of a kind that other workers serve. */
  spawnAgent<R = unknown>(agent: string, input?: unknown, options?: SpawnOptions): Child<R>;
  spawnAgent(agent: AnyAgent | string, input?: unknown, options: SpawnOptions = {}): Child<unknown> {
    return this.activation.spawn(agent, input, options, this.branch);
  }

  /** Waits for a child; `await child` does the same. */
  async waitForChild<R>(child: Child<R>): Promise<R> {
    checkChildren([child], "waitForChild");
    return await child;
  }

  /** Waits for all and gives their outputs; the first failure is thrown and the others go on. */
  joinChildren<T extends Awaitables>(children: readonly [...T]): Promise<Results<T>> {
    return this.joinAll(children);
  }

  /** Waits for all and gives how each ended, in order. */
  joinChildrenSettled<T extends Awaitables>(
    children: readonly [...T],
  ): Promise<{ -readonly [K in keyof T]: PromiseSettledResult<Awaited<T[K]>> }> {
    return this.joinAllSettled(children);
  }

  /** Waits until one has ended and gives its index and itself: await it for its output. The others are not given up. */
  async selectChild<R>(children: readonly Child<R>[]): Promise<[index: number, child: Child<R>]> {
    checkSome(children, "selectChild");
    checkChildren(children, "selectChild");
    const ended = children.map((child, index) => child.watch(() => index));
    const index = await Promise.race(ended);
    return [index, children[index] as Child<R>];
  }

  /** Waits for what a child tells next, in order, each once, or for its end: past `timeoutMs` `SignalTimeout`. */
  waitForChildEvent<R>(child: AnyChild<R>, options: { timeoutMs?: number } = {}): Step<ChildEvent<R>> {
    return news(this.activation, child, options.timeoutMs);
  }

  /** Answers a request of a child by its id, as `request.respond` does; also after a checkpoint. */
  respond(child: AnyChild, request: string, value?: unknown): Step<void> {
    return answered(this.activation, child, request, value);
  }

  /** Sends a child a signal, once, whatever crashes; `ExecutionClosed` at the await where it has ended. */
  signalChild(child: AnyChild, name: string, payload?: unknown, options: { delivery?: Delivery } = {}): Step<void> {
    return toChild(this.activation, child, name, payload, options.delivery);
  }

  /** Asks a child to stop, with `timeoutMs` to tidy up; its end comes later. One that has ended stays so. */
  cancelChild(child: AnyChild, mode?: "graceful" | "hard", options: { timeoutMs?: number } = {}): Step<void> {
    return stopped(this.activation, child, mode, options.timeoutMs);
  }

  /** Tells the run that has started this one; `NoParent`, `ExecutionClosed` at the await where it cannot hear. */
  signalParent(name: string, payload?: unknown): Step<void> {
    return toParent(this.activation, name, payload);
  }

  /** Asks the run that has started this one, and waits for its answer: `SignalTimeout`, `ParentGone`. */
  requestFromParent<R = unknown>(name: string, payload?: unknown, options: { timeoutMs?: number } = {}): Step<R> {
    return asked(this.activation, name, payload, options.timeoutMs);
  }

  /** Joins a detached task by its `ref`. */
  attach<R = unknown>(ref: string): Step<R> {
    const scope = this.activation.check();
    return this.activation.step<R>(this.activation.session.callAttach(ref, scope.once), scope, "", ref);
  }

  // ── several at once ───────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Runs a task, or what serves a kind, over items, at most `limit` (10) at a time; the results are in their order. A failure
   * begins no further item; it is thrown once those that are open have ended, the first in order where several fail.
   */
  map<I, R>(task: Task<I, R>, items: Iterable<I>, options?: { limit?: number; settled?: false }): Promise<R[]>;
  /** With `settled` all items run, and the result says of each how it ended. */
  map<I, R>(
    task: Task<I, R>,
    items: Iterable<I>,
    options: { limit?: number; settled: true },
  ): Promise<PromiseSettledResult<R>[]>;
  map<R = unknown>(kind: string, items: Iterable<unknown>, options?: { limit?: number; settled?: false }): Promise<R[]>;
  map<R = unknown>(
    kind: string,
    items: Iterable<unknown>,
    options: { limit?: number; settled: true },
  ): Promise<PromiseSettledResult<R>[]>;
  async map(
    task: Task<never, unknown> | string,
    items: Iterable<unknown>,
    { limit = 10, settled = false }: { limit?: number; settled?: boolean } = {},
  ): Promise<unknown[]> {
    if (!(limit >= 1)) throw new InvalidArgument(`ctx.map has limit: ${limit}; at least one item is run at a time`);
    const all = [...items];
    const ended: PromiseSettledResult<unknown>[] = [];
    let next = 0;
    let failed = false;
    const lane = async (): Promise<void> => {
      while (next < all.length && (settled || !failed)) {
        const index = next;
        next += 1;
        try {
          const value = await this.scheduleTask(ofItem(task, index) as string, all[index]);
          ended[index] = { status: "fulfilled", value };
        } catch (reason) {
          if (isA(reason, Cancelled) || isA(reason, Suspended)) throw reason;
          failed = true;
          ended[index] = { status: "rejected", reason };
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(limit, all.length) }, lane));
    if (settled) return ended;
    const first = ended.find((each) => each?.status === "rejected");
    if (first !== undefined) throw (first as PromiseRejectedResult).reason;
    return ended.map((each) => (each as PromiseFulfilledResult<unknown>).value);
  }

  /** Waits for all; the first failure is thrown and the others go on. */
  async joinAll<T extends Awaitables>(steps: readonly [...T]): Promise<Results<T>> {
    return (await Promise.all(steps)) as Results<T>;
  }

  /** Waits for all and gives how each ended, in order. */
  async joinAllSettled<T extends Awaitables>(
    steps: readonly [...T],
  ): Promise<{ -readonly [K in keyof T]: PromiseSettledResult<Awaited<T[K]>> }> {
    return (await Promise.allSettled(steps)) as { -readonly [K in keyof T]: PromiseSettledResult<Awaited<T[K]>> };
  }

  /** Waits for the first and gives its index and result; the others are given up, as `Promise.race` does not do. */
  select<T extends Awaitables>(steps: readonly [...T]): Promise<[index: number, result: Awaited<T[number]>]> {
    return new Promise((resolve, reject) => {
      checkSome(steps, "select");
      let over = false;
      const end = (index: number, then: () => void): void => {
        if (over) return;
        over = true;
        steps.forEach((step, other) => void (other !== index && step instanceof Step && step.giveUp()));
        then();
      };
      steps.forEach((step, index) => {
        Promise.resolve(step as Promise<Awaited<T[number]>>).then(
          (value) => end(index, () => resolve([index, value])),
          (error: unknown) => end(index, () => reject(error as Error)),
        );
      });
    });
  }

  /**
   * Gives the run away to an agent: the last call of this run, whose code ends here once that is durable. The successor
   * begins with the input, and goes on from this thread by reference unless `conversation` is false. Children that still
   * run are cancelled, as at an end. The run stays the address: signals, cancelling and what its parent is told go on to
   * the successor, and it ends as that does; with `completion: "immediate"` it is COMPLETED at once. Throws `LimitReached`,
   * `BudgetExceeded` and `Cancelled`, after which the run goes on.
   */
  handoffToAgent<I, R, C>(agent: Agent<I, R, C>, ...args: [...Arguments<I>, options?: HandoffOptions]): Promise<never>;
  /** Gives the run away to a kind that other workers serve. */
  handoffToAgent(agent: string, input?: unknown, options?: HandoffOptions): Promise<never>;
  async handoffToAgent(agent: AnyAgent | string, input?: unknown, options: HandoffOptions = {}): Promise<never> {
    await this.activation.handOff(agent, input, options, this.branch);
    throw new InvalidTransition(`the run cannot be given to a child that has ended`);
  }

  // ── time and signals ──────────────────────────────────────────────────────────────────────────────────────────

  /** Sleeps durably: the time goes on while no process runs. */
  sleep(ms: number): Step<void> {
    const scope = this.activation.check();
    return this.activation.step<void>(this.activation.session.callTimer(ms, scope.once), scope);
  }

  /**
   * Limits what a function awaits by a durable timer; past it: `Timeout`. Its pending steps are given up then, and its
   * `signal` aborts.
   */
  timeout<R>(ms: number, fn: (signal: AbortSignal) => R | Promise<R>): Promise<Awaited<R>> {
    return limited(this.activation, this.sleep(ms), ms, fn);
  }

  /** Waits for the next signal of a name; past `timeoutMs`: `SignalTimeout`. A `schema` checks what came. */
  waitForSignal<T = unknown>(name: string, options: { timeoutMs?: number } = {}): Step<T> {
    const scope = this.activation.check();
    const { own } = this.activation.agent;
    const load = own.isNone ? undefined : (value: unknown): unknown => own.load(value);
    const op = this.activation.session.callSignal(name, options.timeoutMs, scope.once);
    return this.activation.step<T>(op, scope, name, "", load);
  }

  /** Waits for the next signal of a name and checks it against a schema. */
  async waitForSignalAs<Out>(
    name: string,
    schema: StandardSchema<unknown, Out>,
    options: { timeoutMs?: number } = {},
  ): Promise<Out> {
    return (await checked(schema, await this.waitForSignal(name, options), `signal "${name}"`)) as Out;
  }

  /** Tells whether a signal of this name waits; recorded. */
  async hasSignal(name: string): Promise<boolean> {
    return this.read((once) => this.activation.session.hasSignal(name, once));
  }

  /** Takes all signals of this name that wait; with `turn` also those kept for the next turn. */
  async drainSignals<T = unknown>(name: string, options: { turn?: boolean } = {}): Promise<T[]> {
    const values = await this.read((once) => this.activation.session.drainSignals(name, options.turn ?? false, once));
    return values.map((value) => this.activation.agent.own.load(decode(value))) as T[];
  }

  /** Throws `Cancelled` if the run was asked to stop; recorded. No later await of this branch throws it again. */
  async checkCancellation(): Promise<void> {
    if (this.read((once) => this.activation.session.checkCancellation(once))) {
      const error = new Cancelled("the run was asked to stop");
      this.activation.hears(error);
      throw error;
    }
  }

  /** What is left of the budget; null where there is none. Recorded. */
  async remainingBudget(): Promise<unknown> {
    return decode(this.read((once) => this.activation.session.remainingBudget(once)));
  }

  // ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Saves the state and ends the segment: recovery replays only what follows.
   *
   * Without an argument it saves `ctx.state`; for an agent without state it only forces a commit. Every op must be
   * settled (`OpenOperations` names the others). Durable when it resolves.
   */
  checkpoint(state?: S, options: { metadata?: Record<string, unknown> } = {}): Step<void> {
    if (state === undefined && !this.activation.agent.isStateful) return this.flush();
    const scope = this.activation.check();
    this.checkStateful("checkpoint(state)");
    const saved = state === undefined ? this.activation.state : state;
    const { own } = this.activation.agent;
    const stored = own.isNone ? encodeState(saved) : encode(own.dump(saved));
    this.activation.leaveChildren();
    const op = this.activation.session.checkpoint(stored, json(options.metadata ?? {}));
    this.activation.state = saved;
    this.activation.saved();
    return this.activation.step<void>(op, scope);
  }

  /** Forces a commit; all earlier ops are durable when it resolves. */
  flush(): Step<void> {
    const scope = this.activation.check();
    return this.activation.step<void>(this.activation.session.callFlush(scope.once), scope);
  }

  /** Keeps the journal from now on, in a run that was started without: all so far is durable when it resolves. */
  enablePersistence(): Step<void> {
    const scope = this.activation.check();
    return this.activation.step<void>(this.activation.session.callPersist(scope.once), scope);
  }

  /** Begins a step: one model call with what it asks for. Counts towards `maxSteps`. */
  step(): Step<void> {
    const scope = this.activation.check();
    return this.activation.step<void>(this.activation.session.callStep(scope.once), scope);
  }

  private read<T>(ask: (once: string | undefined) => T): T {
    const answer = ask(this.activation.check().once);
    this.activation.touched();
    return answer;
  }

  private checkStateful(what: string): void {
    if (this.activation.agent.isStateful) return;
    throw new StateNotDeclared(
      `${what} needs state, but agent "${this.activation.agent.kind}" is declared without it. Without state recovery ` +
        "replays the recorded run, and local variables are the state. With state: () => ({…}) recovery enters the " +
        "function at its top with ctx.state as of the last checkpoint(): read it, then loop.",
    );
  }
}

function isStepOptions(given: unknown): given is StepOptions {
  return typeof given === "object" && given !== null && !(given instanceof Promise);
}

/** The task of an item; a key names each of its calls. */
function ofItem(task: Task<never, unknown> | string, index: number): Task<never, unknown> | string {
  const key = isTask(task) ? task.declared.key : undefined;
  return isTask(task) && key !== undefined ? task.options({ key: `${key}[${index}]` }) : task;
}

/** Refuses to wait for one of none, which would not end. */
function checkSome(steps: readonly unknown[], call: string): void {
  if (steps.length === 0) throw new InvalidArgument(`${call} waits for one of several, and was given none`);
}
