// A run that shall stop hears of it once, whatever its code awaits just then, and may tidy up undisturbed.

import {
  agent,
  AgentCancelled,
  type AgentContext,
  type AnyAgent,
  Cancelled,
  type Client,
  connect,
  task,
} from "@flovyn/sdk";
import { harness } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";

import { disposing, SCALE, until } from "./support.js";

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A step that ends with its run's wish to stop, and what waits for that without being a step. */
function stage() {
  const stops: (() => void)[] = [];
  let waiting = 0;
  const slow = task("slow", async (n: number, ctx) => {
    waiting += 1;
    await new Promise<void>((resolve) => ctx.signal.addEventListener("abort", () => resolve()));
    for (const stop of stops) stop();
    return n;
  });
  let steps = 0;
  const step = task("step", async () => {
    steps += 1;
    await pause(1);
  });
  /** Resolves once the engine has told the awaits, a turn later: as a timer that happens to fire then. */
  const told = async (): Promise<void> => {
    await new Promise<void>((resolve) => stops.push(resolve));
    await pause(5);
  };
  return { slow, step, told, waiting: () => waiting, steps: () => steps };
}

type Stage = ReturnType<typeof stage>;

async function serving(agents: AnyAgent[]): Promise<Client> {
  const client = disposing(await connect("memory:"));
  await client.worker({ agents }).start();
  return client;
}

/** Goes on as if nothing had happened. */
async function onAndOn({ step }: Stage): Promise<never> {
  for (;;) await step();
}

/** Code that does not read what it was told with, and how many steps of it wait then. */
const DEAF: Record<string, [open: number, code: (on: Stage, ctx: AgentContext) => Promise<unknown>]> = {
  "a race that a timer has won": [
    1,
    async (on) => {
      await Promise.race([on.slow(1), pause(1)]);
      await on.told();
      await onAndOn(on);
    },
  ],
  "a race of functions that a timer has won": [
    1,
    async (on) => {
      const work = async (): Promise<number> => on.slow(1);
      await Promise.race([work(), pause(1)]);
      await on.told();
      await onAndOn(on);
    },
  ],
  "a race with AbortSignal.timeout": [
    1,
    async (on) => {
      const late = AbortSignal.timeout(1);
      const aborted = new Promise((_, reject) => late.addEventListener("abort", () => reject(late.reason as Error)));
      await Promise.race([on.slow(1), aborted]).catch(() => undefined);
      await on.told();
      await onAndOn(on);
    },
  ],
  "what any and all have left behind": [
    2,
    async (on) => {
      await Promise.any([on.slow(1), pause(1)]);
      await Promise.all([on.slow(2), Promise.reject(new Error("first"))]).catch(() => undefined);
      await on.told();
      await onAndOn(on);
    },
  ],
  "a step that two races have left behind": [
    1,
    async (on) => {
      const one = on.slow(1);
      await Promise.race([one, pause(1)]);
      await Promise.race([one, pause(1)]);
      await on.told();
      await onAndOn(on);
    },
  ],
  "allSettled over and over": [
    2,
    async (on) => {
      for (;;) await Promise.allSettled([on.slow(1), on.slow(2)]);
    },
  ],
  "allSettled of functions": [
    2,
    async (on) => {
      const work = async (n: number): Promise<number> => on.slow(n);
      for (;;) await Promise.allSettled([work(1), work(2)]);
    },
  ],
  "joinAllSettled over and over": [
    2,
    async (on, ctx) => {
      for (;;) await ctx.joinAllSettled([on.slow(1), on.slow(2)]);
    },
  ],
  "allSettled after a race": [
    1,
    async (on) => {
      await Promise.race([on.slow(1), pause(1)]);
      await on.told();
      for (;;) await Promise.allSettled([on.step(), on.step()]);
    },
  ],
  "allSettled of what follows a step, after a race": [
    1,
    async (on) => {
      await Promise.race([on.slow(1), pause(1)]);
      await on.told();
      for (;;) await Promise.allSettled([on.step().then(() => 1), on.step()]);
    },
  ],
  "any over and over": [
    2,
    async (on) => {
      for (;;) await Promise.any([on.slow(1), on.slow(2)]);
    },
  ],
  "any that a timer wins later": [
    2,
    async (on) => {
      await Promise.any([on.slow(1), on.slow(2), on.told()]);
      await onAndOn(on);
    },
  ],
  "any of functions that a timer wins later": [
    2,
    async (on) => {
      const work = async (n: number): Promise<number> => on.slow(n);
      await Promise.any([work(1), work(2), on.told()]);
      await onAndOn(on);
    },
  ],
  "what is joined in a race that a timer has won": [
    3,
    async (on) => {
      await Promise.race([Promise.allSettled([on.slow(1), on.slow(2)]), pause(1)]);
      await Promise.race([Promise.all([on.slow(3), pause(1_000)]), pause(1)]);
      await on.told();
      await onAndOn(on);
    },
  ],
  "a group of nothing else": [
    1,
    async (on) => {
      try {
        await on.slow(1);
      } catch (error) {
        throw new AggregateError([error, new AggregateError([error])]);
      }
    },
  ],
};

