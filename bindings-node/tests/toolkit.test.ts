// The toolkit against the scripted model: built-in agents with tools of this language, model calls and tools as steps.

import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo } from "node:net";
import { join } from "node:path";

import {
  agent,
  Blob,
  connect,
  type Event,
  FlovynError,
  type Handle,
  InvalidArgument,
  OutsideAgent,
  run,
  task,
} from "@flovyn/sdk";
import { cut, type FakeLlm, harness, malformed, stall, status, toolCall, turn } from "@flovyn/sdk/testing";
import {
  ApprovalRequest,
  type GivenPart,
  llm,
  ModelError,
  type Part,
  type Provider,
  reactAgent,
  type Toolkit,
  tool,
  type ToolOutcome,
  toolResult,
  tools,
} from "@flovyn/sdk/toolkit";
import { describe, expect, test } from "vitest";
import { z } from "zod";

import { BACKENDS, server } from "./backends.js";
import { model } from "./models.js";
import { fileUrl, folder, start, until } from "./support.js";

const lookUp = task(
  "look_up",
  { input: z.object({ word: z.string(), times: z.number().int().default(1) }), description: "Looks a word up." },
  async ({ word, times }) => `${word} is a mammal. `.repeat(times).trim(),
);
const double = task("double", { input: z.number(), description: "Doubles a number." }, async (x) => x * 2);
const send = task(
  "send",
  { sideEffects: "at_most_once", description: "Sends a text.", input: z.object({ text: z.string() }) },
  async ({ text }) => ({ sent: text }),
);

/** What a model was told of its calls, in order, on Anthropic's wire. */
function told(fake: FakeLlm): string[] {
  type Block = { type: string; content?: string | { text?: string }[] };
  const messages = (fake.calls.at(-1)?.body["messages"] ?? []) as { content: string | Block[] }[];
  const blocks = messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
  const text = (content: Block["content"]): string =>
    typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");
  return blocks.filter(({ type }) => type === "tool_result").map(({ content }) => text(content));
}

/** An image of two by two points. */
const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGNgZGJmYWVj4Obh5eMXAAAB4wBn7AMaCAAAAABJRU5ErkJggg==",
  "base64",
);
const BASE64 = PNG.toString("base64");
const DATA_URL = `data:image/png;base64,${BASE64}`;

/** Parts with the image: as this package writes them, and as others do. */
const PARTS = {
  ours: { type: "media", mime: "image/png", source: { base64: BASE64 } },
  // Bytes inside a value are base64 in JSON.
  "ours, of bytes": { type: "media", mime: "image/png", source: { base64: PNG } },
  anthropic: { type: "image", source: { type: "base64", media_type: "image/png", data: BASE64 } },
  "openai chat": { type: "image_url", image_url: { url: DATA_URL } },
  "openai responses": { type: "input_image", image_url: DATA_URL },
  mcp: { type: "image", data: new Uint8Array(PNG), mimeType: "image/png" },
} satisfies Record<string, GivenPart>;

/** The images in a request, as the three wires write them, in their order. */
function images(sent: unknown): string[] {
  if (typeof sent !== "object" || sent === null) return [];
  type Image = { type?: string; source?: { data: string }; image_url?: string | { url: string } };
  const { type, source, image_url: address } = sent as Image;
  if (type === "image" && source !== undefined) return [source.data];
  if ((type === "image_url" || type === "input_image") && address !== undefined) {
    return [(typeof address === "string" ? address : address.url).replace("data:image/png;base64,", "")];
  }
  return Object.values(sent).flatMap(images);
}

/** A provider for each wire, of those whose models are known to take images. */
function seeing(fake: FakeLlm): Record<string, Provider> {
  return {
    anthropic: { baseUrl: fake.url, key: "none" },
    local: { baseUrl: fake.openaiUrl },
    openai: { baseUrl: fake.openaiUrl, key: "none" },
  };
}

