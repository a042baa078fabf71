// Values between JavaScript and the journal: JSON text with sorted keys, raw bytes, blobs. What has no JSON form is
// refused with its place, because it would come back as something else after a restart.

import { Blob } from "./blob.js";
import { NotSerializable } from "./errors.js";
import type { NativeSource, Wire } from "./native.js";

/** How deep a value may be nested; the engine reads no deeper either. */
const MAX_DEPTH = 120;

/** A value as it crosses. Bytes and blobs may only be a whole value; nothing at all is `null`. */
export function encode(value: unknown): Wire {
  if (typeof value === "object" && value !== null) {
    if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    if (value instanceof Blob) return value.source;
  }
  return value === undefined ? "null" : json(value);
}

/** A value as it was stored. */
export function decode(wire: unknown): unknown {
  if (typeof wire === "string") return JSON.parse(wire);
  if (wire === null || wire === undefined) return null;
  return wire instanceof Uint8Array ? wire : Blob.received(wire as NativeSource);
}

/** JSON text with sorted keys. */
export function json(value: unknown): string {
  const path: (string | number)[] = [];
  return write(value, path, 0);
}

function write(value: unknown, path: (string | number)[], depth: number): string {
  switch (typeof value) {
    case "string":
      if (!value.isWellFormed()) throw refused(path, "a string with a lone surrogate", "");
      return JSON.stringify(value);
    case "number":
      if (!Number.isFinite(value)) {
        throw refused(path, String(value), ": JSON knows finite numbers only; pass null or a string");
      }
      return Object.is(value, -0) ? "0" : String(value);
    case "boolean":
      return value ? "true" : "false";
    case "object":
      return value === null ? "null" : writeObject(value, path, depth);
    case "undefined":
      throw refused(path, "undefined", ": pass null, or leave the key out");
    case "bigint":
      throw refused(path, "a bigint", ": pass a number or a string");
    default:
      throw refused(path, `a ${typeof value}`, "");
  }
}

function writeObject(value: object, path: (string | number)[], depth: number): string {
  if (depth >= MAX_DEPTH) {
    throw refused([], "nested too deeply", ": it may refer to itself; at most 120 levels are allowed");
  }
  if (Array.isArray(value)) {
    let out = "[";
    for (let index = 0; index < value.length; index++) {
      path.push(index);
      out += (index > 0 ? "," : "") + write(value[index], path, depth + 1);
      path.pop();
    }
    return out + "]";
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    const own = value as { toJSON?: () => unknown; constructor?: { name?: string } };
    if (typeof own.toJSON === "function" && !(value instanceof Date) && !ArrayBuffer.isView(value)) {
      return write(own.toJSON(), path, depth + 1);
    }
    const name = own.constructor?.name || "an object of a class";
    const why =
      value instanceof Date
        ? ": pass its toISOString(), or a number"
        : ArrayBuffer.isView(value)
          ? ": bytes may only be a whole value; encode them (base64), or pass them alone"
          : ": pass plain objects, arrays, strings, numbers, booleans and null";
    throw refused(path, name, why);
  }
  let out = "{";
  const fields = value as Record<string, unknown>;
  const keys = Object.keys(fields).sort();
  for (let index = 0; index < keys.length; index++) {
    const key = keys[index] as string;
    if (!key.isWellFormed()) throw refused(path, "an object whose key has a lone surrogate", "");
    path.push(key);
    out += (index > 0 ? "," : "") + JSON.stringify(key) + ":" + write(fields[key], path, depth + 1);
    path.pop();
  }
  return out + "}";
}

function refused(path: (string | number)[], found: string, why: string): NotSerializable {
  let place = "$";
  for (const step of path) {
    place +=
      typeof step === "number" ? `[${step}]` : /^[A-Za-z_]\w*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
  }
  return new NotSerializable(`the value at ${place} is ${found}, which has no JSON form${why}`, {
    context: { path: place, type: found },
  });
}

/** `snake_case` names as JavaScript writes them. */
function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

const NESTED = new Set(["failure", "no_worker", "progress"]);
const PER_MODEL = "usage";

/** Facts of the engine: names in camelCase, moments as dates. What is the user's own stays as it is. */
export function facts<T>(text: string): T {
  return renamed(JSON.parse(text)) as T;
}

function renamed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(renamed);
  if (typeof value !== "object" || value === null) return value;
  const out: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value)) {
    if ((name.endsWith("_at") || name === "lease_expires") && typeof item === "number") {
      out[camel(name)] = new Date(item * 1000);
    } else if (NESTED.has(name) || name === "items") {
      out[camel(name)] = renamed(item);
    } else if (name === PER_MODEL && typeof item === "object" && item !== null) {
      out[name] = Object.fromEntries(Object.entries(item).map(([model, cost]) => [model, renamed(cost)]));
    } else {
      out[camel(name)] = item;
    }
  }
  return out;
}
