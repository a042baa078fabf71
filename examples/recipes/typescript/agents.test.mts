// Vitest: an agent crashed at every commit, and one with a clock to move; nothing is written, nothing waits.
//
// npx vitest run agents.test.mts

import { check, harness } from "@flovyn/sdk/testing";
import { expect, test } from "vitest";

import { lookUp, researcher } from "./agents.mjs";

test("the researcher is the same in every process", async () => {
  await check(researcher, "otters", { signals: [["approval", true]] });
});

test("it waits for a person", async () => {
  const fakes = new Map([[lookUp, (topic: string) => `no pages about ${topic}`]]);
  const h = await harness({ agents: [researcher], fakes });
  const handle = await h.start(researcher, "otters");
  await h.advance(3_600_000);
  expect(await handle.status()).toBe("WAITING");
  await handle.signal("approval", true);
  expect(await handle.result()).toBe("no pages about otters");
  await h.close();
});
