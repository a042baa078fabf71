// Stored values that JavaScript cannot take, such as text that is none: each costs what it belongs to, and nothing beside it.

import { execFileSync } from "node:child_process";

import { agent, connect, FlovynError, NotSerializable, task, TaskFailed } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { disposing, fileUrl, until } from "./support.js";

const NO_TEXT = "a stored value is no JSON text";

/** Writes bytes that are no text over the values of a column that are `"bad"`; the language brings a copy of SQLite. */
function spoil(url: string, table: string, column: string): void {
  const update = `UPDATE ${table} SET ${column} = CAST(x'22ff22' AS TEXT) WHERE ${column} = '"bad"'`;
  const program = `
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute(sys.argv[2]).rowcount)
connection.commit()
connection.close()
`;
  const spoilt = execFileSync("python3", ["-c", program, url.slice("sqlite:".length), update]);
  expect(Number(spoilt.toString())).toBe(1);
}

const echo = task("echo", async (text: string) => text);
const elsewhere = task("elsewhere", { queue: "other" }, async (text: string) => text);

const asks = agent("asks", async (_, words: string[]) => {
  const settled = await Promise.allSettled(words.map((word) => elsewhere(word)));
  return settled.map((each) => {
    if (each.status === "fulfilled") return each.value;
    return [each.reason instanceof TaskFailed && each.reason.type, String(each.reason)];
  });
});

test("an input that cannot be shown fails its task, and the worker does the others", async () => {
  const url = fileUrl();
  const before = await connect(url);
  await before.worker({ agents: [asks] }).start();
  const run = await before.start(asks, ["one", "bad", "two"], { id: "asks" });
  await until(async () => (await run.tasks()).length === 3);
  await before.close();
  spoil(url, "task_execution", "input");
  const client = disposing(await connect(url));
  await client.worker({ agents: [asks] }).start();
  await client.worker({ tasks: [elsewhere], queue: "other" }).start();
  const [one, bad, two] = (await (await client.handle("asks")).result({ timeoutMs: 20_000 })) as unknown[];
  expect([one, two]).toEqual(["one", "two"]);
  expect(bad).toEqual(["NotSerializable", expect.stringContaining(NO_TEXT)]);
});

const keeps = agent("keeps", async (ctx) => {
  const settled = await Promise.allSettled([echo("one"), echo("bad"), echo("two")]);
  await ctx.waitForSignal("go");
  return settled.map((each) =>
    each.status === "fulfilled" ? each.value : [each.reason instanceof NotSerializable, String(each.reason)],
  );
});

test("a result that cannot be shown is the error of its step", async () => {
  const url = fileUrl();
  const before = await connect(url);
  await before.worker({ agents: [keeps] }).start();
  const run = await before.start(keeps, undefined, { id: "keeps" });
  await until(async () => (await run.status()) === "WAITING");
  await before.close();
  spoil(url, "task_execution", "output");
  const client = disposing(await connect(url));
  await client.worker({ agents: [keeps] }).start();
  const again = await client.handle("keeps");
  await again.signal("go", 1);
  const [one, bad, two] = (await again.result({ timeoutMs: 20_000 })) as unknown[];
  expect([one, two]).toEqual(["one", "two"]);
  expect(bad).toEqual([true, expect.stringContaining(NO_TEXT)]);
});

const gives = agent("gives", async (_, text: string) => text);

test("what cannot be shown fails the call that asks for it, and no other", async () => {
  const url = fileUrl();
  const client = disposing(await connect(url));
  await client.worker({ agents: [gives] }).start();
  const bad = await client.start(gives, "bad");
  const good = await client.start(gives, "good");
  expect([await bad.result(), await good.result()]).toEqual(["bad", "good"]);
  spoil(url, "agent_execution", "output");
  const asked = [bad, good, bad, good].map((run) => run.result({ timeoutMs: 20_000 }));
  const told = await Promise.all(asked.map((each) => each.catch((error: unknown) => (error as FlovynError).code)));
  expect(told).toEqual(["NotSerializable", "good", "NotSerializable", "good"]);
  await expect(asked[0]).rejects.toThrow(NO_TEXT);
});
