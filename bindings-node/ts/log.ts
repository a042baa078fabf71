// What goes wrong is said: by `console.warn`, or by whatever takes its place.

import { messageOf, placeOf, stackOf, typeName, unwrapped } from "./errors.js";

/** Something that went wrong. */
export interface LogEntry {
  readonly level: "warn";
  /** What happened, where, and what to do. */
  readonly message: string;
  /** The kind of the agent or task; `daemon` where it is about this process as a machine. */
  readonly kind: string;
  /** The run's UUID, where it is about a run. */
  readonly run?: string;
  /** What was thrown. */
  readonly error?: unknown;
}

/** Told of what goes wrong. */
export type Logger = (entry: LogEntry) => void;

const toConsole: Logger = ({ message }) => console.warn(`flovyn: ${message}`);
let logger: Logger = toConsole;

/** Lets another function than `console.warn` say what goes wrong, or that again; gives the one before. */
export function setLogger(given?: Logger): Logger {
  const before = logger;
  logger = given ?? toConsole;
  return before;
}

function warn(entry: Omit<LogEntry, "level">): void {
  try {
    logger({ level: "warn", ...entry });
  } catch {
    // Whoever fails to say what went wrong must not make it worse.
  }
}

/** Says that an error has left an agent's function. */
export function agentFailed(kind: string, run: string, thrown: unknown): void {
  const error = unwrapped(thrown);
  const told = stackOf(error) ?? `${typeName(error)}: ${messageOf(error)}`;
  warn({ kind, run, error, message: `agent "${kind}" of run ${run} threw:\n${told}` });
}

/** Says that an attempt of a task has failed, and whether another one follows. */
export function attemptFailed(kind: string, attempt: number, retries: number, thrown: unknown, mayRetry: boolean): void {
  const error = unwrapped(thrown);
  const isLast = attempt > retries;
  const follows = isLast ? "no attempt is left" : mayRetry ? "it is tried again" : "it may not be tried again";
  const what = `${typeName(error)}: ${messageOf(error)}${placeOf(error)}`;
  warn({ kind, error, message: `task "${kind}" failed at attempt ${attempt} of ${retries + 1}: ${what}; ${follows}` });
}

/** Says that a run is no longer this worker's. */
export function lost(kind: string, run: string, why: string): void {
  warn({ kind, run, message: `agent "${kind}": run ${run} is no longer held by this worker, which drops its copy: ${why}` });
}

/** Says what the engine warns of in a run. */
export function warned(kind: string, run: string, what: string): void {
  warn({ kind, run, message: `agent "${kind}" of run ${run}: ${what}` });
}

/** Says why a run was paused, and how it goes on. */
export function paused(kind: string, run: string, why: string, command: string): void {
  warn({ kind, run, message: `run "${run}" of agent "${kind}" is paused: ${why}; go on with: ${command}` });
}

/** Says that an agent has ended without an await of what it called. */
export function neverAwaited(kind: string, run: string, what: string, place: string, canOutlive: boolean): void {
  const otherwise = canOutlive ? ", or call it through options({ detached: true })" : "";
  const advice = `what has not ended by then is cancelled; await it${otherwise}`;
  warn({ kind, run, message: `agent "${kind}" of run ${run} has ended and never awaited ${what}${place}: ${advice}` });
}

/** Says that the server of a machine does not answer yet. */
export function unanswered(why: string): void {
  warn({ kind: "daemon", message: why });
}

/** Says that a server does not let a machine in any more. */
export function refused(error: unknown): void {
  warn({ kind: "daemon", error, message: messageOf(error) });
}
