// Model calls by way of the parent: its workers have the models, the child has none.

import { agent, connect, NoParent, task } from "@flovyn/sdk";
import { toolCall, turn } from "@flovyn/sdk/testing";
import { llm, type Provider, reactAgent, tool } from "@flovyn/sdk/toolkit";
import { expect, test } from "vitest";

import { model } from "./models.js";
import { fileUrl, folder } from "./support.js";

const look = tool(task("look", { description: "Looks." }, async () => "otters are there"), { effect: "read" });

test("family_14: a child asks models by way of its parent", async () => {
  process.env["FLOVYN_HOME"] = folder();
  const fake = model([
    turn("Animals.", { when: { lastUserContains: "What are otters?" } }),
    toolCall("look", {}),
    turn("They are there."),
  ]);
  const providers: Record<string, Provider> = { boss: { api: "anthropic-messages", baseUrl: fake.url } };
  const hand = agent("hand", async (ctx, about: string) => {
    await ctx.appendEntry("user", about);
    return (await llm.generate(ctx, { model: "boss/m", via: "parent" })).text;
  });
  const otter = reactAgent("otter", { tools: [look], via: "parent" });
  const lead = agent("lead", async (ctx) => {
    await expect((async () => llm.generate("Hello?", { model: "boss/m", via: "parent" }))()).rejects.toThrow(NoParent);
    const said = await ctx.spawnAgent("hand", "What are otters?", { queue: "far" });
    const worked = await ctx.spawnAgent("otter", { userPrompt: "Look at otters.", model: "boss/m" }, { queue: "far" });
    return [said, (worked as { text: string }).text];
  });
  const client = await connect(fileUrl());
  await client.worker({ agents: [lead], toolkit: { providers } }).start();
  await client.worker({ agents: [hand, otter], queue: "far" }).start();
  const run = await client.start(lead);
  expect(await run.result({ timeoutMs: 60_000 })).toEqual(["Animals.", "They are there."]);
  expect(fake.calls.length).toBe(3);
  await client.close();
});
