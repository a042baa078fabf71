// The native half: conversion, and the bridge between the engine's threads and the event loop. Loads it; addon.ts has its types.

import { existsSync } from "node:fs";
import { join } from "node:path";

import type { Native, NativeAbort, NativeHub, NativeSession, NativeSource, NativeTicket } from "./addon.js";
import type { NewsCode } from "./codes.js";
import { fromNative } from "./errors.js";

export type * from "./addon.js";

/** A value as it crosses: JSON text, raw bytes, or a blob. */
export type Wire = string | Buffer | NativeSource;

/** The end of a call is told to the hub under its token. */
export type Call<A extends unknown[]> = (hub: NativeHub, token: number, ...args: A) => NativeAbort | void;

/** What a worker has for its loop. */
export type Activated =
  | [typeof NewsCode.Agent, id: number, session: NativeSession, kind: string]
  | [typeof NewsCode.Effects, id: number]
  | [
      typeof NewsCode.Task,
      id: number,
      ticket: NativeTicket,
      kind: string,
      input: Wire,
      task: string,
      attempt: number,
      reconcile: boolean,
    ]
  | [typeof NewsCode.CancelTask, id: number];

/** Four places for each effect: its `EffectCode`, and three that depend on it. */
export type Effects = unknown[] | null;

/** The name of this platform's addon, as npm's packages of it are named. */
function platform(): string {
  if (process.platform !== "linux") return `${process.platform}-${process.arch}`;
  const header = (process.report?.getReport() as { header?: { glibcVersionRuntime?: string } } | undefined)?.header;
  return `linux-${process.arch}-${header?.glibcVersionRuntime === undefined ? "musl" : "gnu"}`;
}

function load(): Native {
  const given = process.env["FLOVYN_NATIVE"];
  const built = join(__dirname, "..", "native", `flovyn.${platform()}.node`);
  if (given !== undefined || existsSync(built)) return require(given ?? built) as Native;
  const name = `@flovyn/sdk-${platform()}`;
  try {
    return require(name) as Native;
  } catch (error) {
    throw new Error(
      `@flovyn/sdk has no native part for ${platform()}: ${name} is not installed. Where optional dependencies were left ` +
        `out, install it beside this package, of the same version`,
      { cause: error },
    );
  }
}

/** Does something natively; what it throws is thrown as our error. */
export function natively<T>(ask: () => T): T {
  try {
    return ask();
  } catch (error) {
    throw fromNative(error);
  }
}

/** Makes every method of an object throw our errors instead of the text that carries them. */
function translate(owner: object): void {
  for (const [name, known] of Object.entries(Object.getOwnPropertyDescriptors(owner))) {
    const original: unknown = known.value;
    if (name === "constructor" || typeof original !== "function") continue;
    Object.defineProperty(owner, name, {
      ...known,
      value: function (this: unknown, ...args: unknown[]): unknown {
        try {
          return Reflect.apply(original, this, args);
        } catch (error) {
          throw fromNative(error);
        }
      },
    });
  }
}

export const native: Native = load();
for (const made of Object.values(native) as { prototype?: object }[]) {
  if (made.prototype !== undefined && Object.getOwnPropertyNames(made.prototype).length > 1) {
    translate(made.prototype);
  }
}
