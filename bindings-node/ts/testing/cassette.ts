// Cassettes: what tasks gave once, played back in tests.

import { existsSync, readFileSync, writeFileSync } from "node:fs";

import { FlovynError } from "../errors.js";
import { encode, json } from "../serde.js";
import type { AnyTask } from "../worker.js";
import type { Fakes } from "./harness.js";

/** A task was called with an input that the cassette does not know. */
export class CassetteMiss extends FlovynError {}

type Plain = (input: unknown, ctx: unknown) => unknown;

/** Results of tasks by kind and input, in one JSON file. */
export class Cassette {
  private readonly path: string;
  private readonly tracks: Record<string, unknown[]>;

  constructor(path: string) {
    this.path = path;
    this.tracks = existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown[]>) : {};
  }

  /** Stand-ins that call the tasks and keep what they gave; pass them as fakes. */
  record(tasks: readonly AnyTask[]): Fakes {
    return new Map(
      tasks.map((task) => [
        task,
        async (input: unknown, ctx: unknown): Promise<unknown> => {
          const result = await (task.fn as unknown as Plain)(input, ctx);
          (this.tracks[key(task, input)] ??= []).push(JSON.parse(json(result ?? null)));
          writeFileSync(this.path, json(this.tracks) + "\n");
          return result;
        },
      ]),
    );
  }

  /** Stand-ins that give what was recorded for the same input; `CassetteMiss` for another. */
  replay(tasks: readonly AnyTask[]): Fakes {
    return new Map(
      tasks.map((task) => [
        task,
        async (input: unknown): Promise<unknown> => {
          const track = this.tracks[key(task, input)];
          if (track === undefined) {
            throw new CassetteMiss(`${this.path} has no result of ${key(task, input)}; record it again`);
          }
          return track[0];
        },
      ]),
    );
  }
}

function key(task: AnyTask, input: unknown): string {
  const wire = encode(input);
  return `${task.kind} ${typeof wire === "string" ? wire : "bytes"}`;
}

/** Stand-ins that call the tasks and write what they gave to a cassette. */
export function record(path: string, tasks: readonly AnyTask[]): Fakes {
  return new Cassette(path).record(tasks);
}

/** Stand-ins that give what a cassette has recorded. */
export function replay(path: string, tasks: readonly AnyTask[]): Fakes {
  return new Cassette(path).replay(tasks);
}
