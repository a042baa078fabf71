// Functions that were renamed serve what was recorded under the names that they had before.

import { agent, type AnyAgent, connect, ExecutionExists, InvalidArgument, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

onEveryBackend((backend) => {
  test("a run goes on with what its functions are called now", async () => {
    const done: string[] = [];
    const declare = (kind: string, fetching: string, aliases?: [agent: string, task: string]) => {
      const fetch = task(fetching, { aliases: aliases?.slice(1) }, async (n: number) => {
        done.push(`${fetching} ${n}`);
        return n;
      });
      return agent(kind, { aliases: aliases?.slice(0, 1) }, async (ctx, _: number) => {
        const first = [await fetch(1), await fetch(1), await fetch(2)];
        const go = await ctx.waitForSignal<number>("go");
        return [...first, await fetch(1), go];
      });
    };
    const before = declare("reader", "fetch");
    const after = declare("scholar", "fetch_page", ["reader", "fetch"]);
    const client = disposing(await connect(await backend.open()));
    const first = await client.worker({ agents: [before] }).start();
    const handle = await client.start(before, 1, { id: "r" });
    await until(async () => (await handle.status()) === "WAITING");
    await first.close();
    await client.worker({ agents: [after] }).start();
    await handle.signal("go", 7);
    expect(await handle.result({ timeoutMs: 30_000 })).toEqual([1, 1, 2, 1, 7]);
    expect(done).toEqual(["fetch 1", "fetch 1", "fetch 2", "fetch_page 1"]);
    // The same id is the same run, under either name.
    expect((await client.start(after, 1, { id: "r" })).id).toBe(handle.id);
    expect((await client.handle("r", after)).id).toBe(handle.id);
    await expect(client.start(after, 2, { id: "r" })).rejects.toThrow(ExecutionExists);
    await client.close();
  });

  test("a task that waits in its queue is served under its old name", async () => {
    const caller = agent("caller", async (ctx, n: number) => ctx.scheduleTask<number>("old", n));
    const renamed = task("renamed", { aliases: ["old"] }, async (n: number) => n * 10);
    const client = disposing(await connect(await backend.open()));
    const handle = await client.start(caller, 4);
    await client.worker({ agents: [caller as AnyAgent], tasks: [renamed] }).start();
    expect(await handle.result({ timeoutMs: 30_000 })).toBe(40);
    await client.close();
  });
});

test("one name is of one function", async () => {
  const client = disposing(await connect("memory:"));
  const fetch = task("fetch", async () => undefined);
  const fetchPage = task("fetch_page", { aliases: ["fetch"] }, async () => undefined);
  const first = agent("first", { aliases: ["x"] }, async () => undefined);
  const second = agent("second", { aliases: ["x"] }, async () => undefined);
  expect(() => client.worker({ tasks: [fetch, fetchPage] })).toThrow('two different functions have the name "fetch"');
  expect(() => client.worker({ agents: [first, second] })).toThrow('two different functions have the name "x"');
  expect(() => task("fetch", { aliases: "old" as never }, async () => undefined)).toThrow(InvalidArgument);
  await client.close();
});
