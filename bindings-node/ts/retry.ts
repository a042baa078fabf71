// When a task that failed is tried again: the pauses of its policy, and what its errors say themselves.

import { FlovynError, isA, messageOf, NonRetryable, NotSerializable, stackOf, typeName, unwrapped } from "./errors.js";
import type { FailureDraft } from "./native.js";

/**
 * The pauses between the attempts of a task.
 *
 * The pause after failure `n` is `min(delayMs * factor ** (n - 1), maxDelayMs)`, of which chance takes away a part of up to
 * `jitter`: between `1 - jitter` and all of it is waited for. An error with `retryAfterMs` is waited for so long instead.
 */
export interface Retry {
  /** The first pause: 200 unless given. */
  delayMs?: number;
  /** What each pause is of the one before, from 1: 2 unless given. */
  factor?: number;
  /** The longest pause: 60000 unless given. */
  maxDelayMs?: number;
  /** The part of a pause that chance may take away, from 0 to 1: 0.5 unless given. */
  jitter?: number;
}

/** Says of an error whether another attempt may follow; asked where it was thrown. */
export type RetryIf = (error: unknown) => boolean;

/**
 * Thrown by a task that is to be tried again after so many milliseconds, instead of its policy's pause. Any other error
 * with a number `retryAfterMs` is waited for in the same way. It gives no attempt that `retries` does not give.
 */
export class RetryAfter extends FlovynError {
  /** The pause. */
  readonly retryAfterMs: number;

  constructor(retryAfterMs: number, message = "", options: { cause?: unknown } = {}) {
    super(message === "" ? `it may be tried again after ${retryAfterMs} ms` : message, options);
    this.retryAfterMs = retryAfterMs;
  }
}

/** How a task's error is told: what it is, whether another attempt may follow, and the pause that it asks for. */
export type Failed = [failure: FailureDraft, retryable: boolean, pauseMs?: number];

/** Describes a task's error. It cannot fail. */
export function failureOf(thrown: unknown, retryIf?: RetryIf): Failed {
  const error = unwrapped(thrown);
  const fixed =
    isA(error, NonRetryable) ? "NonRetryable" : isA(error, NotSerializable) ? "NotSerializable" : undefined;
  const draft = { code: fixed ?? "TaskFailed", errorType: typeName(error), message: messageOf(error) };
  const retryable = fixed === undefined && (retryIf === undefined || asked(retryIf, error));
  return [{ ...draft, traceback: stackOf(error) }, retryable, pauseOf(error)];
}

function asked(retryIf: RetryIf, error: unknown): boolean {
  try {
    return Boolean(retryIf(error));
  } catch (broken) {
    const text = `retryIf threw ${typeName(broken)} when it was asked about ${typeName(error)}, so that is final`;
    process.emitWarning(`${text}: ${messageOf(broken)}`, "FlovynRetry");
    return false;
  }
}

function pauseOf(error: unknown): number | undefined {
  try {
    const ms = (error as { retryAfterMs?: unknown } | null | undefined)?.retryAfterMs;
    return typeof ms === "number" && !Number.isNaN(ms) ? Math.max(0, ms) : undefined;
  } catch {
    // It says nothing that can be waited for: the policy's pause holds.
    return undefined;
  }
}
