// Raw values that need not be in memory.

import { resolve } from "node:path";

import { natively, type NativeSource, native } from "./native.js";

/**
 * Raw bytes as a whole value: an input, an output, a signal. Inside a value up to 16 MiB are text (base64).
 *
 * `Blob.fromPath` names a file that is read piece by piece while it is stored. Whoever receives a blob gets one whose
 * bytes stay in the store until `read` or `save` asks for them; passed on, they are not read at all.
 */
export class Blob {
  /** @internal */
  readonly source: NativeSource;

  constructor(bytes: Uint8Array | NativeSource) {
    this.source =
      bytes instanceof Uint8Array
        ? native.Source.fromBytes(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
        : bytes;
  }

  /** Names a file; it must stay as it is until the value is durable. */
  static fromPath(path: string): Blob {
    return new Blob(natively(() => native.Source.fromPath(resolve(path))));
  }

  /** @internal */
  static received(source: NativeSource): Blob {
    return new Blob(source);
  }

  /** The number of bytes. */
  get size(): number {
    return this.source.size;
  }

  /** Reads the bytes from `offset` on, at most `length` of them. Blocks for the time it takes. */
  read(offset = 0, length?: number): Buffer {
    return this.source.read(offset, length);
  }

  /** Writes the bytes into a file, a piece at a time. Blocks for the time it takes. */
  save(path: string): void {
    this.source.save(path);
  }
}
