// Host tools and MCP tools as durable steps of any agent: what changed something is never done twice.

import { OutsideAgent } from "../errors.js";
import type { Step } from "../step.js";
import { type Part, textOf } from "./message.js";
import { inAgent, type NativeOptions, schedule } from "./native.js";

/** How a tool is called. */
export interface CallOptions extends NativeOptions {
  /** Where it works; the worker's own directory unless given. */
  workingDirectory?: string;
}

/** A step of the list that `todo` writes. */
export interface TodoStep {
  /** What is done in it. */
  content: string;
  /** How far it is: `pending` unless given. */
  status?: "pending" | "in_progress" | "done";
}

/** What a tool gave. Failures that a model can act on are outcomes too, no errors of the agent. */
export class ToolOutcome {
  /** All that a model is shown: text and images. */
  readonly content: Part[];
  /** Whether it failed. */
  readonly isError: boolean;
  /** What programs see beside the text, such as a diff or an exit code. */
  readonly details: unknown;

  /** @internal */
  constructor(content: Part[], isError: boolean, details: unknown) {
    this.content = content;
    this.isError = isError;
    this.details = details;
  }

  /** The text of all parts. */
  get text(): string {
    return textOf(this.content);
  }

  /** The stable word of a failure, such as `not_found`. */
  get error(): string | undefined {
    const word = (this.details as { error?: unknown } | null)?.error;
    return this.isError && typeof word === "string" ? word : undefined;
  }
}

/** A task that a message of the user ended gives the text that it had streamed. */
function outcomeOf(given: unknown): ToolOutcome {
  if (typeof given === "string") {
    return new ToolOutcome([{ type: "text", text: "Interrupted by a signal." }], true, { error: "interrupted" });
  }
  const found = given as { content: Part[]; isError?: boolean; details?: unknown };
  return new ToolOutcome(found.content, found.isError ?? false, found.details ?? null);
}

function call(name: string, input: Record<string, unknown> = {}, options: CallOptions = {}): Step<ToolOutcome> {
  const activation = inAgent();
  if (activation === undefined) {
    throw new OutsideAgent(`the tool "${name}" runs as a durable step; call it inside an agent`);
  }
  const { workingDirectory, ...how } = options;
  const given = Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined));
  const asked = workingDirectory === undefined ? { arguments: given } : { arguments: given, workingDirectory };
  return schedule(activation, `tool.${name}`, asked, how, outcomeOf);
}

/**
 * Host tools and MCP tools as durable steps: `const outcome = await tools.read("notes.md")`. Each works in the directory of
 * the worker's `toolkit`, which serves the host's as agents ask for them, and those of MCP servers that it names.
 */
export const tools = {
  /** Calls a tool by its name, such as `mcp__server__tool`. */
  call,

  /** Reads lines of a file, or an image. */
  read(path: string, options: CallOptions & { offset?: number; limit?: number } = {}): Step<ToolOutcome> {
    const { offset, limit, ...how } = options;
    return call("read", { path, offset, limit }, how);
  },

  /** Writes a whole file; the folders before it are made. */
  write(path: string, content: string, options: CallOptions = {}): Step<ToolOutcome> {
    return call("write", { path, content }, options);
  },

  /** Replaces a text in a file. */
  edit(
    path: string,
    oldString: string,
    newString: string,
    options: CallOptions & { replaceAll?: boolean } = {},
  ): Step<ToolOutcome> {
    const { replaceAll, ...how } = options;
    return call("edit", { path, old_string: oldString, new_string: newString, replace_all: replaceAll }, how);
  },

  /** Runs a command in the sandbox, at most for so long. One that was lost with its process is reported, not repeated. */
  bash(command: string, options: CallOptions & { timeoutMs?: number } = {}): Step<ToolOutcome> {
    const { timeoutMs, ...how } = options;
    return call("bash", { command, timeout: timeoutMs === undefined ? undefined : timeoutMs / 1000 }, how);
  },

  /** Searches files for a regular expression. */
  grep(
    pattern: string,
    options: CallOptions & {
      path?: string;
      glob?: string;
      type?: string;
      ignoreCase?: boolean;
      literal?: boolean;
    } = {},
  ): Step<ToolOutcome> {
    const { path, glob, type, ignoreCase, literal, ...how } = options;
    return call("grep", { pattern, path, glob, type, ignore_case: ignoreCase, literal }, how);
  },

  /** Finds files by a glob. */
  find(pattern: string, options: CallOptions & { path?: string } = {}): Step<ToolOutcome> {
    const { path, ...how } = options;
    return call("find", { pattern, path }, how);
  },

  /** Runs a program where nothing of the machine can be reached. */
  runSandbox(language: "python" | "typescript", code: string, options: CallOptions = {}): Step<ToolOutcome> {
    return call("run-sandbox", { language, code }, options);
  },

  /**
   * Writes the list of steps, in place of the one before; a text is a step that was not begun. The list is also
   * `details.todos` of the outcome.
   */
  todo(steps: readonly (TodoStep | string)[], options: CallOptions = {}): Step<ToolOutcome> {
    const todos = steps.map((step) => (typeof step === "string" ? { content: step } : step));
    return call("todo", { todos }, options);
  },

  /**
   * Fetches a web page as text, or an image; with `raw` the HTML of a page as it is. Public addresses alone are asked,
   * unless the worker's `toolkit: { fetch: { privateHosts } }` names the host.
   */
  fetch(url: string, options: CallOptions & { raw?: boolean } = {}): Step<ToolOutcome> {
    const { raw, ...how } = options;
    return call("fetch", { url, raw }, how);
  },
} as const;
