// External agents: somebody else's agent as an agent of a worker, which owns its process.

import { Agent } from "../agent.js";
import { InvalidArgument, OutsideAgent } from "../errors.js";
import type { ApprovalPolicy, Decision } from "./approvals.js";
import { absolute, described } from "./kit.js";
import { OutcomesOf } from "./output.js";
import type { Budget, RunInput, RunOutcome } from "./react.js";

/** Where an external agent works, and what it may use. */
export interface ExternalOptions {
  /** Where it works. A run may name a directory inside of it. */
  workingDir: string;
  /** The model that it asks, in its own words. */
  model?: string;
  /** The program and its arguments, in place of the usual one. */
  command?: readonly string[];
  /** The kind of its runs, for a worker that serves several; `external-pi`, … unless given. */
  name?: string;
  /** What answers what it asks permission for; people unless given. */
  approvals?: Decision | ApprovalPolicy;
  /** What follows a turn: the run's end, or in a chat the wait for the next message. */
  mode?: "one_shot" | "chat";
  /** What a run may use. A turn that goes beyond it is ended. */
  budget?: Budget;
  /** Variables that it gets. */
  env?: Record<string, string>;
  /** Variables of this process that it sees beside the usual ones; `NAME*` stands for all that begin so. */
  variables?: readonly string[];
  /** How many seconds it may be silent while it works; 600 unless given. */
  inactivity?: number;
  /** Whether commands that its host runs for it are confined; they are unless given. */
  sandbox?: boolean;
}

/**
 * An agent of others: `External.pi({ workingDir: "/src/app" })`. Take it like any agent; a run's input is a prompt, and it
 * ends with a `RunOutcome`. The program has to be on the worker's machine. It is not confined: what it does by itself it
 * does with the rights of the worker.
 *
 * ```ts
 * const { text } = await run(External.claude({ workingDir: "." }), "Fix the failing test", { url: "sqlite:agents.db" });
 * ```
 */
export class External extends Agent<string | RunInput, RunOutcome, undefined> {
  /** @internal */
  override readonly results: OutcomesOf;

  private constructor(driver: "acp" | "claude" | "pi", options: ExternalOptions) {
    const kind = options.name ?? `external-${driver}`;
    super(kind, native, {}, {}, descriptionOf(kind, driver, options));
    this.results = new OutcomesOf(this.own, undefined, `agent "${kind}"`);
  }

  /** Pi, by its RPC mode. */
  static pi(options: ExternalOptions): External {
    return new External("pi", options);
  }

  /** Claude Code, by its stream of JSON messages. */
  static claude(options: ExternalOptions): External {
    return new External("claude", options);
  }

  /** An agent that speaks the Agent Client Protocol, by the program and the arguments that start it. */
  static acp(options: ExternalOptions & { command: readonly string[] }): External {
    if (!(options.command?.length > 0)) {
      throw new InvalidArgument('External.acp needs a command, such as ["codex-acp"]');
    }
    return new External("acp", options);
  }

  /** A program of one's own that speaks the Agent Client Protocol. */
  static custom(options: ExternalOptions & { command: readonly string[] }): External {
    return External.acp(options);
  }
}

function native(): never {
  throw new OutsideAgent("an external agent has no function to call; start a run of it, with run(…) or client.start(…)");
}

function descriptionOf(kind: string, driver: string, options: ExternalOptions): object {
  const { model, command, approvals, mode, budget, env, variables, inactivity, sandbox } = options;
  const workingDirectory = absolute(options.workingDir);
  const agent = { kind, driver, command, workingDirectory, model, approvals, mode, budget, env, variables, inactivity };
  return { ...described({ sandbox }), externalAgents: [agent] };
}
