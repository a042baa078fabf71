// The errors of Flovyn: one tree, one class per code, the same names in every language.

import { types } from "node:util";

/** Named facts of an error: ids, sizes, limits. */
export type ErrorContext = Readonly<Record<string, unknown>>;

/** What every error may be given. */
export interface ErrorOptions {
  context?: ErrorContext;
  retryable?: boolean;
  cause?: unknown;
}

/**
 * The root of all errors. It says what was asked, what was found and what to do; programs compare `code`.
 */
export class FlovynError extends Error {
  /** What precisely happened: the same word in every language. */
  readonly code: string;
  /** The named facts. */
  readonly context: ErrorContext;
  /** Whether the same request may succeed later without any change. */
  readonly retryable: boolean;
  /** The address of the page about it; none where it is no code of the engine. */
  readonly page: string | undefined;

  constructor(message = "", options: ErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.code = new.target.name;
    this.name = new.target.name;
    this.context = options.context ?? {};
    this.retryable = options.retryable ?? RETRYABLE.has(this.code);
    this.page = byCode.has(this.code) ? `${PAGES}${this.code}.md` : undefined;
  }
}

const PAGES = "https://github.com/flovyn/flovyn/blob/main/docs/errors/";

/** The agent's function threw; `type` and the message are those of the causing error. */
export class AgentFailed extends FlovynError {
  /** The class of the causing error. */
  readonly type: string;
  /** Where it was thrown, as text. */
  readonly traceback: string | undefined;

  constructor(message = "", options: ErrorOptions & { type?: string; traceback?: string } = {}) {
    super(message, options);
    this.type = options.type ?? "";
    this.traceback = options.traceback;
  }
}

/** The run was cancelled; `output` is what it kept. */
export class AgentCancelled extends FlovynError {
  /** What the run kept. */
  readonly output: unknown;

  constructor(message = "", options: ErrorOptions & { output?: unknown } = {}) {
    super(message, options);
    this.output = options.output;
  }
}

/** What a failed task tells beside its message. */
export interface TaskFailedOptions extends ErrorOptions {
  kind?: string;
  type?: string;
  attempts?: number;
  taskId?: string;
  traceback?: string;
}

/**
 * A task failed for good: which, with what, after how many attempts.
 *
 * `cause` is the original error where it happened in this process.
 */
export class TaskFailed extends FlovynError {
  /** The task's kind. */
  readonly kind: string;
  /** The class of the original error. */
  readonly type: string;
  /** Attempts that failed or ran out of time. */
  readonly attempts: number;
  /** The task. */
  readonly taskId: string | undefined;
  /** Where the original error was thrown, as text. */
  readonly traceback: string | undefined;
  /** The original error's message alone. */
  readonly reason: string;

  constructor(message = "", options: TaskFailedOptions = {}) {
    const { kind = "", type = "", attempts = 1 } = options;
    const tried = attempts <= 1 ? "" : ` after ${attempts} attempts`;
    super(kind === "" ? message : `task "${kind}" failed${tried}: ${type}: ${message}`, options);
    this.kind = kind;
    this.type = type;
    this.attempts = attempts;
    this.taskId = options.taskId;
    this.traceback = options.traceback;
    this.reason = message;
  }
}

/** A child failed: which agent it is; `type` and `reason` are those of the error that ended it. */
export class ChildFailed extends FlovynError {
  /** The child's agent. */
  readonly kind: string;
  /** The class of the original error. */
  readonly type: string;
  /** Where the original error was thrown, as text. */
  readonly traceback: string | undefined;
  /** The original error's message alone. */
  readonly reason: string;

  constructor(message = "", options: TaskFailedOptions = {}) {
    const { kind = "", type = "" } = options;
    super(kind === "" ? message : `child "${kind}" failed: ${type}: ${message}`, options);
    this.kind = kind;
    this.type = type;
    this.traceback = options.traceback;
    this.reason = message;
  }
}

/** A child was cancelled; `kind` says which agent it is. */
export class ChildCancelled extends FlovynError {
  /** The child's agent. */
  readonly kind: string;

  constructor(message = "", options: TaskFailedOptions = {}) {
    const { kind = "" } = options;
    super(kind === "" ? message : `child "${kind}" was cancelled`, options);
    this.kind = kind;
  }
}

/** Thrown by a `reconcile` function: the lost attempt did not take effect, so the task may run again. */
export class NotDone extends FlovynError {}

/** A value has no JSON form; `path` says where, `type` what was found there. */
export class NotSerializable extends FlovynError {
  /** The place of the value, such as `$.items[3].when`. */
  get path(): string {
    return String(this.context["path"] ?? "$");
  }

