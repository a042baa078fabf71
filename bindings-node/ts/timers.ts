// Which timers of the process belong to which agent.
//
// A timer (`setTimeout`) lives in this process alone, and the engine must know that a waiting agent has one (outside.ts).
// The functions are replaced while a worker serves agents, and only then.

import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers";
import promises from "node:timers/promises";

import type { Activation } from "./activation.js";
import { isA, Suspended } from "./errors.js";
import { scopes } from "./scope.js";

/** The functions as they were: ours are no agent's timers. */
export const setImmediate = timers.setImmediate;
export const setInterval = timers.setInterval;
export const setTimeout = timers.setTimeout;
export const clearInterval = timers.clearInterval;
export const clearTimeout = timers.clearTimeout;

const left = new WeakMap<Activation, Set<Timer>>();
const pending = new WeakMap<Activation, number>();
const owners = new WeakMap<Timer, Set<Timer>>();

/** Whether a timer that the agent's code has set may still fire. */
export function anyLeft(agent: Activation): boolean {
  return (left.get(agent)?.size ?? 0) > 0 || (pending.get(agent) ?? 0) > 0;
}

type Original = { owner: Record<string, unknown>; name: string; original: unknown; put: unknown };

let users = 0;
let replaced: Original[] = [];

/** Notes from now on which agent sets a timer. */
export function watch(): void {
  users += 1;
  if (users > 1) return;
  const noting = noted(timers.setTimeout, true);
  const repeating = noted(timers.setInterval, false);
  const next = noted(timers.setImmediate, true);
  const forgetting = forgotten(timers.clearTimeout);
  const forgettingMore = forgotten(timers.clearInterval);
  const forgettingNext = forgotten(timers.clearImmediate);
  for (const owner of [globalThis, timers]) {
    put(owner, "setTimeout", noting);
    put(owner, "setInterval", repeating);
    put(owner, "setImmediate", next);
    put(owner, "clearTimeout", forgetting);
    put(owner, "clearImmediate", forgettingNext);
    put(owner, "clearInterval", forgettingMore);
  }
  put(promises, "setTimeout", counted(promises.setTimeout));
  put(promises, "setImmediate", counted(promises.setImmediate));
  put(AbortSignal, "timeout", aborting(AbortSignal.timeout));
  syncBuiltinESMExports();
}

/** Leaves the process as it was found, once nobody serves agents any more. */
export function unwatch(): void {
  users -= 1;
  if (users > 0) return;
  for (const { owner, name, original, put } of replaced) {
    if (owner[name] === put) owner[name] = original;
  }
  replaced = [];
  syncBuiltinESMExports();
}

function put(owner: object, name: string, by: unknown): void {
  const holder = owner as Record<string, unknown>;
  replaced.push({ owner: holder, name, original: holder[name], put: by });
  holder[name] = by;
}

type Timer = NodeJS.Timeout | NodeJS.Immediate;
type Callback = (...args: unknown[]) => unknown;
type Set_ = (callback: Callback, ...args: unknown[]) => Timer;

/** A function that sets a timer, and says so to the agent that called it. */
function noted(original: unknown, once: boolean): unknown {
  const set = original as Set_;
  const noting = (callback: Callback, ...args: unknown[]): Timer => {
    const agent = scopes.getStore()?.activation;
    if (agent == null || typeof callback !== "function") return set(callback, ...args);
    const mine = left.get(agent) ?? new Set<Timer>();
    left.set(agent, mine);
    const fire = function (this: unknown, ...given: unknown[]): void {
      if (once) mine.delete(timer);
      passing(callback, this, given);
    };
    const timer = set(fire, ...args);
    mine.add(timer);
    owners.set(timer, mine);
    return timer;
  };
  // Carries `util.promisify.custom`.
  return Object.defineProperties(noting, Object.getOwnPropertyDescriptors(set));
}

/** Calls back. A copy of an agent that was put away throws `Suspended`, which here nobody catches: that ends the timer alone. */
function passing(callback: Callback, owner: unknown, given: unknown[]): void {
  try {
    Reflect.apply(callback, owner, given);
  } catch (error) {
    if (!isA(error, Suspended)) throw error;
  }
}

function forgotten(original: unknown): unknown {
  const clear = original as (timer?: Timer | number | string) => void;
  return (timer?: Timer | number | string): void => {
    if (typeof timer === "object") owners.get(timer)?.delete(timer);
    clear(timer);
  };
}

/** A function of `node:timers/promises`, counted while it waits. */
function counted(original: unknown): unknown {
  return (...args: unknown[]): Promise<unknown> => {
    const agent = scopes.getStore()?.activation;
    const wait = (original as (...args: unknown[]) => Promise<unknown>)(...args);
    if (agent == null) return wait;
    const over = begun(agent);
    wait.then(over, over);
    return wait;
  };
}

/** `AbortSignal.timeout`, counted until it aborts, whether or not anybody still listens. */
function aborting(original: unknown): unknown {
  return (...args: unknown[]): AbortSignal => {
    const signal = Reflect.apply(original as (...args: unknown[]) => AbortSignal, AbortSignal, args);
    const agent = scopes.getStore()?.activation;
    if (agent != null) signal.addEventListener("abort", begun(agent), { once: true });
    return signal;
  };
}

function begun(agent: Activation): () => void {
  pending.set(agent, (pending.get(agent) ?? 0) + 1);
  return () => void pending.set(agent, (pending.get(agent) ?? 1) - 1);
}
