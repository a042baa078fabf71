// What an agent's code may rely on, on all four kinds of backend: values, failures, concurrency, signals, ends.

import {
  agent,
  AgentCancelled,
  type AgentContext,
  AgentFailed,
  append,
  Blob,
  Cancelled,
  connect,
  type Client,
  type Event,
  ExecutionExists,
  ExecutionNotFound,
  NonRetryable,
  NotSerializable,
  OpenOperations,
  OutsideAgent,
  run,
  SignalTimeout,
  StateNotDeclared,
  stream,
  task,
  TaskFailed,
  Timeout,
  type WorkerOptions,
} from "@flovyn/sdk";
import { expect, test } from "vitest";
import { z } from "zod";

import { onEveryBackend } from "./backends.js";
import { until } from "./support.js";

const double = task("double", async (x: number) => x * 2);
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Serves on a backend while a test works with a client. */
async function serving<T>(url: string, options: WorkerOptions, work: (client: Client) => Promise<T>): Promise<T> {
  const client = await connect(url);
  try {
    await client.worker(options).start();
    return await work(client);
  } finally {
    await client.close();
  }
}

/** The error of what must fail. */
async function errorOf(failing: Promise<unknown>): Promise<Error & Record<string, unknown>> {
  try {
    await failing;
  } catch (error) {
    return error as Error & Record<string, unknown>;
  }
  throw new Error("it did not fail");
}

