// A full disk is said while it lasts: by `result()` and `run()` with a time limit, and once in the log; a close hides nothing.

import { spawnSync } from "node:child_process";
import { closeSync, fstatSync, ftruncateSync, openSync, rmSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";

import { agent, run } from "@flovyn/sdk";
import { afterEach, expect, test } from "vitest";

import { fileUrl, folder, start, until } from "./support.js";

const mounted: string[] = [];

afterEach(() => {
  for (const place of mounted.splice(0)) spawnSync("umount", ["-l", place]);
});

/** A small RAM disk with little room left, where this user may mount one: its database and what fills it. */
function fullDisk(): { url: string; filler: string } | undefined {
  const place = folder();
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", place]).status !== 0) return undefined;
  mounted.push(place);
  const filler = join(place, "filler");
  const file = openSync(filler, "w");
  try {
    for (;;) writeSync(file, Buffer.alloc(1 << 16));
  } catch {
    ftruncateSync(file, fstatSync(file).size - (2 << 20));
  } finally {
    closeSync(file);
  }
  return { url: `sqlite:${join(place, "agents.db")}`, filler };
}

function said(errors: string): string[] {
  return errors.split("\n").filter((line) => line.startsWith("flovyn: the store"));
}

test("a full disk is said while it lasts, and the run goes on once there is room", async (context) => {
  const disk = fullDisk();
  if (disk === undefined) return context.skip();
  const child = start("full_disk.cjs", ["goesOn", disk.url, disk.filler]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  const [late, result] = child.output().split("\n");
  expect(late).toMatch(/^late: run run has not ended within 4s: .* the store has taken no writes since .* make room/);
  expect(result).toBe("result: 40");
  // Once when it began, once when it was over, and not at each attempt.
  expect(said(child.errors()).map((line) => line.slice(0, 35))).toEqual([
    "flovyn: the store takes no writes: ",
    "flovyn: the store takes writes agai",
  ]);
}, 120_000);

test("a run() on a full disk tells why it has not ended, whatever becomes of the close", async (context) => {
  const disk = fullDisk();
  if (disk === undefined) return context.skip();
  const child = start("full_disk.cjs", ["run", disk.url, disk.filler]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toMatch(/^Timeout run run has not ended within 4s: .* the store has taken no writes since /);
}, 60_000);

test("a close on a full disk puts no error in the place of what was got", async (context) => {
  const disk = fullDisk();
  if (disk === undefined) return context.skip();
  const child = start("full_disk.cjs", ["returns", disk.url, disk.filler]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toContain("\nclosed\n");
}, 60_000);

test("what a run() has failed with is thrown, although the close fails, too", async () => {
  const url = fileUrl();
  const stop = new AbortController();
  let entered = false;
  const waits = agent("waits", async (ctx) => {
    entered = true;
    await ctx.waitForSignal("never");
  });
  const running = run(waits, undefined, { url, signal: stop.signal });
  running.catch(() => undefined);
  await until(() => entered);
  rmSync(dirname(url.slice("sqlite:".length)), { recursive: true });
  stop.abort(new Error("what went wrong"));
  await expect(running).rejects.toThrow("what went wrong");
}, 60_000);
