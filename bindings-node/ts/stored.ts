// The type of what an await delivers: what stands in JSON for a value.

import type { Blob } from "./blob.js";

/**
 * What an await delivers of a value without a serializer: a `Date`, a `bigint` or a `URL` as its string, a `Set` as an array, a
 * `Map` as an object, bytes and blobs inside of it as text (base64). Bytes as the whole value stay what they are.
 */
export type Stored<T> = [T] extends [Uint8Array | Blob] ? T : StoredPart<T>;

/** What stands in JSON for a part of a value. */
export type StoredPart<T> = 0 extends 1 & T
  ? T
  : unknown extends T
    ? T
    : T extends string | number | boolean | null | undefined | void | symbol
      ? T
      : T extends bigint | Date | URL | Uint8Array | ArrayBuffer | Blob
        ? string
        : T extends ReadonlySet<infer Item>
          ? StoredPart<Item>[]
          : T extends ReadonlyMap<string, infer Item>
            ? { [key: string]: StoredPart<Item> }
            : T extends (...args: never[]) => unknown
              ? T
              : { [Name in keyof T]: StoredPart<T[Name]> };
