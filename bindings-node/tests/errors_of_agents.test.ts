// Rule 20: an error that says more of the code than of its work pauses the run, and a run that has failed goes on.

import { agent, AgentFailed, connect, type Handle, InvalidTransition, task, Timeout } from "@flovyn/sdk";
import { beforeEach, expect, test } from "vitest";
import { z } from "zod";

import { disposing, fileUrl, until } from "./support.js";

const asked: string[] = [];
beforeEach(() => void asked.splice(0));

const pay = task("pay", async (amount: number) => {
  asked.push("pay");
  return amount;
});
const down = task("down", async () => {
  asked.push("down");
  if (asked.filter((word) => word === "down").length === 1) throw new TypeError("the gateway is down");
  return "down";
});

async function paused(handle: Handle): Promise<string> {
  await until(async () => (await handle.status()) === "PAUSED");
  const { waitReason, failure } = await handle.describe();
  expect(waitReason).toBe("error");
  return `${failure?.errorType}: ${failure?.message}`;
}

test("a failed run goes on", async () => {
  const order = agent("order", async (ctx, amount: number) => {
    const paid = await pay(amount);
    const told = await down();
    return [paid, told, await ctx.waitForSignal("word")];
  });
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [order] }).start();
  const handle = await client.start(order, 5);
  await handle.signal("word", "kept");
  await expect(handle.result({ timeoutMs: 20_000 })).rejects.toThrow(AgentFailed);
  expect(await handle.retry()).toBe("PENDING");
  expect(await handle.result({ timeoutMs: 20_000 })).toEqual([5, "down", "kept"]);
  await expect(handle.retry()).rejects.toThrow(InvalidTransition);
  expect(asked).toEqual(["pay", "down", "down"]);
});

test("an agent may pause by every error", async () => {
  const order = agent("order", { onError: "pause" }, async () => await down());
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [order] }).start();
  const handle = await client.start(order);
  expect(await paused(handle)).toContain("the gateway is down");
  await expect(handle.result({ timeoutMs: 50 })).rejects.toThrow(Timeout);
  await handle.resume();
  expect(await handle.result({ timeoutMs: 20_000 })).toBe("down");
});

test("a result that cannot be written pauses, and the next deploy goes on", async () => {
  const declared = (fits: boolean) =>
    agent("long", { version: "1" }, async () => {
      await pay(1);
      return fits ? "done" : NaN;
    });
  const client = disposing(await connect(fileUrl()));
  const first = await client.worker({ agents: [declared(false)] }).start();
  const handle = await client.start("long");
  expect(await paused(handle)).toContain("NotSerializable");
  await first.close();
  await client.worker({ agents: [declared(true)] }).start();
  await handle.resume();
  expect(await handle.result({ timeoutMs: 20_000 })).toBe("done");
  expect(asked).toEqual(["pay"]);
});

test("inputs and signals that do not fit their schema pause, and may be caught", async () => {
  const Order = z.object({ amount: z.number() });
  const asks = agent("asks", { input: z.object({ catches: z.boolean() }) }, async (ctx, { catches }) => {
    for (;;) {
      try {
        return (await ctx.waitForSignalAs("order", Order)).amount;
      } catch (error) {
        if (!catches) throw error;
        await pay(0);
      }
    }
  });
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [asks] }).start();
  const caught = await client.start("asks", { catches: true });
  await caught.signal("order", { amounts: 1 });
  await caught.signal("order", { amount: 2 });
  expect(await caught.result({ timeoutMs: 20_000 })).toBe(2);
  const raised = await client.start("asks", { catches: false });
  await raised.signal("order", { amounts: 1 });
  expect(await paused(raised)).toContain('signal "order" does not fit its schema');
  const input = await client.start("asks", { catch: 1 });
  expect(await paused(input)).toContain("does not fit its schema");
});

test("a bad deploy ends no conversation", async () => {
  const deployed = (bad: boolean) =>
    agent("talk", { version: bad ? "bad" : "good" }, async (ctx) => {
      await pay(1);
      if (bad) throw new RangeError("no such setting");
      return await ctx.waitForSignal("word");
    });
  const client = disposing(await connect(fileUrl()));
  const first = await client.worker({ agents: [deployed(false)] }).start();
  const handle = await client.start("talk");
  await until(async () => (await handle.status()) === "WAITING");
  await first.close();
  const second = await client.worker({ agents: [deployed(true)] }).start();
  await handle.signal("word", "kept");
  expect(await paused(handle)).toBe("RangeError: no such setting");
  await second.close();
  await client.worker({ agents: [deployed(false)] }).start();
  await handle.resume();
  expect(await handle.result({ timeoutMs: 20_000 })).toBe("kept");
  expect(asked).toEqual(["pay"]);
});

test("a signal that does not fit is refused at the sender", async () => {
  const takes = agent("takes", { signals: { order: z.object({ amount: z.number() }) } }, async (ctx) => {
    return (await ctx.waitForSignal<{ amount: number }>("order")).amount;
  });
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [takes] }).start();
  const handle = await client.start(takes);
  await expect(handle.signal("order", { amounts: 1 })).rejects.toThrow('signal "order" does not fit its schema');
  await handle.signal("order", { amount: 3 });
  expect(await handle.result({ timeoutMs: 20_000 })).toBe(3);
});