/** Waits until a run waits for a signal. */
async function waits(handle: Handle<unknown>, signal: string): Promise<void> {
  await until(async () => {
    const now = await handle.describe();
    return now.status === "WAITING" && JSON.stringify(now).includes(`"${signal}"`);
  });
}

describe.each(BACKENDS.filter(({ name }) => name !== "postgres"))("on $name", (backend) => {
  test("a prompt runs with tools of this language and of the host", async () => {
    const place = folder();
    writeFileSync(join(place, "otters.txt"), "They hold hands.");
    const fake = model([
      toolCall("look_up", { word: "otter" }, { toolCalls: [{ name: "double", arguments: { input: 21 } }] }),
      toolCall("read", { path: "otters.txt" }),
      turn("Otters hold hands."),
    ]);
    const assistant = reactAgent("assistant", {
      model: "fake/any",
      systemPrompt: "You know otters.",
      tools: [tool(lookUp, { effect: "read" }), tool(double, { effect: "read" }), "read"],
      workingDirectory: place,
      records: join(place, "records"),
      providers: fake.providers,
    });
    const events: Event[] = [];
    const url = await backend.open();
    const outcome = await run(assistant, "What do otters do?", { id: "otters", url, onEvent: (e) => events.push(e) });
    expect(outcome).toMatchObject({ text: "Otters hold hands.", stopReason: "end", turns: 3 });
    expect(outcome.model).toEqual({ provider: "fake", modelId: "any" });
    expect(outcome.usage["fake/any"]?.calls).toBe(3);
    expect(told(fake)).toEqual(["otter is a mammal.", "42", expect.stringContaining("They hold hands.")]);
    expect(fake.paid).toBe(3);
    const streamed = events.map((event) => (event.type === "token" ? event.text : "")).join("");
    expect(streamed).toContain("Otters hold hands.");
    // The same id again gives the recorded result, and asks nobody.
    expect(await run(assistant, "What do otters do?", { id: "otters", url })).toEqual(outcome);
    expect(fake.paid).toBe(3);
  });

  test("wrong arguments are told to the model, and what a person denies does not run", async () => {
    const fake = model([
      toolCall("look_up", { times: "many" }),
      toolCall("send", { text: "a" }, { toolCalls: [{ name: "send", arguments: { text: "b" } }] }),
      turn("So be it."),
    ]);
    const assistant = reactAgent("assistant", { model: "fake/any", tools: [lookUp, send] });
    const client = await connect(await backend.open());
    await client.worker({ agents: [assistant] }).start();
    const handle = await client.start(assistant, "Send it.", { id: "send" });
    await waits(handle, "approval");
    const asked = (await handle.messages()).flatMap((entry) => ApprovalRequest.of(entry) ?? []);
    expect(asked.map(({ name, effect, input }) => [name, effect, input])).toEqual([
      ["send", "write", { text: "a" }],
      ["send", "write", { text: "b" }],
    ]);
    await asked[1]?.deny(handle, "not b");
    await asked[0]?.approve(handle, { arguments: { text: "c" }, scope: "once" });
    expect((await handle.result()).text).toBe("So be it.");
    const [wrong, sent, ...rest] = told(fake);
    expect(wrong).toMatch(/^The arguments of look_up are wrong:/);
    expect(sent).toMatch(/this call: {"text":"c"}\]\s*{"sent":"c"}$/);
    expect(rest).toEqual(["The user did not allow this call. They said: not b"]);
    await client.close();
  });

  test("a person is asked where no effect is declared", async () => {
    const erased: string[] = [];
    const erase = task("erase", { description: "Erases.", sideEffects: "idempotent", retries: 3 }, async () => {
      erased.push("notes");
      return "erased";
    });
    const fake = model([toolCall("erase", {}), turn("I did not.")]);
    const assistant = reactAgent("assistant", { model: "fake/any", tools: [erase] });
    const client = await connect(await backend.open());
    await client.worker({ agents: [assistant] }).start();
    const handle = await client.start(assistant, "Erase the notes.");
    await waits(handle, "approval");
    const [asked] = (await handle.messages()).flatMap((entry) => ApprovalRequest.of(entry) ?? []);
    expect([asked?.name, asked?.effect]).toEqual(["erase", "write"]);
    await asked?.deny(handle);
    expect((await handle.result()).text).toBe("I did not.");
    expect([told(fake), erased]).toEqual([["The user did not allow this call."], []]);
    await client.close();
  });

  test("model calls and host tools are steps of any agent", async () => {
    const place = folder();
    writeFileSync(join(place, "note.txt"), "remember the otters");
    const fake = model([toolCall("look_up", { word: "otter" }), turn("Otters are mammals.")]);
    const researcher = agent("researcher", async (ctx, question: string) => {
      ctx.appendEntry("user", question);
      const first = await llm.generate(ctx, { model: "fake/any", tools: [lookUp], system: "Be brief." });
      ctx.appendEntry("assistant", first.message);
      for (const call of first.toolCalls) {
        const found = await lookUp({ word: String(call.arguments["word"]) });
        ctx.appendEntry("tool_result", toolResult(call, found));
      }
      const last = await llm.stream(ctx.contextRef(), { model: "fake/any", tools: [lookUp], thinking: "low" });
      const note = await tools.read("note.txt", { workingDirectory: place, limit: 5 });
      const missing = await tools.call("read", { path: "nothing.txt" });
      return { said: last.text, stop: last.stop, used: last.usage?.output, note: note.text, error: missing.error };
    });
    const served = { providers: fake.providers, tools: ["read"], workingDirectory: place };
    const events: Event[] = [];
    const url = await backend.open();
    const options = { id: "r", url, toolkit: served, onEvent: (event: Event) => events.push(event) };
    const result = await run(researcher, "What are otters?", options);
    expect(result).toMatchObject({ said: "Otters are mammals.", stop: "end", error: "not_found" });
    expect(result.note).toContain("remember the otters");
    expect(result.used).toBeGreaterThan(0);
    expect(fake.paid).toBe(2);
    expect(told(fake)).toEqual(["otter is a mammal."]);
    expect(fake.calls[0]?.body["system"]).toBeDefined();
    const streamed = events.map((event) => (event.type === "token" ? event.text : "")).join("");
    expect(streamed).toBe("Otters are mammals.");
    expect(await run(researcher, "What are otters?", options)).toEqual(result);
    expect(fake.paid).toBe(2);
  });

  test("steps are listed and pages are read", async () => {
    const pages = createServer((_, answer) => {
      answer.setHeader("content-type", "text/html").end("<p>Otters hold <b>hands</b>.</p>");
    });
    await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
    const page = `http://127.0.0.1:${(pages.address() as AddressInfo).port}/`;
    const reader = agent("reader", async () => {
      const listed = await tools.todo(["read the page", { content: "think", status: "in_progress" }]);
      const found = await tools.fetch(page);
      const raw = await tools.fetch(page, { raw: true });
      return { listed: listed.text, details: listed.details, found: found.text, raw: raw.text };
    });
    const toolkit = { fetch: { privateHosts: ["127.0.0.1"] } };
    const { listed, details, found, raw } = await run(reader, undefined, { url: await backend.open(), toolkit });
    pages.close();
    expect(listed).toBe("[ ] read the page\n[>] think\n");
    expect(details).toMatchObject({ todos: [{ status: "pending" }, { content: "think", status: "in_progress" }] });
    expect(found).toContain("Otters hold");
    expect([found.includes("<b>"), raw.includes("<b>")]).toEqual([false, true]);
  });

  test("an assistant says how much of results its model is shown, and which directories its tools have", async () => {
    const [place, more] = [folder(), folder()];
    writeFileSync(join(more, "numbers"), Array.from({ length: 100 }, (_, number) => `${number}\n`).join(""));
    const fake = model([toolCall("bash", { command: `cat ${more}/numbers` }), turn("Many.")]);
    const assistant = reactAgent("counter", {
      model: "fake/any",
      tools: ["bash"],
      approvals: "allow",
      results: { maxLines: 10 },
      workingDirectory: place,
      addDirs: [more],
      sandbox: false,
    });
    await run(assistant, "Count.", { url: await backend.open() });
    expect(told(fake)[0]).toContain("Lines 3 to 92 are left out");
  });
});

