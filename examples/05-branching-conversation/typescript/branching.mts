// A conversation that is forked: both branches share what was said before, stored once.
//
// node branching.mjs [DATABASE]

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

import { agent, connect, task } from "@flovyn/sdk";

const answer = task("answer", async (question: string) => `About ${question}: it depends.`);

export const chat = agent("chat", { state: () => ({ turn: 0 }) }, async (ctx, turns: number) => {
  while (ctx.state.turn < turns) {
    const question = await ctx.waitForSignal<string>("userMessage");
    ctx.appendEntry("user", question);
    ctx.appendEntry("assistant", await answer(question));
    await ctx.checkpoint({ turn: ctx.state.turn + 1 });
  }
  return ctx.loadMessages().map((message) => String(message.content));
});

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const client = await connect(`sqlite:${process.argv[2] ?? "branching.db"}`);
  await client.worker({ agents: [chat], tasks: [answer] }).start();
  const trunk = await client.start(chat, 2, { id: "trunk" });
  await trunk.signal("userMessage", "trees");
  while ((await trunk.checkpoints()).length === 0) await sleep(10);
  const branch = await trunk.fork({ checkpoint: 1 });
  await trunk.signal("userMessage", "oaks");
  await branch.signal("userMessage", "birches");
  const said = await trunk.result({ timeoutMs: 10_000 });
  const instead = await branch.result({ timeoutMs: 10_000 });
  console.log(said);
  console.log(instead);
  assert.deepEqual(said.slice(0, 2), instead.slice(0, 2));
  assert.match(said[2] ?? "", /oaks/);
  assert.match(instead[2] ?? "", /birches/);
  await client.close();
}
