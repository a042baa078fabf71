// What a client and a handle reach: values of a run, its conversation with its place, listings, schedules, queues.

import {
  agent,
  connect,
  type DataEvent,
  type Event,
  ExecutionNotFound,
  type Handle,
  InvalidArgument,
  InvalidTransition,
  type Messages,
  NotFound,
  replaces,
  task,
  type TokenEvent,
} from "@flovyn/sdk";
import { expect, test } from "vitest";

import { onEveryBackend } from "./backends.js";
import { disposing, until } from "./support.js";

const answers = agent("answers", async (_, question: string) => ({ text: `${question}!` }));

const chat = agent("chat", { state: () => ({ turn: 0 }) }, async (ctx) => {
  for (;;) {
    const text = await ctx.waitForSignal<string>("say");
    ctx.appendEntry("user", text);
    ctx.streamToken(`${text}, `);
    ctx.streamToken("you say");
    ctx.appendEntry("assistant", `${text}, you say`);
    await ctx.checkpoint({ turn: ctx.state.turn + 1 });
    if (text === "bye") return ctx.state.turn;
  }
});

const turns = (handle: Handle<unknown>, count: number): Promise<unknown> =>
  until(async () => (await handle.checkpoints()).length >= count);

/** Tells of an event by its type: the compiler knows which one it is. */
function told(event: Event): string[] {
  if (event.type === "entry") return [`${event.role}: ${String(event.content)}`];
  if (event.type === "lifecycle" && event.isTerminal) return [`${event.name} with ${String(event.result)}`];
  return [];
}

async function listed<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