describe.each(BACKENDS.filter(({ name }) => name === "memory" || name === "sqlite"))("images on $name", (backend) => {
  const around = Buffer.concat([Buffer.from("before"), PNG, Buffer.from("after")]);
  const returned: Record<string, { value: unknown; shows: number; says?: string }> = {
    buffer: { value: PNG, shows: 1 },
    bytes: { value: new Uint8Array(PNG), shows: 1 },
    "a part of a buffer": { value: new Uint8Array(around.buffer, around.byteOffset + 6, PNG.length), shows: 1 },
    blob: { value: new Blob(PNG), shows: 1 },
    text: { value: new TextEncoder().encode("Otters hold hands. 🦦"), shows: 0, says: "Otters hold hands. 🦦" },
    "large text": { value: Buffer.from("They float. ".repeat(6_000)), shows: 0, says: "They float. They float. " },
    binary: { value: Buffer.from("7f454c460000ff", "hex"), shows: 0, says: "[7 bytes of binary data (application/x-elf)" },
    nothing: { value: new Uint8Array(0), shows: 0 },
    list: { value: [{ type: "text", text: "Two of them:" }, PARTS["ours"], PARTS["mcp"]], shows: 2, says: "Two of them:" },
    outcome: { value: { content: [PARTS["mcp"]], isError: false }, shows: 1 },
    data: { value: [{ type: "image", title: "Otters" }], shows: 0, says: '[{"title":"Otters","type":"image"}]' },
    ...Object.fromEntries(Object.entries(PARTS).map(([name, value]) => [name, { value, shows: 1 }])),
  };
  const paint = task(
    "paint",
    { input: z.object({ what: z.string() }), description: "Paints." },
    async ({ what }): Promise<unknown> => returned[what]?.value,
  );

  test.each(["anthropic", "local", "openai"])("and bytes of tools reach the model, by %s", async (provider) => {
    const fake = model([...Object.keys(returned).map((what) => toolCall("paint", { what })), turn("Seen.")]);
    const tools = [tool(paint, { effect: "read" })];
    const assistant = reactAgent("painter", { model: `${provider}/any`, tools, providers: seeing(fake) });
    const { text, turns } = await run(assistant, "Paint.", { url: await backend.open() });
    expect([text, turns]).toEqual(["Seen.", Object.keys(returned).length + 1]);
    const all = Object.values(returned);
    const sent = fake.calls.at(-1)?.body;
    expect(images(sent)).toEqual(Array(all.reduce((sum, { shows }) => sum + shows, 0)).fill(BASE64));
    const whole = JSON.stringify(sent);
    for (const { says = "" } of all) expect(whole).toContain(JSON.stringify(says).slice(1, -1));
    // Not as a text either, which would cost a window and show nothing.
    expect(whole.split(BASE64).length - 1).toBe(images(sent).length);
  });

  test("of a prompt are taken in every shape, and what is none is refused in words", async () => {
    const fake = model([turn("I see.")]);
    const url = await backend.open();
    const look = (provider: string, ...userParts: GivenPart[]): Promise<unknown> => {
      const assistant = reactAgent(`${provider}-viewer`, { model: `${provider}/any`, providers: seeing(fake) });
      return run(assistant, { userPrompt: "Look.", userParts }, { url });
    };
    const all = Object.values(PARTS).map((part) => ["anthropic", part] as const);
    // What is read in one shape is written in that of the wire.
    for (const [provider, part] of [...all, ["local", PARTS["anthropic"]], ["openai", PARTS["openai chat"]]] as const) {
      await look(provider, part);
      expect(images(fake.calls.at(-1)?.body)).toEqual([BASE64]);
    }
    const { paid } = fake;
    const refused = look("anthropic", PARTS["ours"], { type: "video" } as unknown as GivenPart);
    await expect(refused).rejects.toThrow(/userParts\[1\].*no part of the type "video"/);
    const bitmap: GivenPart = { type: "image", data: Buffer.from("BM12345678"), mimeType: "image/png" };
    await expect(look("anthropic", bitmap)).rejects.toThrow(/userParts\[0\].*its bytes are image\/bmp/);
    expect(fake.paid).toBe(paid);
  });

  test("are shown to models that their provider says take them", async () => {
    const fake = model([turn("I see.")]);
    const url = await backend.open();
    const mine = { mine: { api: "openai-chat", baseUrl: fake.openaiUrl } } satisfies Record<string, Provider>;
    const look = async (which: string, providers?: Record<string, Provider>): Promise<unknown> => {
      const viewer = reactAgent(`viewer-${fake.paid}`, { model: which, ...(providers && { providers }) });
      await run(viewer, { userPrompt: "Look.", userParts: [PARTS["mcp"]] }, { url });
      return fake.calls.at(-1)?.body;
    };
    const unseen = await look("mine/any", mine);
    expect(images(unseen)).toEqual([]);
    expect(JSON.stringify(unseen)).toContain("left out: this model takes text only");
    expect(images(await look("mine/any", { mine: { ...mine.mine, images: true } }))).toEqual([BASE64]);
    expect(images(await look("fake/any"))).toEqual([BASE64]);
  });

  test("of a message in a chat are taken in every shape", async () => {
    const fake = model([turn("Hello."), turn("I see.")]);
    const chat = reactAgent("chat", { model: "anthropic/any", mode: "chat", providers: seeing(fake) });
    const client = await connect(await backend.open());
    await client.worker({ agents: [chat] }).start();
    const handle = await client.start(chat, "Hi.");
    await waits(handle, "userMessage");
    await handle.signal("userMessage", { text: "And these?", parts: [...Object.values(PARTS), { type: "video" }] });
    await until(() => fake.paid === 2);
    await handle.cancel({ mode: "hard" });
    await client.close();
    const sent = fake.calls.at(-1)?.body;
    expect(images(sent)).toEqual(Object.values(PARTS).map(() => BASE64));
    // Nobody waits for an answer to a signal, so the model is told.
    expect(JSON.stringify(sent)).toContain("no part of the type");
    expect(JSON.stringify(sent)).toContain("And these?");
  });

  test.each(["anthropic", "local", "openai"])("are shown by model calls as steps, by %s", async (provider) => {
    const place = folder();
    writeFileSync(join(place, "otter.png"), PNG);
    const fake = model([toolCall("paint", { what: "buffer" }), turn("Points.")]);
    const which = `${provider}/any`;
    const viewer = agent("viewer", async (ctx) => {
      const parts = [{ type: "text", text: "What is in it?" }, PARTS["ours"]] as Part[];
      ctx.appendEntry("user", { role: "user", parts });
      const first = await llm.generate(ctx, { model: which, tools: [paint] });
      ctx.appendEntry("assistant", first.message);
      for (const call of first.toolCalls) ctx.appendEntry("tool_result", toolResult(call, await tools.read("otter.png")));
      const messages = [{ role: "user" as const, parts: [PARTS["ours, of bytes"]] }];
      return (await llm.generate(ctx, { model: which, messages })).text;
    });
    const toolkit = { providers: seeing(fake), workingDirectory: place };
    expect(await run(viewer, undefined, { url: await backend.open(), toolkit })).toBe("Points.");
    expect(fake.calls.map(({ body }) => images(body))).toEqual([[BASE64], [BASE64, BASE64, BASE64]]);
  });
});

