// Workers: the part of a process that advances runs and runs tasks.

import { Activation } from "./activation.js";
import type { AnyAgent } from "./agent.js";
import type { Client } from "./client.js";
import { NewsCode } from "./codes.js";
import { Cancelled, InvalidArgument, isA, messageOf, NonRetryable, NotDone } from "./errors.js";
import { hub, NOBODY } from "./hub.js";
import {
  native,
  type NativeTaskSpec,
  type NativeTicket,
  type NativeWorker,
  type Wire,
  type WorkerSettings,
} from "./native.js";
import { attemptFailed, paused } from "./log.js";
import { commandOf } from "./quoted.js";
import { unwritable } from "./results.js";
import { failureOf } from "./retry.js";
import { scopes } from "./scope.js";
import { decode } from "./serde.js";
import type { Step } from "./step.js";
import { Stop } from "./stop.js";
import { Declared, TaskContext, type TaskLink } from "./task.js";
import { follow, unfollow } from "./stopping.js";
import { type AnyTask, Given } from "./given.js";
import { described, scriptedBeside, type Toolkit } from "./toolkit/kit.js";
import { tellOrphans } from "./toolkit/orphans.js";
import { unwatch, watch } from "./outside.js";
import { setTimeout } from "./timers.js";

const CLOSE_GRACE_MS = 5_000;

/** How long an attempt waits for its run where nobody else has its function. */
const RUN_COMES_MS = 5_000;
/** The same of one that was lost with its process: others may have its run. */
const LOST_MS = 1_000;
const LOOK_MS = 10;

const CLOSED = "the worker was closed";
const UNWANTED = "the run wants this attempt to stop";

export type { AnyTask } from "./given.js";
type AnyFunction = (input: never, ctx: never) => unknown;

/** What a worker serves, and how much it takes on. */
export interface WorkerOptions {
  agents?: readonly AnyAgent[];
  tasks?: readonly AnyTask[];
  /** The queue it polls. */
  queue?: string;
  /** Runs that advance at a time; waiting ones do not count. */
  maxAgents?: number;
  /**
   * Attempts that run at a time, those of inline steps (`ctx.run`, tasks without a queue) among them. Without it 32 claimed
   * tasks, and inline steps as they come; 0 claims none.
   */
  maxTasks?: number;
  /** Waiting runs kept in memory. */
  maxParked?: number;
  /**
   * What it lends to its agents: models, host tools, MCP servers (`@flovyn/sdk/toolkit`). Model calls and host tools are
   * served as agents ask for them; `false` leaves them to the workers of the queue that have the keys and the files.
   */
  toolkit?: Toolkit | false;
}

/** A claimed attempt that runs here. */
interface Attempt {
  readonly stop: Stop;
  readonly task: string;
  /** Whether nobody waits for its task any more. */
  unwanted: boolean;
}

/** How a claimed attempt speaks with the engine: through its ticket. */
class TicketLink implements TaskLink {
  constructor(private readonly ticket: NativeTicket) {}

  heartbeat(): void {
    this.ticket.heartbeat();
  }

  progress(fraction: number, message: string): void {
    this.ticket.progress(fraction, message);
  }

  stream(kind: number, data: string): void {
    this.ticket.stream(kind, data);
  }
}

/**
 * Serves agents and tasks of a queue from `start()` to `close()`; `run()` does both. A kind stands for one function; two
 * different ones of one kind are refused when the worker is made.
 */
export class Worker {
  /** @internal Tasks that agents called, by kind. */
  readonly met = new Map<string, Declared>();
  /** @internal Agents of children that agents have started, by kind. */
  readonly metAgents = new Map<string, AnyAgent>();
  /** @internal Steps of runs here whose later attempts go by the queue, by the UUID of their task. */
  readonly callers = new Map<string, Step<unknown>>();
  /** @internal Functions that stand in for tasks in tests, by kind. */
  readonly fakes = new Map<string, AnyFunction>();
  /** @internal Told of every attempt before it starts, in tests. */
  onAttempt: ((kind: string, id: string) => void) | undefined;
  /** @internal */
  readonly client: Client;
  private readonly settings: WorkerSettings;
  private readonly toolkit: Toolkit | false | undefined;
  /** @internal Kinds of the toolkit that agents called. */
  readonly opened = new Set<string>();
  private readonly agents = new Map<string, AnyAgent>();
  private readonly tasks = new Map<string, Declared>();
  /** Kinds of tasks that it was given, and has not only met. */
  private readonly given: Set<string>;
  private readonly activations = new Map<number, Activation>();
  private readonly attempts = new Map<number, Attempt>();
  private native: NativeWorker | undefined;
  private starting: Promise<this> | undefined;
  private closing: Promise<void> | undefined;
  private replacing: Promise<void> = Promise.resolve();
  private over: (() => void)[] = [];

