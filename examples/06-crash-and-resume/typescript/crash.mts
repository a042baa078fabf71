// A process that is killed with SIGKILL in the middle of a run, and the next one that goes on.
//
// node crash.mjs [DATABASE]

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

import { agent, run, task } from "@flovyn/sdk";

const STEPS = 20;

const count = task("count", async ({ log, number }: { log: string; number: number }) => {
  await sleep(5);
  appendFileSync(log, `${number}\n`);
  return number;
});

export const counter = agent("counter", async (_, { log, steps }: { log: string; steps: number }) => {
  let total = 0;
  for (let number = 0; number < steps; number++) total += await count({ log, number });
  return total;
});

function lines(log: string): string[] {
  return existsSync(log) ? readFileSync(log, "utf8").split("\n").filter(Boolean) : [];
}

async function parent(database: string): Promise<void> {
  const log = `${database}.log`;
  rmSync(log, { force: true });
  const command = [fileURLToPath(import.meta.url), database, log];
  const first = spawn(process.execPath, command, { stdio: "inherit" });
  const ended = once(first, "close");
  while (lines(log).length < STEPS / 2) {
    assert.equal(first.exitCode, null, "the first process ended early");
    await sleep(1);
  }
  first.kill("SIGKILL");
  await ended;
  console.log(`killed after ${lines(log).length} steps; running again`);
  execFileSync(process.execPath, command, { stdio: "inherit" });
  const ran = lines(log);
  const repeated = ran.length - new Set(ran).size;
  console.log(`${ran.length} lines, ${repeated} of them a step that was in flight`);
  assert.equal(new Set(ran).size, STEPS);
  assert.ok(repeated <= 1);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [database = "crash.db", log] = process.argv.slice(2);
  if (log === undefined) await parent(database);
  else console.log(await run(counter, { log, steps: STEPS }, { id: "count-1", url: `sqlite:${database}` }));
}
