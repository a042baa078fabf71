// `useChat`'s own machinery against a server and a worker: chats stream, survive a killed server, ask for approvals, are reloaded.
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import type { ChatInit, ChatState, ChatStatus, UIMessage } from "ai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { flovynTransport, isRetracted, loadMessages, uiMessagesOf } from "../src/front_ends/ai_sdk.js";
import { Processes, until } from "./world.js";

let world: Processes;
beforeAll(async () => {
  world = await Processes.open();
  await world.ask("POST", "/agent-definitions", { slug: "otters", kind: "react-agent", tools: ["publish", "hostile_tool"] });
});
afterAll(() => world?.close());

/** What `useChat` keeps, without React. */
class State implements ChatState<UIMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined;
  constructor(public messages: UIMessage[]) {}
  pushMessage = (message: UIMessage) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index: number, message: UIMessage) => void (this.messages = this.messages.map((each, at) => (at === index ? structuredClone(message) : each)));
  snapshot = <T>(thing: T): T => structuredClone(thing);
}

class Chat extends AbstractChat<UIMessage> {
  constructor({ messages, ...init }: ChatInit<UIMessage>) {
    super({ ...init, state: new State(messages ?? []) });
  }
}

const where = () => ({ url: world.url, token: world.token() });

function chatOf(id: string, more: Partial<ChatInit<UIMessage>> = {}): Chat {
  const transport = flovynTransport({ ...where(), definition: "otters" });
  return new Chat({ id, transport, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses, ...more });
}

const textOf = (message: UIMessage | undefined) => message?.parts.flatMap((part) => (part.type === "text" && !isRetracted(part) ? [part.text] : [])).join("") ?? "";
const said = (chat: Chat) => textOf(chat.lastMessage?.role === "assistant" ? chat.lastMessage : undefined);
const rolesOf = (chat: Chat) => chat.messages.map((message) => message.role);

/** The agent's words since the last message, as the API has them. */
async function saidIn(id: string): Promise<string> {
  const { items } = await world.ask<{ items: Parameters<typeof uiMessagesOf>[0] }>("GET", `/agent-executions/${id}/messages?limit=1000`);
  return textOf(uiMessagesOf(items).at(-1));
}

