// What stands in JSON for a value that JSON has no type for: one form a type, the same in every language. `docs/values.md` has
// the table.

import { types } from "node:util";

import { Blob } from "./blob.js";

/** What JSON has for a value: text, an object of these entries, or a list of these items in the order of `inOrder`. */
export type Form =
  | { readonly text: string }
  | { readonly entries: readonly (readonly [unknown, unknown])[] }
  | { readonly items: readonly unknown[] }
  | { readonly refused: string; readonly why: string };

/** The most bytes of a blob inside a value. */
const LARGEST_BLOB = 16 * 1024 * 1024;

/** The form of an object of one of the language's own classes; undefined for any other. */
export function formOf(value: object): Form | undefined {
  if (value instanceof Uint8Array) return { text: base64(value.buffer, value.byteOffset, value.byteLength) };
  if (value instanceof Blob && "source" in value) return blobForm(value);
  if (types.isArrayBuffer(value)) return { text: base64(value, 0, value.byteLength) };
  // What derives from one of these has more to it, which would be lost.
  if (!isOwn(value)) return undefined;
  if (types.isDate(value)) return momentOf(value);
  if (types.isMap(value)) return { entries: [...(value as Map<unknown, unknown>)] };
  if (types.isSet(value)) return { items: [...(value as Set<unknown>)] };
  if (value instanceof URL) return { text: value.href };
  return undefined;
}

/** Whether something in a value comes back as what stands for it. */
export function hasForm(value: unknown): boolean {
  if (typeof value === "bigint") return true;
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return value.some(hasForm);
  return formOf(value) !== undefined || Object.values(value).some(hasForm);
}

function isOwn(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  const parent: unknown = prototype === null ? null : Object.getPrototypeOf(prototype);
  return parent !== null && Object.getPrototypeOf(parent) === null;
}

function base64(buffer: ArrayBufferLike, offset: number, length: number): string {
  return Buffer.from(buffer as ArrayBuffer, offset, length).toString("base64");
}

function blobForm(value: Blob): Form {
  if (value.size > LARGEST_BLOB) {
    return {
      refused: `a Blob of ${value.size} bytes`,
      why: `: inside a value a blob is text (base64), of at most ${LARGEST_BLOB} bytes; pass it alone`,
    };
  }
  return { text: value.read().toString("base64") };
}

/** RFC 3339 in UTC: no fraction of a second, or six digits of it. */
function momentOf(value: Date): Form {
  if (Number.isNaN(value.getTime())) return { refused: "an invalid Date", why: ": pass null" };
  const year = value.getUTCFullYear();
  if (year < 1 || year > 9999) {
    return { refused: `a Date of the year ${year}`, why: ": moments are of the years 1 to 9999; pass a number" };
  }
  return { text: value.toISOString().replace(/\.(\d{3})Z$/, (_, ms: string) => (ms === "000" ? "Z" : `.${ms}000Z`)) };
}

/**
 * Orders the items of a set, each as its JSON, by what they are: numbers by their value, text as keys are, anything else by
 * its JSON.
 */
export function inOrder(texts: string[]): string[] {
  return texts.sort(order);
}

function order(a: string, b: string): number {
  if (isNumber(a) && isNumber(b)) {
    const [x, y] = [Number(a), Number(b)];
    if (!Object.is(x, y)) return x < y || (x === y && Object.is(x, -0)) ? -1 : 1;
    // Whole numbers that are one double are told apart by their digits.
    const digits = a.length - b.length || compared(a, b);
    return x < 0 ? -digits : digits;
  }
  if (a.startsWith('"') && b.startsWith('"')) return compared(JSON.parse(a) as string, JSON.parse(b) as string);
  return compared(a, b);
}

function isNumber(text: string): boolean {
  return /^[-\d]/.test(text);
}

function compared(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
