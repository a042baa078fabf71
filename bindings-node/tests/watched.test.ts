// Branches that wait outside of the context (rules 5, 7, 8): after a kill the decision of the others is the same.

import { join } from "node:path";

import { agent, connect, task } from "@flovyn/sdk";
import { expect, test } from "vitest";

import { folder, start, until } from "./support.js";

const SHAPES = ["timer", "immediate", "ticks", "file", "thread", "worker", "process", "pool", "socket"];

test.each(SHAPES)(
  "rule 05: a branch that waits outside is waited for (%s)",
  async (shape) => {
    const url = `sqlite:${join(folder(), "agents.db")}`;
    const killed = start("watched_victim.cjs", [url, shape, "kill"]);
    expect((await killed.ended).signal, killed.errors()).toBe("SIGKILL");
    expect(killed.output()).toBe("paid said after 3\n");
    const again = start("watched_victim.cjs", [url, shape]);
    expect(await again.ended, again.errors()).toEqual({ code: 0, signal: null });
    expect(again.output()).toBe("result said 3\n");
  },
  60_000,
);

const step = task("step", async (name: string) => name);

test("rule 08: what stays uncertain pauses and says what is missing", async () => {
  const url = `sqlite:${join(folder(), "agents.db")}`;
  let ready = false;
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const odd = agent("odd", { version: "1", replayTimeoutMs: 300 }, async (ctx) => {
    const late = async (): Promise<void> => {
      if (ready) await released;
      await step("late");
    };
    const branch = late();
    await step("first");
    await ctx.waitForSignal("go");
    await branch;
    return "done";
  });
  const client = await connect(url);
  const ended = async (): Promise<number> =>
    (await handle.tasks()).filter((one) => one.status === "COMPLETED").length;
  const first = await client.worker({ agents: [odd], tasks: [step] }).start();
  const handle = await client.start(odd, null, { id: "one" });
  await until(async () => (await ended()) === 2);
  await first.close();
  ready = true;
  await handle.signal("go", null);
  const second = await client.worker({ agents: [odd], tasks: [step] }).start();
  await until(async () => (await handle.status()) === "PAUSED");
  const { failure } = await handle.describe();
  expect(failure?.code).toBe("Diverged");
  for (const words of ["not certain", 'task "step"', "0.3 s", "replay_timeout"]) expect(failure?.message).toContain(words);
  // Nothing went on by itself, and it goes on once the branch does.
  release();
  await handle.resume();
  expect(await handle.result({ timeoutMs: 20_000 })).toBe("done");
  expect(await handle.tasks()).toHaveLength(2);
  await second.close();
  await client.close();
}, 60_000);

test("rule 13: a run that waits for a connection to close is entered again", async () => {
  const url = `sqlite:${join(folder(), "agents.db")}`;
  const killed = start("closing_victim.cjs", [url, "kill"]);
  expect((await killed.ended).signal, killed.errors()).toBe("SIGKILL");
  const again = start("closing_victim.cjs", [url]);
  expect(await again.ended, again.errors()).toEqual({ code: 0, signal: null });
  expect(again.output()).toBe("closed\n");
}, 60_000);

test("rule 13: a run that waits for AbortSignal.timeout is not put away", async () => {
  const late = agent("late", async (ctx) => {
    void ctx.waitForSignal("never").then(() => undefined);
    const limit = AbortSignal.timeout(200);
    await new Promise((resolve) => limit.addEventListener("abort", resolve));
    return "late";
  });
  const client = await connect(`sqlite:${join(folder(), "agents.db")}`);
  await client.worker({ agents: [late], maxParked: 0 }).start();
  expect(await (await client.start(late)).result({ timeoutMs: 10_000 })).toBe("late");
  await client.close();
});

test("rule 07: a step beside others is not reworded", async () => {
  const url = `sqlite:${join(folder(), "agents.db")}`;
  let life = 1;
  const odd = agent("odd", { version: "1", replayTimeoutMs: 300 }, async (ctx) => {
    void ctx.waitForSignal("never").then(() => undefined);
    await step(`in life ${life}`);
    await ctx.waitForSignal("go");
    return "done";
  });
  const client = await connect(url);
  const first = await client.worker({ agents: [odd], tasks: [step] }).start();
  const handle = await client.start(odd, null, { id: "one" });
  await until(async () => (await handle.tasks()).some((one) => one.status === "COMPLETED"));
  await first.close();
  life = 2;
  await handle.signal("go", null);
  const second = await client.worker({ agents: [odd], tasks: [step] }).start();
  // What else may happen cannot be known here: a person is asked, and nothing was taken for what it is not.
  await until(async () => (await handle.status()) === "PAUSED");
  expect((await handle.describe()).failure?.message).toContain('called but not recorded: task "step"');
  await second.close();
  await client.close();
}, 90_000);

test.each([0, -1, NaN, "60" as unknown as number])("a replay timeout is a number of milliseconds (%s)", (replayTimeoutMs) => {
  expect(() => agent("odd", { replayTimeoutMs }, async () => "done")).toThrow("number of milliseconds above 0");
});
