// `ctx.map`: a task over many items, so many at a time, the results in their order.

import { agent, AgentCancelled, Cancelled, connect, InvalidArgument, run, task, type Task, TaskFailed } from "@flovyn/sdk";
import { check } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

/** A task that counts how many of it run at once. */
class Work {
  readonly begun: number[] = [];
  open = 0;
  most = 0;
  readonly task: Task<number, number>;

  constructor(failing: readonly number[] = [], queue?: string) {
    this.task = task("square", { queue }, async (n: number) => {
      this.begun.push(n);
      this.open += 1;
      this.most = Math.max(this.most, this.open);
      // Later items end first.
      await new Promise((resolve) => setTimeout(resolve, 2 * (20 - (n % 20))));
      this.open -= 1;
      if (failing.includes(n)) throw new RangeError(`no ${n}`);
      return n * n;
    });
  }
}

const upTo = (n: number): number[] => Array.from({ length: n }, (_, index) => index);

onEveryBackend((backend) => {
  test.each([undefined, "default"])("items run side by side up to the limit: queue %s", async (queue) => {
    const work = new Work([], queue);
    const mapper = agent("mapper", async (ctx, n: number) => ctx.map(work.task, upTo(n), { limit: 4 }));
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [mapper] }).start();
    const results = await (await client.start(mapper, 25)).result({ timeoutMs: 60_000 });
    expect(results).toEqual(upTo(25).map((n) => n * n));
    expect(work.most).toBe(4);
    expect(work.begun.sort((a, b) => a - b)).toEqual(upTo(25));
    await client.close();
  });

  test("what is done is not done again", async () => {
    const done: number[] = [];
    const note = task("note", async (n: number) => {
      done.push(n);
      return n;
    });
    const mapper = agent("mapper", async (ctx) => {
      const first = await ctx.map(note, [5, 6, 7, 8, 9], { limit: 2 });
      await ctx.waitForSignal("go");
      return [...first, ...(await ctx.map(note, [5, 6], { limit: 1 }))];
    });
    const client = disposing(await connect(await backend.open()));
    const first = await client.worker({ agents: [mapper] }).start();
    const handle = await client.start(mapper);
    await until(async () => (await handle.status()) === "WAITING");
    await first.close();
    await handle.signal("go");
    await client.worker({ agents: [mapper] }).start();
    expect(await handle.result({ timeoutMs: 60_000 })).toEqual([5, 6, 7, 8, 9, 5, 6]);
    expect(done).toEqual([5, 6, 7, 8, 9, 5, 6]);
    await client.close();
  });
});

test("a failure begins no further item and is thrown at the end", async () => {
  const work = new Work([1, 2]);
  const mapper = agent("mapper", async (ctx) => {
    const failed: unknown = await ctx.map(work.task, upTo(100), { limit: 3 }).catch((error: unknown) => error);
    return failed instanceof TaskFailed ? `${failed.reason}, ${work.open} open` : "no error";
  });
  // 2 fails first; the first in order is thrown.
  expect(await run(mapper, undefined, { url: "memory:", timeoutMs: 60_000 })).toBe("no 1, 0 open");
  expect(work.begun.length).toBeLessThan(10);
});

test("how each ended may be given instead", async () => {
  const work = new Work([0, 3]);
  const mapper = agent("mapper", async (ctx) => {
    const ended = await ctx.map(work.task, upTo(5), { limit: 2, settled: true });
    return ended.map((each) => (each.status === "fulfilled" ? each.value : (each.reason as TaskFailed).type));
  });
  const results = await run(mapper, undefined, { url: "memory:", timeoutMs: 60_000 });
  expect(results).toEqual(["RangeError", 1, 4, "RangeError", 16]);
});

test("a stop reaches all that are open", async () => {
  const stopped: number[] = [];
  const hang = task("hang", async (n: number, ctx) => {
    await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason as Error)));
    stopped.push(n);
  });
  let heard = false;
  const mapper = agent("mapper", async (ctx) => {
    try {
      await ctx.map(hang, upTo(9), { limit: 3, settled: true });
    } catch (error) {
      heard = error instanceof Cancelled;
      throw error;
    }
  });
  const client = disposing(await connect("memory:"));
  await client.worker({ agents: [mapper] }).start();
  const handle = await client.start(mapper);
  await until(async () => (await handle.tasks()).length === 3);
  await handle.cancel();
  await expect(handle.result({ timeoutMs: 30_000 })).rejects.toThrow(AgentCancelled);
  expect([heard, stopped, (await handle.tasks()).length]).toEqual([true, [], 3]);
  await client.close();
});

test("nothing and nonsense", async () => {
  const work = new Work();
  const mapper = agent("mapper", async (ctx) => {
    const error: unknown = await ctx.map(work.task, [1], { limit: 0 }).catch((error: unknown) => error);
    return [await ctx.map(work.task, []), error instanceof InvalidArgument];
  });
  expect(await run(mapper, undefined, { url: "memory:", timeoutMs: 30_000 })).toEqual([[], true]);
});

test("it is the same however often it is entered again", async () => {
  const double = task("double", async (n: number) => n * 2);
  const mapper = agent("mapper", async (ctx, n: number) => ctx.map(double, upTo(n), { limit: 3 }));
  await check(mapper, 7);
});
