// A process that is killed loses nothing that was finished; the next one goes on.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { connect } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { folder, SCALE, start, until } from "./support.js";

const STEPS = 40;
const KILLS = 6 * SCALE;

test("a killed process loses and repeats nothing that was done", async () => {
  const place = folder();
  const url = `sqlite:${join(place, "agents.db")}`;
  const log = join(place, "log");
  writeFileSync(log, "");
  const lines = (): string[] => readFileSync(log, "utf8").split("\n").filter(Boolean);
  for (let kill = 1; kill <= KILLS; kill++) {
    const victim = start("victim.cjs", [url, log, String(STEPS)]);
    const wanted = Math.floor((kill * STEPS) / (KILLS + 1));
    await until(() => lines().includes(`start ${wanted}`));
    victim.process.kill("SIGKILL");
    expect((await victim.ended).signal, victim.errors()).toBe("SIGKILL");
  }
  const last = start("victim.cjs", [url, log, String(STEPS)]);
  expect(await last.ended, last.errors()).toEqual({ code: 0, signal: null });
  expect(last.output().trim()).toBe(String(STEPS * (STEPS - 1)));
  const done = new Set<string>();
  for (const line of lines()) {
    const [word, number] = line.split(" ") as [string, string];
    if (word === "done") done.add(number);
    if (word === "start") expect(done.has(number), `step ${number} was done and ran again`).toBe(false);
  }
  const client = await connect(url);
  const handle = await client.handle("count");
  expect((await handle.messages()).map((message) => message.content)).toEqual([...Array(STEPS).keys()]);
  expect((await handle.tasks()).map((task) => task.status)).toEqual(Array(STEPS).fill("COMPLETED"));
  await client.close();
}, 120_000);

test("a finished run gives its recorded result", async () => {
  const place = folder();
  const url = `sqlite:${join(place, "agents.db")}`;
  const log = join(place, "log");
  writeFileSync(log, "");
  for (let time = 0; time < 2; time++) {
    const child = start("victim.cjs", [url, log, "3"]);
    expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
    expect(child.output().trim()).toBe("6");
  }
  expect(readFileSync(log, "utf8").match(/^start/gm)).toHaveLength(3);
}, 60_000);
