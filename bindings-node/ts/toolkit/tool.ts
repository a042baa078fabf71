// Tools of an agent that are tasks of the user's: what a model is shown of them, and how a call is run.

import { Agent } from "../agent.js";
import { InvalidArgument } from "../errors.js";
import { isTask } from "../task.js";
import type { AnyTask } from "../worker.js";
import { type ArgumentsSchema, descriptionOf, type JsonSchema, parametersOf } from "./schema.js";

/** What a call does to the world: it looks, it changes something, it runs what the model wrote. */
export type Effect = "read" | "write" | "exec";

/** A tool as models are told of it, for model calls of one's own. */
export interface ToolSpec {
  readonly name: string;
  readonly description: string;
  /** The JSON Schema of its arguments, an object. */
  readonly parameters: JsonSchema;
}

/** How a task is shown to models, where its declaration does not say so or says it for others. */
export interface ToolOptions {
  /** The name that models use: letters, digits, `_` and `-`; the task's kind unless given. */
  name?: string;
  /** When and how to use it; the task's own `description` unless given, else that of its input's schema. */
  description?: string;
  /**
   * What approvals go by; `write` unless given. Only `read` says that a call changes nothing. Whether the task may be
   * repeated (`sideEffects`, `retries`) says nothing about it.
   */
  effect?: Effect;
  /** The arguments: zod, another schema with a JSON form, or a JSON Schema; the task's `input` unless given. */
  parameters?: ArgumentsSchema;
}

/** A task as a model sees it. Made by `tool`. */
export class Tool implements ToolSpec {
  /** What runs. */
  readonly task: AnyTask;
  readonly name: string;
  readonly description: string;
  /** What a call does to the world: what approvals go by. */
  readonly effect: Effect;
  readonly parameters: JsonSchema;
  private readonly argument: string | undefined;

  /** @internal */
  constructor(task: AnyTask, options: ToolOptions) {
    const { declared, kind } = task;
    this.task = task;
    this.name = options.name ?? kind.replaceAll(/[^a-zA-Z0-9_-]/g, "_");
    if (!/^[a-zA-Z0-9_-]{1,64}$/.test(this.name)) {
      throw new InvalidArgument(`a tool is named "${this.name}"; use 1 to 64 letters, digits, _ and -`);
    }
    const schema = options.parameters ?? declared.schema;
    const description = options.description ?? declared.settings.description ?? descriptionOf(schema);
    if (description === undefined || description === "") {
      throw new InvalidArgument(
        `the tool "${this.name}" has no description, so a model would not know when to use it; declare the task with ` +
          `description: "…", or write tool(task, { description: "…" })`,
      );
    }
    this.description = description;
    // The engine may repeat an idempotent task. It may still change something, so this is no reason to run it unasked.
    this.effect = options.effect ?? "write";
    if (!["read", "write", "exec"].includes(this.effect)) {
      throw new InvalidArgument(
        `the effect of the tool "${this.name}" is "${String(this.effect)}"; write "read", "write" or "exec"`,
      );
    }
    if (schema === undefined && declared.fn.length > 0) {
      throw new InvalidArgument(
        `the tool "${this.name}" takes an input that nothing describes, so a model would not know what to give; declare ` +
          `the task with input: z.object({ … }), or write tool(task, { parameters: { … } })`,
      );
    }
    const given = schema ?? { type: "object", properties: {}, additionalProperties: false };
    const { schema: parameters, argument } = parametersOf(given, `input of the tool "${this.name}"`);
    this.parameters = parameters;
    this.argument = argument;
  }

  /** @internal The tool as the kit reads it. */
  describe(): unknown {
    const { settings } = this.task.declared;
    return {
      kind: this.task.kind,
      name: this.name,
      description: this.description,
      parameters: this.parameters,
      effect: this.effect,
      argument: this.argument,
      queue: settings.queue,
      options: {
        retries: settings.retries,
        retry: settings.retry,
        noRetry: settings.noRetry,
        timeoutMs: settings.timeoutMs,
        heartbeatTimeoutMs: settings.heartbeatTimeoutMs,
        deadlineMs: settings.deadlineMs,
        maxLosses: settings.maxLosses,
        sideEffects: settings.reconciles ? "reconcile" : settings.sideEffects,
        interruptible: settings.interruptible,
      },
    };
  }
}

/**
 * Makes a tool of a task. Its name is the task's kind, its arguments are the task's `input` schema, its description the
 * task's; the options say otherwise.
 */
export function tool(task: AnyTask, options: ToolOptions = {}): Tool {
  if ((task as unknown) instanceof Agent) {
    throw new InvalidArgument(
      `the agent "${(task as unknown as Agent).kind}" is no task: a call of it starts a child. Give it to ` +
        "reactAgent({ delegates: […] }), with delegate(…) for a name or a description of its own",
    );
  }
  if (!isTask(task)) throw new InvalidArgument("a tool is made of what task(…) gave");
  return new Tool(task as AnyTask, options);
}

/** A tool as it may be given: made, a task, or the name of a host tool or of tools of an MCP server. */
export type AnyTool = Tool | AnyTask | string;

/** @internal A tool made of what was given; a name stays one. */
export function made(given: AnyTool): Tool | string {
  if (typeof given === "string" || given instanceof Tool) return given;
  if (isTask(given)) return tool(given as AnyTask);
  throw new InvalidArgument("tools are tasks, what tool(…) gave, or names such as \"read\" and \"mcp__files__*\"");
}
