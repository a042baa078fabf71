// Streams that are cut anywhere and read again, in pieces of other lengths: what a reader ends with is what one reading gives.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AgUiReplay } from "../src/front_ends/ag_ui_replay.js";
import { AiSdkReplay } from "../src/front_ends/ai_sdk_replay.js";
import type { Replay } from "../src/front_ends/unbroken.js";

type Event = Record<string, unknown>;

/** Texts in pieces, as a stream has them. */
const pieces = (text: string, size: number) => text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];

/** A turn of two steps with a call between them. */
function aiSdk(first: string, second: string, size: number): Event[] {
  const prose = (kind: string, id: string, text: string) => [{ type: `${kind}-start`, id }, ...pieces(text, size).map((delta) => ({ type: `${kind}-delta`, id, delta })), { type: `${kind}-end`, id }];
  return [
    { type: "start", messageId: "e-answer" },
    { type: "start-step" },
    ...prose("reasoning", "e-0-0", "Hm."),
    ...prose("text", "e-0-1", first),
    { type: "tool-input-available", toolCallId: "c", toolName: "t", input: {} },
    { type: "tool-output-available", toolCallId: "c", output: "ok" },
    { type: "finish-step" },
    { type: "start-step" },
    ...prose("text", "e-1-0", second),
    { type: "finish-step" },
    { type: "finish", finishReason: "stop" },
  ];
}

/** Reads each of the streams up to its cut, and the last one whole. */
function read(replay: Replay, streams: readonly (readonly Event[])[]): Event[] {
  const given: Event[] = [];
  streams.forEach((stream, index) => {
    if (index > 0) given.push(...replay.rewind().map((data) => JSON.parse(data) as Event));
    for (const event of stream) given.push(...replay.pass(JSON.stringify(event)).map((data) => JSON.parse(data) as Event));
  });
  return given;
}

/** What a reader of the AI SDK shows: its parts in order, without those that were taken back. */
function shown(chunks: readonly Event[]): unknown[] {
  const parts: { id: unknown; text: string; state: string; retracted?: boolean }[] = [];
  const other: unknown[] = [];
  for (const chunk of chunks) {
    const type = String(chunk["type"]);
    const part = parts.findLast((each) => each.id === chunk["id"] && each.state === "open");
    if (/^(text|reasoning)-start$/.test(type)) parts.push({ id: chunk["id"], text: "", state: "open" });
    else if (/^(text|reasoning)-/.test(type)) {
      if (!part) throw new Error(`${JSON.stringify(chunk)} is of nothing that is open`);
      if (type.endsWith("-delta")) part.text += String(chunk["delta"]);
      else Object.assign(part, { state: "done", retracted: "providerMetadata" in chunk });
    } else other.push(chunk);
  }
  return [parts.filter((part) => !part.retracted).map(({ id, text, state }) => ({ id, text, state })), other];
}

const text = fc.string({ minLength: 1, maxLength: 30, unit: "binary" });
const size = fc.integer({ min: 1, max: 9 });

describe("a stream of the AI SDK", () => {
  it("is shown whole, whatever is cut", () => {
    fc.assert(
      fc.property(text, text, fc.array(fc.tuple(size, fc.nat(40)), { maxLength: 4 }), size, (first, second, cuts, last) => {
        const whole = aiSdk(first, second, last);
        const streams = [...cuts.map(([size, at]) => aiSdk(first, second, size).slice(0, at)), whole];
        expect(shown(read(new AiSdkReplay(), streams))).toEqual(shown(whole));
      }),
      { numRuns: 400 },
    );
  });

  it("takes back what was written in an attempt that has failed meanwhile", () => {
    fc.assert(
      fc.property(text, text, fc.nat(30), size, size, (wrong, right, at, size, last) => {
        const whole = aiSdk(right, "end", last);
        const given = read(new AiSdkReplay(), [aiSdk(wrong, "end", size).slice(0, Math.min(at, 7 + pieces(wrong, size).length - 1)), whole]);
        expect(shown(given)).toEqual(shown(whole));
      }),
      { numRuns: 400 },
    );
    // Nothing was written in its place.
    const whole: Event[] = [{ type: "start", messageId: "e-answer" }, { type: "start-step" }, { type: "finish-step" }, { type: "finish" }];
    expect(shown(read(new AiSdkReplay(), [aiSdk("wrong", "", 2).slice(0, 9), whole]))[0]).toEqual([{ id: "e-0-0", text: "Hm.", state: "done" }]);
  });

  it("passes on what the server takes back itself", () => {
    const retracted = { type: "text-end", id: "e-0-0", providerMetadata: { flovyn: { retracted: true } } };
    const start = { type: "text-start", id: "e-0-0" };
    const delta = (delta: string) => ({ type: "text-delta", id: "e-0-0", delta });
    const stream = [start, delta("wrong"), retracted, start, delta("right"), { type: "text-end", id: "e-0-0" }];
    expect(read(new AiSdkReplay(), [stream])).toEqual(stream);
    expect(shown(read(new AiSdkReplay(), [stream.slice(0, 5), [start, delta("right one")], stream.slice(3)]))[0]).toEqual([{ id: "e-0-0", text: "right one", state: "done" }]);
    const reset = [start, delta("wrong"), { type: "reset-step" }, start, delta("right")];
    expect(read(new AiSdkReplay(), [reset])).toEqual(reset);
  });
});

