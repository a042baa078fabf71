// A research team: an agent leads three others, which work side by side on one budget. It stops one of them in time.
//
// node research_team.mjs [DATABASE]

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

import { agent, type AgentContext, Cancelled, type Child, connect, task } from "@flovyn/sdk";

const PAGE_TOKENS = 100;

interface Question {
  topic: string;
  pages: number;
}

const readPage = task("read-page", async ({ topic, page }: { topic: string; page: number }) => `page ${page} about ${topic}`);

export const researcher = agent("researcher", { tasks: [readPage] }, async (ctx, { topic, pages }: Question) => {
  const notes: string[] = [];
  try {
    for (let page = 0; page < pages; page += 1) {
      notes.push(await readPage({ topic, page }));
      ctx.recordUsage("reader", { inputTokens: PAGE_TOKENS });
      await ctx.signalParent("read", notes.length);
    }
  } catch (error) {
    // By the lead, or because the budget has no room for another page.
    if (!(error instanceof Cancelled)) throw error;
  }
  return notes;
});

/** Hears a researcher to its end, and stops it once it has read too much. Gives how it ended, and its notes. */
async function follow(ctx: AgentContext<unknown>, child: Child<string[]>, patience = 1_000): Promise<[string, string[]]> {
  for (;;) {
    const event = await ctx.waitForChildEvent(child);
    if (event.type === "signal" && event.payload === patience) await ctx.cancelChild(child);
    if (event.type === "failed") throw event.error;
    if (event.type !== "signal" && event.type !== "request") return [event.type, event.output as string[]];
  }
}

export const lead = agent("lead", { children: [researcher] }, async (ctx) => {
  const otters = ctx.spawnAgent(researcher, { topic: "otters", pages: 3 });
  const seals = ctx.spawnAgent(researcher, { topic: "seals", pages: 50 }, { budget: { maxTokens: 4 * PAGE_TOKENS } });
  const eels = ctx.spawnAgent(researcher, { topic: "eels", pages: 10_000 });
  return Promise.all([follow(ctx, otters), follow(ctx, seals), follow(ctx, eels, 5)]);
});

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const client = await connect(`sqlite:${process.argv[2] ?? "research-team.db"}`);
  await client.worker({ agents: [lead] }).start();
  const run = await client.start(lead, undefined, { id: "team-1", budget: { maxTokens: 20_000 } });
  const [otters, seals, eels] = await run.result({ timeoutMs: 60_000 });
  const team = await run.describe();
  for (const [end, notes] of [otters, seals, eels]) console.log(`${end} after ${notes.length} pages`);
  console.log(`${team.totalUsage.inputTokens} tokens in all, of ${team.childCount} researchers`);
  assert.deepEqual([otters[0], seals[0], eels[0]], ["completed", "budget_exceeded", "cancelled"]);
  assert.deepEqual([otters[1].length, seals[1].length], [3, 4]);
  assert.ok(eels[1].length >= 5 && team.totalUsage.inputTokens <= 20_000);
  await client.close();
}
