// Patterns of families: agents that are tools of an agent, agents that a conversation is handed off to, and those that lead.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";

import { agent, connect, run, task } from "@flovyn/sdk";
import { type FakeLlm, toolCall, turn } from "@flovyn/sdk/testing";
import { delegate, escalate, External, planAndExecute, reactAgent, supervisor, tool } from "@flovyn/sdk/toolkit";
import { describe, expect, test } from "vitest";
import { z } from "zod";

import { BACKENDS } from "./backends.js";
import { model } from "./models.js";
import { fileUrl, folder, start, until } from "./support.js";

const look = task(
  "look",
  { input: z.object({ at: z.string() }), description: "Looks at something." },
  async ({ at }) => `${at} are there`,
);
const looks = tool(look, { effect: "read" });
const doubler = agent("doubler", { input: z.object({ number: z.number() }), description: "Doubles a number." }, async (_, input) => {
  if (input.number < 0) throw new TypeError("no such number");
  return input.number * 2;
});
const clock = agent("clock", { description: "Says the time." }, async (_ctx) => "noon");
const careful = agent("careful", { description: "Asks before it acts." }, async (ctx, what: string) => {
  return `${what}: ${await escalate(ctx, `May I delete ${what}?`)}`;
});

/** What the last model that was asked was told of its calls, in order, on Anthropic's wire. */
function told(fake: FakeLlm): string[] {
  type Block = { type: string; content?: string | { text?: string }[] };
  const messages = (fake.calls.at(-1)?.body["messages"] ?? []) as { content: string | Block[] }[];
  const blocks = messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
  const text = (content: Block["content"]): string =>
    typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");
  return blocks.filter(({ type }) => type === "tool_result").map(({ content }) => text(content));
}

describe.each(BACKENDS.filter(({ name }) => name !== "postgres"))("on $name", (backend) => {
  test("agents of both kinds are delegates", async () => {
    const fake = model([
      toolCall("look", { at: "otters" }, { when: { lastUserContains: "Look at otters", hasToolResult: false } }),
      turn("Otters are there.", { when: { lastUserContains: "Look at otters" } }),
      toolCall("scout", { task: "Look at otters." }, {
        toolCalls: [
          { name: "twice", arguments: { number: 21 } },
          { name: "doubler", arguments: { number: -1 } },
          { name: "clock", arguments: {} },
        ],
      }),
      turn("Done."),
    ]);
    const { providers } = fake;
    const scout = reactAgent("scout", { description: "Looks at animals.", tools: [looks], providers });
    const delegates = [scout, delegate(doubler, { name: "twice", budget: 1_000 }), doubler];
    const lead = reactAgent("lead", { model: "fake/any", tools: [clock], delegates, providers });
    const outcome = await run(lead, "What is there?", { id: "lead", url: await backend.open() });
    expect(outcome.text).toBe("Done.");
    const results = told(fake);
    expect(results[0]).toBe("Otters are there.");
    expect(results[1]).toBe("42");
    expect(results[2]).toMatch(/^The agent doubler has failed: TypeError: no such number/);
    expect(results[3]).toBe("noon");
  });

  test("an agent of others is a delegate", async () => {
    const fake = model([
      toolCall("coder", { task: "say Hello; tool read; say Two files are changed." }),
      toolCall("coder", { task: "fail no otters" }),
      turn("Done."),
    ]);
    const workingDir = folder();
    const command = ["python3", resolve(__dirname, "../../toolkit/tests/external/fake_agent.py"), "acp"];
    const coder = External.acp({ workingDir, command, approvals: "allow", env: { FAKE_DIR: workingDir } });
    const delegates = [delegate(coder, { name: "coder", description: "Changes code." })];
    const lead = reactAgent("lead", { model: "fake/any", delegates, providers: fake.providers });
    expect((await run(lead, "Change it.", { id: "lead", url: await backend.open() })).text).toBe("Done.");
    const [changed, failed] = told(fake);
    expect(changed).toBe("Two files are changed.");
    expect(failed).toMatch(/^The agent coder has failed: .*no otters/);
  });

  test("a conversation is handed off, and the run ends as its successor does", async () => {
    const fake = model([
      toolCall("transfer_to_billing", { reason: "an invoice" }, { toolCalls: [{ name: "look", arguments: { at: "invoices" } }] }),
      toolCall("transfer_to_doubler", { number: 4 }),
    ]);
    const { providers } = fake;
    const billing = reactAgent("billing", {
      description: "Corrects invoices.",
      systemPrompt: "You correct invoices.",
      handoffs: [doubler],
      providers,
    });
    const desk = reactAgent("desk", { model: "fake/any", tools: [looks], handoffs: [billing], providers });
    const ended: unknown = await run(desk, "My invoice is wrong.", { id: "desk", url: await backend.open() });
    expect(ended).toBe(8);
    const body = fake.calls[1]?.body as { system: unknown; tools: { name: string }[] };
    expect(JSON.stringify(body.system)).toContain("You correct invoices.");
    expect(body.tools.map(({ name }) => name)).toEqual(["transfer_to_doubler"]);
    expect(told(fake)).toEqual(["Asked billing to go on with the conversation.", "invoices are there"]);
  });

  test("a plan is made and done", async () => {
    const tasks = [
      { id: "sea", worker: "scout", arguments: { task: "Look at otters." }, dependsOn: [] },
      { id: "many", worker: "doubler", arguments: { number: 4 }, dependsOn: ["sea"] },
    ];
    const fake = model([
      toolCall("final_answer", { tasks }, { when: { lastUserContains: "Split this task" } }),
      turn("Four.", { when: { lastUserContains: "Look at otters" } }),
      toolCall("final_answer", { answer: "Eight.", satisfied: true }, { when: { lastUserContains: "Other agents" } }),
    ]);
    const { providers } = fake;
    const scout = reactAgent("scout", { model: "fake/any", description: "Looks at animals.", providers });
    const study = planAndExecute("study", { planner: "fake/any", workers: [scout, doubler] });
    const input = { task: "Twice the otters?", criteria: ["a number"] };
    const outcome = await run(study, input, { id: "study", url: await backend.open() });
    expect(outcome).toMatchObject({ text: "Eight.", satisfied: true, replans: 0 });
    expect(outcome.tasks.map(({ id, result }) => [id, result])).toEqual([["sea", "Four."], ["many", "8"]]);
  });

  test("a supervisor ends with an answer", async () => {
    const fake = model([toolCall("doubler", { number: 1 }), toolCall("doubler", { number: 1 }), turn("Two.")]);
    const { providers } = fake;
    const lead = supervisor("lead", { model: "fake/any", agents: [doubler], rounds: 1, providers });
    expect((await run(lead, "Twice one?", { id: "lead", url: await backend.open() })).text).toBe("Two.");
    const [first, second] = told(fake);
    expect(first).toBe("2");
    expect(second).toMatch(/^Not given out/);
  });

  test("a question goes up to the model that gave the work", async () => {
    const fake = model([
      { toolCalls: [{ id: "delete", name: "careful", arguments: { input: "logs" } }] },
      toolCall("answer_agent", { id: "1.delete", answer: "yes" }),
      turn("Done."),
    ]);
    const parameters = { type: "object", properties: { input: { type: "string" } }, required: ["input"] };
    const asks = delegate(careful, { parameters: z.string() });
    expect(asks.describe()).toMatchObject({ argument: "input", parameters });
    const lead = reactAgent("lead", { model: "fake/any", delegates: [asks], providers: fake.providers });
    expect((await run(lead, "Delete the logs.", { id: "lead", url: await backend.open() })).text).toBe("Done.");
    const [asked, said] = told(fake);
    expect(asked).toMatch(/^The agent careful asks: May I delete logs\?/);
    expect(said).toBe("logs: yes");
  });

  test("a question of a root is asked of a person", async () => {
    const client = await connect(await backend.open());
    const worker = client.worker({ agents: [careful] });
    await worker.start();
    try {
      const handle = await client.start(careful, "logs");
      type Request = { id: string; hash: string; questions: { answer: { message: string } } };
      let request: Request | undefined;
      await until(async () => {
        const entries = await handle.messages();
        request = entries.find(({ entryType }) => entryType === "input_request")?.content as Request | undefined;
        return request !== undefined;
      });
      expect(request?.questions.answer.message).toBe("May I delete logs?");
      await handle.signal("input", "nothing");
      const responses = { answer: { action: "accept", content: { answer: "no" } } };
      await handle.signal("input", { id: request?.id, hash: request?.hash, responses });
      expect(await handle.result()).toBe("logs: no");
    } finally {
      await worker.close();
      await client.close();
    }
  });
});

