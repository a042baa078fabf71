// Requests: as whom they are sent, what is said again, what is kept to its server; and questions that are found.
import { describe, expect, it, vi } from "vitest";
import { Problem, createClient, decide, emptyTranscript, hearsMessages, printedText, questionsIn, sayTo, shortTokens, conversationOfRun, withPage } from "../src/index.js";
import { patiently } from "../src/client/patience.js";
import { pendingMessage, stillPending } from "../src/client/pending.js";
import type { ListedEntry, Run } from "../src/index.js";

interface Sent {
  readonly url: string;
  readonly init: RequestInit;
}

/** A `fetch` that answers with these statuses in turn, and keeps what it was asked. */
function answering(...statuses: readonly number[]): { sent: Sent[]; fetch: typeof fetch } {
  const sent: Sent[] = [];
  const left = [...statuses];
  return {
    sent,
    fetch: async (url, init = {}) => {
      sent.push({ url: String(url), init });
      const status = left.shift() ?? 200;
      if (status === 0) throw new TypeError("fetch failed");
      return new Response(status === 204 ? null : JSON.stringify({ code: "Code", title: "Title", detail: "Detail" }), { status });
    },
  };
}

const header = (one: Sent | undefined, name: string) => new Headers(one?.init.headers).get(name);

describe("tokens that end", () => {
  it("are asked for once by all who wait, kept until shortly before their end, and asked for again after a failure", async () => {
    vi.useFakeTimers({ now: 0 });
    try {
      let asked = 0;
      const token = shortTokens(async () => {
        asked += 1;
        if (asked === 3) throw new Error("signed out");
        return { token: `t${asked}`, expiresAt: new Date(Date.now() + 900_000).toISOString() };
      });
      expect(await Promise.all([token(), token(), token()])).toEqual(["t1", "t1", "t1"]);
      vi.setSystemTime(869_999);
      expect(await token()).toBe("t1");
      vi.setSystemTime(870_000);
      expect(await token()).toBe("t2");
      vi.setSystemTime(870_000 * 2);
      await expect(token()).rejects.toThrow("signed out");
      expect(await token()).toBe("t4");
      const endless = shortTokens(async () => ({ token: `e${(asked += 1)}` }));
      expect([await endless(), await endless()]).toEqual(["e5", "e5"]);
      const short = shortTokens(async () => ({ token: `s${(asked += 1)}`, expiresAt: new Date(Date.now() + 10_000).toISOString() }));
      expect([await short(), await short()]).toEqual(["s6", "s6"]);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe("a client", () => {
  it("sends the token that there is by then, and no cookie beside it; a cookie without one", async () => {
    let token = "first";
    const { sent, fetch } = answering();
    const client = createClient({ url: "https://flovyn.example/base/", org: "acme org", token: async () => token, fetch });
    await client.get("/agent-executions", { limit: 2, cursor: null, status: "A,B" });
    token = "second";
    await client.get("/agent-executions");
    expect(sent.map((one) => one.url)).toEqual(["https://flovyn.example/base/api/orgs/acme%20org/agent-executions?limit=2&status=A%2CB", "https://flovyn.example/base/api/orgs/acme%20org/agent-executions"]);
    expect(sent.map((one) => [header(one, "Authorization"), one.init.credentials])).toEqual([["Bearer first", "omit"], ["Bearer second", "omit"]]);
    await createClient({ fetch }).get("/tools");
    expect([sent[2]?.url, header(sent[2], "Authorization"), sent[2]?.init.credentials]).toEqual(["/api/orgs/default/tools", null, "same-origin"]);
  });

  it("throws what the server says, and says when the caller is not known", async () => {
    let calls = 0;
    const { fetch } = answering(409, 401, 0);
    const client = createClient({ fetch, onUnauthorized: () => (calls += 1) });
    await expect(client.get("/a")).rejects.toMatchObject({ status: 409, code: "Code", message: "Detail" });
    await expect(client.get("/a")).rejects.toMatchObject({ status: 401 });
    await expect(client.get("/a")).rejects.toMatchObject({ status: 0, code: "Unreachable" });
    expect(calls).toBe(1);
  });

  it("sends its token to no other address", async () => {
    const { sent, fetch } = answering();
    const client = createClient({ url: "https://flovyn.example", token: "token", fetch });
    await client.text("/api/orgs/default/payloads/abc?size=3");
    for (const href of ["https://elsewhere.example/x", "//elsewhere.example/x", "@elsewhere.example/", ".elsewhere.example/"]) await expect(client.text(href)).rejects.toThrow("no address of the server");
    expect(sent.map((one) => one.url)).toEqual(["https://flovyn.example/api/orgs/default/payloads/abc?size=3"]);
  });

  it("says the same again while nobody answers, and a refusal at once", async () => {
    const { sent, fetch } = answering(0, 503, 200, 409);
    const client = createClient({ fetch });
    await patiently(() => sayTo(client, "a/b", "Hello.", "now", "key"));
    expect(sent).toHaveLength(3);
    expect(new Set(sent.map((one) => one.init.body)).size).toBe(1);
    expect(sent[0]?.url).toBe("/api/orgs/default/agent-executions/a%2Fb/signal");
    await expect(patiently(() => decide(client, "run", { id: "call", hash: "hash" }, true))).rejects.toBeInstanceOf(Problem);
    expect(JSON.parse(String(sent[3]?.init.body))).toEqual({ signalName: "approval", signalValue: { id: "call", hash: "hash", approved: true }, idempotencyKey: "approval call hash" });
  });
});

let number = 0;
function entry(role: string, entryType: string, content: unknown, parent: ListedEntry | null): ListedEntry {
  number += 1;
  return { id: `e${number}`, execution: "run", parentId: parent?.id ?? null, op: `0-${number}`, role, entryType, content, createdAt: `t${number}` };
}

describe("what waits", () => {
  it("is a question with the last words before it, until it is decided", () => {
    const said = entry("assistant", "message", { role: "assistant", parts: [{ type: "text", text: "I publish it." }, { type: "toolCall", id: "a", name: "publish", arguments: {} }] }, null);
    const asked = entry("assistant", "approval_request", { id: "a", name: "publish", arguments: {}, effect: "write", hash: "h" }, said);
    const open = withPage(emptyTranscript, [said, asked]);
    expect(questionsIn(conversationOfRun(open.entries, "run"))).toMatchObject([{ why: "I publish it.", at: asked.createdAt, block: { call: { id: "a" } } }]);
    const decided = withPage(open, [entry("user", "approval", { id: "a", hash: "h", approved: true }, asked)]);
    expect(questionsIn(conversationOfRun(decided.entries, "run"))).toEqual([]);
  });

  it("is a message until an entry behind it says it, and an entry stands for one message", () => {
    const before = entry("user", "message", "yes", null);
    const heard = new Set<string>();
    let transcript = withPage(emptyTranscript, [before]);
    const pending = ["one", "two"].map((key) => pendingMessage(transcript, "run", key, "yes"));
    expect(stillPending(pending, transcript, "run", heard)).toBe(pending);
    const first = entry("user", "message", { role: "user", parts: [{ type: "text", text: "yes" }] }, before);
    transcript = withPage(transcript, [first]);
    const left = stillPending(pending, transcript, "run", heard);
    expect(left.map((message) => message.key)).toEqual(["two"]);
    expect(stillPending(left, transcript, "run", heard)).toBe(left);
    transcript = withPage(transcript, [entry("user", "message", "yes", first)]);
    expect(stillPending(left, transcript, "run", heard)).toEqual([]);
  });

  it("is heard by agents that hear messages", () => {
    const of = (waitsFor: string[], code: string | null = null) => hearsMessages({ waitsFor, code } as unknown as Run);
    expect([of(["userMessage"]), of([]), of(["approval"]), of(["go"]), of(["go"], "react-agent 1"), of(["flovyn.child.x"])]).toEqual([true, true, true, false, true, true]);
  });
});

describe("what commands print", () => {
  it("is text without what only a terminal reads", () => {
    expect(printedText("\u001b[32mok\u001b[0m 10 %\r 20 %\r\n\u001b]8;;javascript:alert(1)\u0007link\u001b]8;;\u0007")).toBe(" 20 %\nlink");
  });
});
