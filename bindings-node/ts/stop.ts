// How a running attempt is asked to stop.

/** Asks an attempt to stop. Most attempts never look, so the signal is made for the first that does. */
export class Stop {
  private controller: AbortController | undefined;
  private asked: { reason: unknown } | undefined;

  /** Whether it was asked. */
  get isAsked(): boolean {
    return this.asked !== undefined;
  }

  /** Aborts when it is asked. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.asked !== undefined) this.controller.abort(this.asked.reason);
    }
    return this.controller.signal;
  }

  /** Asks; the first reason stays. */
  ask(reason: unknown): void {
    if (this.asked !== undefined) return;
    this.asked = { reason };
    this.controller?.abort(reason);
  }
}
