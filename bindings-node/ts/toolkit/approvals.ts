// Which calls need a person, and how a person answers.

import type { Event } from "../events.js";
import type { Handle } from "../handle.js";
import type { Message } from "../message.js";
import type { Effect } from "./tool.js";

/** What happens to a call: it runs, a person is asked, it never runs. The later is the stricter. */
export type Decision = "allow" | "ask" | "deny";

/** A rule for some calls. Of the rules that hold for a call the strictest decides. */
export interface Rule {
  /** The tools, by name or by a pattern such as `mcp__github__*`. */
  tool: string;
  decision: Decision;
  /** For `bash`: the words that a command begins with, such as `git status`. What allows a line has to allow each command of it. */
  command?: string;
  /** For `bash`: the whole text of a line, or of one command in it. */
  exact?: string;
  /** For tools with a path: a pattern such as `src/**`. */
  path?: string;
}

/** Rules, and what happens where none of them holds, by the effect of the tool. */
export interface ApprovalPolicy {
  rules?: readonly Rule[];
  /** `read` is allowed and the others ask, unless given. */
  otherwise?: Partial<Record<Effect, Decision>>;
}

/** What a person says with an approval, beside yes. */
export interface ApprovalTerms {
  /** The arguments with which the call runs. */
  readonly arguments?: Readonly<Record<string, unknown>>;
  /** For which calls it counts: `once` unless given. */
  readonly scope?: "once" | "run";
}

/** A call that waits for a person. The answer is good for this call and for no other. */
export class ApprovalRequest {
  private constructor(
    readonly id: string,
    /** The tool. */
    readonly name: string,
    /** Its arguments. */
    readonly input: Readonly<Record<string, unknown>>,
    /** What the call does to the world. */
    readonly effect: Effect,
    readonly hash: string,
  ) {}

  /** The request that an event or an entry of a conversation tells of, if it tells of one. */
  static of(told: Event | Message): ApprovalRequest | undefined {
    if (!("entryType" in told) || told.entryType !== "approval_request") return undefined;
    const { id, name, arguments: given, effect, hash } = told.content as {
      id: string;
      name: string;
      arguments: Record<string, unknown>;
      effect: Effect;
      hash: string;
    };
    return new ApprovalRequest(id, name, given, effect, hash);
  }

  /**
   * Lets the call run; durable when it resolves. `arguments` take the place of those that the model has written, which is told of them.
   * With the scope `run` later calls of the run that are alike are not asked about.
   */
  async approve(run: Handle, terms: ApprovalTerms = {}): Promise<void> {
    await this.answer(run, { approved: true, ...terms });
  }

  /** Refuses the call; the model is told, with the reason. Durable when it resolves. */
  async deny(run: Handle, reason?: string): Promise<void> {
    await this.answer(run, reason === undefined ? { approved: false } : { approved: false, reason });
  }

  private async answer(run: Handle, answer: { approved: boolean; reason?: string } & ApprovalTerms): Promise<void> {
    const { id, hash } = this;
    await run.signal("approval", { id, hash, ...answer }, { idempotencyKey: `approval ${id} ${hash}` });
  }
}
