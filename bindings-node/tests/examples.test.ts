// The agents of the examples survive what they promise to: re-entry at every wait and a crash at every commit.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { check } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";

import { hello } from "../../examples/01-hello/typescript/hello.mjs";
import { worker } from "../../examples/02-tools-with-retries/typescript/tools.mjs";
import { mailer } from "../../examples/03-human-approval/typescript/approval.mjs";
import { speaker, WORDS } from "../../examples/04-streaming/typescript/streaming.mjs";
import { chat } from "../../examples/05-branching-conversation/typescript/branching.mjs";
import { counter } from "../../examples/06-crash-and-resume/typescript/crash.mjs";
import { relay } from "../../examples/07-three-languages/typescript/worker.mjs";
import { folder } from "./support.js";

test("every example is proved", () => {
  const examples = join(__dirname, "..", "..", "examples");
  const ours = readdirSync(examples).filter((name) => existsSync(join(examples, name, "typescript")));
  expect(ours.sort()).toEqual([
    "01-hello",
    "02-tools-with-retries",
    "03-human-approval",
    "04-streaming",
    "05-branching-conversation",
    "06-crash-and-resume",
    "07-three-languages",
    // Its agent is the toolkit's own, which is proved there: toolkit/tests/react/crashes.rs.
    "08-coding-agent",
    // Families are killed in tests of their own.
    "09-research-team",
    "10-laptop-hands",
    "11-other-agents",
    // Proved by its own test, which recipes.test.ts runs.
    "recipes",
  ]);
});

test("hello", async () => {
  expect((await check(hello, "world")).outcome).toBe("Hello, world!");
});

test("tools with retries", async () => {
  const { squares, errors } = (await check(worker)).outcome as { squares: number[]; errors: string[] };
  expect(squares).toEqual([0, 1, 4]);
  expect(errors[0]).toMatch(/^slow: /);
  expect(errors[1]).toBe("hopeless: SyntaxError after 1 attempt(s)");
}, 120_000);

test.each([
  ["yes", "sent: Dear all, it is green."],
  ["no", "not sent"],
])("human approval: %s", async (answer, result) => {
  expect((await check(mailer, "it is green", { signals: [["approval", answer]] })).outcome).toBe(result);
});

test("streaming", async () => {
  expect((await check(speaker)).outcome).toBe(WORDS.join(" "));
});

test("branching conversation", async () => {
  const signals = [
    ["userMessage", "trees"],
    ["userMessage", "oaks"],
  ] as const;
  const said = ["trees", "About trees: it depends.", "oaks", "About oaks: it depends."];
  expect((await check(chat, 2, { signals })).outcome).toEqual(said);
});

test("crash and resume", async () => {
  const log = join(folder(), "count.log");
  const steps = 6;
  const report = await check(counter, { log, steps });
  expect(report.outcome).toBe(15);
  // A step that was in flight when its process died runs once more; one crash, one step at most.
  expect(readFileSync(log, "utf8").trim().split("\n").length).toBeLessThanOrEqual(report.runs * (steps + 1));
});

test("three languages", async () => {
  expect((await check(relay, 2)).outcome).toEqual([
    [0, "TypeScript"],
    [1, "TypeScript"],
  ]);
});
