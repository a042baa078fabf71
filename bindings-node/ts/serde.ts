// Values between JavaScript and the journal: JSON text with sorted keys, raw bytes, blobs. What JSON has no type for stands
// in its one form (`forms.ts`); what has none is refused with its place.

import { Blob } from "./blob.js";
import { NotSerializable } from "./errors.js";
import { formOf, hasForm, inOrder } from "./forms.js";
import type { NativeSource, Wire } from "./native.js";

/** How deep a value may be nested; the engine reads no deeper either. */
const MAX_DEPTH = 120;

/** A value as it crosses. Bytes as a whole value are raw, blobs may only be one; nothing at all is `null`. */
export function encode(value: unknown): Wire {
  if (typeof value === "object" && value !== null) {
    if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    if (value instanceof Blob) return value.source;
  }
  return value === undefined ? "null" : json(value);
}

/**
 * A state as it crosses. It is used as it is until a crash, so nothing of it may come back as what stands for it.
 */
export function encodeState(state: unknown): Wire {
  const wire = encode(state);
  if (typeof wire === "string" && hasForm(state)) refuseForms(state, []);
  return wire;
}

function refuseForms(value: unknown, path: (string | number)[]): void {
  if (!hasForm(value)) return;
  const fields: [string | number, unknown][] =
    Array.isArray(value) ? [...value.entries()] : isFormed(value) ? [] : Object.entries(value as object);
  for (const [name, item] of fields) refuseForms(item, [...path, name]);
  const found = typeof value === "bigint" ? "a bigint" : nameOf(value as object, "an object of a class");
  throw failed(path, found, ", which would come back as what stands for it in JSON: keep that, or give the agent a serializer");
}

function isFormed(value: unknown): boolean {
  return typeof value === "bigint" || formOf(value as object) !== undefined;
}

/** A value as it was stored. */
export function decode(wire: unknown): unknown {
  if (typeof wire === "string") {
    const value: unknown = JSON.parse(wire);
    // The value is looked through, not the text: that is several times as fast.
    if (wire.length > 15 && mayHaveLostDigits(value)) checkDigits(wire);
    return value;
  }
  if (wire === null || wire === undefined) return null;
  return wire instanceof Uint8Array ? wire : Blob.received(wire as NativeSource);
}

/** Whether there is a number in it so large that not every integer around it is one. */
function mayHaveLostDigits(value: unknown): boolean {
  if (typeof value === "number") return value > Number.MAX_SAFE_INTEGER || value < Number.MIN_SAFE_INTEGER;
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) if (mayHaveLostDigits(value[index])) return true;
    return false;
  }
  for (const name in value) if (mayHaveLostDigits((value as Record<string, unknown>)[name])) return true;
  return false;
}

/** The tokens of JSON text that say where one is. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|[[\]{},:]/g;

/** Refuses integers that other languages have written and that a number would change without a word. */
function checkDigits(text: string): void {
  const path: (string | number)[] = [];
  let last = "";
  for (const [token] of text.matchAll(TOKENS)) {
    if (token === "[" || token === "{") path.push(token === "[" ? 0 : "");
    else if (token === "]" || token === "}") path.pop();
    else if (token === "," && typeof path[path.length - 1] === "number") (path[path.length - 1] as number)++;
    else if (token === ":") path[path.length - 1] = JSON.parse(last) as string;
    else if (/^-?\d{16,}$/.test(token) && String(Number(token)) !== token) {
      // What JavaScript itself writes of a large number need not be the very integer; it is read as the same number.
      if (BigInt(Number(token)) !== BigInt(token)) {
        throw failed(path, `the integer ${token}`, ", of which a number loses digits: write it as a string");
      }
    }
    last = token;
  }
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
      // `-0` would come back as an integer, which has no sign, in Python.
      return Object.is(value, -0) ? "-0.0" : String(value);
    case "boolean":
      return value ? "true" : "false";
    case "object":
      return value === null ? "null" : writeObject(value, path, depth);
    case "undefined":
      throw refused(path, "undefined", ": pass null, or leave it out of the array");
    case "bigint":
      return `"${value}"`;
    default:
      throw refused(path, `a ${typeof value}`, "");
  }
}

