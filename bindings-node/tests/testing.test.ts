// The tools for testing agents find what does not survive, and prove what does.

import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { agent, task } from "@flovyn/sdk";
import { check, Difference, harness, record, replay } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";

import { disposing, folder } from "./support.js";

const double = task("double", async (x: number) => x * 2);

test("a linear agent survives everything", async () => {
  const linear = agent("linear", async (ctx, x: number) => {
    ctx.appendEntry("user", x);
    const first = await double(x);
    const answer = await ctx.waitForSignal<number>("go");
    await ctx.sleep(3_600_000);
    ctx.appendEntry("assistant", await double(first + answer));
    return [first, answer, ctx.random() >= 0];
  });
  const report = await check(linear, 2, { signals: [["go", 5]] });
  expect(report.outcome).toEqual([4, 5, true]);
  expect(report.commits).toBeGreaterThan(2);
  expect(report.runs).toBe(2 + 3 * report.commits);
});

test("an agent with concurrent steps and a race survives everything", async () => {
  const wide = agent("wide", async (ctx, n: number) => {
    const all = await Promise.all(Array.from({ length: n }, (_, i) => double(i)));
    const [index] = await ctx.select([ctx.sleep(50), ctx.waitForSignal("never")]);
    const late = await ctx.timeout(10, () => ctx.waitForSignal("never")).catch((error: Error) => error.name);
    return { all, index, late };
  });
  expect((await check(wide, 4)).outcome).toEqual({ all: [0, 2, 4, 6], index: 0, late: "Timeout" });
});

test("an agent with state survives everything", async () => {
  const walker = agent("walker", { state: () => ({ i: 0, sum: 0 }) }, async (ctx, n: number) => {
    while (ctx.state.i < n) {
      const once = await ctx.once("setup", () => double(20));
      const sum = ctx.state.sum + (await double(ctx.state.i)) + once;
      ctx.appendEntry("assistant", sum);
      await ctx.checkpoint({ i: ctx.state.i + 1, sum });
    }
    return ctx.state.sum;
  });
  expect((await check(walker, 3)).outcome).toBe(126);
});

test("a charge in doubt is asked about, and a failure ends the same", async () => {
  const charge = task("charge", { sideEffects: "at_most_once" }, async (x: number) => x);
  const failing = agent("failing", async (ctx) => {
    ctx.appendEntry("user", await charge(1));
    throw new RangeError("as always");
  });
  const { outcome } = await check(failing, undefined, { throws: "RangeError" });
  expect(outcome).toEqual(["AgentFailed", expect.stringContaining("as always")]);
});

test("what depends on the process is found", async () => {
  let lives = 0;
  const leaky = agent("leaky", async (ctx) => {
    const life = ++lives;
    await ctx.sleep(10);
    return life;
  });
  await expect(check(leaky)).rejects.toBeInstanceOf(Difference);
});

test("a missing signal is named", async () => {
  const waiter = agent("waiter", async (ctx) => ctx.waitForSignal("answer"));
  await expect(check(waiter)).rejects.toThrow(/"answer"/);
});

test("the harness moves time, and ends lives", async () => {
  const sleeper = agent("sleeper", async (ctx, days: number) => {
    for (let day = 0; day < days; day++) {
      await ctx.sleep(86_400_000);
      ctx.appendEntry("assistant", await double(day));
    }
    return "rested";
  });
  const h = disposing(await harness({ agents: [sleeper], fakes: new Map([[double, (x: number) => x + 100]]) }));
  const before = h.now.getTime();
  let handle = await h.start(sleeper, 3, { id: "nap" });
  await h.advance(86_400_000 * 1.5);
  expect((await handle.messages()).map(({ content }) => content)).toEqual([100]);
  await h.crash();
  handle = await h.client.handle("nap");
  await h.advance(86_400_000 * 2);
  expect(await handle.result({ timeoutMs: 5_000 })).toBe("rested");
  expect((await handle.messages()).map(({ content }) => content)).toEqual([100, 101, 102]);
  expect(h.now.getTime() - before).toBeGreaterThanOrEqual(86_400_000 * 3.5);
});

test("cassettes play back what was recorded", async () => {
  const path = join(folder(), "tape.json");
  let calls = 0;
  const roll = task("roll", async (sides: number) => ((calls += 1), sides * 3));
  const player = agent("player", async () => [await roll(6), await roll(20)]);
  const results: unknown[] = [];
  for (const fakes of [record(path, [roll]), undefined]) {
    const h = disposing(await harness({ agents: [player], fakes: fakes ?? replay(path, [roll]) }));
    results.push(await (await h.start(player)).result({ timeoutMs: 10_000 }));
  }
  expect(existsSync(path)).toBe(true);
  expect(results).toEqual([
    [18, 60],
    [18, 60],
  ]);
  expect(calls).toBe(2);
});

// ── what is wrong with a test is said ───────────────────────────────────────────────────────────────────────────────

const unlucky = agent("unlucky", async () => {
  await double(1);
  throw new RangeError("as always");
});

