// Modules that are loaded anew in a process that lives on: `shared` serves their newest functions.

import { agent, type Handle, InvalidArgument, shared, task } from "@flovyn/sdk";
import { fakeLlm, toolCall, turn } from "@flovyn/sdk/testing";
import { reactAgent, tool } from "@flovyn/sdk/toolkit";
import { expect, test } from "vitest";

import { disposing, fileUrl, until } from "./support.js";

/** What a module declares, each time that it is loaded. */
function loaded(edition: string) {
  const says = task("says", async () => edition);
  return {
    says,
    greets: agent("greets", async () => [edition, await says()]),
    waits: agent("waits", async (ctx) => [edition, await ctx.waitForSignal("go")]),
    works: agent("works", async (ctx) => {
      while (!(await ctx.hasSignal("go"))) await says();
      return edition;
    }),
  };
}

test("a module that is loaded anew has its newest functions served, and no run is left behind", async () => {
  const url = fileUrl();
  const first = loaded("first");
  const client = disposing(await shared(url, { agents: [first.greets, first.waits, first.works] }));
  expect(await (await client.start(first.greets)).result({ timeoutMs: 20_000 })).toEqual(["first", "first"]);
  const waiting = await client.start(first.waits);
  await until(async () => (await waiting.status()) === "WAITING");
  const working = await client.start(first.works);
  await until(async () => (await working.tasks()).length > 2);

  for (const edition of ["second", "third"]) {
    const next = loaded(edition);
    expect(await shared(url, { agents: [next.greets, next.waits, next.works] })).toBe(client);
    expect(await (await client.start("greets")).result({ timeoutMs: 20_000 })).toEqual([edition, edition]);
  }
  await waiting.signal("go", 1);
  expect(await waiting.result({ timeoutMs: 20_000 })).toEqual(["third", 1]);
  await working.signal("go");
  expect(await working.result({ timeoutMs: 20_000 })).toBe("first");
});

test("routes that are loaded one by one are served by one worker, and queues by one each", async () => {
  const url = fileUrl();
  const declared = ["one", "two", "three"].map((kind) => agent(kind, async () => kind));
  const clients = await Promise.all(declared.map((each) => shared(url, { agents: [each] })));
  const client = disposing(clients[0]!);
  expect(new Set(clients).size).toBe(1);
  for (const each of declared) {
    expect(await (await client.start(each)).result({ timeoutMs: 20_000 })).toBe(each.kind);
  }
  const slow = task("slow", { queue: "slow" }, async () => "old");
  const asks = agent("asks", async () => slow());
  await shared(url, { agents: [asks] });
  await shared(url, { tasks: [slow], queue: "slow" });
  expect(await (await client.start(asks)).result({ timeoutMs: 20_000 })).toBe("old");
  await shared(url, { tasks: [task("slow", { queue: "slow" }, async () => "new")], queue: "slow" });
  expect(await (await client.start(asks)).result({ timeoutMs: 20_000 })).toBe("new");
});

test("what is no agent replaces nothing, and a client that was closed serves again", async () => {
  const url = fileUrl();
  const { greets } = loaded("first");
  const before = await shared(url, { agents: [greets] });
  await expect(shared(url, { agents: [loaded("second").greets, "greets" as never] })).rejects.toThrow(InvalidArgument);
  expect(await (await before.start(greets)).result({ timeoutMs: 20_000 })).toEqual(["first", "first"]);
  await before.close();
  const after = disposing(await shared(url, { agents: [loaded("second").greets] }));
  expect(after).not.toBe(before);
  expect(await (await after.start("greets")).result({ timeoutMs: 20_000 })).toEqual(["second", "second"]);
});

/** Declares an agent of the toolkit with a tool, as a module does that is loaded. */
function assistant(edition: string) {
  const says = task("says", async () => edition);
  return reactAgent("assistant", {
    model: `fake/${edition}`,
    tools: [tool(says, { description: `The edition is ${edition}.`, effect: "read" })],
    mode: "chat",
  });
}

test("agents of the toolkit are replaced too", async () => {
  const url = fileUrl();
  const [first, second] = [loaded("first"), loaded("second")];
  const fake = fakeLlm([toolCall("says"), turn("Said."), toolCall("says"), turn("Said again.")]);
  const models = (): unknown[] => fake.calls.map(({ body }) => body["model"]);
  const last = (): Record<string, unknown> => fake.calls.at(-1)?.body ?? {};
  const waits = (handle: Handle<unknown>, paid: number): Promise<boolean> =>
    until(async () => fake.paid >= paid && (await handle.status()) === "WAITING");
  const client = disposing(await shared(url, { agents: [first.greets] }));
  // The first ones of the toolkit come with later calls, side by side.
  const other = reactAgent("other", { model: "fake/other" });
  await Promise.all([shared(url, { agents: [assistant("first")] }), shared(url, { agents: [other] })]);
  const waiting = await client.start("assistant", "Which?");
  await waits(waiting, 2);
  expect(models()).toEqual(["first", "first"]);
  expect(JSON.stringify(last()["messages"])).toContain("first");
  await shared(url, { agents: [assistant("second"), second.greets] });
  expect(await (await client.start("greets")).result({ timeoutMs: 20_000 })).toEqual(["second", "second"]);
  const again = await client.start("assistant", "Which?");
  await waits(again, 4);
  expect(models().slice(2)).toEqual(["second", "second"]);
  expect(JSON.stringify(last()["messages"])).toContain("second");
  // What waits goes on with the tools of the new one; its model is what it was started with.
  await waiting.signal("userMessage", { text: "And now?" }, { delivery: "next_turn" });
  await waits(waiting, 6);
  expect(models().slice(4)).toEqual(["first", "first"]);
  expect(JSON.stringify(last()["messages"])).toContain("second");
  expect(last()["tools"]).toMatchObject([{ description: "The edition is second." }]);
  for (const handle of [waiting, again]) await handle.cancel({ mode: "hard" });
  // What cannot be served replaces nothing, and what nobody has named again stays.
  const wrong = reactAgent("assistant", { tools: ["reed"] });
  await expect(shared(url, { agents: [wrong, first.greets] })).rejects.toThrow(/there is no tool "reed"/);
  expect(await (await client.start("greets")).result({ timeoutMs: 20_000 })).toEqual(["second", "second"]);
  await expect(shared(url, { agents: [reactAgent("greets")] })).rejects.toThrow(/agent "greets" is of the toolkit.*a function/);
  await (await client.start("other", "Are you there?")).result({ timeoutMs: 20_000 });
  expect(models().at(-1)).toBe("other");
  fake.close();
});
