// The shortest programs: run an agent to its end, here and now.

import { Agent, type AnyAgent } from "./agent.js";
import { type Client, connect } from "./client.js";
import { InvalidArgument, Waiting } from "./errors.js";
import type { Event } from "./events.js";
import type { Failure, Handle } from "./handle.js";
import type { Arguments } from "./task.js";
import type { Toolkit } from "./toolkit/kit.js";
import { commandOf, quoted } from "./quoted.js";
import { type AnyTask, Worker } from "./worker.js";

/** How a run is to be run. */
export interface RunOptions {
  /** The same `id` again resumes the run, or gives its recorded result. */
  id?: string;
  url?: string;
  /** Tasks to serve beside those that the agent's code calls. */
  tasks?: readonly AnyTask[];
  /** What of the toolkit to serve for it; `false` for nothing. See `WorkerOptions.toolkit`. */
  toolkit?: Toolkit | false;
  timeoutMs?: number;
  /** Whether a run that waits for a signal is waited for, or left waiting; then `undefined` is given. */
  onWait?: "block" | "return";
  /** Told of every event. */
  onEvent?: (event: Event) => unknown;
  /** Gives up the wait when it aborts; the run stays as it is. */
  signal?: AbortSignal;
}

/**
 * Runs an agent to its end and gives its result.
 *
 * Serves this run alone: the agent, the tasks its code calls, and `tasks`. With `onWait: "return"` a run that waits for a
 * signal is left waiting; one that waits for a decision throws `InDoubt`, a paused one `Waiting`.
 */
export function run<I, R, S>(
  agent: Agent<I, R, S>,
  ...args: [...Arguments<I>, options: RunOptions & { onWait: "return" }]
): Promise<R | undefined>;
export function run<I, R, S>(agent: Agent<I, R, S>, ...args: [...Arguments<I>, options?: RunOptions]): Promise<R>;
export async function run(agent: AnyAgent, input?: unknown, options: RunOptions = {}): Promise<never> {
  checkAgent(agent, input);
  return served(agent, input, options, async (handle) => {
    const done = new AbortController();
    const watching = options.onEvent === undefined ? undefined : tell(handle, options.onEvent, done.signal);
    watching?.catch(() => undefined);
    const limit = limited(options);
    try {
      const result = await end(handle, options, limit.signal);
      await watching;
      return result as never;
    } catch (error) {
      return await limit.told(error, handle);
    } finally {
      limit.clear();
      done.abort();
    }
  });
}

/** Runs an agent and gives its events, to the terminal one. */
export async function* stream<I, R, S>(
  agent: Agent<I, R, S>,
  ...args: [...Arguments<I>, options?: Omit<RunOptions, "onEvent" | "onWait">]
): AsyncGenerator<Event, void, void> {
  const [input, options = {}] = args as unknown as [unknown, RunOptions?];
  checkAgent(agent, input);
  const client = await connect(options.url);
  let failed = false;
  try {
    const handle = await begun(client, agent, input, options);
    const limit = limited(options);
    try {
      yield* handle.stream({ signal: limit.signal });
    } catch (error) {
      return await limit.told(error, handle);
    } finally {
      limit.clear();
    }
  } catch (error) {
    failed = true;
    throw error;
  } finally {
    await closed(client, failed);
  }
}

/** Refuses what cannot be run before anything is opened: the URL may be in what was given as the input. */
function checkAgent(agent: unknown, input: unknown): void {
  if (!(agent instanceof Agent)) throw new InvalidArgument("run() takes what agent(…) gave");
  agent.checkTaken(input);
}

async function begun(
  client: Client,
  agent: AnyAgent,
  input: unknown,
  options: RunOptions,
): Promise<Handle> {
  const handle = await client.start(agent as Agent, input, { id: options.id });
  const { tasks, toolkit } = options;
  await new Worker(client, { agents: [agent], tasks, toolkit, only: handle.id }).start();
  return handle;
}

/** Closes what a run was served with. What the run has failed with stays what is thrown, whatever goes wrong with the close. */
function closed(client: Client, failed: boolean): Promise<void> {
  return client.close().catch((error: unknown) => {
    if (!failed) throw error;
  });
}

/** Serves a run while a function works with it. SIGINT and SIGTERM give the run back before they end the process. */
async function served<T>(
  agent: AnyAgent,
  input: unknown,
  options: RunOptions,
  work: (handle: Handle) => Promise<T>,
): Promise<T> {
  const client = await connect(options.url);
  const stop = (name: NodeJS.Signals): void => {
    const ended = (): void => {
      process.off("SIGINT", stop);
      process.off("SIGTERM", stop);
      process.kill(process.pid, name);
    };
    // Whether it could be closed or not: the process was told to end.
    client.close().then(ended, ended);
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  let failed = false;
  try {
    return await work(await begun(client, agent, input, options));
  } catch (error) {
    failed = true;
    throw error;
  } finally {
    await closed(client, failed);
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}

async function end(handle: Handle, options: RunOptions, signal: AbortSignal): Promise<unknown> {
  try {
    return await handle.resultOrWait({ signal });
  } catch (error) {
    if (!(error instanceof Waiting)) throw error;
    if (options.onWait === "return") {
      if (error.context["waitReason"] !== "signal") throw error;
      return undefined;
    }
    sayWhatFor(handle, error);
    // The code must change first, and that is in this process.
    if (error.context["waitReason"] === "error") throw error;
    return await handle.result({ signal });
  }
}

/** A signal that aborts past the time limit, or when the caller's does. */
function limited(options: RunOptions) {
  const late = new AbortController();
  const { timeoutMs, signal } = options;
  const timer = timeoutMs === undefined ? undefined : setTimeout(() => late.abort(), timeoutMs);
  return {
    signal: signal === undefined ? late.signal : AbortSignal.any([late.signal, signal]),
    clear: (): void => clearTimeout(timer),
    told: (error: unknown, handle: Handle): Promise<never> => {
      if (!late.signal.aborted || error !== late.signal.reason) throw error;
      return handle.late(timeoutMs ?? 0);
    },
  };
}

function sayWhatFor(handle: Handle, waiting: Waiting): void {
  const name = handle.key ?? handle.id;
  const where = `${quoted(handle.client.url)} ${quoted(name)}`;
  const { status, waitReason, waitsFor } = waiting.context;
  const failure = waiting.context.failure as Failure | null;
  for (const signal of (waitsFor as string[] | null) ?? []) {
    const command = `flovyn runs signal ${where} ${quoted(signal)} JSON`;
    console.error(`flovyn: run "${name}" waits for signal "${signal}"; send it with: ${command}`);
  }
  if (status === "PAUSED") {
    const command = commandOf("resume", handle.client.url, name);
    const why = failure ? `${failure.errorType}: ${failure.message}` : String(waitReason);
    console.error(`flovyn: run "${name}" is paused (${why}); go on with: ${command}`);
  }
}

async function tell(handle: Handle, onEvent: (event: Event) => unknown, signal: AbortSignal): Promise<void> {
  for await (const event of handle.stream({ signal })) await onEvent(event);
}