test.each(Object.keys(DEAF))("%s does not lose a cancel, and its cleanup is made", async (name) => {
  const [open, code] = DEAF[name] as (typeof DEAF)[string];
  const on = stage();
  let tidied = 0;
  const tidy = task("tidy", async () => void (tidied += 1));
  const deaf = agent("deaf", async (ctx) => {
    try {
      await code(on, ctx);
    } finally {
      await tidy();
      await Promise.allSettled([tidy(), pause(1)]);
      await tidy();
    }
  });
  const client = await serving([deaf]);
  const run = await client.start(deaf);
  await until(() => on.waiting() === open);
  await pause(10);
  await run.cancel();
  await expect(run.result({ timeoutMs: 10_000 })).rejects.toBeInstanceOf(AgentCancelled);
  expect(tidied).toBe(3);
  // Not even the step whose await threw; of two that are made at once the second may be.
  expect(on.steps()).toBeLessThanOrEqual(name.endsWith("after a race") ? 1 : 0);
});

/** Code that hears of it, and what it awaits while it tidies up. */
const HEARING: Record<string, [open: number, code: (on: Stage, ctx: AgentContext) => Promise<unknown>]> = {
  "a step that was raced before": [
    1,
    async (on) => {
      const one = on.slow(1);
      await Promise.race([one, pause(1)]);
      await one;
    },
  ],
  "a function that was raced before": [
    1,
    async (on) => {
      const one = (async () => on.slow(1))();
      await Promise.race([one, pause(1)]);
      await one;
    },
  ],
  "one of many that a race has left behind": [
    2,
    async (on) => {
      await Promise.race([on.slow(1), pause(1)]);
      await on.slow(2);
    },
  ],
  "workers that are waited for in the end": [
    3,
    async (on) => {
      const workers = [1, 2].map(async (n) => on.slow(n));
      try {
        await on.slow(3);
      } finally {
        await Promise.allSettled(workers);
      }
    },
  ],
  "workers in turn, that are waited for in the end": [
    2,
    async (on) => {
      const workers = [1, 2].map(async (n) => on.slow(n));
      try {
        for (const worker of workers) await worker;
      } finally {
        await Promise.allSettled(workers);
      }
    },
  ],
  "all that throws for one": [2, async (on) => Promise.all([on.slow(1), on.slow(2)])],
  "a race that throws for one": [2, async (on) => Promise.race([on.slow(1), on.slow(2)])],
};

