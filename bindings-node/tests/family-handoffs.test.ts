// Runs that are given to another agent: how the code ends, where the conversation and the messages go.

import { agent, type AgentContext, connect, InvalidArgument, LimitReached, run } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

const said = async (ctx: AgentContext): Promise<unknown[]> => (await ctx.messages()).map((message) => message.content);

const desk = agent("desk", async (ctx, about: string) => {
  const before = await said(ctx);
  const steer = await ctx.waitForSignal<string>("steer");
  ctx.appendEntry("assistant", `${about}: ${steer}`);
  return { before, about, steer };
});

onEveryBackend((backend) => {
  test("a run is given away", async () => {
    let wentOn = false;
    const front = agent("front", { children: [desk] }, async (ctx) => {
      ctx.appendEntry("user", "my invoice is wrong");
      await ctx.handoffToAgent(desk, "invoice");
      wentOn = true;
    });
    const client = disposing(await connect(await backend.open()));
    const first = await client.worker({ agents: [front] }).start();
    const handle = await client.start(front);
    await until(async () => (await handle.describe()).handedTo !== null);
    const facts = await handle.describe();
    expect([facts.status, facts.waitReason]).toEqual(["WAITING", "handed_off"]);
    await first.close();
    // Another worker knows the successor as one of the agent's children. The run is its address.
    await handle.signal("steer", "gently");
    await client.worker({ agents: [front] }).start();
    const wanted = { before: ["my invoice is wrong"], about: "invoice", steer: "gently" };
    expect(await handle.result({ timeoutMs: 60_000 })).toEqual(wanted);
    const transcript = (await handle.messages()).map((message) => message.content);
    expect(transcript).toEqual(["my invoice is wrong", "invoice: gently"]);
    expect(wentOn).toBe(false);
    await client.close();
  });
});

test("a cycle ends at the limit of depth", async () => {
  const loops = agent("loops", async (ctx, depth: number): Promise<unknown> => {
    try {
      return await ctx.handoffToAgent("loops", depth + 1, { conversation: false });
    } catch (error) {
      return [depth, error instanceof LimitReached];
    }
  });
  expect(await run(loops, 0, { url: "memory:" })).toEqual([8, true]);
});

test("an immediate handoff names its successor", async () => {
  const quick = agent("quick", async () => "done");
  const front = agent("front", async (ctx) => ctx.handoffToAgent(quick, undefined, { completion: "immediate" }));
  const client = disposing(await connect("memory:"));
  await client.worker({ agents: [front, quick] }).start();
  const handle = await client.start(front);
  const { handedTo } = (await handle.result({ timeoutMs: 30_000 })) as unknown as { handedTo: string };
  expect(await (await client.handle(handedTo)).result({ timeoutMs: 30_000 })).toBe("done");
  await client.close();
});

test("what is no handoff is refused", async () => {
  const front = agent("front", async (ctx) => {
    const later = ctx.handoffToAgent("desk", 1, { completion: "later" as never });
    await expect(later).rejects.toThrow(/"later" is no completion/);
    const none = ctx.handoffToAgent("desk", 1, { completion: null as never });
    await expect(none).rejects.toThrow(/no completion/);
    await expect(ctx.handoffToAgent((() => 1) as never)).rejects.toThrow(InvalidArgument);
    return "still here";
  });
  expect(await run(front, undefined, { url: "memory:" })).toBe("still here");
});
