// Attempts that go by the queue, the later ones of inline tasks among them: they are stopped when nobody waits for them any
// more, and are to their caller what the first one was.

import { AsyncLocalStorage } from "node:async_hooks";

import {
  agent,
  type AnyAgent,
  Cancelled,
  type Client,
  connect,
  Suspended,
  task,
  type TaskContext,
  TaskFailed,
  TaskTimeout,
} from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

/** Waits until an attempt is told to stop, and notes how. */
function stopped(ctx: TaskContext, reasons: unknown[]): Promise<never> {
  return new Promise((_, reject) => {
    ctx.signal.addEventListener("abort", () => {
      reasons.push([ctx.attempt, ctx.isCancelled, ctx.signal.reason]);
      reject(ctx.signal.reason as Error);
    });
  });
}

async function serving(agents: AnyAgent[], url = "memory:"): Promise<Client> {
  const client = disposing(await connect(url));
  await client.worker({ agents }).start();
  return client;
}

onEveryBackend((backend) => {
  test("an attempt that runs out of time is stopped before the next one begins, and its result is void", async () => {
    const begun: number[][] = [];
    const ended: number[] = [];
    const reasons: unknown[] = [];
    const slow = task("slow", { retries: 3, timeoutMs: 250 }, async (_: undefined, ctx) => {
      begun.push([ctx.attempt, reasons.length]);
      // Only the last is in time; the others end as if nothing had happened, once they are told.
      if (ctx.attempt < 4) await stopped(ctx, reasons).catch(() => undefined);
      ended.push(ctx.attempt);
      return ctx.attempt;
    });
    const caller = agent("caller", async () => slow());
    const client = await serving([caller], await backend.open());
    expect(await (await client.start(caller)).result({ timeoutMs: 30_000 })).toBe(4);
    expect(begun).toEqual([1, 2, 3, 4].map((attempt) => [attempt, attempt - 1]));
    expect(ended.sort()).toEqual([1, 2, 3, 4]);
    expect(reasons).toEqual([1, 2, 3].map((attempt) => [attempt, true, expect.any(Cancelled)]));
    await client.close();
  });

  test("a queued attempt whose step has failed is stopped with that as its reason", async () => {
    const reasons: unknown[] = [];
    const slow = task("slow", { queue: "default", timeoutMs: 100 }, async (_: undefined, ctx) => stopped(ctx, reasons));
    const caller = agent("caller", async () => {
      const error: unknown = await slow().catch((error: unknown) => error);
      return error instanceof TaskTimeout;
    });
    const client = await serving([caller], await backend.open());
    expect(await (await client.start(caller)).result({ timeoutMs: 30_000 })).toBe(true);
    expect(reasons).toEqual([[1, true, expect.any(TaskTimeout)]]);
    await client.close();
  });

  test("a run that is cancelled, or gives a step up, or ends, stops its queued attempts", async () => {
    const reasons: unknown[] = [];
    let running = 0;
    const slow = task("slow", { queue: "default" }, async (_: string, ctx) => {
      running += 1;
      return stopped(ctx, reasons);
    });
    const caller = agent("caller", async (ctx, how: string) => {
      const step = slow(how);
      if (how === "cancelled") return step;
      if (how === "given up") await ctx.select([ctx.waitForSignal("go"), step]);
      else await ctx.waitForSignal("go");
      return how;
    });
    const client = await serving([caller], await backend.open());
    for (const [n, how] of ["cancelled", "given up", "left"].entries()) {
      const run = await client.start(caller, how);
      await until(() => running === n + 1);
      if (how === "cancelled") await run.cancel();
      else await run.signal("go");
      await run.result({ timeoutMs: 20_000 }).catch(() => undefined);
      // Well before the next sign of life, which would tell it too.
      await until(() => reasons.length === n + 1, 5_000);
    }
    expect(reasons).toEqual([1, 2, 3].map(() => [1, true, expect.any(Cancelled)]));
    await client.close();
  });
});

test("a retry has the context of its caller, and its error is the cause", async () => {
  const request = new AsyncLocalStorage<string>();
  const seen: (string | undefined)[] = [];
  class Mine extends Error {}
  const flaky = task("flaky", { retries: 2 }, async (_: undefined, ctx) => {
    await Promise.resolve();
    seen.push(request.getStore());
    throw new Mine(`attempt ${ctx.attempt}`);
  });
  let cause: unknown;
  const caller = agent("caller", async () => {
    await request.run("of the caller", async () => flaky()).catch((error: unknown) => {
      cause = (error as TaskFailed).cause;
    });
    return seen.length;
  });
  const client = await serving([caller]);
  expect(await (await client.start(caller)).result({ timeoutMs: 20_000 })).toBe(3);
  expect(seen).toEqual(["of the caller", "of the caller", "of the caller"]);
  expect(cause).toBeInstanceOf(Mine);
  expect(cause).toMatchObject({ message: "attempt 3" });
});

test("a retry runs the function that its step was called with", async () => {
  const flaky = (said: string) =>
    task("flaky", { retries: 1 }, async (_: undefined, ctx) => {
      if (ctx.attempt === 1) throw new Error("not yet");
      return said;
    });
  const caller = agent("caller", async () => Promise.all([flaky("one")(), flaky("two")()]));
  const client = await serving([caller]);
  expect(await (await client.start(caller)).result({ timeoutMs: 20_000 })).toEqual(["one", "two"]);
});

test("a worker that closes tells its attempts why they stop", async () => {
  const inlined: unknown[] = [];
  const queued: unknown[] = [];
  const here = task("here", async (_: undefined, ctx) => stopped(ctx, inlined));
  const there = task("there", { queue: "default" }, async (_: undefined, ctx) => stopped(ctx, queued));
  let running = 0;
  const caller = agent("caller", async () => Promise.all([here(), there()]));
  const client = disposing(await connect("memory:"));
  const worker = client.worker({ agents: [caller] });
  worker.onAttempt = () => void (running += 1);
  await worker.start();
  await client.start(caller);
  await until(() => running === 2);
  await worker.close(0);
  await until(() => inlined.length + queued.length === 2);
  expect(inlined).toEqual([[1, true, expect.any(Suspended)]]);
  expect(queued).toEqual([[1, true, new Cancelled("the worker was closed")]]);
});