describe("a process that dies", () => {
  test.each([
    ["a file", async () => fileUrl(), [1, 2, 3]],
    ["a server", server, [2]],
  ])("goes on where it was killed, on %s, and no model call is paid twice", async (_, open, kills) => {
    const fake = model([
      toolCall("slow", { step: 1 }),
      toolCall("slow", { step: 2 }),
      toolCall("slow", { step: 3 }),
      turn("Three steps."),
    ]);
    const url = await open();
    const log = join(folder(), "log");
    writeFileSync(log, "");
    const lines = (): string[] => readFileSync(log, "utf8").split("\n").filter(Boolean);
    for (const step of kills) {
      const victim = start("toolkit_victim.cjs", [url, log, fake.url], { HOLD: String(step) });
      await until(() => lines().includes(`start ${step}`));
      victim.process.kill("SIGKILL");
      expect((await victim.ended).signal, victim.errors()).toBe("SIGKILL");
      expect(fake.paid).toBe(step);
    }
    const last = start("toolkit_victim.cjs", [url, log, fake.url]);
    expect(await last.ended, last.errors()).toEqual({ code: 0, signal: null });
    expect(last.output().trim()).toBe("Three steps.");
    expect(fake.paid).toBe(4);
    expect(fake.calls.filter(({ outcome }) => typeof outcome === "object")).toEqual([]);
    expect(lines().filter((line) => line.startsWith("end"))).toEqual(["end 1", "end 2", "end 3"]);
  }, 120_000);

  test.each([
    ["a file", async () => fileUrl()],
    ["a server", server],
  ])("has its model calls made by the next one, which was told of none, on %s", async (_, open) => {
    const fake = model([{ text: "Well.", pace: { ttftMs: 1_500 } }]);
    const url = await open();
    const environment = { ASK: "1", ANTHROPIC_BASE_URL: fake.url };
    const victim = start("toolkit_victim.cjs", [url, "", ""], environment);
    await until(() => fake.calls.length === 1);
    victim.process.kill("SIGKILL");
    expect((await victim.ended).signal, victim.errors()).toBe("SIGKILL");
    // The run waits for the call, so its agent is not there to name it.
    const next = start("toolkit_victim.cjs", [url, "", ""], environment);
    expect(await next.ended, next.errors()).toEqual({ code: 0, signal: null });
    expect(next.output().trim()).toBe("Well.");
    expect(fake.paid).toBe(1);
  }, 120_000);

  test("is not held open by what it does not use", async () => {
    const child = start("toolkit_victim.cjs", ["memory:", join(folder(), "log"), ""]);
    expect(await child.ended, child.errors()).toEqual({ code: 0, signal: null });
    expect(child.output().trim()).toBe("Done by itself.");
    const [used, passed] = child.errors().trim().split(" ").map(Number) as [number, number];
    expect(used, `${used} ms of CPU in ${passed} idle ms`).toBeLessThan(passed / 10);
  });
});

