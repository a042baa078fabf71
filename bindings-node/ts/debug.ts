// `FLOVYN_DEBUG=1`: warnings about agent code whose outcome depends on the process it runs in.
//
// Each call site is named once. Nothing here is replaced without the variable.

import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers";
import promises from "node:timers/promises";

import { scopes } from "./scope.js";

const LONG_MS = 1_000;
const TIME = "use ctx.currentTime(), which is the same on replay";
const CHANCE = "use ctx.random(), which is the same on replay";
const UUID = "use ctx.randomUuid(), which is the same on replay";
const SLEEP = "the time does not go on while no process runs; use await ctx.sleep(ms)";

const seen = new Set<string>();

/** Told of a call in an agent, and where it stands. */
type Told = (call: string, place: string, advice: string) => void;

/** Watches the usual suspects from now on; calls outside of agents, and of other packages, pass unseen. */
export function install(): void {
  const watch = suspects(warn);
  for (const owner of [globalThis, timers]) {
    watch(owner, "setTimeout", "setTimeout()", SLEEP, (_, ms) => Number(ms) >= LONG_MS);
  }
  watch(promises, "setTimeout", "setTimeout()", SLEEP, (ms) => Number(ms) >= LONG_MS);
  syncBuiltinESMExports();
}

/** Does something while the calls in agents that give another value in every process are told of. @internal */
export async function lookedAt<T>(told: Told, work: () => Promise<T>): Promise<T> {
  const restore: (() => void)[] = [];
  const watch = suspects(told, restore);
  watch(performance, "now", "performance.now()", TIME);
  watch(process, "hrtime", "process.hrtime()", TIME);
  watch(crypto, "randomBytes", "crypto.randomBytes()", UUID);
  watch(crypto, "randomInt", "crypto.randomInt()", CHANCE);
  syncBuiltinESMExports();
  try {
    return await work();
  } finally {
    for (const undo of restore) undo();
    syncBuiltinESMExports();
  }
}

/** Watches clocks and chance; gives what watches more. */
function suspects(told: Told, restore: (() => void)[] = []) {
  const watching = (owner: object, name: string, shown: string, advice: string, when?: (...args: unknown[]) => boolean): void =>
    watch(told, restore, owner, name, shown, advice, when);
  watching(Date, "now", "Date.now()", TIME);
  watching(Math, "random", "Math.random()", CHANCE);
  for (const owner of [crypto, globalThis.crypto]) watching(owner, "randomUUID", "crypto.randomUUID()", UUID);
  const original = Date;
  globalThis.Date = new Proxy(Date, {
    construct(target, given, made): object {
      if (given.length === 0) tell(told, "new Date()", TIME);
      return Reflect.construct(target, given, made) as object;
    },
  });
  restore.push(() => void (globalThis.Date = original));
  return watching;
}

function watch(
  told: Told,
  restore: (() => void)[],
  owner: object,
  name: string,
  shown: string,
  advice: string,
  when?: (...args: unknown[]) => boolean,
): void {
  const holder = owner as Record<string, (...args: unknown[]) => unknown>;
  const known = Object.getOwnPropertyDescriptor(owner, name);
  const original = holder[name];
  if (original === undefined) return;
  const watched = function (this: unknown, ...args: unknown[]): unknown {
    if (when === undefined || when(...args)) tell(told, shown, advice);
    return Reflect.apply(original, this, args);
  };
  // Carries `util.promisify.custom`.
  Object.defineProperties(watched, Object.getOwnPropertyDescriptors(original));
  holder[name] = watched;
  restore.push(() => {
    if (known === undefined) delete holder[name];
    else Object.defineProperty(owner, name, known);
  });
}

function tell(told: Told, shown: string, advice: string): void {
  if (scopes.getStore()?.activation == null) return;
  const place = caller();
  if (place !== undefined) told(shown, place, advice);
}

function warn(shown: string, place: string, advice: string): void {
  if (seen.has(place)) return;
  seen.add(place);
  process.emitWarning(`${shown} in an agent at ${place}: ${advice}`, "NotDurable");
}

/** Where the call stands, unless another package or Node itself makes it. */
function caller(): string | undefined {
  const frames = new Error().stack?.split("\n").slice(1) ?? [];
  const frame = frames.find((line) => !line.includes(__dirname));
  if (frame === undefined || frame.includes("node_modules") || frame.includes("node:")) return undefined;
  return frame.trim().replace(/^at (?:.* \()?(.*?)\)?$/, "$1");
}