  /** What was found there. */
  get type(): string {
    return String(this.context["type"] ?? "");
  }
}

/** The run was asked to stop: thrown into pending awaits, once per branch. Let it pass after tidying up. */
export class Cancelled extends FlovynError {}
/** This copy of the agent was put away; its run goes on from its journal. Let it pass. */
export class Suspended extends FlovynError {}

// Generated by `make gen`: a class for each code.
/** An id is taken by a run with another input or kind. */
export class ExecutionExists extends FlovynError {}
/** No such thing is here: a task, an entry, a schedule, a key, a path. */
export class NotFound extends FlovynError {}
/** The name is taken by another. */
export class AlreadyExists extends FlovynError {}
/** A server does not know who asks. */
export class Unauthenticated extends FlovynError {}
/** Who asks may not do this. */
export class PermissionDenied extends FlovynError {}
/** What was asked for was not kept: the run has no journal. */
export class NotPersisted extends FlovynError {}
/** The run has ended and takes nothing more. */
export class ExecutionClosed extends FlovynError {}
/** A message was for a parent, and the run has none. */
export class NoParent extends FlovynError {}
/** A request had no answer, because the parent has ended. */
export class ParentGone extends FlovynError {}
/** No signal came in time. */
export class SignalTimeout extends FlovynError {}
/** Says that a task must not be tried again. */
export class NonRetryable extends FlovynError {}
/** Nobody knows whether a call took effect; a decision is waited for (`handle.resolve`). */
export class InDoubt extends FlovynError {}
/** The code no longer matches the recorded tail. */
export class Diverged extends FlovynError {}
/** A journal slot was named again with another label. */
export class SlotTaken extends FlovynError {}
/** A commit named a predecessor that is not the last one. */
export class OutOfOrder extends FlovynError {}
/** An agent with state called an op before its loop. */
export class PreambleOp extends FlovynError {}
/** A `once` was called again with another input. */
export class OnceChanged extends FlovynError {}
/** A context was used from another thread than its agent's. */
export class WrongThread extends FlovynError {}
/** The file system cannot hold a database safely. */
export class UnsupportedFilesystem extends FlovynError {}
/** State was used by an agent declared without it. */
export class StateNotDeclared extends FlovynError {}
/** A checkpoint's state is not of the declared type. */
export class WrongStateType extends FlovynError {}
/** A payload is over the limit. */
export class PayloadTooLarge extends FlovynError {}
/** A budget is used up. */
export class BudgetExceeded extends FlovynError {}
/** The cumulative step limit of a run is reached. */
export class StepLimitReached extends FlovynError {}
/** A run has as much open, or a commit as much in it, as it may. */
export class LimitReached extends FlovynError {}
/** A key asked a server more often than it may. */
export class RateLimited extends FlovynError {}
/** The thing's present status does not allow this. */
export class InvalidTransition extends FlovynError {}
/** Another worker holds the run now. */
export class LeaseLost extends FlovynError {}
/** A checkpoint was asked for while ops are open. */
export class OpenOperations extends FlovynError {}
/** A stored checkpoint or journal row failed its check. */
export class CorruptCheckpoint extends FlovynError {}
/** The backend did not answer; the outcome is unknown. */
export class StorageUnavailable extends FlovynError {}
/** The database was written by a newer version. */
export class SchemaTooNew extends FlovynError {}
/** Nobody here serves this kind. */
export class UnknownKind extends FlovynError {}
/** A context call was made outside an agent. */
export class OutsideAgent extends FlovynError {}
/** A client was used in a forked process. */
export class ForkedProcess extends FlovynError {}
/** The argument is wrong. */
export class InvalidArgument extends FlovynError {}
/** The wait ended before the result came. */
export class Timeout extends FlovynError {}
/** A run is waiting and the caller asked not to; `context` says for what. */
export class Waiting extends FlovynError {}
/** A fault of the engine; whether it happened is unknown. */
export class Internal extends FlovynError {}
/** No run has this id or key. */
export class ExecutionNotFound extends NotFound {}
/** A task ran out of time. */
export class TaskTimeout extends TaskFailed {}

