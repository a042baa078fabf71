// How processes end: not held open by an idle client, in order on Ctrl-C and SIGTERM, and with nothing left to do after a close.

import { readFileSync, rmSync } from "node:fs";
import { dirname } from "node:path";

import { agent, connect, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { server } from "./backends.js";
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

test("SIGTERM gives the runs of a worker back at once, and another worker ends them", async () => {
  const url = await server();
  const child = start("endings.cjs", ["serve", url]);
  await until(() => child.output().includes("at work"));
  const client = await connect(url);
  const waiting = await until(() => client.handle("wait").catch(() => undefined));
  await until(async () => (await waiting.status()) === "WAITING");
  child.process.kill("SIGTERM");
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toContain("run() has ended");
  // At once: the lease would hold for 30 s.
  const run = await client.handle("work");
  const told = await run.describe();
  expect([told.status, told["worker"]]).toEqual(["PENDING", null]);
  expect(await waiting.status()).toBe("WAITING");
  const work = task("work", async () => 2);
  const one = agent("one", async (_, ms: number) => work(ms));
  const two = agent("two", async (ctx) => ctx.waitForSignal<number>("more"));
  await client.worker({ agents: [one, two] }).start();
  await waiting.signal("more", 5);
  expect([await run.result(), await waiting.result()]).toEqual([2, 5]);
  await client.close();
}, 60_000);

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

test("a close that fails on Ctrl-C is told by run() alone, where the program goes on", async () => {
  const url = fileUrl();
  const child = start("endings.cjs", ["heard", url]);
  await until(() => child.output().includes("at work"));
  rmSync(dirname(url.slice("sqlite:".length)), { recursive: true });
  child.process.kill("SIGINT");
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toContain("heard\nrun() has ended: StorageUnavailable");
});