  /** @internal */
  constructor(client: Client, options: WorkerOptions & { only?: string } = {}) {
    this.client = client;
    const { queue = "default", maxAgents = 100, maxTasks, maxParked, only } = options;
    this.toolkit = options.toolkit;
    this.settings = { queue, maxAgents, maxTasks, maxParked, only };
    const given = new Given(options);
    for (const [name, agent] of given.agents) this.agents.set(name, agent);
    for (const [name, task] of given.tasks) this.tasks.set(name, task);
    this.given = new Set(given.tasks.keys());
  }

  // ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Begins to poll; durable work is taken on from the moment it resolves. */
  start(): Promise<this> {
    this.starting ??= this.begin();
    return this.starting;
  }

  private async begin(): Promise<this> {
    const made = (this.native = new native.Worker(this.client.native, hub.native));
    for (const agent of new Set(this.agents.values())) declare(made, agent);
    for (const kind of this.tasks.keys()) made.serveTask(kind);
    hub.listen(this);
    watch();
    follow();
    this.client.opened(this);
    try {
      const descriptions = this.descriptions(this.agents);
      if (descriptions.length > 0) await this.openToolkit(descriptions, true);
      await hub.call((hub, token) => made.start(hub, token, this.client.native, this.settings));
    } catch (error) {
      this.leave();
      throw error;
    }
    this.meetOrphans();
    return this;
  }

  /** @internal The names of the agents that it serves. */
  get agentKinds(): string[] {
    return [...this.agents.keys()];
  }

  /** @internal Whether it serves, or is about to. */
  get isOpen(): boolean {
    return this.closing === undefined && (this.starting === undefined || this.native !== undefined);
  }

  /**
   * @internal Serves what it is given from now on, in the place of what it served under the same kinds. Runs that wait are
   * put away and go on in the new functions; those that are working end or wait in the old ones first.
   */
  replace(options: WorkerOptions): Promise<void> {
    // What the toolkit is opened with is what all have named that came before.
    const turn = this.replacing.then(() => this.exchange(options));
    this.replacing = turn.catch(() => undefined);
    return turn;
  }

  private async exchange(options: WorkerOptions): Promise<void> {
    await this.start();
    const given = new Given(options);
    const made = this.native;
    if (made === undefined) throw new InvalidArgument("the worker was closed; ask for the client anew");
    const served = [...new Set(given.agents.values())];
    for (const agent of served) {
      const old = this.agents.get(agent.kind);
      if (old === undefined || (old.toolkit === undefined) === (agent.toolkit === undefined)) continue;
      const origin = ({ toolkit }: AnyAgent): string => (toolkit === undefined ? "a function" : "of the toolkit");
      throw new InvalidArgument(
        `agent "${agent.kind}" is ${origin(agent)}, and the one in whose place it would be served is ${origin(old)}; ` +
          "give it another kind",
      );
    }
    if (served.some((agent) => agent.toolkit !== undefined)) {
      // It may be refused; then all stays as it is.
      await this.openToolkit(this.descriptions(new Map([...this.agents, ...given.agents])), true);
    }
    // What waits to be taken was given out for the functions that are there.
    this.take();
    for (const [name, agent] of given.agents) this.agents.set(name, agent);
    for (const agent of served) declare(made, agent);
    for (const [name, task] of given.tasks) {
      this.given.add(name);
      this.tasks.set(name, task);
      made.serveTask(name);
    }
    // The new code may call new functions of the kinds that the old one has called.
    this.met.clear();
    made.evict();
    made.nudge();
  }

  /** Stops: runs are put away and given back, running tasks get `graceMs`. */
  close(graceMs = CLOSE_GRACE_MS): Promise<void> {
    this.closing ??= this.end(graceMs);
    return this.closing;
  }

