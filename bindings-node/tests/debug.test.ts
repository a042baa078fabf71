// `FLOVYN_DEBUG=1` names agent code whose outcome depends on the process it runs in.

import { spawnSync } from "node:child_process";
import { join } from "node:path";

import { expect, test } from "vitest";

const AGENT = `
const { agent, run } = require("@flovyn/sdk");
const careless = agent("careless", async (ctx) => {
  for (let turn = 0; turn < 2; turn++) {
    Date.now();
    new Date();
    Math.random();
    crypto.randomUUID();
  }
  clearTimeout(setTimeout(() => {}, 5_000));
  clearTimeout(setTimeout(() => {}, 5));
  ctx.currentTime();
  await ctx.sleep(1);
});
Date.now();
run(careless, undefined, { url: "memory:" });
`;

function told(debug: string): string[] {
  const options = { cwd: join(__dirname, ".."), encoding: "utf8", env: { ...process.env, FLOVYN_DEBUG: debug } } as const;
  const ended = spawnSync(process.execPath, ["-e", AGENT], options);
  expect(ended.status, ended.stderr).toBe(0);
  return ended.stderr.split("\n").filter((line) => line.includes("NotDurable"));
}

test("what is not durable is named, once for each call site", () => {
  const lines = told("1");
  const named = lines.map((line) => /NotDurable: (.*?) in an agent at \[eval/.exec(line)?.[1]);
  expect(named).toEqual(["Date.now()", "new Date()", "Math.random()", "crypto.randomUUID()", "setTimeout()"]);
  expect(lines[0]).toContain("use ctx.currentTime()");
});

test("nothing is said without being asked", () => {
  expect(told("")).toEqual([]);
});
