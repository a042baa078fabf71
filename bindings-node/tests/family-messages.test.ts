// What the runs of a family tell each other: messages, requests, and what a parent hears of a child.

import {
  agent,
  type AgentContext,
  AlreadyExists,
  type AnyChild,
  type ChildEvent,
  FlovynError,
  run,
  SignalTimeout,
  task,
} from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";

const look = task("look", async (topic: string) => topic.length);
const researcher = agent("researcher", { tasks: [look] }, async (ctx, topic: string) => {
  await ctx.signalParent("progress", { topic });
  const model = await ctx.requestFromParent<number>("model", topic, { timeoutMs: 60_000 });
  return { topic, pages: (await look(topic)) + model };
});
const stays = agent("stays", async (ctx) => {
  await ctx.signalParent("ready");
  try {
    return await ctx.waitForSignal<string>("go");
  } catch {
    return "half";
  }
});

async function hear<R>(ctx: AgentContext<unknown>, child: AnyChild<R>): Promise<ChildEvent<R>[]> {
  const heard: ChildEvent<R>[] = [];
  for (;;) {
    const event = await ctx.waitForChildEvent(child);
    heard.push(event);
    if (event.type === "request") await event.respond((event.payload as string).length);
    if (event.type !== "signal" && event.type !== "request") return heard;
  }
}

onEveryBackend((backend) => {
  test("a parent hears and answers its children", async () => {
    const lead = agent("lead", { children: [researcher] }, async (ctx, topics: string[]) => {
      const children = topics.map((topic) => ctx.spawnAgent(researcher, topic));
      const heard = await Promise.all(children.map((child) => hear(ctx, child)));
      const pages = (await Promise.all(children)).map((report) => report.pages);
      return { pages, types: heard.map((events) => events.map(({ type }) => type)), last: heard[1]?.at(-1) };
    });
    const types = ["signal", "request", "completed"];
    expect(await run(lead, ["otters", "seals"], { url: await backend.open() })).toEqual({
      pages: [12, 10],
      types: [types, types],
      last: { type: "completed", output: { topic: "seals", pages: 10 } },
    });
  });

  test("a child is steered and stopped", async () => {
    const guided = agent("guided", async (ctx) => ctx.waitForSignal("guidance"));
    const lead = agent("lead", { children: [guided, stays] }, async (ctx) => {
      const child = ctx.spawnAgent(guided);
      await ctx.signalChild(child, "guidance", { depth: 2 });
      const stopped = ctx.spawnAgent(stays);
      const ready = await ctx.waitForChildEvent(stopped);
      await ctx.cancelChild(stopped, "graceful", { timeoutMs: 30_000 });
      return [await child, ready, await hear(ctx, stopped)];
    });
    expect(await run(lead, undefined, { url: await backend.open() })).toEqual([
      { depth: 2 },
      { type: "signal", name: "ready", payload: null },
      [{ type: "cancelled", output: "half" }],
    ]);
  });
});

test("a failed child is heard", async () => {
  const breaks = agent("breaks", async () => {
    throw new RangeError("no otters");
  });
  const lead = agent("lead", { children: [breaks] }, async (ctx) => {
    const event = await ctx.waitForChildEvent(ctx.spawnAgent(breaks));
    return event.type === "failed" ? [event.error.message, event.error.type, event.error.reason] : event.type;
  });
  const told = ['child "breaks" failed: RangeError: no otters', "RangeError", "no otters"];
  expect(await run(lead, undefined, { url: "memory:" })).toEqual(told);
});

test("what does not come in time says what", async () => {
  const silent = agent("silent", async (ctx) => {
    const late = await ctx.requestFromParent("model", 1, { timeoutMs: 50 }).catch((error: unknown) => error);
    await ctx.signalParent("late", late instanceof SignalTimeout ? late.message : String(late));
    return ctx.waitForSignal("never");
  });
  const lead = agent("lead", { children: [silent] }, async (ctx) => {
    const child = ctx.spawnAgent(silent);
    const asked = await ctx.waitForChildEvent(child);
    const late = await ctx.waitForChildEvent(child);
    const nothing = await ctx.waitForChildEvent(child, { timeoutMs: 50 }).catch((error: unknown) => error);
    if (asked.type !== "request" || late.type !== "signal" || !(nothing instanceof SignalTimeout)) return null;
    await asked.respond(1); // An answer that comes too late does no harm.
    const again = await asked.respond(2).catch((error: unknown) => error);
    return [late.payload, nothing.message, again instanceof AlreadyExists];
  });
  expect(await run(lead, undefined, { url: "memory:" })).toEqual([
    'no answer to the request "model" came in time',
    'nothing came of child "silent" in time',
    true,
  ]);
});

test("a message that cannot be delivered is refused", async () => {
  const ends = agent("ends", async () => null);
  const lead = agent("lead", { tasks: [look], children: [ends] }, async (ctx) => {
    const child = ctx.spawnAgent(ends);
    await child;
    const told: string[] = [];
    for (const refused of [
      () => ctx.signalParent("up", 1),
      () => ctx.requestFromParent("up", 1),
      () => ctx.signalChild(child, "late", 1),
      () => ctx.signalChild("00000000-0000-0000-0000-000000000007", "hello", 1),
      () => ctx.signalChild("otters", "hello", 1),
      () => ctx.signalChild({} as never, "hello", 1),
      () => ctx.signalChild(child, `flovyn.event.${child.id}`, 1),
      () => ctx.signalChild(child, "go", 1, { delivery: "soon" as never }),
      () => ctx.signalChild(child, "go", () => 1),
      () => ctx.cancelChild(child, "softly" as never),
      () => ctx.waitForChildEvent("otters"),
    ]) {
      try {
        await refused();
      } catch (error) {
        told.push(error instanceof FlovynError ? error.code : String(error));
      }
    }
    await ctx.cancelChild(child, "hard");
    return [...told, String(await look("went on"))];
  });
  const invalid = ["InvalidArgument", "InvalidArgument"];
  expect(await run(lead, undefined, { url: "memory:" })).toEqual([
    ...["NoParent", "NoParent", "ExecutionClosed", "ExecutionNotFound"],
    ...[...invalid, ...invalid, "NotSerializable", ...invalid],
    "7",
  ]);
});
