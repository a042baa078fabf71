// Tasks that the toolkit runs: how agents schedule them.

import type { Activation } from "../activation.js";
import { InvalidArgument } from "../errors.js";
import { scopes } from "../scope.js";
import type { Step } from "../step.js";
import { Declared } from "../task.js";

/** How a call of the toolkit is scheduled. */
export interface NativeOptions {
  /** The queue whose workers run it; the agent's own unless given. */
  queue?: string | undefined;
  /** Names this call among identical ones. */
  key?: string;
}

/** Whose workers make a model call: those of the run that has started this one. */
export type Via = "parent";

/** The queue of whoever makes a call; undefined for that of the agent. */
export function queueOf(via: Via | undefined): string | undefined {
  if (via === undefined) return undefined;
  if (via === "parent") return "parent/";
  throw new InvalidArgument(`via: "${String(via)}" names nobody who can be asked; write "parent", or leave it out`);
}

/** The agent whose code runs; undefined outside of one. */
export function inAgent(): Activation | undefined {
  return scopes.getStore()?.activation ?? undefined;
}

/** Schedules a task of the toolkit: `llm.generate`, `tool.NAME`. */
export function schedule<R>(
  activation: Activation,
  kind: string,
  input: unknown,
  options: NativeOptions,
  rebuild: (value: unknown) => R,
): Step<R> {
  const spec = activation.worker.toolkitSpec(kind, options.queue);
  if (spec === undefined) {
    const name = kind.replace(/^tool\./, "");
    throw new InvalidArgument(
      `the agent calls the tool "${name}", which its worker does not serve; give the worker toolkit: { tools: ["${name}"] }, ` +
        "and the mcpServers of tools that are theirs",
    );
  }
  return activation.schedule(Declared.ofToolkit(kind, spec, options.key), input, rebuild) as Step<R>;
}
