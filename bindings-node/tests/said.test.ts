// What failed is shown: the user's own failing line first, and what to do; the logger says the rest.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { inspect } from "node:util";

import { agent, type AgentFailed, connect, InDoubt, type LogEntry, NonRetryable, run, setLogger, task, Timeout } from "@flovyn/sdk";
import { check, harness } from "@flovyn/sdk/testing";
import { afterEach, beforeEach, expect, test } from "vitest";

import { disposing, fileUrl, start as child } from "./support.js";

let told: LogEntry[] = [];
let before: ReturnType<typeof setLogger>;

beforeEach(() => {
  told = [];
  before = setLogger((entry) => told.push(entry));
});
afterEach(() => void setLogger(before));

const messages = (): string[] => told.map(({ message }) => message);

/** The number of the line of this file that ends so. */
function lineOf(end: string): number {
  return readFileSync(__filename, "utf8").split("\n").findIndex((line) => line.trimEnd().endsWith(end)) + 1;
}

function refuse(n: number): number {
  if (n === 0) throw new RangeError("by nothing"); // the failing line
  return 1 / n;
}

const divide = task("divide", async (n: number) => refuse(n));
const byTask = agent("by_task", async () => divide(0));
const byItself = agent("by_itself", async () => refuse(0));
const grouped = agent("grouped", async () => Promise.any([divide(0)]));

async function failed(of: typeof byTask): Promise<AgentFailed> {
  return run(of, undefined, { url: "memory:", timeoutMs: 10_000 }).then(
    () => expect.unreachable("it ends with an error"),
    (error: AgentFailed) => error,
  );
}

