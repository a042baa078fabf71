// A check of a parent is one of the runs below it, too.

import { agent, type AgentContext, task, Waiting } from "@flovyn/sdk";
import { check, Difference } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";

const double = task("double", (x: number) => x * 2);
const paid = task("paid", { sideEffects: "at_most_once" }, (x: number) => x + 1);

const child = agent("child", async (ctx: AgentContext, x: number) => {
  ctx.appendEntry("user", `asked ${x}`);
  await ctx.signalParent("begun", x);
  const twice = await double(x);
  await ctx.sleep(3_600_000);
  return await paid(twice);
});

const parent = agent("parent", async (ctx: AgentContext, count: number) =>
  Promise.all(Array.from({ length: count }, (_, x) => ctx.spawnAgent(child, x))),
);

let lives = 0;
const moody = agent("moody", async (ctx: AgentContext) => {
  ctx.appendEntry("user", `life ${(lives += 1)}`);
  await double(1);
  return "always the same";
});
const ofTheMoody = agent("of-the-moody", (ctx: AgentContext) => ctx.spawnAgent(moody));

const deaf = agent("deaf", (ctx: AgentContext) => ctx.waitForSignal("nobody sends it"));
const ofTheDeaf = agent("of-the-deaf", (ctx: AgentContext) => ctx.spawnAgent(deaf));

test("families end the same whatever happens", { timeout: 60_000 }, async () => {
  const report = await check(parent, 3);
  expect(report.outcome).toEqual([1, 3, 5]);
  expect(report.commits).toBeGreaterThan(12);
});

test("a child that is not the same again is told", async () => {
  lives = 0;
  const checked = check(ofTheMoody);
  await expect(checked).rejects.toThrow(Difference);
  await expect(checked).rejects.toThrow("the child moody(null) left");
});

test("a child that waits for nobody is told", async () => {
  const checked = check(ofTheDeaf);
  await expect(checked).rejects.toThrow(Waiting);
  await expect(checked).rejects.toThrow('its child "deaf" waits for signal "nobody sends it"');
});

const sleeper = agent("sleeper", async (ctx: AgentContext, ms: number) => {
  await ctx.sleep(ms);
  return ms;
});

test("the first child is the same whatever happens", { timeout: 60_000 }, async () => {
  const inTheOrderOfEnds = agent("in-the-order-of-ends", async (ctx: AgentContext, lengths: number[]) => {
    let pending = lengths.map((ms) => ctx.spawnAgent(sleeper, ms));
    const ends: number[] = [];
    while (pending.length > 0) {
      const [, first] = await ctx.selectChild(pending);
      pending = pending.filter((child) => child !== first);
      ends.push(await ctx.waitForChild(first));
    }
    return ends;
  });
  expect((await check(inTheOrderOfEnds, [3_000_000, 10_000, 600_000])).outcome).toEqual([10_000, 600_000, 3_000_000]);
});