onEveryBackend((backend) => {
  test("values of a run", async () => {
    const client = disposing(await connect(await backend.open()));
    const handle = await client.start(answers, "why", { id: "a" });
    expect([await handle.input(), await handle.output(), await handle.state()]).toEqual(["why", undefined, undefined]);
    await client.worker({ agents: [answers, chat] }).start();
    await handle.result({ timeoutMs: 30_000 });
    expect(await handle.output()).toEqual({ text: "why!" });

    const talk = await client.start(chat);
    for (const [n, text] of ["hello", "bye"].entries()) {
      await talk.signal("say", text);
      await turns(talk, n + 1);
    }
    expect(await talk.result({ timeoutMs: 30_000 })).toBe(2);
    expect([await talk.state(), await talk.state(1), await talk.state(9)]).toEqual([{ turn: 2 }, { turn: 1 }, undefined]);
    const states = (await talk.checkpoints({ states: true })).map((each) => each.state);
    expect(states).toEqual([{ turn: 1 }, { turn: 2 }]);
    await client.close();
  });

  test("a conversation and the stream behind it have nothing twice and leave nothing out", async () => {
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [chat] }).start();
    const handle = await client.start(chat);
    const snapshots: Messages[] = [];
    let looks = true;
    const looking = (async () => {
      while (looks) snapshots.push(await handle.messages());
    })();
    for (let n = 1; n < 6; n++) {
      await handle.signal("say", `say ${n}`);
      await turns(handle, n);
    }
    await handle.signal("say", "bye");
    await handle.result({ timeoutMs: 30_000 });
    looks = false;
    await looking;
    const whole = (await handle.messages()).map((message) => message.id);
    expect(whole.length).toBe(12);
    const some = snapshots.filter((_, n) => n % Math.ceil(snapshots.length / 20) === 0);
    for (const snapshot of some) {
      const after: string[] = [];
      for await (const event of handle.stream({ after: snapshot.position })) {
        if (event.type === "entry") after.push(event.entryId);
      }
      expect([...snapshot.map((message) => message.id), ...after]).toEqual(whole);
    }
    await client.close();
  });

  test("what is shown is exact, and the end has the result", async () => {
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [chat] }).start();
    const handle = await client.start(chat);
    await handle.signal("say", "bye");
    let shown: (TokenEvent | DataEvent)[] = [];
    const said: string[] = [];
    for await (const event of handle.stream()) {
      shown = shown.filter((preview) => !replaces(event, preview));
      said.push(...told(event));
      if (event.type === "token" || event.type === "data") {
        shown.push(event);
        expect(event.op.startsWith(handle.id)).toBe(true);
      }
      expect(shown.length).toBeLessThanOrEqual(2);
    }
    expect(shown).toEqual([]);
    expect(said.slice(-3)).toEqual(["user: bye", "assistant: bye, you say", "completed with 1"]);
    await client.close();
  });

  test("a run that has ended is removed", async () => {
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [answers, chat] }).start();
    const living = await client.start(chat);
    await expect(living.delete()).rejects.toThrow(InvalidTransition);
    const handle = await client.start(answers, "why", { id: "a" });
    await handle.result({ timeoutMs: 30_000 });
    await handle.delete();
    await expect(client.delete("a")).rejects.toThrow(ExecutionNotFound);
    expect((await listed(client.runs())).map((run) => run.id)).toEqual([living.id]);
    const again = await client.start(answers, "else", { id: "a" });
    expect(await again.result({ timeoutMs: 30_000 })).toEqual({ text: "else!" });
    await client.close();
  });

  test("runs are filtered", async () => {
    const client = disposing(await connect(await backend.open()));
    const before = new Date(Date.now() - 5_000);
    for (const [n, queue] of ["default", "gpu", "gpu"].entries()) {
      const metadata = { n: String(n % 2), agentDefinition: `d${n}` };
      await client.start("k", n, { id: `r${n}`, queue, metadata });
    }
    const after = new Date(Date.now() + 5_000);
    const keys = async (filter: Parameters<typeof client.runs>[0]): Promise<unknown[]> =>
      (await listed(client.runs(filter))).map((run) => run.key).sort();
    expect(await keys({ queue: "gpu" })).toEqual(["r1", "r2"]);
    expect(await keys({ queue: "gpu", metadata: { n: "0" } })).toEqual(["r2"]);
    expect(await keys({ status: ["PENDING", "RUNNING"], kind: "k", limit: 1 })).toEqual(["r0", "r1", "r2"]);
    expect(await keys({ createdFrom: before, createdUntil: after })).toEqual(["r0", "r1", "r2"]);
    expect([...(await keys({ createdFrom: after })), ...(await keys({ createdUntil: before }))]).toEqual([]);
    expect(await keys({ definition: "d1" })).toEqual(["r1"]);
    expect([...(await keys({ parent: "r0" })), ...(await keys({ root: "r0" }))]).toEqual([]);
    await expect(listed(client.runs({ status: "ASLEEP" }))).rejects.toThrow("ASLEEP");
    await client.close();
  });

  test("schedules, queues, workers", async () => {
    const client = disposing(await connect(await backend.open()));
    const made = await client.createSchedule("digest", answers, {
      input: "what",
      cron: "0 8 * * MON-FRI",
      timezone: "Europe/Paris",
      metadata: { of: "me" },
    });
    expect(made).toMatchObject({ id: "digest", kind: "answers", input: "what", metadata: { of: "me" } });
    expect(made.nextAt?.getTime()).toBeGreaterThan(made.createdAt.getTime());
    await client.createSchedule("digest", "answers", { input: "else", cron: "@daily", priority: 3 });
    await client.createSchedule("other", answers, { input: "what", cron: "@hourly", concurrencyKey: "k" });
    expect((await listed(client.schedules())).map((each) => each.id)).toEqual(["digest", "other"]);
    expect(await client.schedule("digest")).toMatchObject({ input: "else", cron: "@daily", priority: 3, timezone: null });
    expect(await client.pauseSchedule("digest")).toMatchObject({ paused: true, nextAt: null, cron: "@daily" });
    expect((await client.resumeSchedule("digest")).nextAt).not.toBe(null);
    await client.deleteSchedule("digest");
    await expect(client.schedule("digest")).rejects.toThrow(NotFound);
    await expect(client.createSchedule("x", "k", { cron: "never" })).rejects.toThrow(InvalidArgument);

    await client.start(answers, "b", { queue: "gpu" });
    expect(await client.queues()).toEqual([{ kind: "answers", queue: "gpu", queued: 1, running: 0, served: false }]);
    await client.limitQueue("gpu", { concurrency: 2, rate: { runs: 60, seconds: 30 } });
    expect(await client.queueLimits()).toEqual([{ queue: "gpu", concurrency: 2, rate: { runs: 60, seconds: 30 } }]);
    await client.limitQueue("gpu", {});
    expect(await client.queueLimits()).toEqual([]);
    expect(await listed(client.workers())).toEqual([]);
    await client.worker({ agents: [answers], queue: "gpu" }).start();
    const [known] = await listed(client.workers());
    expect(known?.queues).toEqual(["gpu"]);
    expect(known?.aliveUntil.getTime()).toBeGreaterThanOrEqual(known?.seenAt.getTime() ?? Infinity);
    await client.close();
  });

  test("a task by its kind runs in the queue that is named", async () => {
    const where: string[] = [];
    const queued = task("queued", async (n: number) => {
      where.push("gpu");
      return n + 1;
    });
    const caller = agent("caller", async (ctx) => ctx.scheduleTask<number>("queued", 1, { queue: "gpu" }));
    const client = disposing(await connect(await backend.open()));
    await client.worker({ agents: [caller] }).start();
    const handle = await client.start(caller);
    await until(async () => (await handle.tasks()).length > 0);
    await client.worker({ tasks: [queued], queue: "gpu" }).start();
    expect(await handle.result({ timeoutMs: 30_000 })).toBe(2);
    expect((await handle.tasks()).map((each) => each.queue)).toEqual(["gpu"]);
    await client.close();
  });
});
