// Results with a schema: checked when they are made, and made again of what is stored.

import { agent, connect, run, type Step, task } from "@flovyn/sdk";
import { check } from "@flovyn/sdk/testing";
import { setTimeout } from "node:timers/promises";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";

import { disposing, fileUrl } from "./support.js";

/** A `Map` and what stands for it in JSON. */
const counts = z.union([z.map(z.string(), z.number()), z.record(z.string(), z.number())]).transform((given) =>
  given instanceof Map ? given : new Map(Object.entries(given)),
);
const Visit = z.object({ at: z.coerce.date(), counts, note: z.string().default("none") });
const at = new Date("2026-01-31T12:00:00.120Z");
const seen = { at, counts: new Map([["otter", 2]]), note: "none" };

const visit = task("visit", { output: Visit }, async (animal: string) => ({ at, counts: new Map([[animal, 2]]) }));
const far = task("far", { input: z.string(), output: Visit, queue: "far" }, (animal) => ({ at, counts: { [animal]: 2 } }));

const visitor = agent("visitor", { output: Visit }, async (ctx, animal: string) => {
  const found = await visit(animal);
  expectTypeOf(found).toEqualTypeOf<{ at: Date; counts: Map<string, number>; note: string }>();
  expect(found).toEqual(seen);
  const again = await ctx.run("again", visit, animal);
  expectTypeOf(again).toEqualTypeOf(found);
  expect(again).toEqual(seen);
  expect((await ctx.map(visit, [animal]))[0]).toEqual(seen);
  return { at: found.at, counts: again.counts };
});

test("results come back as the schema makes them, in every life", async () => {
  expect((await check(visitor, "otter")).outcome).toEqual({ at: "2026-01-31T12:00:00.120000Z", counts: { otter: 2 } });
});

test("a handle gives what the schema makes of the result", async () => {
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [visitor] }).start();
  const handle = await client.start(visitor, "otter", { id: "v" });
  const result = await handle.result({ timeoutMs: 20_000 });
  expectTypeOf(result).toEqualTypeOf<{ at: Date; counts: Map<string, number>; note: string }>();
  expect(result).toEqual(seen);
  expect(await (await client.handle("v", visitor)).output()).toEqual(seen);
  for await (const event of handle.stream()) {
    if (event.type === "lifecycle" && event.name === "completed") expect(event.result).toEqual(seen);
  }
  expect(await (await client.handle("v")).result()).toEqual({ at: "2026-01-31T12:00:00.120000Z", counts: { otter: 2 } });
  expect(await run(visitor, "otter", { id: "w", url: fileUrl() })).toEqual(seen);
});

test("results of another worker are made again too", async () => {
  const asking = agent("asking", { input: z.string(), output: z.coerce.number() }, async (_, animal) => {
    const found = await far(animal);
    return found.at.getTime() + (found.counts.get(animal) ?? 0);
  });
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [asking] }).start();
  await client.worker({ tasks: [far], queue: "far" }).start();
  const handle = await client.start(asking, "otter");
  expectTypeOf(handle.result()).resolves.toEqualTypeOf<number>();
  expect(await handle.result({ timeoutMs: 20_000 })).toBe(at.getTime() + 2);
});

test("outside an agent a task gives the same", async () => {
  expectTypeOf(visit("otter")).toEqualTypeOf<Step<{ at: Date; counts: Map<string, number>; note: string }>>();
  expect(await visit("otter")).toEqual(seen);
  expect(await far("otter")).toEqual(seen);
});

describe("what does not fit", () => {
  test("fails the attempt, which may be tried again", async () => {
    let tries = 0;
    const shaky = task("shaky", { output: z.object({ words: z.array(z.string()) }), retries: 2 }, async () => {
      tries += 1;
      return { words: tries < 3 ? [1 as unknown as string] : ["fits"] };
    });
    const asking = agent("asking", async () => (await shaky()).words[0]);
    expect(await run(asking, undefined, { url: "memory:" })).toBe("fits");
    expect(tries).toBe(3);
    const never = task("never", { output: z.object({ words: z.array(z.string()) }) }, async () => ({ words: [1 as unknown as string] }));
    const told = agent("told", async () => (await never().catch((error: Error) => error.message)) as string);
    expect(await run(told, undefined, { url: "memory:" })).toMatch(
      /task "never" failed: InvalidArgument: the result of task "never" does not fit its schema: words\.0: .*string/,
    );
  });

  test("pauses the run of an agent, which goes on with the code that mends it", async () => {
    const url = fileUrl();
    const made = (fits: boolean) =>
      agent("mended", { output: z.object({ n: z.number() }) }, async () => ({ n: fits ? 1 : ("one" as unknown as number) }));
    const broken = await connect(url);
    await broken.worker({ agents: [made(false)] }).start();
    const handle = await broken.start(made(false), undefined, { id: "m" });
    while ((await handle.status()) !== "PAUSED") await setTimeout(10);
    expect((await handle.describe()).failure?.message).toMatch(/the result of agent "mended" does not fit its schema: n: /);
    await broken.close();
    const client = disposing(await connect(url));
    await client.worker({ agents: [made(true)] }).start();
    const again = await client.handle("m", made(true));
    await again.resume();
    expect(await again.result({ timeoutMs: 20_000 })).toEqual({ n: 1 });
  });

  test("is told where only what stands for it in JSON does not fit", async () => {
    const dated = task("dated", { output: z.object({ at: z.date() }) }, async () => ({ at }));
    await expect(dated()).rejects.toThrow(/does not fit its schema: at: .*as it is stored.*z\.coerce\.date/);
  });

  test("is told to whoever reads what an earlier schema took", async () => {
    const url = fileUrl();
    const loose = agent("loose", async () => "text");
    expect(await run(loose, undefined, { id: "l", url })).toBe("text");
    const strict = agent("loose", { output: z.number() }, async () => 1);
    const client = disposing(await connect(url));
    const handle = await client.handle("l", strict);
    await expect(handle.result()).rejects.toThrow(/the result of agent "loose" does not fit its schema/);
  });
});

test("a schema that answers later is refused in words", async () => {
  const later = z.string().refine(async () => Promise.resolve(true));
  const slow = task("slow", { output: later }, async () => "x");
  await expect(slow()).rejects.toThrow(/the schema for the result of task "slow" answers with a promise/);
});

test("types refuse what the schema does not take", () => {
  // @ts-expect-error -- the result is a string
  task("wrong", { output: z.number() }, async () => "text");
  // @ts-expect-error -- the same of an agent
  agent("wrong", { output: z.number() }, async () => "text");
  agent("right", { output: z.number(), state: () => ({ i: 0 }) }, async (ctx) => ctx.state.i);
});
