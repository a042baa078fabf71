// A backend in memory on a clock that the test moves, and a worker on it.

import { setTimeout as sleep } from "node:timers/promises";

import type { Agent, AnyAgent } from "../agent.js";
import { Client, type StartOptions } from "../client.js";
import type { Handle } from "../handle.js";
import { hub } from "../hub.js";
import { native, natively, type NativeTestWorld } from "../native.js";
import { InvalidArgument } from "../errors.js";
import { type Arguments, declaredKinds, isTask } from "../task.js";
import type { Toolkit } from "../toolkit/kit.js";
import type { AnyTask, Worker } from "../worker.js";
import { Lives } from "./lives.js";

/** Functions that stand in for tasks, by task or kind. */
export type Fakes = ReadonlyMap<AnyTask | string, (input: never, ctx: never) => unknown>;

/** How a harness is made. */
export interface HarnessOptions {
  agents: readonly AnyAgent[];
  tasks?: readonly AnyTask[];
  /** Functions that stand in for tasks; `llm.generate` and `tool.NAME` are those of the toolkit. */
  fakes?: Fakes;
  /** What of the toolkit is served; see `WorkerOptions.toolkit`. */
  toolkit?: Toolkit | false;
  /** Waiting runs kept in memory; 0 enters every run anew at each of its waits. */
  maxParked?: number;
}

const PAUSE_MS = 2;
const SETTLE_MS = 5_000;
const MAX_JUMPS = 100_000;

/** Time and rows that outlive a process: every process on it finds what was durable. @internal */
export class TestWorld {
  readonly native: NativeTestWorld = natively(() => new native.TestWorld());

  /** Milliseconds since 1970 on its clock. */
  get now(): number {
    return this.native.now();
  }

  /** A client of a new process. */
  startProcess(): Client {
    return new Client(this.native.startProcess());
  }

  /** Moves the clock to the next thing that time brings, at most to `until`; false if there is none. */
  async jump(until?: number): Promise<boolean> {
    const text = await hub.call<string>((hub, token) => this.native.passed(hub, token));
    const due = JSON.parse(text) as number | null;
    if (due === null || (until !== undefined && due > until)) return false;
    this.native.advance(Math.max(due - this.now, 0) + 1e-3);
    return true;
  }
}

/** Agents and tasks served in memory; the clock stands still until `advance`. */
export class Harness {
  /** The client of the backend. */
  client!: Client;
  /** The worker that serves the agents. */
  worker!: Worker;
  private readonly options: HarnessOptions;
  private readonly world = new TestWorld();
  private readonly lives = new Lives();

  /** @internal */
  constructor(options: HarnessOptions) {
    this.options = options;
  }

  /** @internal */
  async begin(): Promise<this> {
    const { agents, tasks, maxParked, fakes, toolkit } = this.options;
    this.client = this.lives.begin(this.world.native.startProcess());
    this.worker = this.client.worker({ agents, tasks, maxParked, toolkit });
    for (const [kind, fake] of byKind(fakes, agents, tasks)) this.worker.fakes.set(kind, fake);
    await this.worker.start();
    return this;
  }

  /** Starts a run; takes the options of `client.start`. */
  start<I, R, S>(agent: Agent<I, R, S>, ...args: [...Arguments<I>, options?: StartOptions]): Promise<Handle<R>> {
    return this.client.start(agent, ...args);
  }

  /** The virtual clock. */
  get now(): Date {
    return new Date(this.world.now);
  }

  /** Lets so much time pass: timers fire one after the other, and what they wake runs until it waits again. */
  async advance(ms: number): Promise<void> {
    await this.settle();
    const until = this.world.now + ms;
    for (let jump = 0; jump < MAX_JUMPS && (await this.world.jump(until)); jump++) await this.settle();
    this.world.native.advance(Math.max(until - this.world.now, 0));
    await this.settle();
  }

  /** Waits until no run has anything left to do but to wait (at most 5 s). */
  async settle(): Promise<void> {
    const limit = performance.now() + SETTLE_MS;
    for (let calm = 0; calm < 3 && performance.now() < limit; ) {
      await sleep(PAUSE_MS);
      let busy = false;
      for await (const _ of this.client.runs({ status: ["PENDING", "RUNNING"] })) busy = true;
      calm = busy ? 0 : calm + 1;
    }
  }

  /**
   * Ends the process as by kill -9 and begins a new one: nothing that was not durable is left. Handles go on in the new
   * one, and so does whoever waits at them.
   */
  async crash(): Promise<void> {
    await kill(this.client);
    await this.begin();
  }

  /** Ends the harness. */
  close(): Promise<void> {
    return this.client.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Serves agents in memory on a virtual clock: `const h = await harness({ agents }); await h.advance(3_600_000)`. */
export function harness(options: HarnessOptions): Promise<Harness> {
  return new Harness(options).begin();
}

/** Kills a process and lets the store notice. @internal */
export async function kill(client: Client): Promise<void> {
  client.forget();
  await hub.call((hub, token) => client.native.kill(hub, token));
}

/** Stand-ins by the kind of their task; refuses one for a task that nobody has heard of. @internal */
export function byKind(
  fakes: Fakes | undefined,
  agents: readonly AnyAgent[],
  tasks: readonly AnyTask[] = [],
): Map<string, (input: never, ctx: never) => unknown> {
  const found = new Map<string, (input: never, ctx: never) => unknown>();
  for (const [of, fake] of fakes ?? []) {
    if (typeof fake !== "function") throw new InvalidArgument("a stand-in is a function that is called instead of a task");
    if (isTask(of)) found.set(of.kind, fake);
    else if (typeof of !== "string") throw new InvalidArgument("a stand-in is for what task(…) gave, or its kind as text");
    else {
      checkKnown(of, agents, tasks);
      found.set(of, fake);
    }
  }
  return found;
}

/**
 * What a function calls cannot be seen from outside; but a kind that no task of this process has, and that no agent has in
 * its text, is misspelt.
 */
function checkKnown(kind: string, agents: readonly AnyAgent[], tasks: readonly AnyTask[]): void {
  if (/^(llm|tool)\./.test(kind) || declaredKinds.has(kind) || tasks.some((task) => task.kind === kind)) return;
  const literal = new RegExp(`["'\`]${kind.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}["'\`]`);
  if (agents.some((agent) => literal.test(String(agent.fn)))) return;
  const known = [...declaredKinds].sort().join(", ") || "none";
  throw new InvalidArgument(`there is no task "${kind}" to stand in for; the tasks of this process are: ${known}`);
}
