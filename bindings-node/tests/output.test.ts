// Answers that have a form: of built-in agents, of model calls as steps, and of model calls outside of an agent.

import { agent, run } from "@flovyn/sdk";
import { check, type FakeLlm, toolCall, turn } from "@flovyn/sdk/testing";
import { InvalidOutput, llm, type Provider, reactAgent } from "@flovyn/sdk/toolkit";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";

import { BACKENDS } from "./backends.js";
import { model } from "./models.js";

const Otter = z.object({
  name: z.string().refine((name) => name[0] !== name[0]?.toLowerCase(), "a name begins with a capital letter"),
  age: z.number().int().min(1),
  born: z.iso.date().transform((day) => new Date(day)).optional(),
});

const right = { name: "Lutra", age: 3 };
const answers = (value: unknown) => toolCall("final_answer", value as Record<string, unknown>);
const turns = [answers({ name: "Lutra", age: 0 }), answers({ name: "lutra", age: 3 }), answers(right)];

/** One provider for each wire, which forces answers into a form. */
function providers(fake: FakeLlm): Record<string, Provider> {
  return {
    anthropic: { api: "anthropic-messages", baseUrl: fake.url, structured: true },
    chat: { api: "openai-chat", baseUrl: fake.openaiUrl, structured: true },
    responses: { api: "openai-responses", baseUrl: fake.openaiUrl, structured: true },
  };
}

describe.each(BACKENDS.filter(({ name }) => name !== "postgres"))("on $name", (backend) => {
  test.each(["anthropic", "chat", "responses"])("an agent answers with a value on the wire of %s", async (wire) => {
    const fake = model([turn(JSON.stringify({ name: "Lutra", age: 0 })), turn(JSON.stringify({ ...right, born: "2026-01-02" }))]);
    const assistant = reactAgent("otters", { model: `${wire}/m`, output: Otter, providers: providers(fake) });
    const { output, turns: asked } = await run(assistant, "Which otter?", { url: await backend.open() });
    expectTypeOf(output).toEqualTypeOf<{ name: string; age: number; born?: Date | undefined } | undefined>();
    expect(output).toEqual({ ...right, born: new Date("2026-01-02") });
    expect([asked, fake.paid]).toEqual([2, 2]);
  });

  test("a step asks again, and stops after the last attempt", async () => {
    const fake = model(turns);
    const asker = agent("asker", async () => {
      const reply = await llm.generate("Which otter?", { model: "fake/any", output: Otter });
      expect(reply.toolCalls).toEqual([]);
      return reply.output;
    });
    expect(await run(asker, undefined, { url: await backend.open() })).toEqual(right);
    expect(fake.paid).toBe(3);
    expect(JSON.stringify(fake.calls.at(-1)?.body)).toContain("capital letter");
    const vain = agent("vain", async () => {
      const step = llm.generate("Which?", { model: "fake/any", output: Otter, outputRetries: 0 });
      await expect(step).rejects.toThrow(InvalidOutput);
      return "told";
    });
    expect(await run(vain, undefined, { url: await backend.open() })).toBe("told");
  });
});

describe("a form", () => {
  test("is kept through crashes", async () => {
    model(turns);
    const asker = agent("asker", async () => {
      const [one, two] = await Promise.all([
        llm.generate("Which otter?", { model: "fake/any", output: Otter }),
        llm.generate("And who else?", { model: "fake/any", output: Otter }),
      ]);
      expect([one.output.name, two.output.name]).toEqual(["Lutra", "Lutra"]);
      return two.output.name;
    });
    // The agent is killed at every commit, and each run has to end as the undisturbed one did.
    expect((await check(asker, undefined)).outcome).toBe("Lutra");
  });

  test("is kept outside of an agent", async () => {
    const fake = model(turns);
    const reply = await llm.generate("Which otter?", { model: "fake/any", output: Otter });
    expect([reply.output, fake.paid]).toEqual([right, 3]);
    const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    const plain = model([turn('{"n": 1}')]);
    const { output } = await llm.generate("A number.", {
      model: "chat/m",
      output: schema,
      toolkit: { providers: providers(plain) },
    });
    expect(output).toEqual({ n: 1 });
  });

  test("does not hide a tool of one's own where none was asked for", async () => {
    model([answers(right)]);
    const reply = await llm.generate("Which otter?", { model: "fake/any" });
    expect(reply.toolCalls.map(({ name }) => name)).toEqual(["final_answer"]);
  });

  test("cannot be given beside a tool of that name", async () => {
    model([answers(right)]);
    const own = { name: "final_answer", description: "Mine.", parameters: { type: "object" } };
    const asked = llm.generate("Which otter?", { model: "fake/any", output: Otter, tools: [own] });
    await expect(asked).rejects.toThrow(/final_answer/);
  });

  test("that is none is refused", () => {
    expect(() => reactAgent("x", { output: Otter, outputRetries: -1 })).toThrow("outputRetries");
  });
});
