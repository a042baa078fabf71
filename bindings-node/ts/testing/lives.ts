// Handles that outlive the process under test: they belong to the test, which is told what the next process knows.

import type { AnyAgent } from "../agent.js";
import { Client } from "../client.js";
import type { Event } from "../events.js";
import { type Asking, Handle } from "../handle.js";
import { hub } from "../hub.js";
import type { NativeHandle, NativeRuntime } from "../native.js";

/** That what was asked of a life does not come any more. */
const DIED = Symbol("died");

/** One process under test. */
class Life {
  /** Aborts once it has died and the next one is there. */
  readonly over = new AbortController();

  constructor(readonly client: Client) {}

  /** Waits for something of this life; `DIED` where it does not come any more. */
  async during<T>(ask: (signal: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T | typeof DIED> {
    const over = this.over.signal;
    try {
      return await ask(signal === undefined ? over : AbortSignal.any([over, signal]));
    } catch (error) {
      if (!over.aborted || signal?.aborted === true) throw error;
      return DIED;
    }
  }
}

/** The processes under test, one after the other. */
export class Lives {
  private life: Life | undefined;

  get current(): Life {
    return this.life as Life;
  }

  /** Begins a life, and ends the one before it; gives its client. */
  begin(native: NativeRuntime): Client {
    const before = this.life;
    this.life = new Life(new LastingClient(native, this));
    before?.over.abort();
    return this.life.client;
  }
}

class LastingClient extends Client {
  constructor(
    native: NativeRuntime,
    private readonly lives: Lives,
  ) {
    super(native);
  }

  protected override made(native: NativeHandle, agent: AnyAgent | undefined): Handle<never> {
    return new LastingHandle<never>(this.lives, this, native, agent);
  }
}

/** A handle whose calls go on in the next life where theirs ends. */
class LastingHandle<R> extends Handle<R> {
  constructor(
    private readonly lives: Lives,
    ...rest: ConstructorParameters<typeof Handle>
  ) {
    super(...rest);
  }

  protected override beside(native: NativeHandle): Handle<R> {
    return new LastingHandle<R>(this.lives, this.client, native, this.agent);
  }

  /** Finds the run in a life. */
  private async found(life: Life, signal: AbortSignal): Promise<void> {
    if (this.client === life.client) return;
    const { native } = life.client;
    this.native = await hub.call<NativeHandle>((hub, token) => native.handle(hub, token, this.id), signal);
    this.client = life.client;
  }

  protected override async ask<T>(start: Asking, signal?: AbortSignal): Promise<T> {
    for (;;) {
      const life = this.lives.current;
      const answer = await life.during(async (during) => {
        await this.found(life, during);
        return super.ask<T>(start, during);
      }, signal);
      if (answer !== DIED) return answer;
    }
  }

  override async *stream(
    options: { after?: string; children?: boolean; signal?: AbortSignal } = {},
  ): AsyncGenerator<Event, void, void> {
    const { children } = options;
    for (let { after } = options; ; ) {
      const life = this.lives.current;
      const begun = await life.during((during) => this.found(life, during), options.signal);
      if (begun === DIED) continue;
      const signal = AbortSignal.any([life.over.signal, ...(options.signal ? [options.signal] : [])]);
      const events = super.stream({ after, children, signal });
      for (;;) {
        const next = await life.during(() => events.next(), options.signal);
        if (next === DIED) break;
        if (next.done === true) return;
        after = next.value.id;
        yield next.value;
      }
    }
  }
}
