// This process as a machine of a server: agents and tasks of one's own, on the queue of the machine.

import { Client } from "./client.js";
import { InvalidArgument } from "./errors.js";
import { Given } from "./given.js";
import { hub } from "./hub.js";
import { refused, unanswered } from "./log.js";
import { native, natively, type NativeDaemon, type NativeRuntime } from "./native.js";
import type { Worker, WorkerOptions } from "./worker.js";

const CLOSE_GRACE_MS = 5_000;

/** Which machine a process is, and what it serves. The limits are those of a worker. */
export interface DaemonOptions extends Omit<WorkerOptions, "queue"> {
  /** The server, such as `https://flovyn.example.com:9090`; that of the kept key unless given. */
  serverUrl?: string;
  /** The key of the machine; the one in `daemon.key` of `home` unless given. It goes with a `serverUrl`. */
  authToken?: string;
  /** The folder in which `flovyn daemon pair` has kept the key; `FLOVYN_HOME`, else `~/.flovyn`, unless given. */
  home?: string;
  /** What the machine has to be called; it is only compared with the name that the server knows. */
  name?: string;
  /**
   * The directories that the work is about. The server is told of them, code finds them as `daemon.workspaces`, and tools of the
   * toolkit work in the first one and may be given the others. Functions of one's own have all rights of the process.
   */
  workspaces?: readonly string[];
}

/** A machine of a server from `start()` to `close()`; `run()` does both. */
export class Daemon {
  /** The directories that its work is about, by their real paths and in the order in which they were given. */
  readonly workspaces: readonly string[];
  private readonly native: NativeDaemon;
  private readonly serves: WorkerOptions;
  private readonly closer = new AbortController();
  private readonly ended: Promise<void>;
  private end: () => void = () => undefined;
  private client: Client | undefined;
  private worker: Worker | undefined;
  private starting: Promise<this> | undefined;
  private closing: Promise<void> | undefined;
  private refusal: unknown;

  /** @internal */
  constructor({ serverUrl, authToken, home, name, workspaces = [], ...serves }: DaemonOptions) {
    // What cannot be served is refused here, as it is where a worker is made.
    new Given(serves);
    const settings = { serverUrl, authToken, home, name, workspaces: [...workspaces] };
    this.native = natively(() => new native.Daemon(settings));
    this.workspaces = this.native.workspaces;
    this.serves = { ...serves, toolkit: this.lent(serves.toolkit) };
    this.ended = new Promise((resolve) => (this.end = resolve));
  }

  /** Lets tools work in the workspaces, unless they are told where. */
  private lent(toolkit: WorkerOptions["toolkit"]): WorkerOptions["toolkit"] {
    const [workingDirectory, ...roots] = this.workspaces;
    if (workingDirectory === undefined || toolkit === false) return toolkit;
    if (toolkit?.workingDirectory !== undefined || toolkit?.roots !== undefined) return toolkit;
    return { ...toolkit, workingDirectory, roots };
  }

  /** The server that it works for. */
  get serverUrl(): string {
    return this.native.serverUrl;
  }

  /** The name of the machine; null before it is connected, where only the server knows it. */
  get name(): string | null {
    return this.native.name;
  }

  /** Whether it serves. */
  get isOpen(): boolean {
    return this.worker !== undefined && this.closing === undefined;
  }

  /**
   * Connects, however long nobody answers, and begins to serve. From then on the server is told every ten seconds that the
   * machine is there. Throws `Unauthenticated` for a key that was revoked or has ended, `InvalidArgument` for one that is no
   * machine's and for what is no Flovyn server.
   */
  start(): Promise<this> {
    this.starting ??= this.begin();
    return this.starting;
  }

  private async begin(): Promise<this> {
    const client = new Client(await this.connect());
    try {
      const worker = client.worker({ ...this.serves, queue: `machine/${this.name}` });
      await worker.start();
      await hub.call((hub, token) => this.native.announce(hub, token, worker.agentKinds));
      [this.client, this.worker] = [client, worker];
    } catch (error) {
      await client.close().catch(() => undefined);
      throw error;
    }
    void this.watch();
    return this;
  }

  private async connect(): Promise<NativeRuntime> {
    const { signal } = this.closer;
    for (;;) {
      const answer = await hub.call<NativeRuntime | string>((hub, token) => this.native.connect(hub, token), signal);
      if (typeof answer !== "string") return answer;
      unanswered(answer);
    }
  }

  /** Tells the server that the machine is there, until it does not let it in any more. */
  private async watch(): Promise<void> {
    const { signal } = this.closer;
    try {
      await hub.call((hub, token) => this.native.untilRefused(hub, token), signal);
    } catch (error) {
      if (signal.aborted) return;
      this.refusal = error;
      refused(error);
      // A server that lets the machine in no more takes nothing back: the leases are over.
      await this.close().catch(() => undefined);
    }
  }

  /** Stops: runs are put away and given back at once, running tasks get `graceMs`. */
  close(graceMs = CLOSE_GRACE_MS): Promise<void> {
    this.closing ??= this.leave(graceMs);
    return this.closing;
  }

  private async leave(graceMs: number): Promise<void> {
    this.closer.abort(new InvalidArgument("the daemon was closed; make another one"));
    this.starting ??= Promise.reject(this.closer.signal.reason as Error);
    try {
      await this.starting.catch(() => undefined);
      try {
        await this.worker?.close(graceMs);
      } finally {
        await this.client?.close();
      }
    } finally {
      this.end();
    }
  }

  /**
   * Serves until it is closed. SIGINT and SIGTERM close it in order: runs are given back at once instead of when their lease
   * is over. Throws `Unauthenticated` or `PermissionDenied` once the server does not let the machine in any more.
   */
  async run(): Promise<void> {
    // Whoever runs it is told below what the close came to.
    const stop = (): void => void this.close().catch(() => undefined);
    process.once("SIGINT", stop);
    process.once("SIGTERM", stop);
    try {
      await this.start().catch((error: unknown) => {
        if (this.closing === undefined) throw error;
      });
      await this.ended;
      if (this.refusal !== undefined) throw this.refusal;
      await this.closing;
    } finally {
      process.off("SIGINT", stop);
      process.off("SIGTERM", stop);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/**
 * Makes this process a machine of a server: `await daemon({ agents, tasks }).run()`. It serves agents and tasks on the queue of
 * the machine, where `mode: Local(name)` starts runs, by connections that it opens itself.
 *
 * The computer is let in with `flovyn daemon pair`. What cannot be a machine is `InvalidArgument` here: no key, one for another
 * server or another name, a workspace that is no directory.
 */
export function daemon(options: DaemonOptions): Daemon {
  return new Daemon(options);
}