test.each(Object.keys(HEARING))("%s is told once: what tidies up goes on", async (name) => {
  const [open, code] = HEARING[name] as (typeof HEARING)[string];
  for (const first of ["steps", "pauses"]) {
    const on = stage();
    const tidied: number[] = [];
    const tidy = task("tidy", async (n: number) => void tidied.push(n));
    const hearing = agent("hearing", async (ctx) => {
      try {
        await code(on, ctx);
      } catch (error) {
        if (!(error instanceof Cancelled)) throw error;
        // Where only a function was raced nothing tells that it is awaited as well, unless its reader does something.
        if (first === "pauses" && name !== "a function that was raced before") await pause(10);
        for (let n = 1; n <= 5; n++) await tidy(n);
        throw error;
      }
    });
    const client = await serving([hearing]);
    const run = await client.start(hearing);
    await until(() => on.waiting() === open);
    await pause(10);
    await run.cancel();
    await expect(run.result({ timeoutMs: 10_000 })).rejects.toBeInstanceOf(AgentCancelled);
    expect(tidied).toEqual([1, 2, 3, 4, 5]);
  }
});

/** Ways to await, of which random agents are made; `n` makes their steps differ. */
const WAYS: ((n: number, ctx: AgentContext) => Promise<unknown>)[] = [
  async (n) => brief(n),
  async (n) => Promise.race([brief(n), pause(2)]),
  async (n) => Promise.race([brief(n).then(async () => brief(n + 1)), pause(1)]).then(() => pause(2)),
  async (n) => Promise.allSettled([brief(n), brief(n + 1)]),
  async (n) => Promise.any([brief(n), brief(n + 1), pause(2)]),
  async (n) => Promise.all([brief(n), brief(n + 1)]),
  async (n) => {
    const one = brief(n);
    await Promise.race([one, pause(1)]);
    await one;
  },
  async (n, ctx) => ctx.select([brief(n), ctx.sleep(2)]),
  async (_, ctx) => Promise.race([ctx.waitForSignal("never"), pause(3)]),
  () => pause(3),
  async (n) => Promise.race([Promise.allSettled([brief(n), brief(n + 1)]), pause(2)]),
  async (n) => Promise.allSettled([Promise.race([brief(n), pause(1)]), brief(n + 1).then(async () => brief(n + 2))]),
  async (n) => Promise.race([Promise.any([brief(n), brief(n + 1)]), Promise.all([brief(n + 2), pause(1)])]),
];
const brief = task("brief", async (n: number) => pause((n * 7919) % 4));
const tidied = new Map<string, number>();
const tidyUp = task("tidyUp", async (id: string) => void tidied.set(id, (tidied.get(id) ?? 0) + 1));
const random = agent("random", async (ctx, ways: number[]) => {
  try {
    for (let n = 0; ; n++) {
      await WAYS[ways[n % ways.length] as number]?.(3 * n, ctx);
      if (n % 3 === 0) await brief(n);
    }
  } finally {
    for (let n = 0; n < 3; n++) await tidyUp(ctx.agentExecutionId);
  }
});

test("random agents hear of a cancel at any moment, and tidy up undisturbed", async () => {
  const client = await serving([random]);
  let seed = Number(process.env["SEED"] ?? "1");
  const next = (below: number): number => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return (seed >>> 8) % below;
  };
  for (let round = 0; round < 60 * SCALE; round++) {
    const ways = Array.from({ length: 1 + next(4) }, () => next(WAYS.length));
    const run = await client.start(random, ways);
    await pause(next(30));
    await run.cancel();
    // The grace is 30 s: a cancel that is lost takes it all.
    const error: unknown = await run.result({ timeoutMs: 15_000 }).catch((error: unknown) => error);
    expect(error, `round ${round} of ${JSON.stringify(ways)}`).toBeInstanceOf(AgentCancelled);
    // None where it came before the run began.
    expect([undefined, 3], `round ${round} of ${JSON.stringify(ways)}`).toContain(tidied.get(run.id));
  }
});

