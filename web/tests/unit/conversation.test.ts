// The conversation: calls with their results, approvals and children; and the wire, however it is cut.
import { addressOf, ServerSentReader } from "@flovyn/react/client";
import { branchTo, conversationOf, emptyTranscript, isUndecided, leafOf, withPage } from "@flovyn/react/transcript";
import type { CallBlock, ListedEntry, TranscriptEntry } from "@flovyn/react/transcript";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Run } from "../../src/api/client";
import { seenBy } from "../../src/screens/run/context_view";
import { writtenFiles } from "../../src/screens/run/file_versions";
import { scaleOf } from "../../src/screens/run/spans";
import { treeRows } from "../../src/screens/run/entry_tree";
import { asPython, bodyOf, emptyDraft } from "../../src/screens/new_run/draft";

let number = 0;
function entry(entryType: string, role: string, content: unknown, parent: ListedEntry | null): ListedEntry {
  number += 1;
  return { id: `e${number}`, execution: "run", parentId: parent?.id ?? null, op: `0-${number}`, role, entryType, content, createdAt: `2026-01-01T00:00:${String(number % 60).padStart(2, "0")}Z` };
}

function chain(...parts: readonly [string, string, unknown][]): ListedEntry[] {
  const made: ListedEntry[] = [];
  for (const [type, role, content] of parts) made.push(entry(type, role, content, made.at(-1) ?? null));
  return made;
}

const message = (role: string, ...parts: unknown[]) => ["message", role, { role, parts }] as [string, string, unknown];
const text = (said: string) => ({ type: "text", text: said });
const call = (id: string) => ({ type: "toolCall", id, name: "bash", arguments: { command: "ls" } });

function branchOf(listed: readonly ListedEntry[]): readonly TranscriptEntry[] {
  const transcript = withPage(emptyTranscript, listed);
  return branchTo(transcript, leafOf(transcript, "run")).entries;
}

describe("the conversation", () => {
  it("puts a result, a decision and a child to the call that they are of", () => {
    const listed = chain(
      message("user", text("Go.")),
      message("assistant", { type: "thinking", text: "Hm." }, text("I look."), call("a"), call("b")),
      ["approval_request", "assistant", { id: "a", name: "bash", arguments: {}, effect: "exec", hash: "h" }],
      ["agent_spawn", "assistant", { id: "b", name: "bash", kind: "scout", child: "child-1" }],
      ["approval", "user", { id: "a", hash: "h", approved: false, reason: "No." }],
      message("tool_result", { type: "toolResult", id: "a", name: "bash", content: [text("refused")], isError: true }),
    );
    const blocks = conversationOf(branchOf(listed));
    expect(blocks.map((block) => block.kind)).toEqual(["message", "thinking", "message", "call", "call"]);
    const [first, second] = blocks.filter((block): block is CallBlock => block.kind === "call");
    expect(first).toMatchObject({ result: { text: "refused", isError: true }, approval: { decision: { approved: false, reason: "No." } } });
    expect(second).toMatchObject({ child: "child-1", result: null });
  });

  it("knows what waits for a person, and that a decision about other arguments is none", () => {
    const asked = chain(message("assistant", call("a")), ["approval_request", "assistant", { id: "a", name: "bash", arguments: {}, effect: "exec", hash: "h" }]);
    const undecided = (listed: readonly ListedEntry[]) => conversationOf(branchOf(listed)).filter((block) => block.kind === "call" && isUndecided(block)).length;
    expect(undecided(asked)).toBe(1);
    expect(undecided([...asked, entry("approval", "user", { id: "a", hash: "other", approved: true }, asked.at(-1) ?? null)])).toBe(1);
    expect(undecided([...asked, entry("approval", "user", { id: "a", hash: "h", approved: true }, asked.at(-1) ?? null)])).toBe(0);
  });

  it("follows the branch that was gone on with, and shows the other one in the tree", () => {
    const root = chain(message("user", text("One.")));
    const left = entry("message", "assistant", "left", root[0] ?? null);
    const right = entry("message", "assistant", "right", root[0] ?? null);
    const listed = [...root, left, right];
    expect(branchOf(listed).map((each) => each.id)).toEqual([root[0]?.id, right.id]);
    const rows = treeRows(listed as never, right.id);
    expect(rows.map((row) => [row.isCurrent, row.column])).toEqual([[true, 0], [false, 1], [true, 0]]);
  });

  it("takes any content without falling over", () => {
    const content = fc.oneof(fc.jsonValue(), fc.record({ role: fc.string(), parts: fc.array(fc.oneof(fc.jsonValue(), fc.record({ type: fc.constantFrom("text", "toolCall", "toolResult", "media", "thinking"), id: fc.jsonValue(), text: fc.jsonValue(), content: fc.jsonValue(), source: fc.jsonValue() }))) }));
    const type = fc.constantFrom("message", "approval_request", "approval", "compaction", "tools", "input_request", "agent_spawn", "answer_end", "other");
    fc.assert(
      fc.property(fc.array(fc.tuple(type, fc.constantFrom("user", "assistant", "tool_result"), content), { maxLength: 8 }), (parts) => {
        const branch = branchOf(chain(...(parts as [string, string, unknown][])));
        conversationOf(branch);
        seenBy(branch);
      }),
    );
  });

  it("tells what the model saw: after a compaction only what was kept, and what was new", () => {
    const listed = chain(message("system", text("S")), message("user", text("old")), message("assistant", text("old answer")), message("user", text("new")));
    const compaction = entry("compaction", "system", { summary: "It was old.", firstKeptEntryId: listed[3]?.id }, listed[3] ?? null);
    const seen = seenBy(branchOf([...listed, compaction]));
    expect(seen.summary).toBe("It was old.");
    expect(seen.messages.map((each) => [each.text, each.isNew])).toEqual([["S", false], ["new", true]]);
  });
});

