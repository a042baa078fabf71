// Types of a program's own, by its own serializer.

import { agent, connect, InvalidArgument, NotSerializable, run, type Serializer, task } from "@flovyn/sdk";
import { check, record, replay } from "@flovyn/sdk/testing";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";

import { disposing, fileUrl, folder } from "./support.js";

class Money {
  constructor(readonly cents: number) {}
}

const ours: Serializer = {
  dump(value) {
    if (value instanceof Money) return { $money: value.cents };
    if (Array.isArray(value)) return value.map((each) => this.dump(each));
    return value;
  },
  load(json) {
    if (Array.isArray(json)) return json.map((each) => this.load(each));
    return typeof json === "object" && json !== null && "$money" in json ? new Money(json.$money as number) : json;
  },
};

const add = task("add", { serializer: ours }, async (parts: Money[]) => {
  if (!parts.every((part) => part instanceof Money)) throw new TypeError("no money");
  return new Money(parts.reduce((sum, part) => sum + part.cents, 0));
});
const split = task("split", { serializer: ours, queue: "far" }, async (money: Money) => [new Money(money.cents / 2), "half"]);

const cashier = agent("cashier", { serializer: ours, state: () => new Money(0) }, async (ctx, first: Money) => {
  if (!(first instanceof Money && ctx.input instanceof Money)) throw new TypeError("no money");
  if (ctx.state.cents === 0) await ctx.checkpoint(await add([first, new Money(5)]));
  if (!(ctx.state instanceof Money)) throw new TypeError("no money");
  return add([ctx.state, await ctx.run("again", add, [new Money(1)])]);
});

test("own types are the same in every life", async () => {
  expect((await check(cashier, new Money(10))).outcome).toEqual({ $money: 16 });
  const result = await run(cashier, new Money(10), { url: fileUrl() });
  expect(result).toBeInstanceOf(Money);
  expect(result).toEqual(new Money(16));
});

test("own types travel to another worker and back", async () => {
  const splitting = agent("splitting", { serializer: ours }, async (_, money: Money) => split(money));
  const client = disposing(await connect(fileUrl()));
  await client.worker({ agents: [splitting] }).start();
  await client.worker({ tasks: [split], queue: "far" }).start();
  const handle = await client.start(splitting, new Money(10), { id: "splits" });
  expect(await handle.result({ timeoutMs: 20_000 })).toEqual([new Money(5), "half"]);
  expect(await (await client.handle("splits", splitting)).result()).toEqual([new Money(5), "half"]);
  // Whoever does not know the agent sees what is stored.
  expect(await (await client.handle("splits")).result()).toEqual([{ $money: 5 }, "half"]);
});

test("a task outside an agent, and one with a schema, take what was loaded", async () => {
  const isMoney = z.instanceof(Money);
  const checked = task("checked", { serializer: ours, input: isMoney }, async (money) => money.cents);
  expect(await checked(new Money(3))).toBe(3);
  expect(await add([new Money(3)])).toEqual(new Money(3));
  const taker = agent("taker", { serializer: ours, input: isMoney }, async (_, money) => checked(money));
  expect(await run(taker, new Money(4), { url: fileUrl() })).toBe(4);
});

test("a cassette keeps what is stored", async () => {
  const path = join(folder(), "cassette.json");
  const adding = agent("adding", { serializer: ours }, async () => add([new Money(2)]));
  for (const standIns of [record, replay]) {
    expect((await check(adding, undefined, { tasks: standIns(path, [add]) })).outcome).toEqual({ $money: 2 });
  }
});

test("what a serializer throws is told", async () => {
  const odd = task(
    "odd",
    {
      serializer: {
        dump: (value) => (value as Money).cents.toFixed(),
        load: () => {
          throw new RangeError("no currency");
        },
      },
    },
    async (value: unknown) => value,
  );
  const broken = agent("broken", { serializer: odd.declared.own, state: () => ({}) }, async () => 1);
  const asking = agent("asking", async () => {
    const told: string[] = [];
    for (const value of ["five", new Money(5)]) {
      await Promise.resolve()
        .then(() => odd(value))
        .catch((error: Error) => told.push(error.message));
    }
    return told;
  });
  const told = await run(asking, undefined, { url: fileUrl() });
  expect(told[0]).toMatch(/at \$ is a string that serializer.dump of task "odd" does not take: TypeError/);
  expect(told[1]).toMatch(/serializer.load of task "odd" does not take: RangeError: no currency/);
  expect(() => broken.readState("5")).toThrow(/cannot be read: .*serializer.load of .*RangeError/);
});

test("what is no serializer is refused", () => {
  for (const serializer of [5, {}, { dump: ours.dump }, [ours.dump, ours.load]]) {
    const made = (): unknown => task("t", { serializer: serializer as unknown as Serializer }, async () => 1);
    expect(made).toThrow(InvalidArgument);
    expect(made).toThrow(/the serializer of task "t" is a \w+; pass an object with dump\(value\) and load\(json\)/);
  }
});

const isMoney = z.instanceof(Money);

const collecting = agent("collecting", { serializer: ours, signals: { paid: isMoney } }, async (ctx) => {
  const first = await ctx.waitForSignal<Money>("paid");
  const second = await ctx.waitForSignalAs("other", isMoney);
  const third = await ctx.waitForSignal("anything");
  return [first, second, third, await ctx.drainSignals("paid"), await ctx.drainSignals("anything")];
});

const paid: [name: string, value: unknown][] = [
  ["paid", new Money(1)],
  ["paid", new Money(2)],
  ["paid", new Money(3)],
  ["other", new Money(4)],
  ["anything", [new Money(5), null]],
  ["anything", undefined],
];
const spent = [new Money(1), new Money(4), [new Money(5), null], [new Money(2), new Money(3)], [null]];

test("signals go through the serializer", async () => {
  const client = disposing(await connect(fileUrl()));
  const handle = await client.start(collecting, undefined, { id: "collects" });
  for (const [name, value] of paid) await handle.signal(name, value);
  await client.worker({ agents: [collecting] }).start();
  expect(await handle.result({ timeoutMs: 20_000 })).toEqual(spent);
  expect(await (await client.handle("collects")).result()).toEqual(ours.dump(spent));
});

test("signals of own types are the same in every life", async () => {
  expect((await check(collecting, undefined, { signals: paid })).outcome).toEqual(ours.dump(spent));
});

test("whoever does not know the agent sends what is stored", async () => {
  const client = disposing(await connect(fileUrl()));
  const handle = await client.start(collecting, undefined, { id: "collects" });
  await expect(handle.signal("paid", { $money: 1 })).rejects.toThrow(/signal "paid" does not fit its schema/);
  const stranger = await client.handle("collects");
  await expect(stranger.signal("paid", new Money(1))).rejects.toThrow(NotSerializable);
  for (const [name, value] of paid) await stranger.signal(name, ours.dump(value));
  await client.worker({ agents: [collecting] }).start();
  expect(await handle.result({ timeoutMs: 20_000 })).toEqual(spent);
});