describe("useChat's machinery", () => {
  it("streams two turns in a row, the first of which starts the run", async () => {
    const chat = chatOf("two-turns");
    const seen = new Set<string>();
    const looking = setInterval(() => seen.add(said(chat)), 5);
    await chat.sendMessage({ text: "A survey, please." });
    clearInterval(looking);
    expect(chat.error).toBeUndefined();
    expect(seen.size).toBeGreaterThan(3);
    expect(chat.lastMessage?.parts.map((part) => part.type)).toEqual(["step-start", "reasoning", "text"]);
    expect(said(chat)).toBe(await saidIn("two-turns"));
    expect(said(chat)).toContain("What otters eat");
    await chat.sendMessage({ text: "And the fault?" });
    expect(said(chat)).toBe("An answer after a fault.");
    expect(rolesOf(chat)).toEqual(["user", "assistant", "user", "assistant"]);
    expect(chat.lastMessage?.parts.every((part) => !("state" in part) || part.state === "done")).toBe(true);

    // A page that is loaded again shows the same, under the same ids of answers.
    const loaded = await loadMessages("two-turns", where());
    expect(loaded.map(textOf)).toEqual(chat.messages.map(textOf));
    expect(loaded.filter((each) => each.role === "assistant").map((each) => each.id)).toEqual(chat.messages.filter((each) => each.role === "assistant").map((each) => each.id));
    const reloaded = chatOf("two-turns", { messages: loaded });
    await reloaded.resumeStream();
    expect(reloaded.status).toBe("ready");
    expect(reloaded.messages).toEqual(loaded);
    expect(await loadMessages("nobody", where())).toEqual([]);
  });

  it("goes on behind a server that is killed in the middle, with the whole text once", async () => {
    const chat = chatOf("killed");
    const sending = chat.sendMessage({ text: "A short story, please." });
    await until("the story has begun", () => said(chat).length > 200);
    const before = said(chat);
    await world.killServer();
    await world.startServer();
    await sending;
    expect(chat.error).toBeUndefined();
    expect(said(chat).startsWith(before)).toBe(true);
    expect(said(chat)).toBe(await saidIn("killed"));
    expect(rolesOf(chat)).toEqual(["user", "assistant"]);
  });

  it("takes back what a worker has written that is killed in the middle", async () => {
    const chat = chatOf("worker-killed");
    const sending = chat.sendMessage({ text: "A short story, please." });
    await until("the story has begun", () => said(chat).length > 200);
    await world.killWorker();
    await world.startWorker();
    await sending;
    expect(chat.error).toBeUndefined();
    expect(said(chat)).toBe(await saidIn("worker-killed"));
    const retracted = chat.lastMessage?.parts.filter(isRetracted) ?? [];
    expect(retracted.map((part) => part.type === "text" && part.text.length > 200)).toEqual([true]);
  });

  it("shows what is under way on a page that is loaded in the middle", async () => {
    const first = chatOf("reloaded");
    const sending = first.sendMessage({ text: "A short story, please." });
    await until("the story has begun", () => said(first).length > 200);
    const second = chatOf("reloaded", { messages: (await loadMessages("reloaded", where())).filter((each) => each.role === "user") });
    // The transport of the AI SDK itself, with nothing of this package.
    const plain = new DefaultChatTransport<UIMessage>({
      headers: { Authorization: `Bearer ${world.token()}` },
      prepareReconnectToStreamRequest: ({ id }) => ({ api: `${world.url}/api/orgs/default/agent-executions/${id}/stream?format=ai-sdk` }),
    });
    const third = chatOf("reloaded", { transport: plain });
    await Promise.all([sending, second.resumeStream(), third.resumeStream()]);
    const whole = await saidIn("reloaded");
    expect([said(first), said(second), said(third)]).toEqual([whole, whole, whole]);
    expect([rolesOf(first), rolesOf(second), rolesOf(third)]).toEqual([["user", "assistant"], ["user", "assistant"], ["assistant"]]);
  });

  it("asks for an approval and goes on with the answer that the client gives", async () => {
    for (const approved of [true, false]) {
      const chat = chatOf(`publish-${approved}`);
      await chat.sendMessage({ text: "Please publish." });
      const asked = chat.lastMessage?.parts.find((part) => part.type === "tool-publish");
      expect(asked).toMatchObject({ state: "approval-requested", input: { title: "Otters", words: 120 } });
      // One who comes later is asked as well.
      const later = chatOf(`publish-${approved}`, { messages: await loadMessages(`publish-${approved}`, where()) });
      expect(later.lastMessage?.parts.find((part) => part.type === "tool-publish")).toEqual(asked);
      await later.resumeStream();
      expect(later.lastMessage?.parts.find((part) => part.type === "tool-publish")).toMatchObject({ state: "approval-requested" });

      const { id } = (asked as { approval: { id: string } }).approval;
      await chat.addToolApprovalResponse({ id, approved, reason: "I say so." });
      await until("the agent is done", () => chat.status === "ready" && said(chat) === "That is done.");
      expect(rolesOf(chat)).toEqual(["user", "assistant"]);
      const parts = chat.lastMessage?.parts.filter((part) => part.type === "tool-publish");
      expect(parts).toHaveLength(1);
      expect(parts?.[0]).toMatchObject(approved ? { state: "output-available", output: "Otters is published with 120 words." } : { state: "output-denied" });
      // Sent again, the decision is answered with what followed it.
      const part = { ...(asked as object), state: "approval-responded", approval: { id, approved, reason: "I say so." } };
      const again = { method: "POST", headers: { Authorization: `Bearer ${world.token()}`, "Content-Type": "application/json" }, body: JSON.stringify({ message: { id: "a", role: "assistant", parts: [part] } }) };
      const answer = await (await fetch(`${world.url}/api/orgs/default/agent-executions/publish-${approved}/ai-sdk`, again)).text();
      expect([answer.includes("That is done."), answer.includes("tool-input-available")]).toEqual([true, false]);
      const loaded = await loadMessages(`publish-${approved}`, where());
      expect(loaded.at(-1)?.parts.map((part) => part.type)).toEqual(chat.lastMessage?.parts.map((part) => part.type));
    }
  });

  it("passes hostile texts on byte by byte", async () => {
    const hostile = 'A hostile </script>\r\n\ndata: [DONE]\n\nid: 9\u2028\u0007 "🦦" \\u0000';
    const chat = chatOf("hostile");
    await chat.sendMessage({ text: hostile });
    expect(textOf((await loadMessages("hostile", where()))[0])).toBe(hostile);
    const tool = chat.lastMessage?.parts.find((part) => part.type === "tool-hostile_tool");
    expect(tool).toMatchObject({ state: "output-available", output: expect.stringContaining("\x1b]8;;javascript:alert(1)\x07link") });
    expect(said(chat)).toContain('<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>');
    expect(said(chat)).toBe(await saidIn("hostile"));
  });

  it("takes a message while another one is answered, and tells the two answers apart", async () => {
    const chat = chatOf("steered");
    const first = chat.sendMessage({ text: "A short story, please." });
    await until("the story has begun", () => said(chat).length > 200);
    const second = chat.sendMessage({ text: "Stop that: survey, please.", }, { body: { delivery: "now" } });
    await Promise.all([first, second]);
    expect(chat.error).toBeUndefined();
    const loaded = await loadMessages("steered", where());
    expect(chat.messages.map((each) => each.role)).toEqual(["user", "assistant", "user", "assistant"]);
    expect(chat.messages.map(textOf)).toEqual(loaded.map(textOf));
    expect(said(chat)).toContain("What otters eat");
  });

  it("shows the error of a model, and why a message is refused", async () => {
    const chat = chatOf("failing");
    await chat.sendMessage({ text: "Please break down." });
    expect(chat.error?.message).toContain("the model refuses");
    chat.clearError();
    await chat.sendMessage({ text: "And a survey." });
    expect(chat.error).toBeUndefined();
    expect(said(chat)).toContain("What otters eat");

    const lost = chatOf("no-such-run", { transport: flovynTransport(where()) });
    await lost.sendMessage({ text: "Hello?" });
    expect(lost.error?.message).toContain("the first message starts it");
    await chat.regenerate();
    expect(chat.error?.message).toContain("does not write an answer again");
  });
});
