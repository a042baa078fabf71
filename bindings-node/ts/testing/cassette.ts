// Cassettes: what tasks gave once, played back in tests.

import { existsSync, readFileSync, writeFileSync } from "node:fs";

import { InvalidArgument, messageOf, NonRetryable } from "../errors.js";
import { encode, json } from "../serde.js";
import type { AnyTask } from "../worker.js";
import type { Fakes } from "./harness.js";

/** A task was called with an input that the cassette does not know, or there is no cassette. */
export class CassetteMiss extends NonRetryable {}

type Plain = (input: unknown, ctx: unknown) => unknown;

/** Results of tasks by kind and input, in one JSON file. */
export class Cassette {
  private readonly path: string;
  private readonly tracks: Record<string, unknown[]>;
  private readonly isThere: boolean;

  constructor(path: string) {
    this.path = path;
    this.isThere = existsSync(path);
    this.tracks = this.isThere ? tracksOf(path) : {};
  }

  /** Stand-ins that call the tasks and keep what they gave; pass them as fakes. */
  record(tasks: readonly AnyTask[]): Fakes {
    this.save();
    return new Map(
      tasks.map((task) => [
        task,
        async (input: unknown, ctx: unknown): Promise<unknown> => {
          const { own } = task.declared;
          const result = await (task.fn as unknown as Plain)(input, ctx);
          (this.tracks[key(task, input)] ??= []).push(JSON.parse(json(own.dump(result) ?? null)));
          this.save();
          return result;
        },
      ]),
    );
  }

  private save(): void {
    writeFileSync(this.path, json(this.tracks) + "\n");
  }

  /**
   * Stand-ins that give what was recorded for the same input; `CassetteMiss` for another. That there is no cassette is said
   * here: an agent might take it for a failure of its task.
   */
  replay(tasks: readonly AnyTask[]): Fakes {
    if (!this.isThere) throw new CassetteMiss(`there is no cassette ${this.path}; make it by a run with record("${this.path}", …)`);
    return new Map(
      tasks.map((task) => [
        task,
        async (input: unknown): Promise<unknown> => {
          const track = this.tracks[key(task, input)];
          if (track === undefined) {
            throw new CassetteMiss(`${this.path} has no result of ${key(task, input)}; record it again`);
          }
          return task.declared.own.load(track[0]);
        },
      ]),
    );
  }
}

function tracksOf(path: string): Record<string, unknown[]> {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown[]>;
  } catch (error) {
    throw new InvalidArgument(`${path} is no cassette: ${messageOf(error)}; remove it and record it again`, { cause: error });
  }
}

function key(task: AnyTask, input: unknown): string {
  const wire = encode(task.declared.own.dump(input));
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