test.each([byTask, byItself, grouped])("the failing line comes first, and no frame is the engine's", async (of) => {
  const error = await failed(of);
  expect(error.name).toBe("AgentFailed");
  expect(error.traceback).not.toMatch(/bindings-node\/dist\/|node:internal/);
  expect(error.message).toContain("by nothing");
  expect(error.message).not.toContain("AggregateError");
  expect(error.type).toBe(of === byItself ? "RangeError" : "TaskFailed");
  expect(error.stack?.split("\n")[1]).toContain(`said.test.ts:${lineOf("// the failing line")}`);
  expect(error.stack).not.toMatch(/bindings-node\/dist\//);
  if (of === byTask) expect(error.stack).toContain(`said.test.ts:${lineOf("divide(0));")}`);
  const shown = inspect(error);
  expect(shown).toContain("docs/errors/AgentFailed.md");
  expect(shown).toContain("handle.retry()");
  expect(shown, "nor one of its cause").not.toMatch(/bindings-node\/dist\//);
});

test("failures and retries are logged with their place", async () => {
  const flaky = task("flaky", { retries: 1 }, async () => refuse(0));
  const hopeless = task("hopeless", { retries: 5 }, async () => Promise.reject(new NonRetryable("no")));
  const tries = agent("tries", async (ctx) => {
    await ctx.joinAllSettled([flaky(), hopeless()]);
    throw new Error("as always");
  });
  await failed(tries as never);
  const place = `(said.test.ts:${lineOf("// the failing line")})`;
  expect(messages().filter((text) => text.includes('"flaky"'))).toEqual([
    `task "flaky" failed at attempt 1 of 2: RangeError: by nothing ${place}; it is tried again`,
    `task "flaky" failed at attempt 2 of 2: RangeError: by nothing ${place}; no attempt is left`,
  ]);
  expect(messages().some((text) => /"hopeless" failed at attempt 1 of 6.*may not be tried again/.test(text))).toBe(true);
  expect(told.at(-1)).toMatchObject({ level: "warn", kind: "tries", error: { message: "as always" } });
  expect(told.at(-1)?.message).toMatch(/^agent "tries" of run \S+ threw:\nError: as always\n.*said\.test\.ts/);
});

test("a step that nobody awaits is named with its line", async () => {
  const careless = agent("careless", async (ctx) => {
    void divide(5); // forgotten
    void ctx.waitForSignal("word");
    void divide.options({ detached: true })(7);
    const kept = divide(6);
    await divide(1);
    return kept;
  });
  await run(careless, undefined, { url: "memory:" });
  expect(messages()).toHaveLength(2);
  expect(messages()[0]).toContain(`never awaited task "divide" (said.test.ts:${lineOf("// forgotten")})`);
  expect(messages()[1]).toContain('never awaited signal "word"');
});

test("a child that is heard is not said to be forgotten", async () => {
  const ends = agent("ends", async () => 1);
  const lead = agent("lead", { children: [ends] }, async (ctx) => {
    const heard = ctx.spawnAgent(ends);
    ctx.spawnAgent(ends, undefined, { onParentEnd: "detach" });
    ctx.spawnAgent(ends); // never looked at
    return (await ctx.waitForChildEvent(heard)).type;
  });
  expect(await run(lead, undefined, { url: "memory:" })).toBe("completed");
  expect(messages().filter((text) => text.includes("never awaited"))).toHaveLength(1);
});

test("without a logger of one's own it goes to the console, and a logger that throws harms nothing", async () => {
  const shown: unknown[] = [];
  const warn = console.warn;
  console.warn = (...given: unknown[]) => void shown.push(...given);
  try {
    setLogger();
    await failed(byItself);
  } finally {
    console.warn = warn;
  }
  expect(shown).toEqual([expect.stringMatching(/^flovyn: agent "by_itself" of run /)]);
  setLogger(() => {
    throw new Error("no logger");
  });
  expect((await failed(byItself)).type).toBe("RangeError");
});

test("a paused run says why and how it goes on, and so does code that diverges", async () => {
  const url = fileUrl();
  const client = disposing(await connect(url));
  const stops = agent("stops", { onError: "pause" }, async () => divide(0));
  await disposing(client.worker({ agents: [stops] })).start();
  const handle = await client.start(stops, undefined, { id: "stopped" });
  await expect(handle.result({ timeoutMs: 500 })).rejects.toThrow(`go on with: flovyn runs resume ${url} stopped`);
  expect(messages().at(-1)).toMatch(/^run "stopped" of agent "stops" is paused: TaskFailed: .*; go on with: flovyn runs resume/);
  const names = ["one", "two", "three"];
  const changes = agent("changes", { version: "1", onDivergence: "pause", replayTimeoutMs: 50 }, async (ctx) => {
    await ctx.run(names.shift() as string, () => 1);
    await ctx.sleep(60_000);
  });
  const h = disposing(await harness({ agents: [changes] }));
  await h.start(changes, undefined, { id: "changed" });
  await h.settle();
  await h.crash();
  await h.advance(61_000);
  await expect.poll(messages).toContainEqual(expect.stringMatching(/"changed" of agent "changes" is paused: Diverged/));
});

/** A run that goes on until it is stopped. */
const goesOn = agent("goes_on", async (ctx) => {
  for (let turn = 0; turn < 500; turn++) {
    await ctx.flush();
    ctx.appendEntry("user", turn);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});

test("a run that is no longer the worker's is said", async () => {
  const url = fileUrl();
  const client = disposing(await connect(url));
  await disposing(client.worker({ agents: [goesOn] })).start();
  const handle = await client.start(goesOn);
  await expect.poll(() => handle.entries()).not.toHaveLength(0);
  // What another worker's claim does to a run whose lease was over.
  const taken = "import sqlite3, sys; s = sqlite3.connect(sys.argv[1]); s.execute(sys.argv[2]); s.commit()";
  const claim = "UPDATE agent_execution SET epoch = epoch + 1";
  execFileSync("python3", ["-c", taken, url.replace(/^sqlite:/, ""), claim]);
  await expect.poll(messages).toHaveLength(1);
  expect(messages()[0]).toContain(`agent "goes_on": run ${handle.id} is no longer held by this worker`);
});

test("a run that somebody ended was not lost", async () => {
  const client = disposing(await connect("memory:"));
  await disposing(client.worker({ agents: [goesOn] })).start();
  const handle = await client.start(goesOn);
  await expect.poll(() => handle.entries()).not.toHaveLength(0);
  await handle.cancel({ mode: "hard" });
  await expect(handle.result()).rejects.toThrow("was cancelled");
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(messages()).toEqual([]);
});

test("a timeout says that no worker serves a kind", async () => {
  const client = disposing(await connect("memory:"));
  const handle = await client.start(byTask);
  const late = await handle.result({ timeoutMs: 200 }).catch((error: unknown) => error);
  expect(late).toBeInstanceOf(Timeout);
  expect((late as Error).message).toContain('no worker serves kind "by_task" of queue "default"');
  const asks = agent("asks", async (ctx) => ctx.scheduleTask("elsewhere", 1));
  await expect(run(asks, undefined, { url: "memory:", timeoutMs: 300 })).rejects.toThrow(/no worker serves kind "elsewhere"/);
});

test("a doubt names op, task and command", async () => {
  const url = fileUrl();
  expect((await child("doubt.cjs", [url]).ended).code).toBe(9);
  const pay = task("pay", { sideEffects: "at_most_once" }, async () => 5);
  const buys = agent("buys", { version: "1" }, async () => pay());
  const doubt = await run(buys, undefined, { id: "bought", url, onWait: "return" }).catch((error: unknown) => error);
  expect(doubt).toBeInstanceOf(InDoubt);
  const found = /task "pay" \(op (\S+)\).* flovyn runs resolve (\S+) (\S+) --retry/.exec((doubt as Error).message);
  expect(found?.slice(2), (doubt as Error).message).toEqual([url, found?.[1]]);
  const client = disposing(await connect(url));
  await (await client.handle("bought", buys)).resolve(found?.[1] as string, { result: 7 });
  expect(await run(buys, undefined, { id: "bought", url, timeoutMs: 10_000 })).toBe(7);
});

test("what is said does not make an agent differ", async () => {
  expect((await check(byItself, undefined, { throws: "RangeError" })).runs).toBeGreaterThan(1);
});
