// Durable limits of time on what a function awaits.

import type { Activation } from "./activation.js";
import { Timeout } from "./errors.js";
import { scopes } from "./scope.js";
import type { Step } from "./step.js";

/** Runs a function until a timer's end, by which its pending steps are given up and its signal aborts. */
export async function limited<R>(
  activation: Activation,
  timer: Step<void>,
  ms: number,
  fn: (signal: AbortSignal) => R | Promise<R>,
): Promise<Awaited<R>> {
  const controller = new AbortController();
  const group = new Set<Step<unknown>>();
  const body = scopes.run({ ...activation.check(), group }, async () => fn(controller.signal));
  const outcome = await new Promise<{ value: Awaited<R> } | { error: unknown } | undefined>((resolve) => {
    timer.then(
      () => resolve(undefined),
      (error: unknown) => resolve({ error }),
    );
    body.then(
      (value) => resolve({ value: value as Awaited<R> }),
      (error: unknown) => resolve({ error }),
    );
  });
  if (outcome === undefined) {
    for (const step of group) step.giveUp();
    const late = new Timeout(`the block took longer than ${ms} ms`);
    controller.abort(late);
    throw late;
  }
  timer.giveUp();
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}
