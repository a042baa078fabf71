// Threads of `node:worker_threads`: the process goes on with what one of them has left.

import { expect, test } from "vitest";

import { fileUrl, start } from "./support.js";

test.each([
  ["exits", []],
  ["throws", ["the thread's own"]],
  ["is terminated", []],
])("a thread that %s without closing gives back what it holds", async (how, says) => {
  const child = start("thread_victim.cjs", [fileUrl(), how]);
  expect(await child.ended).toEqual({ code: 0, signal: null });
  expect([child.output().trim().split("\n"), child.errors()]).toEqual([[...says, "gone", "worked"], ""]);
});