describe("what models do wrong", () => {
  test("is tried again, and what cannot be is a ModelError that says why", async () => {
    // An answer that nobody can read is asked for twice at most, whatever else goes wrong.
    const faults = [malformed(), cut(), status(529), status(429)];
    const fake = model([{ text: "At last.", faults }, turn("never")], { key: "right" });
    const key = (key: string) => ({ providers: { fake: { ...fake.providers.fake, key } } });
    const asker = agent("asker", async (_, which: string) => {
      try {
        return (await llm.generate("Well?", { model: which })).text;
      } catch (error) {
        if (!(error instanceof ModelError)) throw error;
        return `${error.type}: ${error.status}`;
      }
    });
    const ask = (which: string, toolkit: Toolkit): Promise<string> => run(asker, which, { url: "memory:", toolkit });
    expect(await ask("fake/any", key("right"))).toBe("At last.");
    expect(fake.paid).toBe(1);
    expect(await ask("fake/any", key("wrong"))).toBe("unauthorized: 401");
    expect(await ask("nobody/any", key("right"))).toBe("unknownModel: undefined");
  });

  test("can be waited out, or not at all", async () => {
    const fake = model([{ text: "Slow.", faults: [stall({ ms: 50 })] }]);
    expect((await llm.generate("Well?", { model: "fake/any" })).text).toBe("Slow.");
    expect(fake.calls.map(({ outcome }) => outcome)).toContain("completed");
  });
});

