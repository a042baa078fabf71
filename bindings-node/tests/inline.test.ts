// Inline steps (`ctx.run`) with retries, time limits and keys: their tries are made where the step is called.

import { agent, connect, type Retry, RetryAfter, run, TaskFailed, TaskTimeout } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

const SOON: Retry = { delayMs: 1 };
const HOUR: Retry = { delayMs: 3_600_000, maxDelayMs: 3_600_000 };

onEveryBackend((backend) => {
  test("a closure is tried again where it is, not where another run has one of its name", async () => {
    const caller = agent("caller", async (ctx, name: string) => {
      let tries = 0;
      return ctx.run("flaky", { retries: 3, retry: SOON }, async () => {
        tries += 1;
        if (tries < 4) throw new Error("not yet");
        return `${name} ${tries}`;
      });
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [caller] }).start();
    await client.worker({ agents: [caller] }).start();
    const names = [..."abcdefgh"];
    const handles = await Promise.all(names.map((name) => client.start(caller, name)));
    const results = await Promise.all(handles.map((handle) => handle.result({ timeoutMs: 30_000 })));
    expect(results).toEqual(names.map((name) => `${name} 4`));
    await client.close();
  });

  test("all tries may fail, of errors and of time; the signal of each aborts", async () => {
    let tries = 0;
    let aborted = 0;
    const caller = agent("caller", async (ctx) => {
      const broken: unknown = await ctx
        .run("broken", { retries: 2, retry: SOON }, () => {
          tries += 1;
          throw new RangeError("never");
        })
        .catch((error: unknown) => error);
      const slow: unknown = await ctx
        .run("slow", { retries: 2, retry: SOON, timeoutMs: 50 }, (signal) => {
          return new Promise((_, reject) => {
            signal.addEventListener("abort", () => {
              aborted += 1;
              reject(signal.reason as Error);
            });
          });
        })
        .catch((error: unknown) => error);
      if (!(broken instanceof TaskFailed && slow instanceof TaskTimeout)) throw broken;
      return [broken.type, broken.attempts, broken.cause instanceof RangeError, slow.attempts];
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [caller] }).start();
    const handle = await client.start(caller);
    expect(await handle.result({ timeoutMs: 30_000 })).toEqual(["RangeError", 3, true, 3]);
    expect([tries, aborted]).toEqual([3, 3]);
    await client.close();
  });

  test("a worker that ends leaves the tries to the next", async () => {
    const tries: string[] = [];
    let name = "first";
    const caller = agent("caller", async (ctx) =>
      ctx.run("flaky", { retries: 9, retry: HOUR }, () => {
        tries.push(name);
        if (name === "first") throw new Error("not here");
        return name;
      }),
    );
    const client = disposing(await connect(await backend.open()));
    const first = await client.worker({ agents: [caller] }).start();
    const handle = await client.start(caller);
    await until(() => tries.length > 0);
    await first.close();
    name = "second";
    await client.worker({ agents: [caller] }).start();
    expect(await handle.result({ timeoutMs: 30_000 })).toBe("second");
    expect(tries).toEqual(["first", "second"]);
    await client.close();
  });
});

test("an error names the pause before the next try, and a predicate ends them", async () => {
  let tries = 0;
  const caller = agent("caller", async (ctx) => {
    const third = await ctx.run("limited", { retries: 9, retry: HOUR }, () => {
      tries += 1;
      if (tries < 3) throw new RetryAfter(1);
      return tries;
    });
    const final: unknown = await ctx
      .run("final", { retries: 9, retry: HOUR, retryIf: () => false }, () => {
        throw new Error("final");
      })
      .catch((error: unknown) => error);
    return [third, final instanceof TaskFailed ? final.attempts : 0];
  });
  expect(await run(caller, undefined, { url: "memory:", timeoutMs: 30_000 })).toEqual([3, 1]);
});

test("a key names a call among others", async () => {
  const made: number[] = [];
  let order = [1, 2, 3];
  const caller = agent("caller", async (ctx) => {
    const found: Record<string, number> = {};
    const make = async (n: number): Promise<void> => {
      found[n] = await ctx.run("make", { key: String(n) }, () => {
        made.push(n);
        return n;
      });
    };
    await Promise.all(order.map(make));
    await ctx.waitForSignal("go");
    return found;
  });
  const client = disposing(await connect("memory:keys"));
  const first = await client.worker({ agents: [caller] }).start();
  const handle = await client.start(caller);
  await until(async () => (await handle.status()) === "WAITING");
  await first.close();
  order = [3, 2, 1];
  await client.worker({ agents: [caller] }).start();
  await handle.signal("go");
  expect(await handle.result({ timeoutMs: 30_000 })).toEqual({ 1: 1, 2: 2, 3: 3 });
  expect(made).toEqual([1, 2, 3]);
  await client.close();
});

test("options without a function are refused", async () => {
  const caller = agent("caller", async (ctx) => {
    await ctx.run("nothing", { retries: 1 }, undefined as never);
  });
  await expect(run(caller, undefined, { url: "memory:", timeoutMs: 30_000 })).rejects.toThrow("for its function");
});
