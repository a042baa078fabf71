// Agents of others, by a scripted program that speaks their protocols.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { agent, InvalidArgument, run } from "../ts/index.js";
import { External } from "../ts/toolkit/index.js";

const FAKE = resolve(__dirname, "../../toolkit/tests/external/fake_agent.py");

function fake(driver: "acp" | "claude" | "pi"): External {
  const folder = mkdtempSync(join(tmpdir(), "external-"));
  const command = ["python3", FAKE, driver];
  return External[driver]({ workingDir: folder, command, approvals: "allow", env: { FAKE_DIR: folder, CLAUDE_CONFIG_DIR: folder } });
}

describe("agents of others", () => {
  it.each(["acp", "claude", "pi"] as const)("run like any: %s", async (driver) => {
    const { text, stopReason, turns } = await run(fake(driver), "say Hello; tool read; say Done", { url: "memory:" });
    expect([text, stopReason, turns]).toEqual(["Done", "end", 1]);
  });

  it("family_15: are children that tell their turns", async () => {
    const lead = agent("lead", async (ctx, task: string) => {
      const child = ctx.spawnAgent(fake("acp"), task);
      const heard: unknown[] = [];
      for (;;) {
        const event = await ctx.waitForChildEvent(child);
        if (event.type === "signal") heard.push((event.payload as { text: string }).text);
        else if (event.type === "completed") return heard;
        else throw new Error(event.type);
      }
    });
    expect(await run(lead, "say Hello", { url: "memory:" })).toEqual(["Hello"]);
  });

  it("say where they were looked for", async () => {
    const missing = External.custom({ workingDir: ".", command: ["no-such-agent"] });
    await expect(run(missing, "Hello", { url: "memory:" })).rejects.toThrow(/no-such-agent.*PATH/s);
    expect(() => External.acp({ workingDir: ".", command: [] })).toThrow(InvalidArgument);
  });
});