onEveryBackend((backend) => {
  test("an agent runs to its end and is remembered", async () => {
    let calls = 0;
    const counted = task("counted", async (x: number) => ((calls += 1), x + 1));
    const adder = agent("adder", async (ctx, x: number) => {
      ctx.appendEntry("user", { x });
      const y = await counted(x);
      ctx.appendEntry("assistant", y, { metadata: { sure: true }, turnId: "1" });
      return { y, said: (await ctx.messages()).length, now: ctx.loadMessages().length };
    });
    const url = await backend.open();
    await serving(url, { agents: [adder], tasks: [counted] }, async (client) => {
      const handle = await client.start(adder, 1, { id: "one", metadata: { by: "test" } });
      expect(await handle.result()).toEqual({ y: 2, said: 2, now: 2 });
      expect(handle.key).toBe("one");
      const again = await client.start(adder, 1, { id: "one" });
      expect(again.id).toBe(handle.id);
      expect(await again.result()).toEqual({ y: 2, said: 2, now: 2 });
      expect(calls).toBe(1);
      await expect(client.start(adder, 2, { id: "one" })).rejects.toBeInstanceOf(ExecutionExists);
      await expect(client.handle("nobody")).rejects.toBeInstanceOf(ExecutionNotFound);
      const run = await handle.describe();
      expect(run).toMatchObject({ status: "COMPLETED", kind: "adder", metadata: { by: "test" }, noWorker: [] });
      expect(run.createdAt.getTime()).toBeGreaterThan(Date.now() - 600_000);
      expect(run.endedAt).toBeInstanceOf(Date);
      const [user, assistant] = await handle.messages();
      expect(user).toMatchObject({ role: "user", content: { x: 1 }, parentId: null, metadata: null });
      expect(assistant).toMatchObject({ parentId: user?.id, turnId: "1", metadata: { sure: true } });
      expect(await handle.entries()).toHaveLength(2);
      expect(await handle.tasks()).toMatchObject([{ kind: "counted", status: "COMPLETED", attempt: 1 }]);
      const listed = [];
      for await (const each of client.runs({ kind: "adder", status: "COMPLETED" })) listed.push(each.id);
      expect(listed).toEqual([handle.id]);
    });
  });

  test("steps run together, and a race has one winner", async () => {
    const slow = task("slow", async ({ x, ms }: { x: number; ms: number }) => (await pause(ms), x));
    const together = agent("together", async (ctx) => {
      const [a, b] = await Promise.all([double(1), slow({ x: 2, ms: 5 })]);
      const joined = await ctx.joinAll([double(3), double(4)]);
      const settled = await ctx.joinAllSettled([double(5), Promise.reject(new Error("no"))]);
      const [index, first] = await ctx.select([slow({ x: 1, ms: 60_000 }), double(7), ctx.waitForSignal("never")]);
      const step = double(8);
      const twice = [await step, await step];
      return { a, b, joined, settled: settled.map(({ status }) => status), index, first, twice };
    });
    expect(await run(together, undefined, { url: await backend.open() })).toEqual({
      a: 2,
      b: 2,
      joined: [6, 8],
      settled: ["fulfilled", "rejected"],
      index: 1,
      first: 14,
      twice: [16, 16],
    });
  });

  test("failures are TaskFailed with their cause; retries and noRetry count", async () => {
    const attempts: string[] = [];
    class Refused extends Error {}
    const failing = task("failing", { retries: 2 }, async (how: string, ctx) => {
      attempts.push(`${how} ${ctx.attempt}`);
      if (how === "final") throw new NonRetryable("not again");
      if (how === "once" && ctx.attempt > 1) return "then it worked";
      throw new RangeError(`it was ${how}`);
    });
    const refusing = task("refusing", { retries: 5, noRetry: [Refused] }, async () => {
      attempts.push("refused");
      throw new Refused("go away");
    });
    const failer = agent("failer", async () => {
      const seen: unknown[] = [];
      for (const how of ["always", "final", "once"]) {
        try {
          seen.push(await failing(how));
        } catch (error) {
          const failed = error as TaskFailed;
          expect(failed).toBeInstanceOf(TaskFailed);
          seen.push([failed.kind, failed.type, failed.reason, failed.attempts, failed.code]);
          expect((failed.cause as Error).message).toBe(failed.reason);
        }
      }
      await refusing().catch((error: TaskFailed) => seen.push([error.type, error.attempts]));
      return seen;
    });
    expect(await run(failer, undefined, { url: await backend.open() })).toEqual([
      ["failing", "RangeError", "it was always", 3, "TaskFailed"],
      ["failing", "NonRetryable", "not again", 1, "TaskFailed"],
      "then it worked",
      ["Refused", 1],
    ]);
    expect(attempts).toEqual(["always 1", "always 2", "always 3", "final 1", "once 1", "once 2", "refused"]);
  });

  test("signals come early, late, many, or not at all", async () => {
    const listener = agent("listener", async (ctx) => {
      const first = await ctx.waitForSignal<{ n: number }>("word");
      const has = await ctx.hasSignal("word");
      const rest = await ctx.drainSignals<{ n: number }>("word");
      const late = await ctx.waitForSignal("nothing", { timeoutMs: 20 }).catch((error: unknown) => error);
      expect(late).toBeInstanceOf(SignalTimeout);
      const checked = await ctx.waitForSignalAs("typed", z.object({ n: z.coerce.number() }));
      return { first, has, rest, checked };
    });
    await serving(await backend.open(), { agents: [listener] }, async (client) => {
      const handle = await client.start(listener, undefined, { id: "ears", delayMs: 200 });
      await handle.signal("word", { n: 1 });
      const one = await handle.signal("word", { n: 2 }, { idempotencyKey: "two" });
      expect(await handle.signal("word", { n: 2 }, { idempotencyKey: "two" })).toBe(one);
      await until(async () => (await handle.describe()).waitsFor?.includes("typed"));
      await handle.signal("typed", { n: "7" });
      expect(await handle.result()).toEqual({ first: { n: 1 }, has: true, rest: [{ n: 2 }], checked: { n: 7 } });
    });
  });

  test("an agent with state goes on from its checkpoint", async () => {
    const walker = agent(
      "walker",
      { state: () => ({ i: 0, seen: [] as number[] }), reducers: { seen: append } },
      async (ctx, n: number) => {
        while (ctx.state.i < n) {
          const i = ctx.state.i;
          ctx.update({ i: i + 1, seen: await double(i) });
          await ctx.checkpoint(ctx.state, { metadata: { i } });
        }
        return ctx.state;
      },
    );
    await serving(await backend.open(), { agents: [walker] }, async (client) => {
      const handle = await client.start(walker, 3);
      expect(await handle.result()).toEqual({ i: 3, seen: [0, 2, 4] });
      const checkpoints = await handle.checkpoints();
      expect(checkpoints.map(({ metadata }) => metadata)).toEqual([{ i: 0 }, { i: 1 }, { i: 2 }]);
      const fork = await handle.fork({ checkpoint: checkpoints[0]?.sequence, state: { i: 2, seen: [100] } });
      expect(await fork.result()).toEqual({ i: 3, seen: [100, 4] });
    });
  });

  test("events are told in order, from the start or after one, and as server-sent events", async () => {
    const speaker = agent("speaker", async (ctx, words: string[]) => {
      for (const word of words) ctx.streamToken(word);
      ctx.streamData({ half: true });
      await double(1);
      ctx.appendEntry("assistant", words.join(""));
      ctx.recordUsage("model-1", { inputTokens: 3, outputTokens: 4, costUsd: 0.5 });
      return words.length;
    });
    const url = await backend.open();
    const events: Event[] = [];
    for await (const event of stream(speaker, ["a", "b"], { url, id: "talk", timeoutMs: 30_000 })) events.push(event);
    const durable = events.filter(({ type }) => type !== "token" && type !== "data");
    expect(durable.map((event) => (event.type === "lifecycle" ? event.name : event.type))).toEqual(
      expect.arrayContaining(["created", "task_completed", "entry", "usage", "completed"]),
    );
    expect(events.at(-1)).toMatchObject({ type: "lifecycle", isTerminal: true });
    expect(events.find(({ type }) => type === "entry")).toMatchObject({ role: "assistant", content: "ab" });
    if (backend.name === "memory") return; // Nothing of it is left once its client is closed.
    const client = await connect(url);
    const handle = await client.handle("talk");
    const entry = durable.find(({ type }) => type === "entry") as Event;
    const after: Event[] = [];
    for await (const event of handle.stream({ after: entry.id })) after.push(event);
    expect(after.map(({ id }) => id)).toEqual(durable.slice(durable.indexOf(entry) + 1).map(({ id }) => id));
    const text = await new Response(handle.sse()).text();
    expect(text).toMatch(/^id: /m);
    expect(text).toContain("event: ");
    const usage = (await handle.describe()).usage as Record<string, unknown>;
    expect(usage["model-1"]).toMatchObject({ inputTokens: 3, outputTokens: 4, costMicros: 500_000 });
    await client.close();
  });

  test("a run is cancelled in order, or at once", async () => {
    const tidied: string[] = [];
    const waiter = agent("waiter", async (ctx, name: string) => {
      try {
        await ctx.waitForSignal("never");
      } catch (error) {
        expect(error).toBeInstanceOf(Cancelled);
        tidied.push(name);
        await double(1);
        throw error;
      }
    });
    await serving(await backend.open(), { agents: [waiter] }, async (client) => {
      for (const mode of ["graceful", "hard"] as const) {
        const handle = await client.start(waiter, mode);
        await until(async () => (await handle.status()) === "WAITING");
        await handle.cancel({ mode });
        await expect(handle.result({ timeoutMs: 20_000 })).rejects.toBeInstanceOf(AgentCancelled);
      }
      expect(tidied).toEqual(["graceful"]);
    });
  });

  test("an agent's failure is told with its type", async () => {
    const broken = agent("broken", async () => {
      throw new TypeError("it broke");
    });
    const wrong = agent("wrong", async () => ({ when: new Map([[1, 1]]) }));
    const url = await backend.open();
    const failed = await errorOf(run(broken, undefined, { url }));
    expect(failed).toBeInstanceOf(AgentFailed);
    expect(failed).toMatchObject({ type: "TypeError", code: "AgentFailed" });
    expect(failed.message).toContain("it broke");
    const refused = await errorOf(run(wrong, undefined, { url: `${url}` }));
    expect(refused.cause).toBeInstanceOf(NotSerializable);
  });

  test("queued tasks run in another worker, by kind too", async () => {
    const heavy = task("heavy", { queue: "gpu", timeoutMs: 20_000 }, async (x: number, ctx) => {
      ctx.reportProgress(0.5, "half");
      ctx.heartbeat();
      return x * 100;
    });
    const caller = agent("caller", async (ctx) => [
      await heavy(1),
      await ctx.scheduleTask(heavy, 2),
      await ctx.scheduleTask("double", 4),
    ]);
    await serving(await backend.open(), { agents: [caller] }, async (client) => {
      await client.worker({ tasks: [heavy], queue: "gpu" }).start();
      await client.worker({ tasks: [double] }).start();
      expect(await (await client.start(caller)).result({ timeoutMs: 30_000 })).toEqual([100, 200, 8]);
    });
  });

  test("raw bytes and blobs are payloads of their own", async () => {
    const bytes = Buffer.from([0, 1, 2, 255]);
    const make = task("make", async (size: number) => Buffer.alloc(size, 7));
    const echo = task("echo", async (data: Uint8Array) => data);
    const keeper = agent("keeper", async (_, data: Uint8Array) => {
      const same = await echo(data);
      const large = await make(300_000);
      const blob = await task("blob", async () => new Blob(Buffer.alloc(20_000, 9)))();
      return { data: [...data], same: [...same], large: large.length, last: large[299_999], blob: blob.size };
    });
    expect(await run(keeper, bytes, { url: await backend.open() })).toEqual({
      data: [0, 1, 2, 255],
      same: [0, 1, 2, 255],
      large: 300_000,
      last: 7,
      blob: 20_000,
    });
  });

  test("inputs are checked by their schema", async () => {
    const page = z.object({ url: z.url(), depth: z.coerce.number().default(1) });
    const fetchPage = task("fetch_page", { input: page }, async ({ url, depth }) => `${url} ${depth + 1}`);
    const reader = agent("reader", { input: page }, async (_, { url, depth }) => {
      const bad = await fetchPage({ url: "nothing" }).catch((error: TaskFailed) => [error.type, error.attempts]);
      return [await fetchPage({ url, depth }), bad];
    });
    const url = await backend.open();
    expect(await run(reader, { url: "https://a.example/" }, { url })).toEqual([
      "https://a.example/ 2",
      ["NonRetryable", 1],
    ]);
    await expect(run(reader, { url: "b" }, { url })).rejects.toMatchObject({ code: "InvalidArgument" });
  });
});

