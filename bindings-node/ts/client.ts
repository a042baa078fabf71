// Clients: the door to a backend. Start runs, find them, make workers.

import { Agent, type AnyAgent } from "./agent.js";
import type { Persistence } from "./child.js";
import { Desk } from "./desk.js";
import { ExecutionExists, InvalidArgument, isA } from "./errors.js";
import { Handle } from "./handle.js";
import { hub, NOBODY } from "./hub.js";
import { type Mode, queueOf } from "./mode.js";
import { native, type NativeHandle, type NativeRuntime, type StartSettings, type Wire } from "./native.js";
import { encode, facts, json } from "./serde.js";
import type { Arguments } from "./task.js";
import { closed, opened } from "./threads.js";
import { Worker, type WorkerOptions } from "./worker.js";

const CLOSE_WITHIN_MS = 10_000;

/** How a run is to be started. */
export interface StartOptions {
  /** Any string up to 200 characters, unique per org; one that is no UUID is the run's key. */
  id?: string;
  queue?: string;
  /** `Local("laptop")` is a machine, whose queue the run has then. */
  mode?: Mode;
  metadata?: Record<string, string>;
  maxSteps?: number;
  maxTotalSteps?: number;
  maxTail?: number;
  budget?: unknown;
  timeoutMs?: number;
  /** How long it may wait for a worker to begin it; then it fails. */
  startTimeoutMs?: number;
  priority?: number;
  /** Of the runs of one key one runs at a time; those that wait do not count. */
  concurrencyKey?: string;
  /** Or so many. */
  concurrencyLimit?: number;
  delayMs?: number;
  traceparent?: string;
  /** Whether its journal is kept: see `ctx.enablePersistence`. */
  persistence?: Persistence;
}

/** An open backend. Close it; its workers are closed first. */
export class Client extends Desk {
  private readonly served = new Set<Worker>();
  /** Those that `shared` has made, by queue. */
  private readonly serving = new Map<string, Worker>();
  private closing: Promise<void> | undefined;

  /** @internal */
  constructor(native: NativeRuntime) {
    super(native);
    opened(this);
  }

  /** The URL it was opened with. */
  get url(): string {
    return this.native.url;
  }

  /** Whether it can still be used. */
  get isOpen(): boolean {
    return this.closing === undefined;
  }

  /**
   * Starts a run and gives its handle; the run is durable when this resolves.
   *
   * The same `id` with the same input gives the same run, with another input it throws `ExecutionExists`. An input that the
   * agent does not take, or that does not fit its schema, is `InvalidArgument`: here, and not again once it has begun.
   */
  start<I, R, S>(agent: Agent<I, R, S>, ...args: [...Arguments<I>, options?: StartOptions]): Promise<Handle<R>>;
  /** Starts a run of an agent that any worker serves, by its kind. */
  start<R = unknown>(kind: string, input?: unknown, options?: StartOptions): Promise<Handle<R>>;
  async start(agent: AnyAgent | string, input?: unknown, options: StartOptions = {}): Promise<Handle<never>> {
    const declared = declaredOf(agent);
    const value = encode(declared === undefined ? input : await declared.startable(input));
    const { budget, timeoutMs = declared?.options.timeoutMs, mode, ...rest } = options;
    rest.queue = queueOf(mode, rest.queue, "start");
    const settings = { ...rest, timeoutMs, budget: budget === undefined ? undefined : json(budget) };
    const kind = declared?.kind ?? (agent as string);
    const aliases = options.id === undefined ? [] : (declared?.aliases ?? []);
    return this.made(await this.started(kind, aliases, value, settings), declared);
  }

  /** Starts a run, or finds the one that was started when the agent had another name. */
  private async started(
    kind: string,
    aliases: readonly string[],
    value: Wire,
    settings: StartSettings,
  ): Promise<NativeHandle> {
    const start = (kind: string): Promise<NativeHandle> =>
      hub.call<NativeHandle>((hub, token) => this.native.start(hub, token, kind, value, settings));
    try {
      return await start(kind);
    } catch (exists) {
      for (const alias of isA(exists, ExecutionExists) ? aliases : []) {
        const found = await start(alias).catch((error: unknown) => (isA(error, ExecutionExists) ? undefined : Promise.reject(error as Error)));
        if (found !== undefined) return found;
      }
      throw exists;
    }
  }

