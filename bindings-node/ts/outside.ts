// What may make an agent's code go on beside the outcomes that it waits for.
//
// The engine must know: a run that waits for something of this process is entered again when the process is gone, it is not
// put away meanwhile, and replay waits for what the code may still call. Timers are noted where they are set (timers.ts);
// of what else Node waits for (files, sockets, names, threads, child processes) each request has an owner, the agent in
// whose code it began. A promise that somebody else ends, such as a pool that was opened elsewhere, cannot be told from one
// that an outcome ends: then the answer is that nobody knows.

import { type AsyncHook, createHook } from "node:async_hooks";

import type { Activation } from "./activation.js";
import { OutsideCode } from "./codes.js";
import { isA, Suspended } from "./errors.js";
import { scopes } from "./scope.js";
import * as timers from "./timers.js";

/** What ends by itself, or is no wait of the code that began it. */
const IGNORED = new Set([
  "PROMISE",
  "Timeout",
  "Immediate",
  "TickObject",
  "Microtask",
  "TTYWRAP",
  "PIPEWRAP",
  "WRITEWRAP",
  // Ours: what a step is called in.
  "flovyn.task",
]);
const JOB = /REQUEST$/;

/** Work of a thread, which says when it is done. */
interface Job {
  ondone?: (...given: unknown[]) => unknown;
}

/** Undocumented and old: the requests and handles that keep a process alive. */
interface Actives {
  _getActiveRequests?(): object[];
  _getActiveHandles?(): object[];
}

const owners = new WeakMap<object, Activation>();
/** Agents that have begun something since it was last looked for. */
const began = new WeakSet<Activation>();
/** Agents of which all that they have begun ended a moment ago. */
const ending = new WeakSet<Activation>();
const jobs = new WeakMap<Activation, number>();

let hook: AsyncHook | undefined;
let users = 0;

/** What may make an agent's code go on; that there is nothing cannot be known here. */
export function outside(agent: Activation): number {
  return timers.anyLeft(agent) || (jobs.get(agent) ?? 0) > 0 || anyBegun(agent) ? OutsideCode.Something : OutsideCode.Unknown;
}

/** Counts what the engine reads for an agent's code as such a wait: the code goes on when it has been read. */
export async function counted<T>(agent: Activation, read: Promise<T>): Promise<T> {
  jobs.set(agent, (jobs.get(agent) ?? 0) + 1);
  try {
    return await read;
  } finally {
    jobs.set(agent, (jobs.get(agent) ?? 1) - 1);
  }
}

function anyBegun(agent: Activation): boolean {
  if (!began.has(agent)) return ending.has(agent);
  const actives = process as unknown as Actives;
  const mine = (one: object): boolean =>
    owners.get(one) === agent || owners.get((one as { _handle?: object })._handle ?? one) === agent;
  const any = [...(actives._getActiveRequests?.() ?? []), ...(actives._getActiveHandles?.() ?? [])].some(mine);
  if (!any) ends(agent);
  return true;
}

/** A handle that closes is active no more, but who waits for that is told a turn of the loop later. */
function ends(agent: Activation): void {
  began.delete(agent);
  ending.add(agent);
  timers.setImmediate(() => {
    timers.setImmediate(() => {
      ending.delete(agent);
      agent.awaitQuiet();
    });
  });
}

/** Notes from now on who begins what. Ends are looked for: to be told of them would cost every promise of the process. */
export function watch(): void {
  timers.watch();
  users += 1;
  if (hook === undefined && !OWN_WAY.test([...process.execArgv, process.env["NODE_OPTIONS"]].join(" "))) {
    // It stays: code of a copy that was put away may go on after its worker.
    process.on("unhandledRejection", rejected);
  }
  hook ??= createHook({ init: noted });
  if (users === 1) hook.enable();
}

/** Stops that, once nobody serves agents any more. */
export function unwatch(): void {
  timers.unwatch();
  users -= 1;
  if (users === 0) hook?.disable();
}

/** What of Node's ways to take a promise that nobody reads the program has chosen itself. */
const OWN_WAY = /--unhandled-rejections/;

/**
 * A branch that nobody awaits ends with `Suspended` once its copy is put away, which is no error of the program. All else is
 * an uncaught error, as it is where nobody listens.
 */
function rejected(reason: unknown): void {
  if (isA(reason, Suspended) || process.listenerCount("unhandledRejection") > 1) return;
  throw reason;
}

function noted(_id: number, type: string, _trigger: number, resource: object): void {
  if (IGNORED.has(type)) return;
  const agent = scopes.getStore()?.activation;
  if (agent == null) return;
  if (!JOB.test(type) || type === "HTTPCLIENTREQUEST") {
    owners.set(resource, agent);
    began.add(agent);
    return;
  }
  jobs.set(agent, (jobs.get(agent) ?? 0) + 1);
  // Its callback is set before it begins, and after this.
  queueMicrotask(() => {
    const job = resource as Job;
    const done = job.ondone;
    const ended = (): void => void jobs.set(agent, (jobs.get(agent) ?? 1) - 1);
    if (typeof done !== "function") {
      ended();
      return;
    }
    job.ondone = function (this: unknown, ...given: unknown[]): unknown {
      ended();
      return done.apply(this, given);
    };
  });
}