describe("outside of an agent", () => {
  test("a model is just asked, and tools are refused", async () => {
    model([turn("Hello to {{lastUser}}")]);
    const reply = await llm.generate(["you", { role: "user", content: "and me" }], { model: "fake/any" });
    expect([reply.text, reply.attempt, reply.toolCalls]).toEqual([expect.stringContaining("Hello to"), 1, []]);
    await expect(llm.generate("a", { model: "nobody/x" })).rejects.toThrow(/no provider "nobody"/);
    const context = { execution: "00000000-0000-0000-0000-000000000000", thread: "", leaf: null };
    expect(() => llm.generate(context, { model: "fake/any" })).toThrow(OutsideAgent);
    expect(() => llm.generate([], { model: "fake/any" })).toThrow(/nothing to answer/);
    expect(() => llm.stream("a", { model: "fake/any" })).toThrow(OutsideAgent);
    expect(() => tools.read("a")).toThrow(OutsideAgent);
  });
});

describe("what a worker serves", () => {
  test("tools of an MCP server, by name and by pattern", async () => {
    const mcpServers = { files: { command: process.execPath, args: [join(__dirname, "mcp_server.cjs")] } };
    const fake = model([toolCall("mcp__files__search", { query: "otters" }), turn("Found.")]);
    const searcher = reactAgent("searcher", {
      model: "fake/any",
      tools: ["mcp__files__*"],
      approvals: "allow",
      mcpServers,
    });
    expect((await run(searcher, "Search.", { url: "memory:" })).text).toBe("Found.");
    expect(told(fake)).toEqual(["2 files about otters"]);
    const caller = agent("caller", async () => (await tools.call("mcp__files__search", { query: "eels" })).text);
    const options = { url: "memory:", toolkit: { mcpServers, tools: ["mcp__files__search"] } };
    expect(await run(caller, undefined, options)).toBe("2 files about eels");
    const stranger = agent("stranger", async () => (await tools.call("mcp__other__search")).text);
    await expect(run(stranger, undefined, options)).rejects.toThrow(/calls the tool "mcp__other__search", which/);
  });

  test("nothing that two declare differently, and nothing that is not there", async () => {
    const client = await connect("memory:");
    const twice = [reactAgent("a", { model: "fake/x" }), reactAgent("a", { model: "fake/y" })];
    expect(() => client.worker({ agents: twice })).toThrow(/"a"/);
    const wrong = client.worker({ agents: [reactAgent("b", { tools: ["raed"] })] });
    await expect(wrong.start()).rejects.toThrow(/there is no tool "raed"; there are bash, bash-output/);
    const taken = task("llm.generate", async () => "mine");
    const both = client.worker({ agents: [reactAgent("c")], tasks: [taken] });
    await expect(both.start()).rejects.toThrow(/llm\.generate/);
    await client.close();
  });

  test("a chat, until it is told to stop", async () => {
    const fake = model([turn("Hello."), turn("You said: {{lastUser}}")]);
    const chat = reactAgent("chat", { model: "fake/any", mode: "chat" });
    const client = await connect("memory:");
    await client.worker({ agents: [chat] }).start();
    const handle = await client.start(chat, "Hi.");
    await waits(handle, "userMessage");
    await handle.signal("userMessage", { text: "more" });
    await until(() => fake.paid === 2);
    await waits(handle, "userMessage");
    const said = (await handle.messages()).filter(({ role, entryType }) => role === "assistant" && entryType === "message");
    expect(JSON.stringify(said.at(-1)?.content)).toContain("You said: more");
    await handle.cancel({ mode: "hard" });
    await client.close();
  });

  test("stand-ins for tests, in place of a model", async () => {
    const asker = agent("asker", async () => (await llm.generate("Well?", { model: "fake/any" })).text);
    const message = { role: "assistant", parts: [{ type: "text", text: "A stand-in." }] };
    const h = await harness({ agents: [asker], fakes: new Map([["llm.generate", () => ({ message, attempt: 1 })]]) });
    const handle = await h.start(asker);
    await h.settle();
    expect(await handle.result()).toBe("A stand-in.");
    await h.close();
  });

  test("model calls and host tools that nobody announced", async () => {
    model([turn("Found it.")]);
    const simple = agent("simple", async () => {
      const { text } = await llm.generate("Well?", { model: "fake/any" });
      const found: ToolOutcome = await tools.find("tests/toolkit.test.ts");
      return [text, found.text.trim(), (await tools.grep("nothing like it", { path: "package.json" })).isError];
    });
    expect(await run(simple, undefined, { url: "memory:" })).toEqual(["Found it.", "tests/toolkit.test.ts", false]);
  });
});

