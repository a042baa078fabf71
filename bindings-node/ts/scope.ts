// Which agent the running code belongs to: an AsyncLocalStorage, so that its branches inherit it.

import { AsyncLocalStorage } from "node:async_hooks";

import type { Activation } from "./activation.js";
import type { Step } from "./step.js";

/** Where code runs. */
export interface Scope {
  /** The activation whose agent runs; none inside tasks. */
  readonly activation: Activation | null;
  /** The `once` that runs, whose ops have a namespace of their own. */
  readonly once?: string;
  /** The steps of a `timeout` that runs, which end with it. */
  readonly group?: Set<Step<unknown>>;
}

/** The scope of the running code; none outside agents and tasks. */
export const scopes = new AsyncLocalStorage<Scope>();

/** The scope of every task. */
export const IN_TASK: Scope = { activation: null };