describe("a stream of AG-UI", () => {
  it("is told anew behind what its reader had before, with nothing left open", () => {
    const events = (size: number): Event[] => [
      { type: "RUN_STARTED", threadId: "t", runId: "again" },
      { type: "STEP_STARTED", stepName: "step-1" },
      { type: "REASONING_START", messageId: "r" },
      { type: "REASONING_MESSAGE_START", messageId: "r", role: "reasoning" },
      { type: "REASONING_MESSAGE_END", messageId: "r" },
      { type: "REASONING_END", messageId: "r" },
      { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
      ...pieces("A text.", size).map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta })),
      { type: "TEXT_MESSAGE_END", messageId: "m" },
      { type: "STEP_FINISHED", stepName: "step-1" },
      { type: "RUN_FINISHED", threadId: "t", runId: "again" },
    ];
    const before = [{ id: "u", role: "user", content: "hi" }];
    fc.assert(
      fc.property(fc.array(fc.tuple(size, fc.nat(14)), { maxLength: 3 }), size, (cuts, last) => {
        const streams = [...cuts.map(([size, at]) => events(size).slice(0, Math.min(at, events(size).length - 1))), events(last)];
        const given = read(new AgUiReplay({ threadId: "t", runId: "mine" }, before), streams);
        expect(given.filter((event) => event["type"] === "RUN_STARTED")).toEqual([{ type: "RUN_STARTED", threadId: "t", runId: "mine" }]);
        const open = new Set<string>();
        for (const event of given) {
          const [, kind, what] = /^(STEP|TEXT_MESSAGE|REASONING_MESSAGE|REASONING)_(START(?:ED)?|END|FINISHED)$/.exec(String(event["type"])) ?? [];
          const key = `${kind} ${String(event["messageId"] ?? event["stepName"])}`;
          if (what?.startsWith("START")) expect(open.has(key) || !open.add(key)).toBe(false);
          else if (what) expect(open.delete(key)).toBe(true);
          if (event["type"] === "MESSAGES_SNAPSHOT") expect(event["messages"]).toEqual(before);
        }
        expect(open.size).toBe(0);
        const anew = given.slice(given.map((event) => event["type"]).lastIndexOf("MESSAGES_SNAPSHOT") + 1);
        expect(anew.flatMap((event) => (event["type"] === "TEXT_MESSAGE_CONTENT" ? [event["delta"]] : [])).join("")).toBe("A text.");
      }),
      { numRuns: 200 },
    );
  });

  it("keeps the messages of its reader where the server tells them by other ids", () => {
    const replay = new AgUiReplay({ threadId: "t", runId: "mine" }, [{ id: "mine", role: "user" }]);
    replay.rewind();
    const messages = [{ id: "e", role: "user" }, { id: "a", role: "assistant" }];
    expect(JSON.parse(replay.pass(JSON.stringify({ type: "MESSAGES_SNAPSHOT", messages }))[0] ?? "")).toMatchObject({ messages: [{ id: "mine" }, { id: "a" }] });
  });
});
