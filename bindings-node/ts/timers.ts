// Which timers of the process belong to which agent.
//
// A timer (`setTimeout`) lives in this process alone. The engine must know that a waiting agent has one, so that its run
// is entered again when this process is gone. The functions are replaced while a worker serves agents, and only then.

import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers";
import promises from "node:timers/promises";

import type { Activation } from "./activation.js";
import { scopes } from "./scope.js";

/** The functions as they were: ours are no agent's timers. */
export const setInterval = timers.setInterval;
export const setTimeout = timers.setTimeout;
export const clearInterval = timers.clearInterval;
export const clearTimeout = timers.clearTimeout;

const left = new WeakMap<Activation, Set<NodeJS.Timeout>>();
const pending = new WeakMap<Activation, number>();
const owners = new WeakMap<NodeJS.Timeout, Set<NodeJS.Timeout>>();

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
  const forgetting = forgotten(timers.clearTimeout);
  const forgettingMore = forgotten(timers.clearInterval);
  for (const owner of [globalThis, timers]) {
    put(owner, "setTimeout", noting);
    put(owner, "setInterval", repeating);
    put(owner, "clearTimeout", forgetting);
    put(owner, "clearInterval", forgettingMore);
  }
  put(promises, "setTimeout", counted(promises.setTimeout));
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

type Set_ = (callback: (...args: unknown[]) => void, ms?: number, ...args: unknown[]) => NodeJS.Timeout;

/** A function that sets a timer, and says so to the agent that called it. */
function noted(original: unknown, once: boolean): unknown {
  const set = original as Set_;
  const noting = (callback: (...args: unknown[]) => void, ms?: number, ...args: unknown[]): NodeJS.Timeout => {
    const agent = scopes.getStore()?.activation;
    if (agent == null || typeof callback !== "function") return set(callback, ms, ...args);
    const mine = left.get(agent) ?? new Set<NodeJS.Timeout>();
    left.set(agent, mine);
    const fire = (...given: unknown[]): void => {
      if (once) mine.delete(timer);
      callback(...given);
    };
    const timer = set(fire, ms, ...args);
    mine.add(timer);
    owners.set(timer, mine);
    return timer;
  };
  // Carries `util.promisify.custom`.
  return Object.defineProperties(noting, Object.getOwnPropertyDescriptors(set));
}

function forgotten(original: unknown): unknown {
  const clear = original as (timer?: NodeJS.Timeout | number | string) => void;
  return (timer?: NodeJS.Timeout | number | string): void => {
    if (typeof timer === "object") owners.get(timer)?.delete(timer);
    clear(timer);
  };
}

/** `setTimeout` of `node:timers/promises`, counted while it waits. */
function counted(original: typeof promises.setTimeout): unknown {
  return (...args: Parameters<typeof promises.setTimeout>): Promise<unknown> => {
    const agent = scopes.getStore()?.activation;
    const wait = original(...args);
    if (agent == null) return wait;
    pending.set(agent, (pending.get(agent) ?? 0) + 1);
    const over = (): void => void pending.set(agent, (pending.get(agent) ?? 1) - 1);
    wait.then(over, over);
    return wait;
  };
}
