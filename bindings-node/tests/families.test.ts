// Children: agents that start other agents and wait for them.

import {
  agent,
  AgentCancelled,
  type Child,
  ChildCancelled,
  ChildFailed,
  connect,
  InvalidArgument,
  InvalidTransition,
  run,
  task,
} from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

const double = task("double", async (x: number) => x * 2);
const doubles = agent("doubles", { tasks: [double] }, async (_, x: number) => double(x));
const fails = agent("fails", async (_, why: string): Promise<number> => {
  throw new RangeError(why);
});
const waits = agent("waits", async (ctx) => ctx.waitForSignal("go"));

onEveryBackend((backend) => {
  test("a parent waits for its children, also after the worker has gone", async () => {
    const parent = agent("parent", { children: [doubles] }, async (ctx, count: number) => {
      const children = Array.from({ length: count }, (_, n) => ctx.spawnAgent(doubles, n));
      const found = await Promise.all(children);
      await ctx.waitForSignal("go on");
      return [...found, await ctx.spawnAgent(doubles, 100)];
    });
    const client = disposing(await connect(await backend.open()));
    const first = await client.worker({ agents: [parent] }).start();
    const handle = await client.start(parent, 3);
    await until(async () => (await handle.describe()).waitsFor.includes("go on"));
    await first.close();
    await handle.signal("go on", null);
    await client.worker({ agents: [parent], maxParked: 0 }).start();
    expect(await handle.result({ timeoutMs: 60_000 })).toEqual([0, 2, 4, 200]);
    const kinds: string[] = [];
    for await (const child of client.runs({ parent: handle.id })) kinds.push(child.kind);
    expect(kinds).toEqual(["doubles", "doubles", "doubles", "doubles"]);
    await client.close();
  });

  test("a child that ends otherwise is told where it is awaited", async () => {
    const parent = agent("parent", { children: [fails, waits] }, async (ctx) => {
      const told: unknown[] = [];
      try {
        await ctx.spawnAgent(fails, "no otters");
      } catch (error) {
        if (!(error instanceof ChildFailed)) throw error;
        told.push(error.kind, error.type, error.reason);
      }
      const child = ctx.spawnAgent(waits);
      try {
        await child;
      } catch (error) {
        if (!(error instanceof ChildCancelled)) throw error;
        told.push(error.message);
      }
      return told;
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [parent] }).start();
    const handle = await client.start(parent);
    const waiting = await until(async () => {
      for await (const child of client.runs({ parent: handle.id, status: "WAITING" })) return child;
      return undefined;
    });
    await (await client.handle(waiting.id)).cancel();
    const told = await handle.result({ timeoutMs: 60_000 });
    expect(told).toEqual(["fails", "RangeError", "no otters", 'child "waits" was cancelled']);
    await client.close();
  });

  test("a child that a race was lost by is not waited for without end", async () => {
    const parent = agent("parent", { children: [waits], tasks: [double] }, async (ctx) => {
      const child = ctx.spawnAgent(waits);
      await ctx.select([child, double(1)]);
      const told = await child.catch((error: unknown) => error);
      const raced = ctx.spawnAgent(waits);
      await Promise.race([raced, double(2)]);
      return [told instanceof InvalidTransition, (told as Error).message, raced.id !== child.id];
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [parent] }).start();
    const told = await (await client.start(parent)).result({ timeoutMs: 60_000 });
    expect(told).toEqual([true, expect.stringContaining('child "waits"'), true]);
    await client.close();
  });

  test("the first child to end is told, and the others are not given up", async () => {
    const slow = agent("slow", async (ctx, ms: number) => {
      await ctx.sleep(ms);
      return ms;
    });
    const parent = agent("parent", { children: [slow, waits] }, async (ctx) => {
      let pending = [ctx.spawnAgent(slow, 300), ctx.spawnAgent(slow, 50)];
      const told: unknown[] = [];
      while (pending.length > 0) {
        const [, first] = await ctx.selectChild(pending);
        pending = pending.filter((child) => child !== first);
        told.push(await first);
      }
      const [index] = await ctx.selectChild<unknown>([ctx.spawnAgent(waits), ctx.spawnAgent(slow, 0)]);
      const strange = [double(1)] as unknown as Child<number>[];
      const refused = [ctx.selectChild([]), ctx.select([]), ctx.selectChild(strange)].map((none) => none.catch((error: unknown) => error));
      return [told.sort(), index, ...(await Promise.all(refused)).map((error) => error instanceof InvalidArgument)];
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [parent] }).start();
    expect(await (await client.start(parent)).result({ timeoutMs: 60_000 })).toEqual([[300, 50], 1, true, true, true]);
    await client.close();
  });

  test("waitForChild is the await of a child", async () => {
    const parent = agent("parent", { children: [doubles, fails, waits] }, async (ctx) => {
      const child = ctx.spawnAgent(doubles, 21);
      const [found, again] = [await ctx.waitForChild(child), await child];
      const failed = await ctx.waitForChild(ctx.spawnAgent(fails, "no otters")).catch((error: unknown) => error);
      const stopped = ctx.spawnAgent(waits);
      await ctx.cancelChild(stopped, "hard");
      const cancelled = await ctx.waitForChild(stopped).catch((error: unknown) => error);
      const strange = [double(1), Promise.resolve(1), undefined] as unknown as Child<number>[];
      const refused = strange.map((none) => ctx.waitForChild(none).catch((error: unknown) => error));
      return [
        found,
        again,
        (failed as ChildFailed).reason,
        cancelled instanceof ChildCancelled,
        ...(await Promise.all(refused)).map((error) => error instanceof InvalidArgument && /waitForChild/.test(error.message)),
      ];
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [parent] }).start();
    const told = await (await client.start(parent)).result({ timeoutMs: 60_000 });
    expect(told).toEqual([42, 42, "no otters", true, true, true, true]);
    await client.close();
  });

  test("a child with an id is waited for again, after a checkpoint too", async () => {
    const desk = agent("desk", { children: [waits, doubles], state: (): { told: unknown[] } => ({ told: [] }) }, async (ctx) => {
      const told = ctx.state.told;
      while (told.length < 3) {
        const child = ctx.spawnAgent(waits, undefined, { id: "one" });
        told.push(told.length === 0 ? child.id : await child);
        await ctx.checkpoint({ told });
      }
      const taken = await ctx.spawnAgent(doubles, 1, { id: "one" }).catch((error: unknown) => error);
      return [...told, (taken as Error).name];
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [desk] }).start();
    const handle = await client.start(desk);
    const child = await until(async () => {
      for await (const child of client.runs({ parent: handle.id })) return child;
      return undefined;
    });
    await (await client.handle(child.id)).signal("go", 7);
    expect(await handle.result({ timeoutMs: 60_000 })).toEqual([child.id, 7, 7, "ExecutionExists"]);
    await client.close();
  });

  test("children that were only looked at outlive a checkpoint", async () => {
    const slow = agent("slow", async (ctx, ms: number) => {
      await ctx.sleep(ms);
      return ms;
    });
    const desk = agent("desk", { children: [slow], state: (): { told: number[] } => ({ told: [] }) }, async (ctx) => {
      const told = ctx.state.told;
      for (;;) {
        const left = [3, 1, 2].filter((n) => !told.includes(n));
        if (left.length === 0) return told.sort();
        const [index, child] = await ctx.selectChild(left.map((n) => ctx.spawnAgent(slow, n * 100, { id: String(n) })));
        expect(await child).toBe((left[index] as number) * 100);
        told.push(left[index] as number);
        await ctx.checkpoint({ told });
      }
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [desk] }).start();
    expect(await (await client.start(desk)).result({ timeoutMs: 60_000 })).toEqual([1, 2, 3]);
    await client.close();
  });

  test("children end with their parent", async () => {
    const parent = agent("parent", { children: [waits] }, async (ctx) => {
      ctx.spawnAgent(waits);
      await ctx.waitForSignal("leave");
      return "left";
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [parent] }).start();
    const handle = await client.start(parent);
    const waiting = await until(async () => {
      for await (const child of client.runs({ parent: handle.id, status: "WAITING" })) return child;
      return undefined;
    });
    await handle.signal("leave", null);
    expect(await handle.result({ timeoutMs: 60_000 })).toBe("left");
    await expect((await client.handle(waiting.id)).result({ timeoutMs: 60_000 })).rejects.toThrow(AgentCancelled);
    await client.close();
  });
});

test("run() serves the children that the code hands over", async () => {
  const parent = agent("parent", async (ctx, x: number) => {
    const child = ctx.spawnAgent(doubles, x, { key: "one", metadata: { of: "otters" } });
    expect(child.id).toMatch(/^[0-9a-f-]{36}$/);
    return child;
  });
  expect(await run(parent, 21, { url: "memory:" })).toBe(42);
});

test("what cannot be a child is refused", async () => {
  const parent = agent("parent", (ctx) => {
    const spawn = ctx.spawnAgent.bind(ctx) as (...args: unknown[]) => unknown;
    const told = [double, undefined, 7].map((given) => {
      try {
        spawn(given, 1);
      } catch (error) {
        if (error instanceof InvalidArgument) return error.message;
      }
      return "taken";
    });
    return told;
  });
  const message = "spawnAgent takes what agent(…) gave, or a kind";
  expect(await run(parent, undefined, { url: "memory:" })).toEqual([message, message, message]);
});