test("a cancel that was lost and found is the same after a crash", async () => {
  const on = stage();
  const tidied: string[] = [];
  const tidy = task("tidy", async (what: string) => void tidied.push(what));
  const deaf = agent("deaf", async (ctx) => {
    try {
      await Promise.race([on.slow(1), pause(1)]);
      await on.told();
      await onAndOn(on);
    } finally {
      await tidy("first");
      await ctx.waitForSignal("go on");
      await tidy("last");
    }
  });
  const h = disposing(await harness({ agents: [deaf] }));
  const { id } = await h.start(deaf);
  await until(() => on.waiting() === 1);
  await pause(10);
  await (await h.client.handle(id)).cancel();
  await until(() => tidied.length === 1);
  await h.settle();
  await h.crash();
  const run = await h.client.handle(id);
  await run.signal("go on");
  await expect(run.result({ timeoutMs: 10_000 })).rejects.toBeInstanceOf(AgentCancelled);
  expect(tidied).toEqual(["first", "last"]);
  expect(on.steps()).toBe(0);
});

test("outside agents promises are joined as ever", async () => {
  const client = await serving([]);
  const stopped = new Cancelled("somebody else's");
  const results = await Promise.allSettled([Promise.reject(stopped)]);
  expect(results).toEqual([{ status: "rejected", reason: stopped }]);
  await expect(Promise.any([Promise.reject(stopped)])).rejects.toBeInstanceOf(AggregateError);
  class Mine<T> extends Promise<T> {}
  expect(Mine.all([])).toBeInstanceOf(Mine);
  const { race } = Promise;
  await client.close();
  expect(Promise.race).not.toBe(race);
  expect([Promise.race.name, Promise.race.length]).toEqual(["race", 1]);
});

/** Waits for something that is no step until the run shall stop, and asks whether it shall. */
async function asked(ctx: AgentContext): Promise<void> {
  while (!ctx.isCancellationRequested) await pause(1);
  const told = await ctx.checkCancellation().then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(told instanceof Cancelled)) throw new Error("it was not told");
}

const said: string[] = [];
const say = task("say", async (what: string) => {
  said.push(what);
  return what;
});

/** A run that was asked to stop while its code waited for something else. */
async function stopped(of: AnyAgent): Promise<unknown> {
  said.length = 0;
  const client = await serving([of]);
  const run = await client.start(of as never);
  // RUNNING is over soon for a run that waits for a signal beside its code.
  await until(async () => (await run.status()) !== "PENDING");
  await run.cancel({ timeoutMs: 20_000 });
  return run.result({ timeoutMs: 20_000 }).catch((error: unknown) => error);
}

test("who asks whether to stop is told once, and may tidy up", async () => {
  const asks = agent("asks", async (ctx) => {
    await asked(ctx);
    return [await say("bye"), await say("gone")];
  });
  const error = await stopped(asks);
  expect(error).toBeInstanceOf(AgentCancelled);
  expect((error as AgentCancelled).output).toEqual(["bye", "gone"]);
  expect(said).toEqual(["bye", "gone"]);
});

test("who asks and does not read the answer is told by the next await", async () => {
  const asks = agent("asks_in_vain", async (ctx) => {
    while (!ctx.isCancellationRequested) await pause(1);
    await Promise.allSettled([ctx.checkCancellation()]);
    return say("never");
  });
  expect(await stopped(asks)).toBeInstanceOf(AgentCancelled);
  expect(said).toEqual([]);
});

test("what others await beside one who asks is told too", async () => {
  const asks = agent("asks_beside", async (ctx) => {
    const waits = async (): Promise<string> => {
      await ctx.waitForSignal("never").catch((error: unknown) => {
        if (!(error instanceof Cancelled)) throw error;
      });
      return say("of the waiting");
    };
    const asksToo = async (): Promise<string> => {
      await asked(ctx);
      return say("of the asking");
    };
    return Promise.all([waits(), asksToo()]);
  });
  const error = await stopped(asks);
  expect((error as AgentCancelled).output).toEqual(["of the waiting", "of the asking"]);
  expect([...said].sort()).toEqual(["of the asking", "of the waiting"]);
});

test("what is not cancellable may ask and go on", async () => {
  const asks = agent("asks_by_the_way", { cancellable: false }, async (ctx) => {
    await asked(ctx);
    await asked(ctx);
    return say("done");
  });
  expect(await stopped(asks)).toBe("done");
});