/** The class of each code. */
export const byCode: ReadonlyMap<string, new (message?: string, options?: ErrorOptions) => FlovynError> = new Map(
  [
    ExecutionExists,
    ExecutionNotFound,
    NotFound,
    AlreadyExists,
    Unauthenticated,
    PermissionDenied,
    NotPersisted,
    ExecutionClosed,
    AgentFailed,
    AgentCancelled,
    TaskFailed,
    TaskTimeout,
    ChildFailed,
    ChildCancelled,
    NoParent,
    ParentGone,
    SignalTimeout,
    NonRetryable,
    InDoubt,
    Diverged,
    SlotTaken,
    OutOfOrder,
    PreambleOp,
    OnceChanged,
    WrongThread,
    UnsupportedFilesystem,
    StateNotDeclared,
    WrongStateType,
    NotSerializable,
    PayloadTooLarge,
    BudgetExceeded,
    StepLimitReached,
    LimitReached,
    RateLimited,
    InvalidTransition,
    LeaseLost,
    OpenOperations,
    CorruptCheckpoint,
    StorageUnavailable,
    SchemaTooNew,
    UnknownKind,
    OutsideAgent,
    ForkedProcess,
    InvalidArgument,
    Timeout,
    Waiting,
    Suspended,
    Cancelled,
    Internal,
  ].map((made) => [made.name, made]),
);

/** The codes of errors after which the same request may succeed. */
const RETRYABLE = new Set(["RateLimited", "StorageUnavailable", "Timeout"]);
// End of what is generated.

const MARK = "flovyn:";

/** Makes the error of what the native part threw; other errors stay as they are. */
export function fromNative(error: unknown): unknown {
  const message = isA(error, Error) ? read(error, "message") : undefined;
  if (typeof message !== "string" || !message.startsWith(MARK)) return error;
  return fromText(message.slice(MARK.length));
}

/** Makes an error of the text that carries it. */
export function fromText(text: string): FlovynError {
  const told = JSON.parse(text) as { code: string; message: string; context: ErrorContext; retryable: boolean };
  const made = byCode.get(told.code) ?? FlovynError;
  return new made(told.message, { context: told.context, retryable: told.retryable });
}

/** How the engine tells a failure. */
export interface FailureFacts {
  code: string;
  error_type: string;
  message: string;
  traceback?: string;
  kind?: string;
  task?: string;
  attempts: number;
}

/** What fails a step, by its code; any other is that of a task. */
const FAILURES = { TaskTimeout, ChildFailed, ChildCancelled } as const;

/** What the engine refused, such as a child too many, belongs to no task and no child. */
function refused({ code, message, kind, task }: FailureFacts): FlovynError | undefined {
  if (code === "BudgetExceeded" && kind !== undefined && task === undefined) {
    return new BudgetExceeded(`child "${kind}" was stopped: ${message}`, { context: { kind } });
  }
  const of = kind === undefined && code !== "TaskFailed" && code !== "TaskTimeout" ? byCode.get(code) : undefined;
  return of && new of(message, {});
}

/** Makes the error of a failed task or child, whose step was made somewhere. */
export function taskFailed(failure: FailureFacts, cause?: unknown, step?: Error): FlovynError {
  const of = FAILURES[failure.code as keyof typeof FAILURES] ?? TaskFailed;
  const made =
    refused(failure) ??
    new of(failure.message, {
      kind: failure.kind,
      type: failure.error_type,
      attempts: failure.attempts,
      taskId: failure.task,
      traceback: failure.traceback,
      ...(cause === undefined ? {} : { cause }),
    });
  if (step?.stack !== undefined) made.stack = `${made.name}: ${made.message}\n${framesOf(step.stack).join("\n")}`;
  return shownFirst(made, stackOf(cause) ?? failure.traceback);
}

/** How much of a message or a stack is told: what follows says nothing more, and a commit has a ceiling. */
const MAX_TEXT = 65_536;

/** Whether something is of a class; false of what cannot be asked, such as a revoked `Proxy`. */
export function isA<T>(thing: unknown, cls: abstract new (...args: never[]) => T): thing is T {
  try {
    return thing instanceof cls;
  } catch {
    return false;
  }
}

/** How deep errors may be grouped; one may hold itself. */
const MAX_GROUPS = 16;

/** Whether an error is of a class, or an `AggregateError` of nothing else. */
export function consistsOf<T>(error: unknown, cls: abstract new (...args: never[]) => T, depth = 0): boolean {
  if (isA(error, cls)) return true;
  if (depth === MAX_GROUPS || !isA(error, AggregateError)) return false;
  const members = read(error, "errors");
  try {
    return Array.isArray(members) && members.length > 0 && members.every((each) => consistsOf(each, cls, depth + 1));
  } catch {
    return false;
  }
}

const misfits = new WeakSet();

/** Marks an error as that of a value that does not fit its type, which is no failure of the agent's work, and gives it. */
export function misfit<T>(error: T): T {
  if (typeof error === "object" && error !== null) misfits.add(error);
  return error;
}

/** Whether an error was marked so. */
export function isMisfit(error: unknown): boolean {
  return typeof error === "object" && error !== null && misfits.has(error);
}

