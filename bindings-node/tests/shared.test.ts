// Modules that are loaded anew in a process that lives on: `shared` serves their newest functions.

import { agent, InvalidArgument, shared, task } from "@flovyn/sdk";
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
