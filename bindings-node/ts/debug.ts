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
const SLEEP = "the time does not go on while no process runs; use await ctx.sleep(ms)";

const seen = new Set<string>();

/** Watches the usual suspects from now on; calls outside of agents, and of other packages, pass unseen. */
export function install(): void {
  watch(Date, "now", "Date.now()", TIME);
  watch(Math, "random", "Math.random()", "use ctx.random(), which is the same on replay");
  for (const owner of [crypto, globalThis.crypto]) {
    watch(owner, "randomUUID", "crypto.randomUUID()", "use ctx.randomUuid(), which is the same on replay");
  }
  for (const owner of [globalThis, timers]) {
    watch(owner, "setTimeout", "setTimeout()", SLEEP, (_, ms) => Number(ms) >= LONG_MS);
  }
  watch(promises, "setTimeout", "setTimeout()", SLEEP, (ms) => Number(ms) >= LONG_MS);
  globalThis.Date = new Proxy(Date, {
    construct(target, given, made): object {
      if (given.length === 0) warn("new Date()", TIME);
      return Reflect.construct(target, given, made) as object;
    },
  });
  syncBuiltinESMExports();
}

function watch(owner: object, name: string, shown: string, advice: string, when?: (...args: unknown[]) => boolean): void {
  const holder = owner as Record<string, (...args: unknown[]) => unknown>;
  const original = holder[name];
  if (original === undefined) return;
  const watched = function (this: unknown, ...args: unknown[]): unknown {
    if (when === undefined || when(...args)) warn(shown, advice);
    return Reflect.apply(original, this, args);
  };
  // Carries `util.promisify.custom`.
  Object.defineProperties(watched, Object.getOwnPropertyDescriptors(original));
  holder[name] = watched;
}

function warn(shown: string, advice: string): void {
  if (scopes.getStore()?.activation == null) return;
  const place = caller();
  if (place === undefined || seen.has(place)) return;
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
