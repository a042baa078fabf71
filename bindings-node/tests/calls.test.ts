// Calls that cannot be misread: what cannot be meant is refused where it is written, or where it is called.

import { existsSync } from "node:fs";

import { agent, connect, InvalidArgument, run, task } from "@flovyn/sdk";
import { check, harness } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";
import { z } from "zod";

import { disposing, fileUrl, start as child } from "./support.js";

const sent: string[] = [];
const sendMail = task("send_mail", async (to: string) => (sent.push(to), to));
const nightly = agent("nightly", async () => sendMail("everybody"));
const mailing = agent("mailing", async (_, to: string) => sendMail(to));

// ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

test("options are not taken as an input", async () => {
  const client = disposing(await connect("memory:"));
  const worker = disposing(client.worker({ agents: [nightly] }));
  await worker.start();
  for (let twice = 0; twice < 2; twice++) {
    // @ts-expect-error it takes no input
    const misread = client.start(nightly, { id: "tonight" });
    await expect(misread).rejects.toThrow(/takes no input, but \{"id":"tonight"\}.*start\(agent, undefined, \{ id \}\)/);
  }
  // @ts-expect-error it takes no input
  await expect(run(nightly, { url: "memory:" })).rejects.toBeInstanceOf(InvalidArgument);
  expect(existsSync("flovyn.db-lock"), "a backend was opened that nobody meant").toBe(false);
  expect(sent).toEqual([]);
  for (let twice = 0; twice < 2; twice++) {
    const handle = await client.start(nightly, undefined, { id: "tonight" });
    expect(await handle.result({ timeoutMs: 5_000 })).toBe("everybody");
  }
  expect(await run(nightly, null, { url: "memory:", timeoutMs: 5_000 })).toBe("everybody");
  expect(sent).toEqual(["everybody", "everybody"]);
});

test("a needed input is asked for at every door", async () => {
  const client = disposing(await connect("memory:"));
  const h = disposing(await harness({ agents: [mailing] }));
  const doors = [
    // @ts-expect-error it needs an input
    () => client.start(mailing),
    // @ts-expect-error it needs an input
    () => client.start(mailing, undefined, { id: "x" }),
    // @ts-expect-error it needs an input
    () => run(mailing, undefined, { url: "memory:", timeoutMs: 5_000 }),
    // @ts-expect-error it needs an input
    () => h.start(mailing),
    // @ts-expect-error it needs an input
    () => check(mailing),
  ];
  for (const door of doors) await expect(door()).rejects.toThrow(/"mailing" needs an input, its second parameter/);
});

test("a second parameter is found, however it is written", async () => {
  const rest = (...all: unknown[]): unknown => all[1];
  const bound = function (_: unknown, input: unknown): unknown {
    return input;
  }.bind(undefined);
  const taking = [
    async (_: unknown, input: number = 0) => input,
    async ({ key }: { key: unknown }, { a, b } = { a: 1, b: 2 }) => (key === undefined ? 0 : a + b),
    async (_: unknown = ")", input = 1) => input, // a comment, with a comma
    async (/* one, two) */ _: unknown, input = 1) => input,
    function (): unknown {
      // eslint-disable-next-line prefer-rest-params
      return arguments[1];
    },
    { async named(_: unknown, input = 1) { return input; } }.named, // prettier-ignore
    rest,
    bound,
    (_: unknown, input = `a${1}`) => input,
  ];
  for (const fn of taking) {
    const given = run(agent("taking", fn as (ctx: unknown) => unknown), { a: 3, b: 0 } as never, { url: "memory:" });
    expect(JSON.stringify(await given), String(fn)).toMatch(/3/);
  }
  const none = [
    () => 1,
    async () => 1,
    async (_: unknown) => 1,
    async (_: unknown,) => 1, // prettier-ignore
    async ({ key, input }: { key: unknown; input: unknown }) => [key, input],
    async (_ = [1, 2]) => 1,
    async (_ = "a, b(") => 1,
    function (_: unknown) {
      return [1, 2];
    },
    { async named(_: unknown) { return [1, 2]; } }.named, // prettier-ignore
    eval("async x => [x, 1]") as () => unknown,
  ];
  for (const fn of none) {
    const started = run(agent("none", fn as () => unknown), 3 as never, { url: "memory:", timeoutMs: 5_000 });
    await expect(started, String(fn)).rejects.toThrow(/takes no input, but 3/);
  }
});

