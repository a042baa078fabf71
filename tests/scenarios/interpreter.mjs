// The scenarios' agents in TypeScript's language: they run programs of ops. README.md holds the words.
//
// interpreter.mjs URL [KILL_AT] < programs, one JSON object a line; dies at the n-th place where it counts.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
const { agent, connect, task, FlovynError, InDoubt, NonRetryable, TaskFailed } = require("@flovyn/sdk");

const [, , url, killAt] = process.argv;
const programs = readFileSync(0, "utf8").trim().split("\n").map((line) => JSON.parse(line));
let places = 0;

class Refused extends Error {}

function count() {
  places += 1;
  if (places === Number(killAt)) process.kill(process.pid, "SIGKILL");
}

// ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

const double = task("double", async (x) => (count(), x * 2));
const echo = task("echo", async (value) => (count(), value));
const fill = task("fill", async (size) => new Uint8Array(size).fill(7));
const measure = task("measure", async (content) => content.length);
const fails = task("fails", { noRetry: [Refused] }, async (why) => {
  count();
  throw new Refused(why);
});
const flaky = task("flaky", { retries: 3 }, async (failures, { attempt }) => {
  if (attempt <= failures) throw new Refused(`attempt ${attempt}`);
  return attempt;
});
const hopeless = task("hopeless", { retries: 5 }, async (why) => {
  throw new NonRetryable(why);
});
const slow = task("slow", { timeoutMs: 50 }, async (seconds, { signal }) => {
  await setTimeout(seconds * 1000, undefined, { signal });
});
const charge = task("charge", { sideEffects: "at_most_once" }, async (amount) => (count(), amount));

// ── agents ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Hears a child to its end, and answers what it asks. */
async function hear(ctx, child) {
  const heard = [];
  for (;;) {
    const event = await ctx.waitForChildEvent(child);
    if (event.type === "request") await event.respond(["re", event.payload]);
    if (event.type === "signal" || event.type === "request") heard.push([event.type, event.name, event.payload]);
    else return [...heard, [event.type, event.type === "failed" ? event.error.reason : event.output]];
  }
}

/** A conversation as pairs of role and content. */
async function said(ctx) {
  return (await ctx.messages()).map(({ role, content }) => [role, content]);
}

