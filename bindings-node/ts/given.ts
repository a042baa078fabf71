// What a worker is given to serve: a kind stands for one function.

import { Agent, type AnyAgent } from "./agent.js";
import { InvalidArgument } from "./errors.js";
import { type Declared, isTask, type Task } from "./task.js";

/** Any declared task. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyTask = Task<any, any>;
type Served = { readonly fn: unknown; readonly toolkit?: object | undefined };

/** Agents and tasks by kind, those that agents name with them. */
export class Given {
  readonly agents = new Map<string, AnyAgent>();
  readonly tasks = new Map<string, Declared>();

  constructor({ agents = [], tasks = [] }: { agents?: readonly AnyAgent[]; tasks?: readonly AnyTask[] }) {
    for (const agent of agents as readonly unknown[]) {
      if (!(agent instanceof Agent)) throw new InvalidArgument("agents takes what agent(…) gave");
      add(this.agents as Map<string, Served>, agent.kind, agent);
    }
    for (const task of tasks as readonly unknown[]) {
      if (!isTask(task)) throw new InvalidArgument("tasks takes what task(…) gave");
      add(this.tasks, task.kind, task.declared);
    }
    for (const agent of this.agents.values()) {
      for (const task of agent.options.tasks ?? []) {
        if (!isTask(task)) throw new InvalidArgument(`tasks of agent "${agent.kind}" takes what task(…) gave`);
        if (!this.tasks.has(task.kind)) this.tasks.set(task.kind, task.declared);
      }
    }
  }
}

function add(known: Map<string, Served>, kind: string, made: Served): void {
  const old = known.get(kind);
  if (old !== undefined && (old.fn !== made.fn || old.toolkit !== made.toolkit)) {
    throw new InvalidArgument(`two different functions have the kind "${kind}"; give one of them another kind`);
  }
  known.set(kind, made);
}
