// How a family is looked at: what its runs have used together, and one stream of all their events.

import { agent, connect, type Event, InvalidArgument, replaces } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing } from "./support.js";

const reads = agent("reads", async (ctx, topic: string) => {
  ctx.recordUsage("small", { inputTokens: 100, costUsd: 0.5 });
  ctx.appendEntry("assistant", topic);
  ctx.streamToken(`thinking of ${topic}`);
  return `${topic} ${await ctx.waitForSignal<string>("go")}`;
});
const leads = agent("leads", { children: [reads] }, async (ctx, topics: string[]) => {
  ctx.recordUsage("large", { inputTokens: 1 });
  return Promise.all(topics.map((topic) => ctx.spawnAgent(reads, topic)));
});

const isKept = (event: Event): boolean => ["lifecycle", "entry", "usage"].includes(event.type);

async function all(events: AsyncIterable<Event>): Promise<Event[]> {
  const found: Event[] = [];
  for await (const event of events) found.push(event);
  return found;
}

onEveryBackend((backend) => {
  test("family 12: one stream carries all below, and usage rolls up", async () => {
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [leads] }).start();
    const handle = await client.start(leads, ["otters", "seals"]);
    const seen: Event[] = [];
    for await (const event of handle.stream({ children: true })) {
      seen.push(event);
      if (seen.filter(({ type }) => type === "entry").length === 2) break;
    }
    const children = [...new Set(seen.filter(({ depth }) => depth === 1).map(({ run }) => run))];
    expect(children).toHaveLength(2);
    for (const child of children) await (await client.handle(child)).signal("go", "now");
    seen.push(...(await all(handle.stream({ after: seen.at(-1)?.id, children: true }))));

    const kept = seen.filter(isKept);
    for (const run of [handle.id, ...children]) {
      const alone = (await all((await client.handle(run)).stream())).filter(isKept);
      expect(kept.filter((event) => event.run === run)).toHaveLength(alone.length);
      expect(alone.every((event) => event.run === run && event.depth === null)).toBe(true);
    }
    const ends = seen.flatMap((event) => (event.type === "lifecycle" && event.isTerminal ? [[event.depth, event.result]] : []));
    // Between runs there is no order.
    expect(ends.sort()).toEqual([
      [0, ["otters now", "seals now"]],
      [1, "otters now"],
      [1, "seals now"],
    ]);
    for (const [place, event] of kept.entries()) {
      const rest = (await all(handle.stream({ after: event.id, children: true }))).filter(isKept);
      expect(rest).toHaveLength(kept.length - place - 1);
    }
    await expect(all(handle.stream({ after: "1~x", children: true }))).rejects.toThrow(InvalidArgument);

    const run = await handle.describe();
    expect(Object.keys(run.usage)).toEqual(["large"]);
    expect(run.totalUsage).toMatchObject({ calls: 3, inputTokens: 201, costMicros: 1_000_000 });
    expect([run.depth, run.childCount, run.descendantCount]).toEqual([0, 2, 2]);
    const roots: string[] = [];
    for await (const { id } of client.runs({ roots: true })) roots.push(id);
    expect(roots).toEqual([handle.id]);
    const found: string[] = [];
    for await (const { id } of client.runs({ search: `${handle.id.toUpperCase()} default` })) found.push(id);
    for await (const { id } of client.runs({ search: `${handle.id} nobody` })) found.push(id);
    expect(found).toEqual([handle.id]);
    await client.close();
  });
});

test("an event takes the place of previews of its own run", () => {
  const shown = ["one", "other"].map((run) => ({ type: "token", id: "1", run, depth: 1, text: "a", op: `${run}-0-1`, attempt: 0 }) as const);
  const gap = { type: "gap", id: "1", run: "one", depth: 1 } as const;
  expect(shown.map((preview) => replaces(gap, preview))).toEqual([true, false]);
});
