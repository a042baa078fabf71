// Where a run works: with any worker of its queue, or on a machine.

import { InvalidArgument } from "./errors.js";

/** Where a run works: with any worker of its queue, or on a machine, the only one there is where none is named. */
export type Mode = { readonly machine: string | null } | "remote";

/**
 * A machine: a computer that a server has let in by this name (`flovyn daemon`). Without a name it is the only machine there
 * is; on a machine itself, that machine. Where none fits, the await rejects with `NotFound`, which names those that do. A
 * machine that is off is waited for.
 */
export function Local(machine?: string): Mode {
  return { machine: machine ?? null };
}

/** Any worker that serves the kind on the run's queue: what holds where nothing is said. */
export function Remote(): Mode {
  return "remote";
}

/** @internal The queue of a run that is to work so. */
export function queueOf(mode: Mode | undefined, queue: string | undefined, call: string): string | undefined {
  if (mode === undefined || mode === "remote") return queue;
  if (typeof mode !== "object" || mode === null || !("machine" in mode)) {
    throw new InvalidArgument(`${call} takes Local(…), { machine } or Remote() as mode`);
  }
  if (queue !== undefined) throw new InvalidArgument(`a machine has a queue of its own: give ${call} a mode or a queue, not both`);
  return `machine/${mode.machine ?? ""}`;
}
