// A program's own way to write and read values: what `serializer` of a task or an agent takes.

import { InvalidArgument, messageOf, NotSerializable, typeName } from "./errors.js";

/**
 * Writes and reads the values of a task or an agent. `dump` gets the input, the result, an agent's state and its signals, each
 * as a whole, and gives what is stored for it: JSON, or what stands in JSON by itself, such as a `Date`. `load` gets that back as JSON.
 * `null` and `undefined` go through neither.
 */
export interface Serializer {
  /** Gives what is stored for a value. */
  dump(value: unknown): unknown;
  /** Gives the value of what was stored. */
  load(json: unknown): unknown;
}

/** A serializer at work: what it throws is told with what it is of. Without one values are as they are. */
export class Own {
  /** @internal */
  constructor(
    private readonly serializer: Serializer | undefined,
    private readonly of: string,
  ) {
    const given: unknown = serializer;
    if (given === undefined) return;
    const { dump, load } = Object(given) as Partial<Serializer>;
    if (typeof dump === "function" && typeof load === "function") return;
    throw new InvalidArgument(`the serializer of ${of} is a ${typeName(given)}; pass an object with dump(value) and load(json)`);
  }

  /** Whether there is none. */
  get isNone(): boolean {
    return this.serializer === undefined;
  }

  /** What is stored for a value. */
  dump(value: unknown): unknown {
    return this.called("dump", value);
  }

  /** The value of what was stored. */
  load(json: unknown): unknown {
    return this.called("load", json);
  }

  private called(name: "dump" | "load", value: unknown): unknown {
    if (this.serializer === undefined || value === undefined || value === null) return value;
    try {
      return this.serializer[name](value);
    } catch (error) {
      const type = typeName(value);
      const message =
        `the value at $ is a ${type} that serializer.${name} of ${this.of} does not take: ` +
        `${typeName(error)}: ${messageOf(error)}`;
      throw new NotSerializable(message, { context: { path: "$", type }, cause: error });
    }
  }
}