/** Does one op. */
async function step(ctx, [op, ...words], found) {
  count();
  const name = words.at(-1);
  const [one, two] = words;
  switch (op) {
    case "task":
      found[name] = await double(one);
      break;
    case "echo":
      found[name] = await echo(one);
      break;
    case "by_kind":
      found[name] = await ctx.scheduleTask(one, two);
      break;
    case "keyed":
      found[name] = await double.options({ key: two })(one);
      break;
    case "formed": {
      const at = new Date("2026-01-31T12:00:00.120Z");
      const raw = new Uint8Array([251, 255]);
      found[name] = await echo({ at, ids: new Set([10, 9]), raw, tags: new Set(["b", "a!", "a"]), none: undefined });
      break;
    }
    case "bytes":
      found[name] = await measure(await fill(one));
      break;
    case "fails":
      try {
        await fails(one);
      } catch (error) {
        if (!(error instanceof TaskFailed)) throw error;
        found[name] = [error.type, error.reason];
      }
      break;
    case "refused":
      await fails(one);
      break;
    case "flaky":
      found[name] = await flaky(one);
      break;
    case "hopeless":
      await hopeless(one);
      break;
    case "slow":
      await slow(one);
      break;
    case "charge":
      found[name] = await charge(one);
      break;
    case "inline":
      found[name] = await ctx.run("inline", () => one);
      break;
    case "all":
      found[name] = await Promise.all(one.map((value) => double(value)));
      break;
    case "nested":
      found[name] = await Promise.all(one.map((row) => Promise.all(row.map((value) => double(value)))));
      break;
    case "first":
      [found[name]] = await ctx.select([double(one), ctx.sleep(two * 1000)]);
      break;
    case "leave":
      ctx.scheduleTask(double, one);
      break;
    case "detached":
      found[name] = ctx.scheduleTask(double.options({ detached: true }), one).ref;
      break;
    case "attach":
      found[name] = await ctx.attach(found[one]);
      break;
    case "child":
      found[name] = await ctx.spawnAgent(below, one);
      break;
    case "named":
      found[name] = await ctx.spawnAgent(below, two, { id: one });
      break;
    case "begin":
      ctx.spawnAgent(below, two, { id: one });
      break;
    case "message":
      await ctx.signalParent(one, two);
      break;
    case "ask":
      found[name] = await ctx.requestFromParent(one, two);
      break;
    case "hear":
      found[name] = await hear(ctx, ctx.spawnAgent(below, two, { id: one }));
      break;
    case "steer": {
      const child = ctx.spawnAgent(below, two, { id: one });
      await ctx.signalChild(child, words[2], words[3]);
      found[name] = await child;
      break;
    }
    case "stop": {
      const child = ctx.spawnAgent(below, two, { id: one });
      await ctx.waitForChildEvent(child);
      await ctx.cancelChild(child);
      found[name] = await hear(ctx, child);
      break;
    }
    case "shared": {
      const child = ctx.spawnAgent(below, two, { sharedContext: one });
      found[name] = [await child, await said(ctx.thread(child.id))];
      break;
    }
    case "brief":
      found[name] = await ctx.spawnAgent(below, one, { persistence: "ephemeral" });
      break;
    case "hand_off":
      await ctx.handoffToAgent(below, one);
      break;
    case "hand_off_anew":
      await ctx.handoffToAgent(below, one, { conversation: false, completion: two });
      break;
    case "entry":
      ctx.appendEntry(one, two);
      break;
    case "tell":
      ctx.appendEntry("note", found[one]);
      break;
    case "noted": {
      const [role, content, entryType, turnId, metadata] = words;
      ctx.appendEntry(role, content, { entryType, turnId, metadata });
      break;
    }
    case "thread":
      ctx.thread(one).appendEntry(two, name);
      break;
    case "said":
      found[name] = await said(ctx);
      break;
    case "context":
      found[name] = ctx.contextRef();
      break;
    case "signal":
      found[name] = await ctx.waitForSignal(one);
      break;
    case "signal_within":
      found[name] = await ctx.waitForSignal(one, { timeoutMs: two * 1000 });
      break;
    case "has":
      found[name] = await ctx.hasSignal(one);
      break;
    case "drain":
      found[name] = await ctx.drainSignals(one);
      break;
    case "drain_turn":
      found[name] = await ctx.drainSignals(one, { turn: true });
      break;
    case "cancelled":
      await ctx.checkCancellation();
      found[name] = false;
      break;
    case "budget":
      found[name] = await ctx.remainingBudget();
      break;
    case "time": {
      const before = ctx.currentTime();
      await double(0);
      found[name] = before <= ctx.currentTime();
      break;
    }
    case "random":
      found[name] = [ctx.random(), ctx.randomUuid(), ctx.random()];
      break;
    case "sleep":
      await ctx.sleep(one * 1000);
      break;
    case "within":
      await ctx.timeout(one * 1000, () => step(ctx, two, found));
      break;
    case "once":
      found[name] = await ctx.once(one, double, two);
      break;
    case "once_said":
      found[name] = await ctx.once(
        one,
        async (value) => {
          ctx.appendEntry("system", value);
          return double(value);
        },
        two,
      );
      break;
    case "usage":
      ctx.recordUsage(one, { inputTokens: two, outputTokens: words[2] });
      break;
    case "stream":
      ctx.streamToken(one);
      break;
    case "flush":
      await ctx.flush();
      break;
    case "persist":
      await ctx.enablePersistence();
      break;
    case "step":
      await ctx.step();
      break;
    case "commit":
      await ctx.checkpoint();
      break;
    case "save":
      await ctx.checkpoint(one);
      break;
    case "unserialisable":
      await echo(new Map([[1, 1]]));
      break;
    case "input":
      found[name] = ctx.input;
      break;
    case "catch":
      try {
        await step(ctx, one, found);
      } catch (error) {
        if (error?.code === undefined) throw error;
        found[name] = error.code;
      }
      break;
    case "finally":
      try {
        await step(ctx, one, found);
      } finally {
        await step(ctx, two, found);
      }
      break;
    case "raise":
      throw new Refused(one);
    default:
      throw new Error(`unknown op ${op}`);
  }
}

function opsOf(ctx) {
  const name = ctx.key.replace(/ \(fork\)$/, "");
  return programs.find((program) => program.name === name).ops;
}

async function oneByOne(ctx) {
  const found = {};
  for (const op of opsOf(ctx)) await step(ctx, op, found);
  return found;
}

const below = agent("below", { version: "1" }, async (ctx, ops) => {
  const found = {};
  for (const op of ops) await step(ctx, op, found);
  return found;
});

async function loop(ctx) {
  const ops = opsOf(ctx);
  for (;;) {
    const { at = 0, found = {} } = ctx.state;
    if (at >= ops.length) return found;
    await step(ctx, ops[at], found);
    await ctx.checkpoint({ at: at + 1, found });
  }
}