/** Names an error as journals and `noRetry` do: its own name, else that of its class. */
export function typeName(error: unknown): string {
  if (error === null) return "null";
  if (typeof error !== "object") return typeof error;
  const named = isError(error) || typeof read(error, "message") === "string";
  const name = named ? read(error, "name") : undefined;
  if (typeof name === "string" && name !== "" && name !== "Error") return clean(name);
  const made = read(read(error, "constructor"), "name");
  if (typeof made === "string" && made !== "" && made !== "Object") return clean(made);
  return isError(error) ? "Error" : "object";
}

/**
 * The message of whatever was thrown. Cannot fail: people throw anything, and an error that cannot be told must not become
 * another one.
 */
export function messageOf(error: unknown): string {
  const message = read(error, "message");
  if (typeof message === "string" && message !== "") return clean(message);
  if (!isError(error)) return shown(error);
  return message === undefined || message === null || message === "" ? typeName(error) : shown(message);
}

/** Where something was thrown, if it tells that as text; without the engine's frames, where there are others. */
export function stackOf(error: unknown): string | undefined {
  const stack = read(error, "stack");
  return typeof stack === "string" ? clean(trimmed(stack)) : undefined;
}

/** A stack without the frames of the engine and of Node itself, which say nothing to who looks for a fault in an agent. */
function trimmed(stack: string): string {
  const lines = stack.split("\n");
  const own = lines.filter((line) => !isFrame(line) || !isOurs(line));
  return own.some(isFrame) ? own.join("\n") : stack;
}

function isFrame(line: string): boolean {
  return /^\s+at /.test(line);
}

function isOurs(line: string): boolean {
  return line.includes(__dirname) || line.includes("(node:") || /^\s+at (async )?node:/.test(line);
}

/** Where in the user's own code something was thrown, in brackets. */
export function placeOf(error: unknown): string {
  const frame = stackOf(error)?.split("\n").find((line) => isFrame(line) && !isOurs(line));
  const place = /([^/\\()]+:\d+):\d+\)?$/.exec(frame ?? "")?.[1];
  return place === undefined ? "" : ` (${place})`;
}

/** What a group of one error is about; `Promise.any` makes one of whatever goes wrong in it. */
export function unwrapped(error: unknown): unknown {
  for (let depth = 0; depth < MAX_GROUPS && isA(error, AggregateError); depth++) {
    const members = read(error, "errors");
    if (!Array.isArray(members) || members.length !== 1) break;
    error = members[0];
  }
  return error;
}

/** Shows first where an agent failed: the frames of what it threw, then those of who asked for its result. */
export function shownFirst<T extends Error>(error: T, traceback: string | undefined): T {
  const frames = framesOf(traceback);
  if (frames.length === 0) return error;
  const own = framesOf(error.stack).filter((line) => !frames.includes(line));
  error.stack = [`${error.name}: ${error.message}`, ...frames, ...own].join("\n");
  return error;
}

/** The frames of a stack that are not the engine's. */
function framesOf(stack: string | undefined): string[] {
  return (stack ?? "").split("\n").filter((line) => isFrame(line) && !isOurs(line));
}

/** The code of an error of ours; none of another. */
export function codeOf(error: unknown): string | undefined {
  const code = isA(error, FlovynError) ? read(error, "code") : undefined;
  return typeof code === "string" ? code : undefined;
}

/** Whether something is an error, of whatever realm. */
function isError(thing: unknown): boolean {
  return types.isNativeError(thing) || isA(thing, Error);
}

/** A property; nothing where it cannot be read. */
function read(thing: unknown, name: string): unknown {
  if (thing === null || (typeof thing !== "object" && typeof thing !== "function")) return undefined;
  try {
    return (thing as Record<string, unknown>)[name];
  } catch {
    return undefined;
  }
}

/** Any value in words: its own ones, else its fields, else what it is. */
function shown(value: unknown): string {
  if (typeof value === "function") return `a function ${clean(String(read(value, "name") ?? ""))}`.trimEnd();
  const text = asText(() => String(value));
  if (text !== undefined && !text.startsWith("[object ")) return clean(text);
  const fields = asText(() => JSON.stringify(value));
  if (fields !== undefined && fields !== "{}") return clean(fields);
  return clean(text ?? `something of type ${typeName(value)} that cannot be shown`);
}

function asText(ask: () => unknown): string | undefined {
  try {
    const text = ask();
    return typeof text === "string" ? text : undefined;
  } catch {
    return undefined;
  }
}

/** Text that can be stored: no half of a character, and not without end. */
function clean(text: string): string {
  const cut = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length} characters)` : text;
  return cut.toWellFormed();
}
