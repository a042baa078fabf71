// Tools that fail, are retried with pauses, time out, and run side by side.
//
// node tools.mjs [DATABASE]

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

import { agent, run, task, TaskFailed } from "@flovyn/sdk";

/** Fails the first two attempts. */
const flaky = task("flaky", { retries: 3 }, async (number: number, ctx) => {
  if (ctx.attempt < 3) throw new Error(`attempt ${ctx.attempt} was refused`);
  return number * number;
});

const slow = task("slow", { timeoutMs: 100 }, async (_: undefined, ctx) => {
  await sleep(60_000, undefined, { signal: ctx.signal });
  return "never";
});

const hopeless = task("hopeless", { retries: 5, noRetry: [SyntaxError] }, async (text: string) => JSON.parse(text));

export const worker = agent("worker", async () => {
  const squares = await Promise.all([0, 1, 2].map((number) => flaky(number)));
  const errors: string[] = [];
  for (const step of [slow(), hopeless("seven")]) {
    try {
      await step;
    } catch (error) {
      if (!(error instanceof TaskFailed)) throw error;
      errors.push(`${error.kind}: ${error.type} after ${error.attempts} attempt(s)`);
    }
  }
  return { squares, errors };
});

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const database = process.argv[2] ?? "tools.db";
  const result = await run(worker, undefined, { id: "tools-1", url: `sqlite:${database}` });
  console.log(result);
  assert.deepEqual(result.squares, [0, 1, 4]);
  assert.equal(result.errors.length, 2);
}
