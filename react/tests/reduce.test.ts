// The reducer against random streams: cut, repeated, retracted and resumed, it ends as the clean stream does.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { branchTo, conversationOf, emptyTranscript, leafOf, withEvents, withPage } from "../src/transcript/index.js";
import type { ListedEntry, ServerEvent, Transcript } from "../src/transcript/index.js";

const RUN = "run-1";

/** What an agent does, step by step; the server below makes events of it. */
type Step =
  | { do: "say"; pieces: string[]; attempts: number; thought: boolean }
  | { do: "entry"; text: string; fork: boolean }
  | { do: "status"; status: "WAITING" | "RUNNING" };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    do: fc.constant("say" as const),
    pieces: fc.array(fc.string({ maxLength: 8 }), { maxLength: 6 }),
    attempts: fc.integer({ min: 1, max: 3 }),
    thought: fc.boolean(),
  }),
  fc.record({ do: fc.constant("entry" as const), text: fc.string({ maxLength: 12 }), fork: fc.boolean() }),
  fc.record({ do: fc.constant("status" as const), status: fc.constantFrom("WAITING" as const, "RUNNING" as const) }),
);

interface Sent extends ServerEvent {
  readonly durable: boolean;
}

/** A server's journal: durable events with gapless numbers, and previews between them. */
function journal(steps: readonly Step[], ends: boolean): { events: Sent[]; entries: ListedEntry[] } {
  const events: Sent[] = [];
  const entries: ListedEntry[] = [];
  let seq = 0;
  let number = 0;
  let leaf: string | null = null;
  const durable = (type: string, op: string | null, more: Record<string, unknown>) => {
    seq += 1;
    events.push({ id: String(seq), type, durable: true, data: { agentExecutionId: RUN, op, epoch: null, attempt: 1, seq, at: `t${seq}`, ...more } });
  };
  const entry = (op: string, content: unknown, parent: string | null) => {
    const id = `entry-${op}`;
    durable("entry", op, { entryId: id, entryType: "message", role: "assistant", parentId: parent, content });
    entries.push({ id, execution: RUN, parentId: parent, op: `${RUN}-${op}`, role: "assistant", entryType: "message", content, createdAt: `t${seq}` });
    leaf = id;
  };
  durable("agent.started", null, { kind: "test", status: "PENDING" });
  for (const each of steps) {
    const op = `0-${number++}`;
    if (each.do === "status") durable(each.status === "WAITING" ? "agent.waiting" : "agent.resumed", null, { status: each.status, signals: [] });
    else if (each.do === "entry") entry(op, each.text, each.fork ? (entries[0]?.id ?? null) : leaf);
    else {
      for (let attempt = 1; attempt <= each.attempts; attempt++) {
        durable("task.started", op, { kind: "llm.generate", attempt });
        each.pieces.forEach((piece, index) => {
          const data = each.thought && index === 0 ? { type: "thinking_delta", delta: piece } : piece;
          events.push({
            id: String(seq),
            type: typeof data === "string" ? "token" : "data",
            durable: false,
            data: { agentExecutionId: RUN, op, epoch: 1, attempt, seq: index + 1, data },
          });
        });
        if (attempt < each.attempts) {
          durable("task.retry", op, { kind: "llm.generate", attempt });
          events.push({ id: String(seq), type: "retract", durable: false, data: { agentExecutionId: RUN, op, seq } });
        }
      }
      durable("task.completed", op, { kind: "llm.generate", attempt: each.attempts });
      entry(`0-${number++}`, { role: "assistant", parts: [{ type: "text", text: each.pieces.join("") }] }, leaf);
    }
  }
  if (ends) durable("agent.completed", null, { status: "COMPLETED" });
  return { events, entries };
}

/** What a server sends to a reader that comes back: behind the id, with what is being made anew from its start. */
function resumed(events: readonly Sent[], upTo: number, lastId: number, lost: boolean): Sent[] {
  const told = events.slice(0, upTo);
  const ended = new Set(told.filter((each) => each.durable && (each.type === "entry" || each.type === "task.completed")).map((each) => each.data.op));
  const last = new Map<string, number>();
  for (const each of told) {
    if ((each.type === "retract" || each.type === "task.retry") && each.data.op) last.delete(each.data.op);
    else if (!each.durable && each.data.op) last.set(each.data.op, each.data.attempt ?? 0);
  }
  const again: Sent[] = [];
  if (lost) again.push({ id: String(lastId), type: "gap", durable: false, data: { agentExecutionId: RUN, seq: lastId } });
  for (const [op, attempt] of last) {
    if (ended.has(op)) continue;
    again.push({ id: String(lastId), type: "retract", durable: false, data: { agentExecutionId: RUN, op, seq: lastId } });
    again.push(...told.filter((each) => !each.durable && each.type !== "retract" && each.data.op === op && each.data.attempt === attempt));
  }
  const durable = told.filter((each) => each.durable && Number(each.id) > lastId);
  return [...again, ...durable];
}