  /**
   * The handle of a run that exists; `ExecutionNotFound` otherwise. With its agent it knows the types of the result and of
   * the signals, as the one that `start` gave.
   */
  handle<I, R, S>(idOrKey: string, agent: Agent<I, R, S>): Promise<Handle<R>>;
  /** The handle of a run that exists. */
  handle<R = unknown>(idOrKey: string): Promise<Handle<R>>;
  async handle(idOrKey: string, agent?: AnyAgent): Promise<Handle<never>> {
    const made = await hub.call<NativeHandle>((hub, token) => this.native.handle(hub, token, idOrKey));
    const found = this.made(made, agent);
    if (agent === undefined) return found;
    const { kind } = await found.describe();
    if (declaredOf(agent)?.names.includes(kind) === true) return found;
    throw new InvalidArgument(`run "${found.key ?? found.id}" is one of agent "${kind}", not of "${agent.kind}"`);
  }

  /** @internal The handle of a run. */
  protected made(native: NativeHandle, agent: AnyAgent | undefined): Handle<never> {
    return new Handle<never>(this, native, agent);
  }

  /**
   * Copies a SQLite database to a new file, consistent while runs go on; resolves to its size in bytes.
   *
   * The copy is one file that any program may read. A file that is there stays as it is. Other backends throw
   * `InvalidArgument` and say what to use.
   */
  async backup(path: string): Promise<number> {
    return facts<number>(await hub.call<string>((hub, token) => this.native.backup(hub, token, path)));
  }

  /** Makes a worker: `start()` it and `close()` it, or `run()` it. */
  worker(options: WorkerOptions): Worker {
    return new Worker(this, options);
  }

  /** @internal Serves in the one worker that a queue has here, in the place of what it serves under the same kinds. */
  async serve(options: WorkerOptions): Promise<void> {
    const { queue = "default" } = options;
    const known = this.serving.get(queue);
    if (known?.isOpen === true) return known.replace(options);
    const made = this.worker(options);
    this.serving.set(queue, made);
    await made.start();
  }

  /** Closes the workers, then the backend; everything acknowledged is safe when it resolves. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    // What goes wrong with one keeps neither the others nor the backend open: who waits for a run must hear of it.
    const failed: unknown[] = [];
    for (const worker of [...this.served]) await worker.close().catch((error: unknown) => failed.push(error));
    await hub.call((hub, token) => this.native.close(hub, token, CLOSE_WITHIN_MS)).finally(() => closed(this));
    if (failed.length > 0) throw failed[0];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal Leaves the backend as a killed process would: without closing it. */
  forget(): void {
    this.closing ??= Promise.resolve();
    closed(this);
    for (const worker of [...this.served]) worker.abandon();
  }

  /** @internal Gives everything back by the engine's threads, for this one ends now. */
  leaveThread(): void {
    this.closing ??= Promise.resolve();
    for (const worker of this.served) worker.leaveThread();
    this.native.close(hub.native, NOBODY, CLOSE_WITHIN_MS);
  }

  /** @internal Notes a worker that polls. */
  opened(worker: Worker): void {
    this.served.add(worker);
  }

  /** @internal Forgets a worker. */
  gone(worker: Worker): void {
    this.served.delete(worker);
  }
}

/** A declared agent; undefined for a kind. */
function declaredOf(agent: unknown): AnyAgent | undefined {
  if (agent instanceof Agent) return agent as AnyAgent;
  if (typeof agent === "string") return undefined;
  throw new InvalidArgument("an agent is what agent(…) gave, or its kind as text");
}

/**
 * Opens a backend: `sqlite:agents.db`, `memory:`, `postgres://…` or `https://…`.
 *
 * Without a URL `FLOVYN_URL` counts, else `sqlite:flovyn.db`.
 */
export async function connect(url?: string): Promise<Client> {
  return new Client(await hub.call((hub, token) => native.Runtime.open(hub, token, url)));
}

const SHARED = Symbol.for("flovyn.shared");

/**
 * The one client of a URL in this process, opened on first use: the same across hot reloads and copies of this package,
 * as in the development server of Next.js.
 *
 * With what it shall serve it has one worker for each queue. Called again, as a module is that is loaded anew, it serves
 * the agents and tasks of that call in the place of those of the same kinds, and goes on with the others: new runs take the
 * new functions at once, runs that wait go on in them, and runs that are working end or wait in the old ones first. The
 * limits, and what it lends of the toolkit, are those of the first call.
 */
export async function shared(url?: string, serves?: WorkerOptions): Promise<Client> {
  const holder = globalThis as { [SHARED]?: Map<string, Promise<Client>> };
  const clients = (holder[SHARED] ??= new Map<string, Promise<Client>>());
  const name = url ?? "";
  const open = clients.get(name);
  const made: Promise<Client> =
    open === undefined
      ? connect(url)
      : open.then(
          (client) => (client.isOpen ? client : connect(url)),
          () => connect(url),
        );
  clients.set(name, made);
  const client = await made;
  if (serves !== undefined) await client.serve(serves);
  return client;
}
