// Runs whose journal is not kept before somebody depends on it.

import { agent, type AgentContext, connect, InvalidArgument, NotPersisted, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

const shout = task("shout", async (word: string) => word.toUpperCase());

const quick = agent("quick", async (ctx: AgentContext, word: string) => {
  ctx.appendEntry("user", await shout(word));
  return (await ctx.messages()).map((message) => message.content);
});

const keeps = agent("keeps", async (ctx, word: string) => {
  ctx.appendEntry("user", await shout(word));
  await ctx.enablePersistence();
  return ctx.waitForSignal<string>("go");
});

const parent = agent("parent", { children: [quick] }, async (ctx) =>
  ctx.spawnAgent(quick, "hello", { persistence: "ephemeral" }),
);

onEveryBackend((backend) => {
  test("of an ephemeral run the end is kept", async () => {
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [quick, keeps, parent] }).start();
    const handle = await client.start(quick, "hello", { persistence: "minimal" });
    expect(await handle.result({ timeoutMs: 60_000 })).toEqual(["HELLO"]);
    expect((await handle.describe()).persistence).toBe("minimal");
    await expect(handle.messages()).rejects.toThrow(NotPersisted);

    const kept = await client.start(keeps, "hello", { persistence: "ephemeral" });
    await until(async () => (await kept.describe()).status === "WAITING");
    expect((await kept.describe()).persistence).toBe("full");
    expect((await kept.messages()).map((message) => message.content)).toEqual(["HELLO"]);
    await kept.signal("go", "on");
    expect(await kept.result({ timeoutMs: 60_000 })).toBe("on");

    const family = await client.start(parent);
    expect(await family.result({ timeoutMs: 60_000 })).toEqual(["HELLO"]);
    await client.close();
  });
});

test("another word is refused, and a run that nobody begins fails", async () => {
  const client = disposing(await connect("memory:"));
  await expect(client.start(quick, "hello", { persistence: "local" })).rejects.toThrow("memory: has none");
  await expect(client.start(quick, "hello", { persistence: "lasting" as never })).rejects.toThrow(InvalidArgument);
  const nobody = await client.start("nobody", null, { startTimeoutMs: 100 });
  await expect(nobody.result({ timeoutMs: 60_000 })).rejects.toThrow("start timeout");
  await client.close();
});
