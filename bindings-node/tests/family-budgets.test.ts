// Budgets hold for a family, and a child may outlive its parent.

import { agent, BudgetExceeded, Cancelled, connect, InvalidArgument, ParentGone, run, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing } from "./support.js";

const think = task("think", async (tokens: number) => tokens);
const spender = agent("spender", { tasks: [think] }, async (ctx, turns: number) => {
  let done = 0;
  try {
    for (; done < turns; done += 1) ctx.recordUsage("m", { inputTokens: await think(40) });
  } catch (error) {
    if (!(error instanceof Cancelled)) throw error;
  }
  return done;
});

onEveryBackend((backend) => {
  test("a child at its limit keeps what it has", async () => {
    const lead = agent("lead", { children: [spender] }, async (ctx) => {
      const child = ctx.spawnAgent(spender, 9, { budget: { maxTokens: 100 } });
      const event = await ctx.waitForChildEvent(child);
      await expect(child).rejects.toThrow(BudgetExceeded);
      const thrifty = ctx.spawnAgent(spender, 2, { budget: 500 });
      return [event, await thrifty];
    });
    expect(await run(lead, undefined, { url: await backend.open() })).toEqual([
      { type: "budget_exceeded", used: { tokens: 120, costMicros: 0, calls: 3 }, limit: { maxTokens: 100 }, output: 3 },
      2,
    ]);
  });

  test("a child that is stopped may tidy up", async () => {
    const careful = agent("careful", { tasks: [think] }, async (ctx) => {
      try {
        for (;;) ctx.recordUsage("m", { inputTokens: await think(60) });
      } catch (error) {
        if (!(error instanceof Cancelled)) throw error;
        return [await think(7)];
      }
    });
    const lead = agent("lead", { children: [careful] }, async (ctx) => {
      const event = await ctx.waitForChildEvent(ctx.spawnAgent(careful, undefined, { budget: 100 }));
      return event.type === "budget_exceeded" ? [event.used.tokens, event.limit, event.output] : event;
    });
    const kept = [120, { maxTokens: 100 }, [7]];
    expect(await run(lead, undefined, { url: await backend.open() })).toEqual(kept);
  });

  test("children share the budget of their parent", async () => {
    const lead = agent("lead", { children: [spender] }, async (ctx) => {
      const ends = await ctx.joinChildrenSettled([1, 2, 3].map(() => ctx.spawnAgent(spender, 50)));
      const stopped = ends.filter((end) => end.status === "rejected" && end.reason instanceof BudgetExceeded).length;
      await expect(ctx.spawnAgent(spender, 1, { budget: 5_000 })).rejects.toThrow("asks for 5000 tokens");
      return stopped;
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [lead] }).start();
    const handle = await client.start(lead, undefined, { budget: 1_000 });
    expect(await handle.result({ timeoutMs: 60_000 })).toBe(3);
  });

  test("a detached child goes on", async () => {
    const late = agent("late", async (ctx) => {
      const go = await ctx.waitForSignal<number>("go");
      await expect(ctx.requestFromParent("more")).rejects.toThrow(ParentGone);
      return go;
    });
    const lead = agent("lead", { children: [late], tasks: [think] }, async (ctx) => {
      const child = ctx.spawnAgent(late, undefined, { onParentEnd: "detach" });
      await think(1);
      return child.id;
    });
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [lead] }).start();
    const child = await client.handle(await (await client.start(lead)).result({ timeoutMs: 60_000 }));
    await child.signal("go", 1);
    expect(await child.result({ timeoutMs: 60_000 })).toBe(1);
  });
});

test("options of a child that say nothing are refused", async () => {
  const lead = agent("lead", async (ctx) => {
    expect(() => ctx.spawnAgent("spender", 1, { budget: { maxTokes: 1 } })).toThrow(InvalidArgument);
    expect(() => ctx.spawnAgent("spender", 1, { onParentEnd: "stay" as "cancel" })).toThrow("detach");
    return "refused";
  });
  expect(await run(lead, undefined, { url: "memory:" })).toBe("refused");
});
