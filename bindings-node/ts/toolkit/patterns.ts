// Patterns of families: agents that lead other agents, and questions to whoever has given a run its work.

import { Agent, type AnyAgent } from "../agent.js";
import type { AgentContext } from "../context.js";
import { InvalidArgument, isA, NoParent, OutsideAgent } from "../errors.js";
import { type AnyDelegate, delegate, delegatesOf } from "./delegates.js";
import type { ModelChoice } from "./llm.js";
import type { OutputOf, OutputSchema } from "./output.js";
import { ReactAgent, reactAgent, type ReactAgentOptions } from "./react.js";

/** The request by which a child asks. */
const REQUEST = "escalate";
/** The key of the question that a person is asked, and the field of the answer. */
const FIELD = "answer";

/** How an agent that leads others is declared. */
export interface SupervisorOptions<O extends OutputSchema | undefined = OutputSchema | undefined>
  extends Omit<ReactAgentOptions<O>, "delegates" | "maxRounds"> {
  /** Those that it leads. */
  agents: readonly AnyDelegate[];
  /** In how many turns after a message of the user it may give out work: 10. Then it has to answer with what it has. */
  rounds?: number;
}

/**
 * Declares an agent whose model leads others: it gives them work, several at once, and answers by itself at the end. The
 * rest is as for `reactAgent`.
 */
export function supervisor<const O extends OutputSchema | undefined = undefined>(
  kind: string,
  options: SupervisorOptions<O>,
): ReactAgent<OutputOf<O>> {
  const { agents, rounds, ...rest } = options;
  if (agents.length === 0) throw new InvalidArgument(`the supervisor "${kind}" has no agents; give it some`);
  const made = { ...rest, delegates: agents, maxRounds: rounds, supervises: true };
  return reactAgent(kind, made as unknown as ReactAgentOptions<O>);
}

/** What a run of `planAndExecute` is started with, where the task is not enough. */
export interface PlanInput {
  task: string;
  /** What the answer has to meet, in words. */
  criteria?: readonly string[];
}

/** What a run of `planAndExecute` ends with. */
export interface PlanOutcome {
  /** The answer. */
  text: string;
  /** Whether the planner says that it does what was asked, and meets the criteria. */
  satisfied: boolean;
  /** What is missing, where it does not. */
  missing?: string;
  /** How often there was another plan. */
  replans: number;
  /** The parts that were done, in the order of their ends. */
  tasks: { id: string; worker: string; result: string }[];
}

/** How an agent that has a model plan is declared. */
export interface PlanOptions {
  /** A model, or an agent of the built-in kind that may look around before it plans. */
  planner: ModelChoice | ReactAgent<unknown>;
  /** The agents that do the parts. */
  workers: readonly AnyDelegate[];
  /** How often a part that has failed is tried again before there is another plan: 1. */
  retries?: number;
  /** How often there is another plan, because a part has failed or the answer does not meet the criteria: 2. */
  maxReplans?: number;
  /** How often the planner is asked again for a plan that can be done: 2. */
  planRetries?: number;
  /** The most parts of a plan: 20. */
  maxTasks?: number;
  /** The limit of a run. */
  timeoutMs?: number;
  /** For people, and for models of agents that it is a delegate of. */
  description?: string;
}

/** An agent that has a model plan what others do. Made by `planAndExecute`. */
export class PlanAgent extends Agent<string | PlanInput, PlanOutcome, undefined> {
  /** @internal */
  constructor(kind: string, options: PlanOptions) {
    const { workers, retries, maxReplans, planRetries, maxTasks, timeoutMs, description } = options;
    const planner =
      options.planner instanceof ReactAgent
        ? options.planner
        : reactAgent(`${kind}.planner`, { model: options.planner, description: "Plans." });
    const lead = delegate(planner as AnyAgent, { description: planner.options.description ?? "Plans." });
    const helpers = delegatesOf("workers", workers);
    if (helpers.length === 0) throw new InvalidArgument(`the agent "${kind}" has no workers; give it some`);
    const children = [lead, ...helpers].flatMap(({ agent }) => (agent === undefined ? [] : [agent]));
    const described = {
      kind,
      planner: lead.describe(),
      workers: helpers.map((helper) => helper.describe()),
      retries,
      maxReplans,
      planRetries,
      maxTasks,
    };
    super(kind, native, { children, timeoutMs, description }, {}, { planners: [described] });
  }
}

function native(): never {
  throw new OutsideAgent("an agent that plans has no function to call; start a run of it, with run(…) or client.start(…)");
}

/**
 * Declares an agent that has a model split its task into parts, which the workers do. The plan says which part needs the results
 * of which others: the rest is done at the same time, each part as a child. A plan that cannot be done goes back to the
 * planner. Where a part fails for good, or the answer that the planner makes of the results does not meet the criteria, there
 * is another plan. A run is started with the task, or a `PlanInput`; it ends with a `PlanOutcome`.
 */
export function planAndExecute(kind: string, options: PlanOptions): PlanAgent {
  if (typeof kind !== "string" || kind === "") throw new InvalidArgument("an agent needs a kind, its name in journals");
  return new PlanAgent(kind, options);
}

/**
 * Asks whoever has given this run its work: the run that has started it, else a person. A parent that is led by a model answers,
 * or passes the question on. A person finds it among the questions of the run. Undefined where nobody answers. A run asks a
 * person one question at a time.
 */
export async function escalate(ctx: AgentContext, question: string): Promise<string | undefined> {
  try {
    const answer = await ctx.requestFromParent(REQUEST, { question });
    if (answer === null || answer === undefined) return undefined;
    return typeof answer === "string" ? answer : JSON.stringify(answer);
  } catch (error) {
    if (!isA(error, NoParent)) throw error;
  }
  const id = `${REQUEST}-${ctx.randomUuid()}`;
  const schema = { type: "object", properties: { [FIELD]: { type: "string", title: "Answer" } }, required: [FIELD] };
  const questions = { [FIELD]: { mode: "form", message: question, schema } };
  ctx.appendEntry("assistant", { id, name: REQUEST, server: "", questions, hash: id }, { entryType: "input_request" });
  for (;;) {
    const reply = await ctx.waitForSignal<Reply | null>("input");
    if (reply?.id !== id || reply.hash !== id) continue;
    ctx.appendEntry("user", reply, { entryType: "input" });
    const said = reply.responses?.[FIELD];
    return said?.action === "accept" ? said.content?.[FIELD] : undefined;
  }
}

/** A person's answer, as the signal brings it. */
interface Reply {
  id?: string;
  hash?: string;
  responses?: Record<string, { action?: string; content?: Record<string, string> }>;
}