describe("written files", () => {
  it("have a version for each call that has changed them, whole where that is known", () => {
    const write = { type: "toolCall", id: "w", name: "write", arguments: { path: "a.py", content: "a - b\n" } };
    const edit = { type: "toolCall", id: "x", name: "edit", arguments: { path: "a.py", old_string: "a - b", new_string: "a + b" } };
    const other = { type: "toolCall", id: "y", name: "edit", arguments: { path: "b.py", edits: [{ old_string: "1", new_string: "2" }] } };
    const failed = { type: "toolCall", id: "z", name: "edit", arguments: { path: "c.py", old_string: "1", new_string: "2" } };
    const done = (id: string, isError = false) => message("tool_result", { type: "toolResult", id, name: "edit", content: [text("done")], isError });
    const blocks = conversationOf(branchOf(chain(message("assistant", write, edit, other, failed), done("w"), done("x"), done("y"), done("z", true))));
    const files = writtenFiles(blocks);
    expect(files.map((file) => [file.path, file.versions.length])).toEqual([["b.py", 1], ["a.py", 2]]);
    expect(files[1]?.versions[1]).toMatchObject({ whole: "a + b\n", changes: [{ before: "a - b\n", after: "a + b\n" }] });
    expect(files[0]?.versions[0]).toMatchObject({ whole: null, changes: [{ before: "1", after: "2" }] });
  });
});

describe("the wire of events", () => {
  it("reads the same however it is cut", () => {
    const wire = 'id: 1\nevent: entry\ndata: {"a":1}\n\n:\n\nid: 2~3_4.5\r\nevent: token\r\ndata: x\r\ndata: y\r\n\r\ndata: z\n\n';
    const whole = new ServerSentReader().read(wire);
    expect(whole).toEqual([
      { id: "1", type: "entry", data: '{"a":1}' },
      { id: "2~3_4.5", type: "token", data: "x\ny" },
      { id: "2~3_4.5", type: "message", data: "z" },
    ]);
    fc.assert(
      fc.property(fc.array(fc.nat(wire.length), { maxLength: 20 }), (cuts) => {
        const reader = new ServerSentReader();
        const places = [0, ...cuts.sort((left, right) => left - right), wire.length];
        expect(places.slice(1).flatMap((place, index) => reader.read(wire.slice(places[index], place)))).toEqual(whole);
      }),
    );
  });
});

describe("the timeline", () => {
  it("keeps the order of time, and cuts long silences short", () => {
    const span = (from: number, until: number) => ({ key: `${from}`, label: "", about: "", kind: "tool" as const, from, begun: from, until, isOpen: false, isBad: false, attempts: 1, inspect: null });
    const scale = scaleOf([span(0, 1_000), span(172_800_000, 172_801_000)]);
    expect(scale.cuts).toHaveLength(1);
    expect(scale.at(1_000)).toBeGreaterThan(0.4);
    expect(scale.at(172_800_000) - scale.at(1_000)).toBeLessThan(0.1);
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(1e9), fc.nat(1e6)), { minLength: 1, maxLength: 20 }), fc.nat(1e9), fc.nat(1e9), (spans, left, right) => {
        const any = scaleOf(spans.map(([from, took]) => span(from, from + took)));
        const [before, after] = [any.at(Math.min(left, right)), any.at(Math.max(left, right))];
        expect(before).toBeLessThanOrEqual(after + 1e-9);
      }),
    );
  });
});

describe("an address of a run", () => {
  it("has the id it was started with only where that is one part of a path", () => {
    const of = (key: string | null) => addressOf({ id: "uuid", key } as Run);
    expect(["chat-1", "a.b:c@d", null, "new", "..", "a/b", "a?b", "ä", "%2e", ""].map(of)).toEqual(["chat-1", "a.b:c@d", "uuid", "uuid", "uuid", "uuid", "uuid", "uuid", "uuid", "uuid"]);
  });
});

describe("a new run", () => {
  it("is the same as a body and as a program", () => {
    const body = bodyOf({ ...emptyDraft, prompt: "Say \"hi\".", models: ["openrouter/z-ai/glm-4.7"], maxTokens: "100", id: "x" });
    expect(body).toEqual({ kind: "react-agent", userPrompt: 'Say "hi".', models: [{ provider: "openrouter", modelId: "z-ai/glm-4.7" }], id: "x", budget: { maxTokens: 100 } });
    expect(asPython(body)).toContain('"userPrompt": "Say \\"hi\\"."');
    expect(asPython(body)).toContain('budget={\n                "max_tokens": 100,\n            },');
    expect(() => bodyOf({ ...emptyDraft, isJson: true, input: "{" })).toThrow(SyntaxError);
  });
});
