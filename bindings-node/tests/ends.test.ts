// How processes end: not held open by an idle client, in order on Ctrl-C, and with nothing left to do after a close.

import { readFileSync } from "node:fs";

import { connect } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { fileUrl, start, until } from "./support.js";

test("a client that was never closed does not hold the process open", async () => {
  const child = start("endings.cjs", ["unclosed", fileUrl()]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toContain("result 1");
});

test("a closed worker does not hold the process open", async () => {
  const child = start("endings.cjs", ["closed", fileUrl()]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toContain("closed");
});

test("an idle worker holds the process open and uses no CPU", async () => {
  const child = start("endings.cjs", ["idle", fileUrl()]);
  await until(() => child.output().includes("ready"));
  const ticks = (): number => {
    const fields = readFileSync(`/proc/${child.process.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    return Number(fields[11]) + Number(fields[12]);
  };
  await new Promise((resolve) => setTimeout(resolve, 500));
  const before = ticks();
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  expect(child.process.exitCode).toBeNull();
  // A hundredth of a second each: 5 % of the time, where a loop that looks would take all of it.
  expect(ticks() - before).toBeLessThan(10);
});

test("Ctrl-C gives the runs of a worker back, and run() ends", async () => {
  const url = fileUrl();
  const child = start("endings.cjs", ["serve", url]);
  await until(() => child.output().includes("at work"));
  child.process.kill("SIGINT");
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toContain("run() has ended");
  const client = await connect(url);
  const run = await (await client.handle("work")).describe();
  expect(run["worker"]).toBeNull();
  expect(["PENDING", "WAITING"]).toContain(run.status);
  await client.close();
});

test("Ctrl-C ends a run() in order, with the signal as its reason", async () => {
  const url = fileUrl();
  const child = start("endings.cjs", ["run", url]);
  await until(() => child.output().includes("at work"));
  child.process.kill("SIGINT");
  expect((await child.ended).signal, child.errors()).toBe("SIGINT");
  const client = await connect(url);
  expect((await (await client.handle("work")).describe())["worker"]).toBeNull();
  await client.close();
});