/** All that a reader can tell apart. What has ended but is not replaced yet is a courtesy to the eye, so it does not count. */
function shown(transcript: Transcript): unknown {
  const run = transcript.runs.get(RUN);
  return {
    entries: [...transcript.entries.values()].sort((left, right) => (left.id < right.id ? -1 : 1)),
    conversation: conversationOf(branchTo(transcript, leafOf(transcript, RUN)).entries),
    status: run?.status ?? null,
    seq: run?.seq ?? 0,
    tasks: [...(run?.tasks.values() ?? [])].sort((left, right) => (left.op < right.op ? -1 : 1)),
    previews: [...(run?.previews.values() ?? [])].filter((each) => !each.done).sort((left, right) => (left.op < right.op ? -1 : 1)),
  };
}

const cuts = fc.array(fc.record({ at: fc.nat(400), back: fc.nat(12), lost: fc.boolean(), frame: fc.integer({ min: 1, max: 9 }) }), { maxLength: 6 });

/** Reads the journal with cuts: at each, what was read last is forgotten, and the stream is resumed from there. */
function broken(events: readonly Sent[], where: readonly { at: number; back: number; lost: boolean; frame: number }[]): Transcript {
  let transcript = emptyTranscript;
  const read = (some: readonly Sent[], frame: number) => {
    for (let at = 0; at < some.length; at += frame) transcript = withEvents(transcript, some.slice(at, at + frame));
  };
  const sorted = where.map((cut) => ({ ...cut, at: Math.min(cut.at, events.length) })).sort((left, right) => left.at - right.at);
  let place = 0;
  for (const cut of sorted) {
    read(events.slice(place, cut.at), cut.frame);
    place = cut.at;
    // A cut may lose the last id too, so that durable events come twice.
    const lastId = Math.max(0, Number(events[place - 1]?.id ?? 0) - cut.back);
    read(resumed(events, place, lastId, cut.lost), cut.frame);
  }
  read(events.slice(place), 7);
  return transcript;
}

describe("the reducer", () => {
  it("ends as the clean stream does, however often it was cut, retracted and resumed", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), fc.boolean(), cuts, (steps, ends, where) => {
        const { events } = journal(steps, ends);
        expect(shown(broken(events, where))).toEqual(shown(withEvents(emptyTranscript, events)));
      }),
      { numRuns: 1000 },
    );
  });

  it("shows at every moment what the clean stream shows, where it is resumed there", () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 8 }), fc.nat(200), fc.nat(6), fc.boolean(), (steps, at, back, lost) => {
        const { events } = journal(steps, false);
        const upTo = Math.min(at, events.length);
        const cut = [{ at: upTo, back, lost, frame: 3 }];
        expect(shown(broken(events.slice(0, upTo), cut))).toEqual(shown(withEvents(emptyTranscript, events.slice(0, upTo))));
      }),
      { numRuns: 1000 },
    );
  });

  it("takes every durable event twice, and pieces that were read", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 10 }), fc.array(fc.nat(300), { maxLength: 40 }), (steps, again) => {
        const { events } = journal(steps, true);
        const doubled = events.flatMap((each, place) => (again.includes(place) && each.type !== "retract" ? [each, each] : [each]));
        expect(shown(withEvents(emptyTranscript, doubled))).toEqual(shown(withEvents(emptyTranscript, events)));
      }),
      { numRuns: 500 },
    );
  });

  it("makes the same of pages in any order, beside the stream or without it", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), fc.integer({ min: 1, max: 5 }), fc.array(fc.nat(50), { maxLength: 10 }), (steps, size, order) => {
        const { events, entries } = journal(steps, true);
        const pages: ListedEntry[][] = [];
        for (let at = 0; at < entries.length; at += size) pages.push(entries.slice(at, at + size));
        const shuffled = [...order.flatMap((place) => pages.slice(place % (pages.length || 1))), ...pages];
        const clean = shown(withEvents(emptyTranscript, events)) as { entries: unknown; conversation: unknown };
        const mixed = [...events];
        let transcript = emptyTranscript;
        for (const page of shuffled) {
          transcript = withPage(transcript, page);
          transcript = withEvents(transcript, mixed.splice(0, 5));
        }
        transcript = withEvents(transcript, mixed);
        expect(shown(transcript)).toEqual(clean);
        const alone = shuffled.reduce(withPage, emptyTranscript);
        const found = shown(alone) as { entries: unknown; conversation: unknown };
        expect(found.conversation).toEqual(clean.conversation);
        expect(found.entries).toEqual(clean.entries);
      }),
      { numRuns: 500 },
    );
  });

  it("leaves what it was given as it was", () => {
    const { events } = journal([{ do: "say", pieces: ["a", "b"], attempts: 1, thought: false }, { do: "entry", text: "x", fork: false }], false);
    let transcript = emptyTranscript;
    const before: { transcript: Transcript; shown: string }[] = [];
    for (const event of events) {
      before.push({ transcript, shown: JSON.stringify(shown(transcript)) });
      transcript = withEvents(transcript, [event]);
    }
    for (const each of before) expect(JSON.stringify(shown(each.transcript))).toBe(each.shown);
  });

  it("reads 20,000 entries in a moment", () => {
    const steps: Step[] = Array.from({ length: 20_000 }, (_, place) => ({ do: "entry", text: `entry ${place}`, fork: false }));
    const { events } = journal(steps, true);
    const begun = performance.now();
    const transcript = withEvents(emptyTranscript, events);
    expect(transcript.entries.size).toBe(20_000);
    expect(performance.now() - begun).toBeLessThan(2_000);
  });
});
