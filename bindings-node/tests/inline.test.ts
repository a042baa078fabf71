// Inline steps (`ctx.run`) with retries, time limits and keys: their tries are made where the step is called.

import { agent, connect, type Retry, RetryAfter, run, type Task, task, TaskFailed, TaskTimeout } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, fileUrl, until } from "./support.js";

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

  test("a task that a run declares is tried again as that run's own", async () => {
    const caller = agent("caller", async (_, name: string) => {
      let tries = 0;
      const flaky = task("flaky", { retries: 3, retry: SOON }, async (x: number) => {
        tries += 1;
        if (tries < 4) throw new Error("not yet");
        return `${name} ${tries} ${x}`;
      });
      return flaky(7);
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [caller] }).start();
    await client.worker({ agents: [caller] }).start();
    const names = [..."abcdefgh"];
    const handles = await Promise.all(names.map((name) => client.start(caller, name)));
    const results = await Promise.all(handles.map((handle) => handle.result({ timeoutMs: 30_000 })));
    expect(results).toEqual(names.map((name) => `${name} 4 7`));
    expect((await handles[0]?.tasks())?.map(({ attempt }) => attempt)).toEqual([1]);
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

test("a task that one run has declared and others call is everybody's", async () => {
  let tries = 0;
  let made: Task<undefined, number> | undefined;
  const caller = agent("caller", async () => {
    // As a module does that is loaded late.
    made ??= task("flaky", { retries: 1, retry: SOON }, async (_: undefined, { attempt }) => {
      tries += 1;
      if (attempt === 1) throw new Error("not yet");
      return attempt;
    });
    return made();
  });
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [caller] }).start();
  const handles = [await client.start(caller), await client.start(caller), await client.start(caller)];
  const results = await Promise.all(handles.map((handle) => handle.result({ timeoutMs: 20_000 })));
  expect(results).toEqual([2, 2, 2]);
  expect(tries).toBe(6);
  const attempts = (await Promise.all(handles.map((handle) => handle.tasks()))).flatMap((tasks) => tasks.map(({ attempt }) => attempt));
  expect([[1, 2, 2], [2, 2, 2]]).toContainEqual(attempts.sort());
});

test("a task of a run for a queue is refused where its run is not", async () => {
  const caller = agent("caller", async (_, name: string) => task("says", { queue: "default" }, async () => name)());
  const client = disposing(await connect(fileUrl()));
  const first = await client.worker({ agents: [caller], maxTasks: 0 }).start();
  const left = await client.start(caller, "left");
  await until(async () => (await left.tasks()).length > 0);
  await first.close();
  await client.worker({ agents: [caller] }).start();
  // It meets the kind in another run; the one that has called it before is not in this process.
  expect(await (await client.start(caller, "other")).result({ timeoutMs: 20_000 })).toBe("other");
  await expect(left.result({ timeoutMs: 20_000 })).rejects.toThrow(/declared inside an agent's function/);
});
