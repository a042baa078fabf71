// AG-UI's own client against a server and a worker: its `HttpAgent` as it is, and the agent of this package, which outlives cuts.
import { HttpAgent } from "@ag-ui/client";
import type { AgentSubscriber, Interrupt, Message } from "@ag-ui/client";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FlovynAgent } from "../src/front_ends/ag_ui.js";
import { Processes, until } from "./world.js";

let world: Processes;
beforeAll(async () => {
  world = await Processes.open();
  await world.ask("POST", "/agent-definitions", { slug: "otters", kind: "react-agent", tools: ["publish", "hostile_tool"] });
});
afterAll(() => world?.close());

const ours = (threadId: string, initialMessages: Message[] = []) => new FlovynAgent({ url: world.url, token: () => world.token(), definition: "otters", threadId, initialMessages });
const theirs = (threadId: string) => new HttpAgent({ url: `${world.url}/api/orgs/default/agent-definitions/otters/ag-ui`, headers: { Authorization: `Bearer ${world.token()}` }, threadId });

let count = 0;
function say(agent: HttpAgent, content: string, more: object = {}, subscriber?: AgentSubscriber) {
  agent.addMessage({ id: `${agent.threadId}-${++count}`, role: "user", content });
  return agent.runAgent(more, subscriber);
}

const said = (agent: HttpAgent) => agent.messages.flatMap((message) => (message.role === "assistant" ? [message.content ?? ""] : [])).join("|");
const rolesOf = (agent: HttpAgent) => agent.messages.map((message) => message.role);

/** The conversation as one who comes anew is shown it. */
async function shown(threadId: string): Promise<FlovynAgent> {
  const agent = ours(threadId);
  await agent.connectAgent();
  return agent;
}

describe("AG-UI", () => {
  it("streams two turns in a row to the client of AG-UI as it is", async () => {
    const agent = theirs("http-agent");
    const pieces: string[] = [];
    await say(agent, "A survey, please.", {}, { onTextMessageContentEvent: ({ event }) => void pieces.push(event.delta) });
    expect(pieces.length).toBeGreaterThan(3);
    expect(said(agent)).toBe(pieces.join(""));
    expect(said(agent)).toContain("What otters eat");
    await say(agent, "And the fault?");
    expect(rolesOf(agent)).toEqual(["user", "reasoning", "assistant", "user", "assistant"]);
    expect(agent.messages.at(-1)).toMatchObject({ content: "An answer after a fault." });

    const later = await shown("http-agent");
    expect(rolesOf(later)).toEqual(rolesOf(agent));
    expect(later.messages.filter((each) => each.role !== "user")).toEqual(agent.messages.filter((each) => each.role !== "user"));
  });

  it("goes on behind a server that is killed in the middle, and shows one who comes meanwhile the same", async () => {
    const agent = ours("killed");
    const running = say(agent, "A short story, please.");
    await until("the story has begun", () => said(agent).length > 200);
    const second = ours("killed");
    const connecting = second.connectAgent();
    await until("the second one reads it too", () => said(second).length > 200);
    await world.killServer();
    await world.startServer();
    await Promise.all([running, connecting]);
    const later = await shown("killed");
    expect(said(later).length).toBeGreaterThan(1_000);
    expect([said(agent), said(second)]).toEqual([said(later), said(later)]);
    expect([rolesOf(agent), rolesOf(second)]).toEqual([["user", "assistant"], ["user", "assistant"]]);
  });

  it("takes back what a worker has written that is killed in the middle", async () => {
    const agent = theirs("worker-killed");
    const running = say(agent, "A short story, please.");
    await until("the story has begun", () => said(agent).length > 200);
    await world.killWorker();
    await world.startWorker();
    await running;
    expect(rolesOf(agent)).toEqual(["user", "assistant"]);
    expect(said(agent)).toBe(said(await shown("worker-killed")));
  });

  it("interrupts for an approval and resumes with the answer", async () => {
    for (const [approved, outcome] of [[true, "Otters is published with 120 words."], [false, "The user did not allow this call. They said: Not now."]] as const) {
      const agent = theirs(`publish-${approved}`);
      let interrupts: Interrupt[] = [];
      await say(agent, "Please publish.", {}, { onRunFinishedEvent: (params) => void (interrupts = params.outcome === "interrupt" ? params.interrupts : []) });
      expect(interrupts).toMatchObject([{ reason: "tool_call", metadata: { toolName: "publish", arguments: { title: "Otters", words: 120 } } }]);
      const [{ id, toolCallId }] = interrupts as [Interrupt];
      expect(agent.messages.at(-1)).toMatchObject({ role: "assistant", toolCalls: [{ id: toolCallId, function: { name: "publish" } }] });
      await agent.runAgent({ resume: [{ interruptId: id, status: "resolved", payload: { approved, reason: "Not now." } }] });
      expect(agent.messages.find((message) => message.role === "tool")).toMatchObject({ toolCallId, content: outcome });
      expect(agent.messages.at(-1)).toMatchObject({ role: "assistant", content: "That is done." });
      const later = await shown(`publish-${approved}`);
      expect(rolesOf(later)).toEqual(rolesOf(agent));
    }
  });

  it("takes a message while another one is answered", async () => {
    const agent = ours("steered");
    const running = say(agent, "A short story, please.");
    await until("the story has begun", () => said(agent).length > 200);
    const second = ours("steered", [...agent.messages]);
    await say(second, "Stop that: survey, please.", { forwardedProps: { delivery: "now" } });
    await running;
    expect(rolesOf(agent)).toEqual(["user", "assistant"]);
    expect(second.messages.at(-1)).toMatchObject({ role: "assistant", content: expect.stringContaining("What otters eat") });
    expect(said(await shown("steered"))).toContain("What otters eat");
  });

  it("passes hostile texts on, the errors of models and why a message is refused", async () => {
    const hostile = 'A hostile </script>\r\n\ndata: {}\n\nid: 9\u2028\u0007 "🦦" \\u0000';
    const agent = ours("hostile");
    await say(agent, hostile);
    const later = await shown("hostile");
    expect(later.messages[0]).toMatchObject({ content: hostile });
    expect(agent.messages.find((message) => message.role === "tool")).toMatchObject({ content: expect.stringContaining("\x1b]8;;javascript:alert(1)\x07link") });
    expect(said(agent)).toContain('<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>');

    const failing = ours("failing");
    const errors: string[] = [];
    await say(failing, "Please break down.", {}, { onRunErrorEvent: ({ event }) => void errors.push(event.message) }).catch(() => undefined);
    expect(errors).toEqual([expect.stringContaining("the model refuses")]);
    const lost = new FlovynAgent({ url: world.url, token: world.token(), threadId: "no-such-run" });
    await expect(say(lost, "Hello?")).rejects.toThrow("the first message starts it");
  });
});