test("an agent that fails is red, unless that is expected", async () => {
  await expect(check(unlucky)).rejects.toThrow(/RangeError: as always.*throws: "RangeError"[^]*testing\.test/);
  for (const throws of ["RangeError", /as always/, true] as const) {
    expect((await check(unlucky, undefined, { throws })).runs).toBeGreaterThan(2);
    const well = agent("well", async () => 5);
    await expect(check(well, undefined, { throws })).rejects.toThrow(/expected to throw/);
  }
  await expect(check(unlucky, undefined, { throws: "TypeError" })).rejects.toThrow(/not TypeError/);
});

test("a stand-in for nobody is an error", async () => {
  const calling = agent("calling", async (ctx) => [await ctx.scheduleTask("task_of_another_program", 1), await double(1)]);
  const fakes = new Map([["duoble", (x: number) => x]]);
  await expect(harness({ agents: [calling], fakes })).rejects.toThrow(/no task "duoble".*double/);
  await expect(check(calling, undefined, { tasks: fakes })).rejects.toThrow(/no task "duoble"/);
  await expect(harness({ agents: [calling], fakes: new Map([[double, 5 as never]]) })).rejects.toThrow(/a stand-in is a function/);
  await expect(harness({ agents: [calling], fakes: new Map([[5 as never, () => 5]]) })).rejects.toThrow(/a stand-in is for/);
  const known = new Map<string, (x: number) => number>([["task_of_another_program", (x) => x], ["double", (x) => x]]); // prettier-ignore
  const h = disposing(await harness({ agents: [calling], fakes: known }));
  expect(await (await h.start(calling)).result({ timeoutMs: 5_000 })).toEqual([1, 1]);
});

test("a cassette that is not there is an error, and a miss is not tried again", async () => {
  const path = join(folder(), "tape.json");
  const roll = task("roll_again", { retries: 5 }, async (sides: number) => sides);
  expect(() => replay(path, [roll])).toThrow(/no cassette .*tape\.json/);
  writeFileSync(path, "not a cassette");
  expect(() => replay(path, [roll])).toThrow(/tape\.json is no cassette/);
  rmSync(path);
  record(path, [roll]);
  const player = agent("player", async () => roll(6));
  const h = disposing(await harness({ agents: [player], fakes: replay(path, [roll]) }));
  await expect((await h.start(player)).result({ timeoutMs: 5_000 })).rejects.toThrow(/CassetteMiss.*record it again/);
});

test.each(["start", "client", "handle", "fork"])("a handle from before a crash goes on after it: %s", async (by) => {
  const patient = agent("patient", async (ctx, turns: number) => {
    const words: string[] = [];
    for (let turn = 0; turn < turns; turn++) {
      const word = await ctx.waitForSignal<string>("word");
      words.push(word);
      ctx.appendEntry("user", word);
      await ctx.sleep(60_000);
    }
    return words;
  });
  const h = disposing(await harness({ agents: [patient] }));
  let handle = await h.start(patient, 2, { id: "p" });
  if (by === "client") handle = await h.client.start(patient, 2, { id: "p" });
  else if (by === "handle") handle = await h.client.handle("p", patient);
  else if (by === "fork") handle = await handle.fork({ id: "q" });
  const result = handle.result();
  const seen: unknown[] = [];
  const watching = (async () => {
    for await (const event of handle.stream()) if (event.type === "entry") seen.push(event.content);
  })();
  await expect(handle.result({ signal: AbortSignal.timeout(20) })).rejects.toThrow(/timeout/);
  for (const word of ["one", "two"]) {
    await h.settle();
    await h.crash();
    await handle.signal("word", word);
    await h.crash();
    await h.advance(61_000);
  }
  expect(await result).toEqual(["one", "two"]);
  expect(await handle.status()).toBe("COMPLETED");
  await watching;
  expect(seen).toEqual(["one", "two"]);
});

const differing: Record<string, [RegExp, () => unknown]> = {
  clock: [/^Date\.now\(\)$/, () => Date.now()],
  date: [/^new Date\(\)$/, () => new Date().getTime()],
  chance: [/^Math\.random\(\)$/, () => Math.random()],
  uuid: [/^crypto\.randomUUID\(\)$/, () => crypto.randomUUID()],
  performance: [/^performance\.now\(\)$/, () => performance.now()],
};

test.each(Object.keys(differing))("a difference says why: %s", async (name) => {
  const [call, fn] = differing[name] as [RegExp, () => unknown];
  const before = [Date, Date.now, Math.random, crypto.randomUUID, performance.now];
  const faulty = agent("faulty", async (ctx) => {
    await double(1);
    await ctx.sleep(20);
    return String(fn());
  });
  const error = await check(faulty).catch((error: Error) => error);
  expect(error).toBeInstanceOf(Difference);
  const found = /process: (.*\(\)) at (\S+):(\d+), so use ctx\.\w+\(\)/.exec((error as Error).message);
  expect(found?.[1], (error as Error).message).toMatch(call);
  expect(found?.[2]).toBe("testing.test.ts");
  const line = readFileSync(__filename, "utf8").split("\n")[Number(found?.[3]) - 1];
  expect(line).toContain(`  ${name}: [`);
  expect([Date, Date.now, Math.random, crypto.randomUUID, performance.now]).toEqual(before);
});

test("a difference without such a call says where to look", async () => {
  let entered = 0;
  const counting = agent("counting", async () => {
    entered += 1;
    await double(1);
    return entered;
  });
  await expect(check(counting)).rejects.toThrow(/no clock and no chance .*globals/);
});
