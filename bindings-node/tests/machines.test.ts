// Where runs work: a machine is a queue of its own, which only a server looks up.

import { agent, connect, InvalidArgument, Local, Remote, Timeout } from "@flovyn/sdk";
import { describe, expect, it } from "vitest";

import { disposing } from "./support.js";

const hands = agent("hands", (_, task: string) => `did ${task}`);
const brain = agent("brain", async (ctx, machine: string | null) => {
  try {
    return await ctx.spawnAgent<string>("hands", "it", { mode: Local(machine ?? undefined) });
  } catch (refused) {
    if (refused instanceof InvalidArgument) return refused.message;
    throw refused;
  }
});

describe("machines", () => {
  it("get the children and the runs that name them", async () => {
    const client = disposing(await connect("memory:"));
    await client.worker({ agents: [brain] }).start();
    await client.worker({ agents: [hands], queue: "machine/laptop" }).start();
    expect(await (await client.start(brain, "laptop")).result({ timeoutMs: 30_000 })).toBe("did it");
    const handle = await client.start(hands, "more", { mode: { machine: "laptop" } });
    expect(await handle.result({ timeoutMs: 30_000 })).toBe("did more");
    const facts = await handle.describe();
    expect([facts.queue, facts.machine]).toEqual(["machine/laptop", { name: "laptop", live: false, seenAt: null }]);
    const plain = await client.start(brain, "laptop", { mode: Remote() });
    expect((await plain.describe()).machine).toBeNull();
    expect(await (await client.start(brain, null)).result({ timeoutMs: 30_000 })).toContain("no machine was named");
  });

  it("have a queue of their own, and are named who waits for them", async () => {
    const client = disposing(await connect("memory:"));
    await expect(client.start(hands, "it", { mode: Local("laptop"), queue: "gpu" })).rejects.toThrow("not both");
    await expect(client.start(hands, "it", { mode: "laptop" as never })).rejects.toThrow("takes Local");
    await expect(client.start(hands, "it", { mode: Local() })).rejects.toThrow("no machine was named");
    const waits = (await client.start(hands, "it", { mode: Local("laptop") })).result({ timeoutMs: 100 });
    await expect(waits).rejects.toThrow(/waits for the machine "laptop", which was never seen/);
    await expect(waits).rejects.toBeInstanceOf(Timeout);
  });
});
