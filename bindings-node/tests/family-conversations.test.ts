// What a child is given of the conversation of its parent, and what its parent sees of its own.

import { agent, type AgentContext, connect, InvalidArgument, run } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

const said = async (ctx: AgentContext): Promise<unknown[]> => (await ctx.messages()).map((message) => message.content);

const reader = agent("reader", async (ctx, name: string) => {
  const before = await said(ctx);
  ctx.appendEntry("assistant", `${name} 1`);
  await ctx.sleep(10);
  ctx.appendEntry("assistant", `${name} 2`);
  return [before, await said(ctx), ctx.sharedContext ?? null];
});

const ASKED = ["a question"];
const MEANWHILE = ["a question", "meanwhile"];

onEveryBackend((backend) => {
  test("a child goes on from the conversation of its parent", async () => {
    const lead = agent("lead", { children: [reader] }, async (ctx) => {
      ctx.appendEntry("user", "a question");
      const seen = ctx.spawnAgent(reader, "seen", { sharedContext: "conversation" });
      const unseen = ctx.spawnAgent(reader, "unseen", { sharedContext: "read_only" });
      const alone = ctx.spawnAgent(reader, "alone", { sharedContext: { tone: "dry", n: [1, null] } });
      ctx.appendEntry("user", "meanwhile");
      const told = await Promise.all([seen, unseen, alone]);
      await ctx.waitForSignal("go");
      const threads: unknown[] = [];
      for (const child of [seen, unseen]) threads.push(await said(ctx.thread(child.id)));
      return { told, threads, main: await said(ctx) };
    });
    const client = disposing(await connect(await backend.open()));
    const first = await client.worker({ agents: [lead] }).start();
    const handle = await client.start(lead);
    await until(async () => (await handle.describe()).waitsFor.includes("go"));
    await first.close();
    await client.worker({ agents: [lead], maxParked: 0 }).start();
    await handle.signal("go", null);
    expect(await handle.result({ timeoutMs: 60_000 })).toEqual({
      told: [
        [ASKED, [...ASKED, "seen 1", "seen 2"], "conversation"],
        [ASKED, [...ASKED, "unseen 1", "unseen 2"], "read_only"],
        [[], ["alone 1", "alone 2"], { tone: "dry", n: [1, null] }],
      ],
      threads: [[...ASKED, "seen 1", "seen 2"], MEANWHILE],
      main: MEANWHILE,
    });
    await client.close();
  });
});

test("what cannot be shared is refused", async () => {
  const lead = agent("lead", { children: [reader] }, async (ctx) => {
    for (const wrong of ["everything", "", 7, ["read_only"], { long: "x".repeat(70_000) }])
      expect(() => ctx.spawnAgent(reader, "never", { sharedContext: wrong as never })).toThrow(InvalidArgument);
    return ctx.sharedContext ?? "nothing was shared";
  });
  expect(await run(lead, undefined, { url: "memory:" })).toBe("nothing was shared");
});
