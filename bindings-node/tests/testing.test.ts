// The tools for testing agents find what does not survive, and prove what does.

import { existsSync } from "node:fs";
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
  const { outcome } = await check(failing);
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