describe("what a model is shown of a task", () => {
  test("follows from the schema of its input", () => {
    const shown = tool(lookUp);
    expect([shown.name, shown.description, shown.effect]).toEqual(["look_up", "Looks a word up.", "write"]);
    expect(shown.parameters).toMatchObject({
      type: "object",
      properties: { word: { type: "string" }, times: { type: "integer", default: 1 } },
      required: ["word"],
    });
    expect(shown.parameters).not.toHaveProperty("$schema");
    expect(tool(double).parameters).toEqual({
      type: "object",
      properties: { input: { type: "number" } },
      required: ["input"],
      additionalProperties: false,
    });
    const nothing = task("ping", { description: "Pings." }, async () => "pong");
    expect(tool(nothing).parameters).toEqual({ type: "object", properties: {}, additionalProperties: false });
  });

  test("says nothing of its effect, which is a change until it is declared to read", () => {
    const declarations = [{}, { retries: 5 }, { sideEffects: "idempotent" }, { sideEffects: "at_most_once" }] as const;
    for (const settings of declarations) {
      const erase = task("erase", { description: "Erases.", ...settings }, async () => "erased");
      expect(tool(erase).effect).toBe("write");
      expect(tool(erase, { effect: "read" }).effect).toBe("read");
    }
    expect(() => tool(lookUp, { effect: "reads" as never })).toThrow(/the effect of the tool "look_up" is "reads"/);
  });

  test("may be said for it", () => {
    const plain = task("plain.task", async (input: { a: string }) => input.a);
    const parameters = { type: "object", properties: { a: { type: "string" } }, required: ["a"] };
    const shown = tool(plain, { description: "Says a.", parameters, effect: "exec" });
    expect([shown.name, shown.effect, shown.parameters]).toEqual(["plain_task", "exec", parameters]);
    const described = task("d", { input: z.object({}).describe("From the schema.") }, async () => 1);
    expect(tool(described).description).toBe("From the schema.");
  });

  test("is no agent, which is a delegate", () => {
    const given = reactAgent("other", { model: "fake/any" });
    expect(() => reactAgent("outer", { tools: [given] })).toThrow(/the agent "other" has no description/);
    expect(() => tool(given as never)).toThrow(/the agent "other" is no task/);
  });

  test("is refused where a model could do nothing with it", () => {
    const plain = task("plain", async (input: string) => input);
    expect(() => tool(plain)).toThrow(/has no description/);
    expect(() => tool(plain, { description: "a" })).toThrow(/takes an input that nothing describes/);
    const dates = task("dates", { input: z.object({ at: z.date() }), description: "a" }, async () => 1);
    expect(() => tool(dates)).toThrow(/has no JSON Schema/);
    const other = { "~standard": { version: 1, vendor: "other", validate: (value: unknown) => ({ value }) } } as const;
    expect(() => tool(plain, { description: "a", parameters: other })).toThrow(/of "other"/);
    expect(() => tool(plain, { description: "a", name: "two words", parameters: {} })).toThrow(/named "two words"/);
    expect(() => reactAgent("a", { tools: [7 as never] })).toThrow(InvalidArgument);
    expect(() => reactAgent("a").fn({} as never, undefined as never)).toThrow(FlovynError);
  });
});
