// The bridge between the engine's threads and the event loop.
//
// The engine's threads put what has happened into queues and ring once; the loop takes all of it in one turn.

import { fromText, messageOf } from "./errors.js";
import { type NativeAbort, type NativeHub, native } from "./native.js";
import { clearInterval, setInterval } from "./timers.js";

/** The longest interval that Node knows: a timer that keeps the process alive and never fires. */
const FOR_EVER = 2 ** 31 - 1;

/** The token of a call whose end nobody waits for. */
export const NOBODY = 0;

interface Pending {
  resolve: (value: unknown) => void;
  reject: (error: unknown) => void;
}

/** Something that takes what the engine has for it when the hub is rung. */
export interface Listener {
  take(): void;
}

/** The one hub of this thread of JavaScript. */
class Hub {
  readonly native: NativeHub = new native.Hub(() => this.drain());
  private readonly pending = new Map<number, Pending>();
  private readonly listeners = new Set<Listener>();
  private next = 1;
  private holds = 0;
  private keeper: NodeJS.Timeout | undefined;

  /** Starts a native call and waits for its end. A `signal` that aborts gives it up. */
  call<T>(start: (hub: NativeHub, token: number) => NativeAbort | void, signal?: AbortSignal): Promise<T> {
    if (signal?.aborted) return Promise.reject(signal.reason as Error);
    const token = this.next;
    this.next = token === 0xffff_ffff ? 1 : token + 1;
    return new Promise<T>((resolve, reject) => {
      this.pending.set(token, { resolve: resolve as (value: unknown) => void, reject });
      this.hold();
      let abort: NativeAbort | void;
      try {
        abort = start(this.native, token);
      } catch (error) {
        this.end(token)?.reject(error);
        return;
      }
      if (signal !== undefined) {
        const given_up = (): void => {
          (abort as NativeAbort | undefined)?.abort();
          this.end(token)?.reject(signal.reason);
        };
        signal.addEventListener("abort", given_up, { once: true });
        const over = (then: (value: unknown) => void) => (value: unknown) => {
          signal.removeEventListener("abort", given_up);
          then(value);
        };
        this.pending.set(token, { resolve: over(resolve as (value: unknown) => void), reject: over(reject) });
      }
    });
  }

  /** Lets a call that was begun never end, without holding the process. */
  dismiss(token: number): void {
    this.end(token);
  }

  /** Lets a worker take what the engine has for it. */
  listen(listener: Listener): void {
    this.listeners.add(listener);
    this.hold();
  }

  /** Forgets a worker. */
  forget(listener: Listener): void {
    if (this.listeners.delete(listener)) this.release();
  }

  private hold(): void {
    this.holds += 1;
    if (this.holds === 1) this.keeper = setInterval(() => undefined, FOR_EVER);
  }

  private release(): void {
    this.holds -= 1;
    if (this.holds === 0) clearInterval(this.keeper);
  }

  private end(token: number): Pending | undefined {
    const pending = this.pending.get(token);
    if (pending !== undefined) {
      this.pending.delete(token);
      this.release();
    }
    return pending;
  }

  private drain(): void {
    const ended = this.native.drain();
    for (let at = 0; at < ended.length; at += 3) {
      const pending = this.end(ended[at] as number);
      if (pending === undefined) continue;
      if (ended[at + 1] === true) pending.resolve(ended[at + 2]);
      else pending.reject(fromText(ended[at + 2] as string));
    }
    for (const listener of this.listeners) {
      try {
        listener.take();
      } catch (error) {
        // Nobody calls this who could be told; the other workers of the process go on.
        process.emitWarning(`what the engine had to tell could not be taken: ${messageOf(error)}`, "FlovynHub");
      }
    }
  }
}

export const hub = new Hub();