function writeObject(value: object, path: (string | number)[], depth: number): string {
  if (depth >= MAX_DEPTH) {
    throw refused([], "nested too deeply", ": it may refer to itself; at most 120 levels are allowed");
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  const parent: unknown = prototype === null ? null : Object.getPrototypeOf(prototype);
  if (Array.isArray(value)) {
    if (parent === null || Object.getPrototypeOf(parent) !== null) {
      throw refused(path, nameOf(value, "an array of a class"), ", which would come back as an array: pass [...it]");
    }
    for (const name of OF_ARRAYS) {
      if (name in value) throw refused(path, `an array with a field ${name}`, ", which would be lost: pass [...it]");
    }
    let out = "[";
    for (let index = 0; index < value.length; index++) {
      path.push(index);
      out += (index > 0 ? "," : "") + write(value[index], path, depth + 1);
      path.pop();
    }
    return out + "]";
  }
  if (parent !== null) return writeFormed(value, path, depth);
  if (Object.getOwnPropertySymbols(value).length > 0) {
    throw refused(path, "an object with a symbol as a key", ", which would be lost: keys must be strings");
  }
  const fields = value as Record<string, unknown>;
  return writeFields(Object.keys(fields).sort(), (key) => fields[key], path, depth);
}

function writeFields(
  keys: readonly string[],
  valueOf: (key: string) => unknown,
  path: (string | number)[],
  depth: number,
): string {
  let out = "{";
  for (let index = 0; index < keys.length; index++) {
    const key = keys[index] as string;
    const item = valueOf(key);
    // As JSON.stringify does: a field without a value is none.
    if (item === undefined) continue;
    if (!key.isWellFormed()) throw refused(path, "an object whose key has a lone surrogate", "");
    path.push(key);
    out += (out.length > 1 ? "," : "") + JSON.stringify(key) + ":" + write(item, path, depth + 1);
    path.pop();
  }
  return out + "}";
}

/** An object of a class: what stands for it. */
function writeFormed(value: object, path: (string | number)[], depth: number): string {
  const form = formOf(value);
  if (form === undefined) throw refused(path, nameOf(value, "an object of a class"), advice(value));
  if ("text" in form) return JSON.stringify(form.text);
  if ("refused" in form) throw refused(path, form.refused, form.why);
  if ("items" in form) {
    // An item of a set has no place by which it could be found.
    return `[${inOrder(form.items.map((item) => write(item, path, depth + 1))).join(",")}]`;
  }
  const entries = new Map<string, unknown>();
  for (const [key, item] of form.entries) {
    if (typeof key !== "string") {
      throw refused(path, `a Map with a key of type ${typeof key}`, ": keys must be strings; pass [...it], a list of pairs");
    }
    entries.set(key, item);
  }
  return writeFields([...entries.keys()].sort(), (key) => entries.get(key), path, depth);
}

/** Fields that arrays of the language itself have beside their items: matches of a RegExp, strings of a template. */
const OF_ARRAYS = ["index", "groups", "raw"];

function nameOf(value: object, otherwise: string): string {
  const made: unknown = value.constructor;
  return (typeof made === "function" && made.name) || otherwise;
}

/** What to pass instead of an object of a class. */
function advice(value: object): string {
  if (value instanceof Error) return ": pass its message, or throw it";
  if (ArrayBuffer.isView(value)) return ": pass Array.from(it), or its bytes as a Uint8Array";
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") {
    return ": it would come back as what its toJSON() gives; pass that, or give the task or agent a serializer";
  }
  return (
    ": pass plain objects, arrays, strings, numbers, booleans, null, Date, Map, Set, URL, bigint or bytes; what else you " +
    "have goes through a serializer"
  );
}

function placeOf(path: readonly (string | number)[]): string {
  let place = "$";
  for (const step of path) {
    place +=
      typeof step === "number" ? `[${step}]` : /^[A-Za-z_]\w*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
  }
  return place;
}

function failed(path: readonly (string | number)[], found: string, why: string): NotSerializable {
  const place = placeOf(path);
  return new NotSerializable(`the value at ${place} is ${found}${why}`, { context: { path: place, type: found } });
}

function refused(path: readonly (string | number)[], found: string, why: string): NotSerializable {
  return failed(path, found, why.startsWith(", ") ? why : `, which has no JSON form${why}`);
}

/** What the engine shows: it marks moments, `{"@": milliseconds}`, and what an author gave, `{"$": value}`. */
export function facts<T>(text: string): T {
  return unmarked(JSON.parse(text)) as T;
}

function unmarked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(unmarked);
  if (typeof value !== "object" || value === null) return value;
  const fields = value as Record<string, unknown>;
  if ("$" in fields) return fields["$"];
  if ("@" in fields) return new Date(fields["@"] as number);
  for (const name in fields) fields[name] = unmarked(fields[name]);
  return fields;
}