test("once, threads, time, chance and a durable timeout", async () => {
  const made: unknown[] = [];
  const various = agent("various", { state: () => ({ turn: 0 }) }, async (ctx) => {
    while (ctx.state.turn < 2) {
      const id = await ctx.once("setup", async (name: string) => `${name} ${await double(ctx.state.turn + 1)}`, "a");
      made.push(id);
      await ctx.checkpoint({ turn: ctx.state.turn + 1 });
    }
    const side = ctx.thread("side");
    side.appendEntry("user", "aside");
    ctx.appendEntry("user", "main");
    const late = await ctx.timeout(10, async () => ctx.waitForSignal("never")).catch((error: unknown) => error);
    expect(late).toBeInstanceOf(Timeout);
    const inTime = await ctx.timeout(60_000, () => double(5));
    const drawn = [ctx.random(), ctx.random()];
    expect(ctx.randomUuid()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(Math.abs(ctx.currentTime().getTime() - Date.now())).toBeLessThan(600_000);
    const ran = await ctx.run("sum", (a: number, b: number) => a + b, 2, 3);
    await ctx.sleep(1);
    return { inTime, ran, distinct: drawn[0] !== drawn[1], side: side.loadMessages().length, input: ctx.input };
  });
  expect(await run(various, undefined, { url: "memory:" })).toEqual({
    inTime: 10,
    ran: 5,
    distinct: true,
    side: 1,
    input: null,
  });
  expect(made).toEqual(["a 2", "a 2"]);
});

test("misuse is explained", async () => {
  expect(await double(2)).toBe(4); // Outside an agent a task just runs.
  let leaked: { appendEntry(role: string, content: unknown): string } | undefined;
  const intruder = task("intruder", async () => leaked?.appendEntry("user", "from a task"));
  const plain = agent("plain", async (ctx) => {
    leaked = ctx;
    const inTask = await intruder().catch((error: TaskFailed) => error.type);
    const state = await Promise.resolve()
      .then(() => ctx.state)
      .catch((error: unknown) => error);
    expect(state).toBeInstanceOf(StateNotDeclared);
    const values: string[] = [];
    for (const value of [new Date(NaN), new Map([[1, 1]]), { a: [1, { b: [undefined] }] }, { n: /n/ }, NaN, () => 1]) {
      try {
        ctx.appendEntry("user", value);
      } catch (error) {
        values.push((error as NotSerializable).path);
      }
    }
    return { inTask, values };
  });
  expect(await run(plain, undefined, { url: "memory:" })).toEqual({
    inTask: "OutsideAgent",
    values: ["$", "$", "$.a[1].b[0]", "$.n", "$", "$"],
  });
  expect(() => leaked?.appendEntry("user", "after its end")).toThrow();
  const open = agent("open", { state: () => ({}) }, async (ctx) => {
    const step = ctx.waitForSignal("never");
    await ctx.checkpoint({}).catch((error: unknown) => expect(error).toBeInstanceOf(OpenOperations));
    return void step;
  });
  await run(open, undefined, { url: "memory:", timeoutMs: 10_000 }).catch((error: AgentFailed) => {
    expect(error.cause).toBeInstanceOf(OpenOperations);
  });
  expect(() => task("both", { sideEffects: "at_most_once", retries: 1 }, async () => 1)).toThrow(/drop the retries or declare it idempotent/);
  for (const maxLosses of [0, -1, 1.5, 1001, NaN]) {
    expect(() => task("lives", { maxLosses }, async () => 1)).toThrow(/maxLosses=.* from 1 to 1000/);
  }
  expect(() => task("lives", { maxLosses: 1000 }, async () => 1).options({ maxLosses: 0 })).toThrow(/maxLosses=0/);
  expect(new OutsideAgent("x").code).toBe("OutsideAgent");
  const client = await connect("memory:");
  const other = agent("plain", async () => 1);
  expect(() => client.worker({ agents: [plain, other] })).toThrow(/two different functions/);
  await client.close();
  await expect(connect("nonsense:")).rejects.toMatchObject({ code: "InvalidArgument" });
});

test("a context starts no child for others", async () => {
  const born = agent("born", async () => "born");
  let leaked: AgentContext | undefined;
  const intruder = task("intruder", async () => void leaked?.spawnAgent(born));
  const leaks = agent("leaks", { tasks: [intruder] }, async (ctx) => {
    leaked = ctx;
    return intruder().catch((error: unknown) => (error instanceof TaskFailed ? [error.type, error.message] : error));
  });
  const another = agent("another", { children: [born] }, async (ctx) => {
    const told = await Promise.resolve()
      .then(() => leaked?.spawnAgent(born))
      .catch((error: unknown) => error instanceof OutsideAgent);
    return [told, await ctx.spawnAgent(born)];
  });
  await serving("memory:", { agents: [leaks, another] }, async (client) => {
    const told = await (await client.start(leaks)).result({ timeoutMs: 20_000 });
    expect(told).toEqual(["OutsideAgent", expect.stringContaining("by code that is not its agent's, such as a task")]);
    // Its agent has ended by now.
    for (const started of [born, "born"] as const) {
      expect(() => leaked?.spawnAgent(started as typeof born)).toThrow(OutsideAgent);
      expect(() => leaked?.spawnAgent(started as typeof born)).toThrow(/make the call in the agent/);
    }
    const runsOfIt: unknown[] = [];
    for await (const run of client.runs({ kind: "born" })) runsOfIt.push(run);
    expect(runsOfIt).toEqual([]);
    expect(await (await client.start(another)).result({ timeoutMs: 20_000 })).toEqual([true, "born"]);
  });
});

test("a wait is given up by its signal, and a late run by its time limit", async () => {
  const waiter = agent("waits", async (ctx) => ctx.waitForSignal("never"));
  const client = await connect("memory:");
  await client.worker({ agents: [waiter] }).start();
  const handle = await client.start(waiter);
  await expect(handle.result({ timeoutMs: 20 })).rejects.toBeInstanceOf(Timeout);
  await expect(handle.result({ signal: AbortSignal.timeout(20) })).rejects.toMatchObject({ name: "TimeoutError" });
  await client.close();
  await expect(run(waiter, undefined, { url: "memory:", timeoutMs: 20 })).rejects.toBeInstanceOf(Timeout);
  expect(await run(waiter, undefined, { url: "memory:", onWait: "return" })).toBeUndefined();
});
