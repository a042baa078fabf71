// What outlives a copy in memory and a process: waits, timers, results, forks, decisions.

import { agent, type Client, connect, InDoubt, run, shared, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { fileUrl, start, until } from "./support.js";

const double = task("double", async (x: number) => x * 2);

async function waiting(client: Client, id: string): Promise<void> {
  await until(async () => (await (await client.handle(id)).status()) === "WAITING");
}

test("a run that is put away at every wait goes on", async () => {
  let entered = 0;
  const talker = agent("talker", async (ctx, turns: number) => {
    entered += 1;
    const heard: unknown[] = [];
    for (let turn = 0; turn < turns; turn++) {
      heard.push(await ctx.waitForSignal("word"));
      heard.push(await double(turn));
    }
    return heard;
  });
  const client = await connect(fileUrl());
  await client.worker({ agents: [talker], maxParked: 0 }).start();
  const handle = await client.start(talker, 3, { id: "talk" });
  for (const word of ["a", "b", "c"]) {
    await waiting(client, "talk");
    await handle.signal("word", word);
    await until(async () => (await handle.describe()).stepCount >= 0);
  }
  expect(await handle.result({ timeoutMs: 20_000 })).toEqual(["a", 0, "b", 2, "c", 4]);
  expect(entered).toBeGreaterThan(1);
  await client.close();
});

test("a timer of the process starts anew where its run goes on", async () => {
  const racer = agent("racer", async (ctx) => {
    const late = new Promise<string>((resolve) => setTimeout(() => resolve("late"), 150));
    return Promise.race([ctx.waitForSignal<string>("never"), late]);
  });
  const url = fileUrl();
  const first = await connect(url);
  await first.worker({ agents: [racer], maxParked: 0 }).start();
  const handle = await first.start(racer, undefined, { id: "race" });
  await until(async () => (await handle.status()) === "WAITING");
  await first.close();
  expect(await run(racer, undefined, { id: "race", url, timeoutMs: 20_000 })).toBe("late");
});

test("an at_most_once task whose process went waits for a decision", async () => {
  let calls = 0;
  const charge = task("charge", { sideEffects: "at_most_once" }, async () => {
    calls += 1;
    if (calls === 1) await new Promise(() => undefined);
    return "charged";
  });
  const shop = agent("shop", async () => charge());
  const url = fileUrl();
  const first = await connect(url);
  const worker = await first.worker({ agents: [shop] }).start();
  await first.start(shop, undefined, { id: "order" });
  await until(() => calls === 1);
  await worker.close(0);
  await first.close();
  await expect(run(shop, undefined, { id: "order", url, onWait: "return" })).rejects.toBeInstanceOf(InDoubt);
  const client = await connect(url);
  const handle = await client.handle("order");
  const [doubtful] = await handle.tasks();
  expect(doubtful?.status).toBe("IN_DOUBT");
  await handle.resolve(doubtful?.op ?? "", { result: "it was charged" });
  await client.close();
  expect(await run(shop, undefined, { id: "order", url })).toBe("it was charged");
  expect(calls).toBe(1);
});

test("a detached task is attached again after a checkpoint", async () => {
  const slow = task("slow", async (x: number) => x * 10);
  const keeper = agent("keeper", { state: () => ({ ref: "" }) }, async (ctx) => {
    if (ctx.state.ref === "") {
      const step = slow.options({ detached: true })(4);
      await ctx.checkpoint({ ref: step.ref });
    }
    return ctx.attach<number>(ctx.state.ref);
  });
  const client = await connect(fileUrl());
  await client.worker({ agents: [keeper], tasks: [slow] }).start();
  expect(await (await client.start(keeper)).result({ timeoutMs: 20_000 })).toBe(40);
  await client.close();
});

test("a signal now cuts a model call short", async () => {
  const speak = task("speak", { interruptible: true }, async (_: undefined, ctx) => {
    for (const word of ["one ", "two ", "three "]) ctx.streamToken(word);
    await new Promise<void>((resolve) => ctx.signal.addEventListener("abort", () => resolve(), { once: true }));
    return "never told";
  });
  const speaker = agent("speaker", async (ctx) => {
    const said = await speak();
    return [said, await ctx.waitForSignal("stop")];
  });
  const client = await connect(fileUrl());
  await client.worker({ agents: [speaker] }).start();
  const handle = await client.start(speaker);
  for await (const event of handle.stream()) if (event.type === "token" && event.text.startsWith("three")) break;
  await handle.signal("stop", "enough", { delivery: "now" });
  expect(await handle.result({ timeoutMs: 20_000 })).toEqual(["one two three ", "enough"]);
  await client.close();
});

test("a shared client is one client, until it is closed", async () => {
  const url = fileUrl();
  const [a, b] = await Promise.all([shared(url), shared(url)]);
  expect(a).toBe(b);
  await a.close();
  const c = await shared(url);
  expect(c).not.toBe(a);
  await c.close();
});

test("thousands of steps at once, and many runs", async () => {
  const many = agent("many", async (_, n: number) => {
    const all = await Promise.all(Array.from({ length: n }, (_, i) => double(i)));
    return all.reduce((sum, each) => sum + each, 0);
  });
  const client = await connect("memory:");
  await client.worker({ agents: [many] }).start();
  const handles = await Promise.all(Array.from({ length: 50 }, () => client.start(many, 40)));
  const results = await Promise.all(handles.map((handle) => handle.result({ timeoutMs: 30_000 })));
  expect(new Set(results)).toEqual(new Set([1560]));
  await client.close();
});

test("a retry whose process went is made by the next one, which has not met the task yet", async () => {
  const url = fileUrl();
  const child = start("endings.cjs", ["retry", url]);
  await until(() => child.output().includes("failed once"));
  const client = await connect(url);
  const handle = await client.handle("again");
  await until(async () => (await handle.tasks())[0]?.failedAttempts === 1);
  child.process.kill("SIGKILL");
  await child.ended;
  const flaky = task("flaky", { retries: 3 }, async () => "at last");
  const retrier = agent("retrier", async () => flaky());
  expect(await run(retrier, undefined, { id: "again", url, timeoutMs: 50_000 })).toBe("at last");
  expect((await handle.tasks())[0]?.attempt).toBeGreaterThan(1);
  await client.close();
});

test("of the runs of a key a few advance at a time", async () => {
  let now = 0;
  let most = 0;
  const moment = task("moment", async () => new Promise<void>((resolve) => setTimeout(resolve, 20)));
  const crowded = agent("crowded", async () => {
    now += 1;
    most = Math.max(most, now);
    await moment();
    now -= 1;
  });
  const client = await connect(fileUrl());
  await client.worker({ agents: [crowded] }).start();
  const options = { concurrencyKey: "crowd", concurrencyLimit: 2 };
  const runs = await Promise.all(Array.from({ length: 6 }, () => client.start(crowded, undefined, options)));
  await Promise.all(runs.map((handle) => handle.result({ timeoutMs: 20_000 })));
  expect(most).toBe(2);
  await expect(client.start(crowded, undefined, { concurrencyLimit: 2 })).rejects.toThrow(/concurrency key/);
  await client.close();
});