test("a task's default stands where nothing is given", async () => {
  const greet = task("greet", async (name = "you") => `hello ${name}`);
  const asked = task("asked", { input: z.string().default("me") }, async (name) => name);
  const polite = agent("polite", async () => [await greet(), await greet("there"), await asked()]);
  expect(await run(polite, undefined, { url: "memory:" })).toEqual(["hello you", "hello there", "me"]);
  expect(await greet()).toBe("hello you");
});

test("an input with a default may be left out, and one with a schema is for the schema to say", async () => {
  const greeting = agent("greeting", async (_, name = "you") => `hello ${name}`);
  expect(await run(greeting, undefined, { url: "memory:" })).toBe("hello you");
  expect(await run(greeting, "there", { url: "memory:" })).toBe("hello there");
  const counted = agent("counted", { input: z.number().default(7) }, async (_, n) => n);
  expect(await run(counted, undefined, { url: "memory:" })).toBe(7);
  await expect(run(counted, "7" as never, { url: "memory:" })).rejects.toThrow(/does not fit its schema/);
});

test("a recorded input is not checked again", async () => {
  const url = fileUrl();
  const first = child("calls.cjs", [url, "10"]);
  expect((await first.ended).code).toBe(9);
  const second = child("calls.cjs", [url, "5"]);
  expect(await second.ended, second.errors()).toEqual({ code: 0, signal: null });
  expect(second.output().trim()).toBe('["booked",7]');
});

test("an input that was started by kind is checked by who serves it", async () => {
  const client = disposing(await connect("memory:"));
  const few = agent("few", { input: z.object({ n: z.number().max(3) }) }, async (_, { n }) => n);
  await disposing(client.worker({ agents: [few] })).start();
  const handle = await client.start("few", { n: 7 });
  await expect(handle.result({ timeoutMs: 1_000 })).rejects.toThrow(/PAUSED.*does not fit its schema/);
});

// ── declarations and steps ──────────────────────────────────────────────────────────────────────────────────────────

test("what yields is no task and no agent", () => {
  expect(() => task("many", async function* () { yield 1; } as never)).toThrow(/"many" yields/); // prettier-ignore
  expect(() => agent("many", function* () { yield 1; } as never)).toThrow(/"many" yields/); // prettier-ignore
});

test("what ctx.run cannot call is said", async () => {
  const wrong = agent("wrong", async (ctx) => {
    const said: string[] = [];
    for (const [name, fn] of [["x", Promise.reject(new Error("no"))], [sendMail, "x"], ["x", 5], [undefined, sendMail]]) {
      for (const call of [() => ctx.run(name as never, fn as never), () => ctx.once(name as never, fn as never)]) {
        try {
          await call();
        } catch (error) {
          said.push((error as Error).message.split(" for ")[0] as string);
        }
      }
    }
    return said;
  });
  expect(await run(wrong, undefined, { url: "memory:" })).toEqual([
    "ctx.run was given a promise",
    "ctx.once was given a promise",
    "ctx.run was given a function",
    "ctx.once was given a function",
    "ctx.run was given 5",
    "ctx.once was given 5",
    "ctx.run was given a value of type undefined",
    "ctx.once was given a value of type undefined",
  ]);
});

test("a step without arguments has its defaults", async () => {
  const stepping = agent("stepping", async (ctx) => [
    await ctx.run("default", (n = 5) => n),
    await ctx.run("one", (n: number) => 2 * n, 4),
    await ctx.run("list", (all: number[]) => all.length, [1, 2, 3]),
    await ctx.run("two", (a: number, b: number) => a - b, 5, 3),
  ]);
  expect((await check(stepping)).outcome).toEqual([5, 8, 3, 2]);
});

// ── handles ─────────────────────────────────────────────────────────────────────────────────────────────────────────

test("a handle by id knows its agent's types", async () => {
  const client = disposing(await connect(fileUrl()));
  const asking = agent("asking", { signals: { word: z.string() } }, async (ctx) => ({
    word: await ctx.waitForSignal<string>("word"),
  }));
  await disposing(client.worker({ agents: [asking, nightly] })).start();
  await client.start(asking, undefined, { id: "ask" });
  const handle = await client.handle("ask", asking);
  await expect(handle.signal("word", 5)).rejects.toThrow(/does not fit/);
  await handle.signal("word", "yes");
  const { word }: { word: string } = await handle.result({ timeoutMs: 5_000 });
  expect(word).toBe("yes");
  await expect(client.handle("ask", nightly)).rejects.toThrow(/"ask" is one of agent "asking", not of "nightly"/);
  await expect(client.start((() => 1) as never)).rejects.toThrow(/what agent\(…\) gave/);
});
