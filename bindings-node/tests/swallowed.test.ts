// Code that catches `Suspended` and goes on: it neither holds up the process nor keeps it.

import { expect, test } from "vitest";

import { start } from "./support.js";

const PASSING = ["step", "sleep", "signal", "once", "hasSignal", "drain", "checkpoint", "messages", "interval"];
const REFUSED = ["entry", "usage", "check", "budget"];

test.each([...PASSING, ...REFUSED])("a copy that was put away stops at %s, whatever it catches", async (how) => {
  const child = start("swallowed.cjs", [how, "idle"]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toBe("at work\nthe loop turns\n");
  const warnings = child.errors().match(/FlovynSuspended/g) ?? [];
  // Once, and only where something had to be thrown.
  expect(warnings.length, child.errors()).toBe(REFUSED.includes(how) ? 1 : 0);
});

test.each(["step", "sleep", "once", "entry"])("a copy that has not heard of it stops at %s", async (how) => {
  const child = start("swallowed.cjs", [how, "unheard"]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toBe("at work\nthe loop turns\n");
});

test.each(["timer", "async timer", "branch"])("what a copy that was put away throws in a %s ends no process", async (how) => {
  const child = start("swallowed.cjs", [how, "alone"]);
  expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
  expect(child.output()).toBe("at work\nthe loop turns\n");
  // A branch ends with it; timers go on until there is enough of it.
  expect(child.errors().includes("FlovynSuspended")).toBe(how !== "branch");
});

test.each(["timer", "async timer"])("an error of the program in a %s is told as ever", async (how) => {
  const child = start("swallowed.cjs", [`${how} of a failing program`, "alone"]);
  expect(await child.ended).toEqual({ code: 1, signal: null });
  expect(child.errors()).toContain("RangeError: the program's own");
});
