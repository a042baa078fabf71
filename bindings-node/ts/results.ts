// Results of tasks and agents: what is stored of one, and what whoever waits for it gets.

import { InvalidArgument, isA, messageOf, misfit, NotSerializable, typeName } from "./errors.js";
import type { Wire } from "./native.js";
import { checkedAtOnce, storableAtOnce, type StandardSchema, storedAtOnce } from "./schema.js";
import { decode, encode } from "./serde.js";
import type { Own } from "./serializer.js";

/** Writes and reads the results of one task or agent, by its serializer and its schema. */
export class Results {
  /** @internal */
  constructor(
    private readonly own: Own,
    private readonly schema: StandardSchema | undefined,
    private readonly of: string,
  ) {}

  /** Whether a result is read as it is stored. */
  get arePlain(): boolean {
    return this.own.isNone && this.schema === undefined;
  }

  /**
   * A result as it crosses; refuses one that does not fit the schema. Whatever keeps it from being written is
   * `NotSerializable`: a getter or a `toJSON` may throw.
   */
  written(result: unknown): Wire {
    try {
      if (this.schema !== undefined) (this.own.isNone ? storableAtOnce : checkedAtOnce)(this.schema, result, this.what);
      return encode(this.own.dump(result));
    } catch (error) {
      const isTold = isA(error, NotSerializable) || isA(error, InvalidArgument);
      throw misfit(isTold ? error : unwritable(error));
    }
  }

  /** The result of what is stored: what the schema makes of it. */
  read(stored: unknown): unknown {
    const value = this.own.load(stored);
    return this.schema === undefined ? value : storedAtOnce(this.schema, value, this.what);
  }

  /** A result as it would come back. */
  returned(result: unknown): unknown {
    return this.read(decode(this.written(result)));
  }

  private get what(): string {
    return `result of ${this.of}`;
  }
}

/** That a result cannot be handed over. */
export function unwritable(error: unknown): NotSerializable {
  const message = `the result cannot be written as JSON: ${typeName(error)}: ${messageOf(error)}`;
  return new NotSerializable(message, { context: { path: "$", type: "" }, cause: error });
}
