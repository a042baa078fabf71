// What a worker is given to serve: a kind stands for one function.

import { Agent, type AnyAgent } from "./agent.js";
import { InvalidArgument } from "./errors.js";
import { type Declared, isTask, type Task } from "./task.js";

/** Any declared task. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyTask = Task<any, any>;
type Served = { readonly fn: unknown; readonly toolkit?: object | undefined };

/** Agents and tasks by kind and by the names that they had before, those that agents name with them. */
export class Given {
  readonly agents = new Map<string, AnyAgent>();
  readonly tasks = new Map<string, Declared>();

  constructor({ agents = [], tasks = [] }: { agents?: readonly AnyAgent[]; tasks?: readonly AnyTask[] }) {
    for (const agent of agents as readonly unknown[]) {
      if (!(agent instanceof Agent)) throw new InvalidArgument("agents takes what agent(…) gave");
      add(this.agents as Map<string, Served>, agent.names, agent);
    }
    for (const task of tasks as readonly unknown[]) {
      if (!isTask(task)) throw new InvalidArgument("tasks takes what task(…) gave");
      add(this.tasks, task.declared.names, task.declared);
    }
    // A map that grows meanwhile is iterated to its end.
    for (const agent of this.agents.values()) {
      for (const child of agent.options.children ?? []) {
        if (!(child instanceof Agent)) throw new InvalidArgument(`children of agent "${agent.kind}" takes what agent(…) gave`);
        for (const name of child.names) if (!this.agents.has(name)) this.agents.set(name, child);
      }
      for (const task of agent.options.tasks ?? []) {
        if (!isTask(task)) throw new InvalidArgument(`tasks of agent "${agent.kind}" takes what task(…) gave`);
        this.know(task.declared);
      }
    }
  }

  /** Knows a task that nobody named by what it is called, and was called before. */
  private know(task: Declared): void {
    if (!this.tasks.has(task.kind)) this.tasks.set(task.kind, task);
    if (this.tasks.get(task.kind)?.fn === task.fn) add(this.tasks, task.names.slice(1), task);
  }
}

function add(known: Map<string, Served>, names: readonly string[], made: Served): void {
  for (const name of names) {
    const old = known.get(name);
    if (old !== undefined && (old.fn !== made.fn || old.toolkit !== made.toolkit)) {
      const what = name === names[0] ? "kind" : "name";
      throw new InvalidArgument(
        `two different functions have the ${what} "${name}"; give one of them another kind, and a name of before to one ` +
          "of them alone",
      );
    }
    known.set(name, made);
  }
}