  private async end(graceMs: number): Promise<void> {
    if (this.starting === undefined) return;
    await this.starting.catch(() => undefined);
    const made = this.native;
    if (made === undefined) return;
    try {
      await hub.call((hub, token) => made.close(hub, token, graceMs));
      this.take();
      for (const { stop } of this.attempts.values()) stop.ask(new Cancelled(CLOSED));
    } finally {
      this.leave();
    }
  }

  private leave(): void {
    if (this.native === undefined) return;
    this.native = undefined;
    for (const activation of [...this.activations.values()]) activation.drop();
    hub.forget(this);
    unwatch();
    unfollow();
    this.client.gone(this);
    for (const over of this.over.splice(0)) over();
  }

  /** @internal Drops everything as a killed process would: nothing is reported, nothing is given back. */
  abandon(): void {
    this.closing ??= Promise.resolve();
    for (const { stop } of this.attempts.values()) stop.ask(new Cancelled("the process has died"));
    this.attempts.clear();
    this.callers.clear();
    this.leave();
  }

  /** @internal Gives everything back without the code that it serves, whose thread ends now. */
  leaveThread(): void {
    this.closing ??= Promise.resolve();
    this.native?.close(hub.native, NOBODY, 0);
  }

  /**
   * Serves until the client or the worker is closed. SIGINT and SIGTERM close it in order: runs are given back at once
   * instead of when their lease is over.
   */
  async run(): Promise<void> {
    // Whoever runs it is told below what the close came to.
    const stop = (): void => void this.close().catch(() => undefined);
    process.once("SIGINT", stop);
    process.once("SIGTERM", stop);
    try {
      await this.start();
      await new Promise<void>((resolve) => {
        if (this.native === undefined) resolve();
        else this.over.push(resolve);
      });
      await this.close();
    } finally {
      process.off("SIGINT", stop);
      process.off("SIGTERM", stop);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // ── what agents ask ───────────────────────────────────────────────────────────────────────────────────────────

  /** What of the toolkit it serves for agents, and because it was told to. */
  private descriptions(agents: ReadonlyMap<string, AnyAgent>): Toolkit[] {
    const ofAgents = [...new Set(agents.values())].flatMap((agent) => agent.toolkit ?? []);
    const own = this.toolkit;
    return own === undefined || own === false ? ofAgents : [...ofAgents, described(own)];
  }

  /** Serves what is described: in the place of what its agents have said before, or beside all of it. */
  private async openToolkit(descriptions: Toolkit[], replaces: boolean): Promise<void> {
    const made = this.native;
    if (made === undefined) return;
    const runtime = this.client.native;
    const texts = [...descriptions, scriptedBeside(descriptions)].map((each) => JSON.stringify(each));
    const text = await hub.call<string>((hub, token) => made.serveToolkit(hub, token, runtime, texts, replaces));
    for (const problem of JSON.parse(text) as string[]) process.emitWarning(problem, "FlovynToolkit");
  }

  /** Serves what runs here wait for since the process has died that had served it. */
  private meetOrphans(): void {
    const functions = [...new Set(this.agents.values())].filter((agent) => agent.toolkit === undefined);
    if (this.toolkit === false || functions.length === 0) return;
    const isOpen = (): boolean => this.native !== undefined && this.closing === undefined;
    const kinds = functions.flatMap(({ names }) => names);
    void tellOrphans(this.client, kinds, this.settings.queue, isOpen, (kind) => this.meetToolkit(kind));
  }

  /** @internal Serves a model call or a host tool that an agent asked for and nobody named. */
  meetToolkit(kind: string): void {
    const { toolkit, opened } = this;
    if (toolkit === false || opened.has(kind) || this.native?.toolkitTask(kind, this.settings.queue) !== null) return;
    opened.add(kind);
    const tools = kind.startsWith("tool.") ? [kind.slice("tool.".length)] : [];
    const { mcpServers: _open, ...place } = toolkit ?? {};
    this.openToolkit([described({ ...place, tools })], false).catch((error: unknown) => {
      if (this.native === undefined) return;
      process.emitWarning(`"${kind}" cannot be served here: ${messageOf(error)}`, "FlovynToolkit");
    });
  }

  /** @internal How a task of the toolkit is scheduled for the workers of a queue; undefined for one that nobody knows. */
  toolkitSpec(kind: string, queue: string = this.settings.queue): NativeTaskSpec | undefined {
    return this.native?.toolkitTask(kind, queue) ?? native.toolkitTask(kind, queue) ?? undefined;
  }

  /** @internal Serves a task that an agent called, so that its later attempts find it here. */
  meet(task: Declared): void {
    if (this.met.has(task.kind) || (task.fn === elsewhere && !this.fakes.has(task.kind))) return;
    if (task.isOfToolkit && !this.fakes.has(task.kind)) {
      if ((task.spec.queue ?? this.settings.queue) === this.settings.queue) this.meetToolkit(task.kind);
      return;
    }
    this.met.set(task.kind, task);
    for (const name of task.names) if (!this.given.has(name)) this.tasks.set(name, task);
    if (!task.inline && (task.spec.queue ?? this.settings.queue) !== this.settings.queue) return;
    for (const name of task.names) this.native?.serveTask(name);
  }

  /** @internal Serves the agent of a child that an agent has started, unless another has its kind. */
  meetAgent(agent: AnyAgent): void {
    if (this.native === undefined || this.agents.has(agent.kind)) return;
    this.metAgents.set(agent.kind, agent);
    for (const name of agent.names) if (!this.agents.has(name)) this.agents.set(name, agent);
    if (agent.toolkit === undefined) return declare(this.native, agent);
    if (this.toolkit === false) return;
    this.openToolkit([agent.toolkit], false).catch((error: unknown) => {
      if (this.native === undefined) return;
      process.emitWarning(`agent "${agent.kind}" cannot be served here: ${messageOf(error)}`, "FlovynToolkit");
    });
  }

  /** @internal The task of a kind; one that runs elsewhere if none is served here. */
  taskOf(kind: string): Declared {
    const settings = { queue: this.settings.queue, noRetry: [], interruptible: false, reconciles: false };
    return this.tasks.get(kind) ?? new Declared(kind, elsewhere, settings, undefined, undefined);
  }

  /** @internal The function that an attempt of a task runs. */
  functionOf(kind: string, fn: AnyFunction, id: string): AnyFunction {
    this.onAttempt?.(kind, id);
    return this.fakes.get(kind) ?? fn;
  }

  /**
   * @internal Nobody waits for a task any more. What of it runs here is stopped now, where the store would tell so with the
   * next sign of life.
   */
  unwanted(step: Step<unknown>, reason: unknown): void {
    this.forget(step);
    if (this.attempts.size === 0) return;
    for (const attempt of this.attempts.values()) {
      if (attempt.task !== step.id) continue;
      attempt.unwanted = true;
      attempt.stop.ask(reason ?? new Cancelled("this task has ended"));
    }
  }

  /** @internal Forgets the caller of a task; another copy of its run may have taken its place. */
  forget(step: Step<unknown>): void {
    if (this.callers.get(step.id) === step) this.callers.delete(step.id);
  }

  /** @internal Says why a run was paused; who runs one alone says so himself. */
  tellPaused(run: string): void {
    if (this.settings.only !== undefined) return;
    const { client } = this;
    const told = scopes.exit(async () => {
      const handle = await client.handle(run);
      const { status, kind, waitReason, failure } = await handle.describe();
      const why = failure === null ? String(waitReason) : `${failure.errorType}: ${failure.message}`;
      const name = handle.key ?? run;
      if (status === "PAUSED") paused(kind, name, why, commandOf("resume", client.url, name));
    });
    // The client is being closed, or the store is away, which is said elsewhere.
    told.catch(() => undefined);
  }

  /** @internal Forgets an activation. */
  closed(activation: Activation): void {
    this.activations.delete(activation.id);
  }

  // ── what the engine asks ──────────────────────────────────────────────────────────────────────────────────────

  /** @internal Takes what the engine has for it. */
  take(): void {
    for (const news of this.native?.poll() ?? []) {
      switch (news[0]) {
        case NewsCode.Agent: {
          const [, id, session, kind] = news;
          const agent = this.agents.get(kind);
          if (agent === undefined) break;
          const activation = new Activation(this, id, session, agent);
          this.activations.set(id, activation);
          void activation.start();
          break;
        }
        case NewsCode.Effects:
          this.activations.get(news[1])?.take();
          break;
        case NewsCode.Task: {
          const [, id, ticket, kind, input, task, attempt, reconcile] = news;
          this.overtake(task, attempt);
          const stop = new Stop();
          const running = { stop, task, unwanted: false };
          this.attempts.set(id, running);
          void this.attempt(id, ticket, running, kind, input, attempt, reconcile);
          break;
        }
        default:
          this.attempts.get(news[1])?.stop.ask(new Cancelled(this.closing === undefined ? UNWANTED : CLOSED));
      }
    }
  }

  /**
   * Ends what earlier attempts of a task do here: the store has given them up, or there would be no later one. Their ends
   * are told to nobody: the task is known by the later one now.
   */
  private overtake(task: string, attempt: number): void {
    for (const [id, earlier] of this.attempts) {
      if (earlier.task !== task) continue;
      this.attempts.delete(id);
      earlier.stop.ask(new Cancelled(`this attempt was given up; attempt ${attempt} of its task has begun`));
    }
  }

  /** Runs a claimed attempt and tells its end; never rejects, for nobody waits for it. */
  private async attempt(
    id: number,
    ticket: NativeTicket,
    running: Attempt,
    kind: string,
    input: Wire,
    attempt: number,
    reconcile: boolean,
  ): Promise<void> {
    await Promise.resolve();
    const { stop, task: taskId } = running;
    let report: () => void;
    try {
      let caller = this.callers.get(taskId);
      // What the step itself was called with: functions of `ctx.run` share a kind.
      let task = caller?.task instanceof Declared ? caller.task : this.tasks.get(kind);
      if (task === undefined) throw new InvalidArgument(`nothing here runs "${kind}"`);
      if (caller === undefined && task.isOfRun) {
        await this.runComes(taskId, task);
        caller = this.callers.get(taskId);
        if (!(caller?.task instanceof Declared)) {
          if (this.attempts.delete(id)) ticket.released();
          return;
        }
        task = caller.task;
      }
      const settles = reconcile && task.reconcile !== undefined;
      const fn = settles ? (task.reconcile as AnyFunction) : this.functionOf(kind, task.fn, taskId);
      const ctx = new TaskContext(taskId, attempt, stop, new TicketLink(ticket));
      const given = decode(input);
      const run = (): Promise<unknown> => task.execute(fn, given, ctx);
      const output = task.results.written(await (caller?.inContext?.runInAsyncScope(run) ?? run()));
      report = () => ticket.completed(output);
    } catch (error) {
      report = () => this.unsuccessful(ticket, running, kind, attempt, error);
    }
    if (!this.attempts.delete(id)) return;
    try {
      report();
    } catch (error) {
      ticket.failed(...failureOf(unwritable(error)));
    }
  }

  /**
   * Waits for the run of a task, which alone has its function, to call it here. `known` is what another run has declared
   * under its kind.
   */
  private async runComes(task: string, known: Declared): Promise<void> {
    for (let left = known.inline ? LOST_MS : RUN_COMES_MS; left > 0; left -= LOOK_MS) {
      if (this.callers.has(task)) return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    // A run that was lost with its process is taken up by somebody, who calls it again.
    if (known.inline) return;
    throw new NonRetryable(
      `task "${known.kind}" is declared inside an agent's function, and its run is not in this process: nobody here has ` +
        "the function that it stands for. Declare it outside of the agent, or without a queue",
    );
  }

  private unsuccessful(ticket: NativeTicket, running: Attempt, kind: string, attempt: number, error: unknown): void {
    if (isA(error, NotDone)) ticket.notDone();
    else if (running.stop.isAsked) {
      if (running.unwanted || (ticket.isCancelled && this.closing === undefined)) ticket.cancelled();
      else ticket.released();
    } else {
      const caller = this.callers.get(running.task);
      if (caller !== undefined) caller.cause = error;
      const task = caller?.task ?? this.tasks.get(kind);
      const failure = failureOf(error, task?.retryIf);
      attemptFailed(kind, attempt, task?.retries ?? 0, error, failure[1]);
      ticket.failed(...failure);
    }
  }
}

/** Declares an agent to the engine, or again what it is by now. */
function declare(worker: NativeWorker, agent: AnyAgent): void {
  if (agent.toolkit !== undefined) return;
  const { onDivergence = "continue", onError, cancellable = true, replayTimeoutMs } = agent.options;
  const { isStateful: stateful, code } = agent;
  const settings = { stateful, code, onDivergence, onError, cancellable, replayTimeoutMs };
  for (const name of agent.names) worker.serveAgent(name, settings);
}

function elsewhere(): never {
  throw new InvalidArgument("this task runs in another worker");
}