test("a new process serves the successor of one that is gone", async () => {
  const fake = model([
    toolCall("look", { at: "otters" }, { when: { lastUserContains: "Look at otters", hasToolResult: false } }),
    turn("Otters are there.", { when: { lastUserContains: "Look at otters" } }),
    toolCall("scout", { task: "Look at otters." }),
    toolCall("transfer_to_closer", { instructions: "Well" }),
  ]);
  const [url, log] = [fileUrl(), join(folder(), "log")];
  const victim = start("patterns_victim.cjs", [url, log, fake.url], { HOLD: "close" });
  expect((await victim.ended).signal, victim.errors()).toBe("SIGKILL");
  const next = start("patterns_victim.cjs", [url, log, fake.url]);
  expect(await next.ended, next.errors()).toEqual({ code: 0, signal: null });
  expect(next.output().trim()).toBe("Well, after 2 answers");
  expect(fake.paid).toBe(4);
  expect(readFileSync(log, "utf8").trim().split("\n")).toEqual(["look at otters", "close"]);
}, 120_000);

test("what is no delegate is refused in words", () => {
  const silent = agent("silent", async () => 1);
  expect(() => reactAgent("lead", { delegates: [silent] })).toThrow(/the agent "silent" has no description/);
  expect(() => reactAgent("lead", { handoffs: ["billing" as never] })).toThrow(/handoffs takes agents, and what delegate/);
  expect(() => delegate(doubler, { name: "two words" })).toThrow(/is named "two words" as a tool/);
  expect(() => tool(doubler as never)).toThrow(/the agent "doubler" is no task/);
  expect(() => supervisor("lead", { agents: [] })).toThrow(/has no agents/);
  expect(() => planAndExecute("study", { planner: "fake/any", workers: [] })).toThrow(/has no workers/);
});