const version = programs[0].version ?? "1";
const state = () => ({});
const agents = [
  agent("linear", { version }, oneByOne),
  agent("strict", { version, onDivergence: "fail" }, oneByOne),
  agent("careful", { version, onDivergence: "pause" }, oneByOne),
  agent("looping", { version, state }, loop),
  agent("hasty", { version, state }, async (ctx) => {
    await echo("early");
    return loop(ctx);
  }),
  below,
];
const tasks = [double, echo, fill, measure, fails, flaky, hopeless, slow, charge];

// ── a run and what a caller does with it ─────────────────────────────────────────────────────────────────────────────

/** Options by their words in this language. */
const inCamelCase = (options) =>
  Object.fromEntries(
    Object.entries(options).map(([name, value]) => [name.replace(/_(.)/g, (_, c) => c.toUpperCase()), value]),
  );

/** Starts the run of a program and does what comes before it advances. */
async function start(client, program) {
  const { name, input = null, options = {}, signals = [] } = program;
  const handle = await client.start(program.agent, input, { id: name, ...inCamelCase(options) });
  for (const [number, [word, value, delivery]] of signals.entries()) {
    await handle.signal(word, value, { idempotencyKey: String(number), delivery });
  }
  return handle;
}

/** Waits for the end, steering as the program says. */
async function ended(handle, program, told) {
  if (program.resolve !== undefined) {
    try {
      return await handle.result({ timeoutMs: 20_000 });
    } catch (error) {
      if (!(error instanceof InDoubt)) throw error;
      told.doubt = error.code;
      const doubt = (await handle.tasks()).find(({ status }) => status === "IN_DOUBT");
      await handle.resolve(doubt.op, { result: program.resolve });
    }
  }
  if (program.cancel) {
    while (!["WAITING", "COMPLETED"].includes(await handle.status())) await setTimeout(5);
    await handle.cancel();
  }
  const { resume, until = resume && "PAUSED" } = program;
  if (until) {
    let status = await handle.status();
    for (; ![until, "COMPLETED", "FAILED"].includes(status); status = await handle.status()) await setTimeout(5);
    if (!resume) return status;
    if (status === until) await handle.resume(inCamelCase(resume));
  }
  return handle.result({ timeoutMs: 60_000 });
}

/** Does what a caller does with an ended run; gives what it answers or the code of its error. */
async function after(client, handle, program, [call, one, two]) {
  const { name, input = null } = program;
  try {
    switch (call) {
      case "signal":
        await handle.signal(one, two);
        return null;
      case "signal_again":
        await handle.signal(...program.signals[one].slice(0, 2), { idempotencyKey: String(one) });
        return null;
      case "resume":
        await handle.resume();
        return null;
      case "start_other":
        await client.start(program.agent, one, { id: name });
        return null;
      case "start_same":
        return (await client.start(program.agent, input, { id: name })).id === handle.id;
      case "handle":
        await client.handle(one);
        return null;
      case "start_id":
        await client.start(program.agent, null, { id: one });
        return null;
      case "result_within":
        await handle.result({ timeoutMs: one * 1000 });
        return null;
      case "fork": {
        const fork = await handle.fork({ op: `${handle.id}-0-${one}`, id: `${name} (fork)` });
        return await fork.result({ timeoutMs: 60_000 });
      }
      case "messages":
        return (await handle.messages()).map(({ role, content }) => [role, content]);
      case "tasks":
        return (await handle.tasks()).map((one) => [one.kind, one.status, one.attempt, one.failure?.errorType ?? null]);
      case "checkpoints":
        return (await handle.checkpoints()).length;
      default:
        throw new Error(`unknown call ${call}`);
    }
  } catch (error) {
    if (error instanceof FlovynError) return error.code;
    throw error;
  }
}

/** Tells how a run ended. */
async function report(client, handle, program) {
  const told = { name: program.name };
  try {
    told.result = await ended(handle, program, told);
  } catch (error) {
    if (!(error instanceof FlovynError)) throw error;
    told.error = error.code;
  }
  const { failure } = await handle.describe();
  told.failure = failure && [failure.code, failure.errorType, failure.message];
  if (program.until === undefined) {
    told.events = [];
    for await (const event of handle.stream()) told.events.push(event.type === "lifecycle" ? event.name : event.type);
  }
  told.after = [];
  for (const call of program.after ?? []) told.after.push(await after(client, handle, program, call));
  return told;
}

const client = await connect(url);
const handles = [];
for (const program of programs) handles.push(await start(client, program));
const worker = await client.worker({ agents, tasks }).start();
for (const [number, program] of programs.entries()) {
  console.log(JSON.stringify(await report(client, handles[number], program)));
}
await worker.close();
await client.close();
