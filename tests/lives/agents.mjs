// The generator's agents in TypeScript's runtime; README.md says what a life is. One life on standard input, what came of
// it on the output.

import { pbkdf2, scrypt } from "node:crypto";
import { EventEmitter, on, once } from "node:events";
import { openSync, readFileSync, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect as dial, createServer } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as setTimer } from "node:timers";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { dieAll } from "./crashes.mjs";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
const sdk = require("@flovyn/sdk");
const { agent, AgentCancelled, connect, ExecutionClosed, ExecutionNotFound, InvalidArgument, SignalTimeout, task, TaskFailed, Timeout } =
  sdk;

const life = JSON.parse(readFileSync(0, "utf8"));
const programs = new Map(life.programs.map((program) => [program.name, program]));
const log = openSync(life.log, "a");
let place = 0;

/** Writes down what happened; the process may end here. */
function note(words, number = life.number) {
  // All lines are as long, and no page ends within one: a kill can tear a write where its next page begins.
  writeSync(log, `${JSON.stringify([number, ...words]).padEnd(255)}\n`);
  place += 1;
  if (place === life.kill_at) process.kill(process.pid, "SIGKILL");
}

// ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Who has called a task in this process: a fork's inputs are those of its parent, so they do not tell. */
const callers = new Map();

const work = task("work", async ({ number, ms }, { taskId }) => {
  callers.get(taskId).note("start", number);
  if (ms > 0) await sleep(ms);
  return number;
});

const fails = task("fails", async ({ number }, { taskId }) => {
  callers.get(taskId).note("start", number);
  throw new Error(String(number));
});

const decide = task("decide", async ({ number, seen }, { taskId }) => {
  callers.get(taskId).note("decide", number, seen);
});

// ── what the code waits for outside of its context ──────────────────────────────────────────────────────────────────

const foreign = new EventEmitter();
foreign.setMaxListeners(0);
foreign.on("please", (ms, answer) => setTimeout(answer, ms));

const echo = createServer((socket) => socket.once("data", (data) => setTimeout(() => socket.end(data), data[0])));
await once(echo.listen(0, "127.0.0.1"), "listening");

/** Waits for something that the engine does not see. */
async function outside(how, ms) {
  switch (how) {
    case "timer":
      await new Promise((resolve) => setTimeout(resolve, ms));
      break;
    case "spin":
      for (let turn = 0; turn < ms; turn++) await (turn % 2 === 0 ? setImmediate() : null);
      break;
    case "thread":
      for (let turn = 0; turn * 10 <= ms; turn++) {
        await new Promise((resolve) => pbkdf2("a", "b", 2_000, 32, "sha256", resolve));
      }
      break;
    case "future":
      await new Promise((resolve) => {
        const socket = dial(echo.address().port, "127.0.0.1");
        socket.on("data", () => undefined).on("close", resolve);
        socket.write(Buffer.from([Math.min(ms, 255)]));
      });
      break;
    case "executor":
      for (let turn = 0; turn * 10 <= ms; turn++) await promisify(scrypt)("a", "b", 16, { N: 1_024 });
      break;
    case "event":
      for (let turn = 0; turn * 10 <= ms; turn++) await readFile(process.argv[1]);
      break;
    default:
      await new Promise((resolve) => foreign.emit("please", ms, resolve));
  }
}

// ── the agent ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** The latest copy of each run. */
const runs = new Map();
/** The life of a run that dies within this process; that of others is the process's. */
const lives = new Map();

/** One life of one program. */
class Run {
  seen = [];
  decided = {};
  /** Losers of races, which go on: nothing ends a promise. */
  losers = [];
  /** What it did last, for who has to explain why it does not end. */
  story = [];

  constructor(ctx, program) {
    this.ctx = ctx;
    this.key = ctx.key;
    this.name = program.name;
    this.program = program;
    this.life = lives.get(this.key) ?? life.number;
    runs.set(this.key, this);
  }

  /** Writes down what happened to it. */
  note(what, ...rest) {
    note([what, this.key, ...rest], this.life);
  }

  /** Remembers what it does. */
  tell(what, node) {
    this.story.push(`${performance.now().toFixed(0)} ms ${what} ${JSON.stringify(node).slice(0, 90)}`);
    if (this.story.length > 60) this.story.shift();
  }

  async main() {
    const background = this.program.background.map((node) => this.begin(node));
    for (const node of this.program.body) await this.do(node);
    await Promise.all(background);
    await Promise.all(this.losers);
    return { seen: this.seen, decided: this.decided };
  }

  /** Waits for a task and knows whose it is. */
  call(step) {
    callers.set(step.id, this);
    return step;
  }

  work(number, ms = 0) {
    return this.call(work({ run: this.name, number, ms }));
  }

  /** Begins a node whose end is looked at later: what it rejects with until then is nobody's fault. */
  begin(node) {
    const doing = this.do(node);
    doing.catch(() => undefined);
    return doing;
  }

  /** Does one node. */
  async do(node) {
    this.tell("begins", node);
    try {
      await this.one(node);
    } catch (error) {
      this.tell(`left by ${error}:`, node);
      throw error;
    }
    this.tell("ends", node);
  }

  async one([kind, ...rest]) {
    switch (kind) {
      case "step":
        this.seen.push(await this.work(...rest));
        break;
      case "fail":
        try {
          await this.call(fails({ run: this.name, number: rest[0] }));
        } catch (error) {
          if (!(error instanceof TaskFailed)) throw error;
          this.seen.push(`failed ${error.message}`);
        }
        break;
      case "decide": {
        const [number] = rest;
        await this.work(-number);
        const seen = [...this.seen];
        this.decided[number] = seen;
        await this.call(decide({ run: this.name, number, seen }));
        break;
      }
      case "run": {
        const inline = (number) => {
          this.note("start", number);
          return number;
        };
        this.seen.push(await this.ctx.run(`run ${rest[0]}`, inline, rest[0]));
        break;
      }
      case "once":
        this.seen.push(await this.ctx.once(`once ${rest[0]}`, (number) => this.work(number), rest[0]));
        break;
      case "entry":
        this.ctx.appendEntry("user", rest[0]);
        break;
      case "drain":
        this.seen.push(await this.ctx.drainSignals(rest[0]));
        break;
      case "within":
        try {
          await this.ctx.waitForSignal(`never ${rest[1]}`, { timeoutMs: rest[0] / 1e3 });
        } catch (error) {
          if (!(error instanceof SignalTimeout)) throw error;
          this.seen.push(`late ${rest[1]}`);
        }
        break;
      case "sleep":
        await this.ctx.sleep(rest[0] / 1e3);
        break;
      case "signal":
        this.seen.push(await this.ctx.waitForSignal(rest[0]));
        break;
      case "never":
        await this.ctx.waitForSignal(`never ${rest[0]}`);
        break;
      case "outside":
        // Losers of a race go on here, and each life waits for them.
        await outside(rest[0], Math.min(rest[1], 600));
        break;
      case "seq":
        for (const node of rest[0]) await this.do(node);
        break;
      case "all":
        await this.all(rest[0] % 12, rest[1]);
        break;
      case "race":
        await this.race(rest[0] % 6, rest[1]);
        break;
      case "pool":
        await this.pool(rest[0] % 4, rest[1], rest[2]);
        break;
      case "timeout": {
        const [ms, body, number] = rest;
        const doing = this.begin(body);
        if (body[0] !== "never") await doing;
        else await Promise.race([doing, late(number % 3, ms)]);
        this.seen.push(await this.work(number));
        break;
      }
      case "limit":
        try {
          await this.ctx.timeout(rest[0] / 1e3, () => this.do(rest[1]));
        } catch (error) {
          if (!(error instanceof Timeout)) throw error;
        }
        break;
      case "nest":
        await this.nest(...rest);
        break;
      default:
        throw new Error(`unknown node ${kind}`);
    }
  }

  /** Puts branches into branches. */
  async nest(depth, body) {
    if (depth === 0) return this.do(body);
    if (depth % 3 === 0) return (await Promise.allSettled([this.nest(depth - 1, body)]))[0].value;
    const [value] = await (depth % 4 === 1 ? this.ctx.joinAll : Promise.all.bind(Promise))([this.nest(depth - 1, body)]);
    return value;
  }

  /** Does all at once. */
  async all(variant, nodes) {
    if (variant === 8) {
      await Readable.from(nodes).forEach((node) => this.do(node), { concurrency: nodes.length });
      return;
    }
    if (variant === 9) {
      // Each begins when the one before has begun and given way.
      await Promise.all(nodes.map(async (node, at) => {
        for (let turn = 0; turn < at; turn++) await null;
        await this.do(node);
      }));
      return;
    }
    const doing = nodes.map((node) => this.begin(node));
    switch (variant) {
      case 0:
        await Promise.all(doing);
        break;
      case 1:
        settled(await Promise.allSettled(doing));
        break;
      case 2:
        for await (const _ of doing);
        break;
      case 3:
        await this.ctx.joinAll(doing);
        break;
      case 4:
        settled(await this.ctx.joinAllSettled(doing));
        break;
      case 5:
        for await (const _ of inOrderOfEnd(doing));
        break;
      case 6:
        await doing.reduce((before, one) => before.then(() => one), Promise.resolve());
        break;
      case 7: {
        // What ends it is a call, as in code with callbacks.
        let left = doing.length;
        await new Promise((resolve, reject) => {
          for (const one of doing) one.then(() => --left === 0 && resolve(), reject);
        });
        break;
      }
      case 10:
        for (const left = new Map(doing.entries()); left.size > 0; ) {
          left.delete(await Promise.race([...left].map(([at, one]) => one.then(() => at))));
        }
        break;
      default:
        await Promise.any(doing);
        await Promise.all(doing);
    }
  }

  /** Goes on with the first; the others go on beside. */
  async race(variant, nodes) {
    const doing = nodes.map((node) => this.begin(node));
    this.losers.push(...doing);
    switch (variant) {
      case 1:
        await Promise.any(doing);
        break;
      case 2:
        await this.ctx.select(doing);
        break;
      case 3:
        for await (const _ of inOrderOfEnd(doing)) break;
        break;
      case 4: {
        const ends = new EventEmitter();
        const first = once(ends, "end");
        for (const one of doing) one.then(() => ends.emit("end"), (error) => ends.emit("error", error));
        ends.on("error", () => undefined);
        await first;
        break;
      }
      case 5:
        await new Promise((resolve, reject) => doing.forEach((one) => one.then(resolve, reject)));
        break;
      default:
        await Promise.race(doing);
    }
  }

  /** Lets some workers do what is in a queue. */
  async pool(variant, workers, nodes) {
    if (variant === 1) {
      await Readable.from(nodes).forEach((node) => this.do(node), { concurrency: workers });
      return;
    }
    if (variant === 2) {
      // A gate: whoever has done its node lets the next one in.
      let free = workers;
      const waiting = [];
      const gated = async (node) => {
        if (free > 0) free -= 1;
        else await new Promise((resolve) => waiting.push(resolve));
        await this.do(node);
        if (waiting.length > 0) waiting.shift()();
        else free += 1;
      };
      await Promise.all(nodes.map(gated));
      return;
    }
    if (variant === 3) {
      const shared = (async function* () {
        yield* nodes;
      })();
      const reader = async () => {
        for (let next = await shared.next(); !next.done; next = await shared.next()) await this.do(next.value);
      };
      await this.ctx.joinAll(Array.from({ length: workers }, reader));
      return;
    }
    const left = [...nodes];
    const worker = async () => {
      while (left.length > 0) await this.do(left.shift());
    };
    await Promise.all(Array.from({ length: workers }, worker));
  }
}

/** Throws what one of several was rejected with. */
function settled(all) {
  const refused = all.find(({ status }) => status === "rejected");
  if (refused) throw refused.reason;
}

/** Yields as one after the other ends. */
async function* inOrderOfEnd(doing) {
  const ends = new EventEmitter();
  const stream = on(ends, "end");
  // Those that come after the one that is waited for have nobody to tell.
  ends.on("error", () => undefined);
  for (const one of doing) one.then(() => ends.emit("end"), (error) => ends.emit("error", error));
  for (let at = 0; at < doing.length; at++) {
    await stream.next();
    yield at;
  }
}

/** Ends after a time of the host. */
function late(variant, ms) {
  if (variant === 1) return sleep(ms);
  if (variant === 2) return new Promise((resolve) => setTimeout(resolve, ms, "late"));
  return promisify(setTimer)(ms);
}

const generated = agent("generated", { version: life.version }, async (ctx, name) =>
  new Run(ctx, programs.get(name)).main(),
);

// ── a life ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Sends a run what it is sent. */
async function send(handle, signals) {
  for (const [number, [ms, signal, value]] of signals.entries()) {
    await sleep(ms);
    try {
      await handle.signal(signal, value, { idempotencyKey: String(number) });
    } catch (error) {
      if (!(error instanceof ExecutionClosed)) throw error;
      break;
    }
  }
}

/** Does to a run what is done to it, waits for its end and tells of it. */
async function follow(handle, cancel, signals) {
  await send(handle, signals);
  if (cancel !== null && life.number > 1) {
    await sleep(cancel);
    await handle.cancel({ timeoutMs: 5_000 });
  }
  const told = { name: handle.key };
  try {
    told.result = await handle.result({ timeoutMs: life.timeout * 1e3 });
  } catch (error) {
    if (error instanceof AgentCancelled) {
      told.cancelled = true;
    } else {
      told.error = String(error);
      explain(handle.key);
    }
  }
  console.log(JSON.stringify(told));
}

/** Says on the error output what this process knows of a run that has not ended. */
function explain(key) {
  const run = runs.get(key);
  const lines = run?.story ?? ["its code was not entered in this process"];
  if (run) {
    const { activation } = run.ctx;
    const about = ["awaiting", "concurrent", "armed", "stirred", "rounds", "over", "refused", "refusals"];
    const facts = about.map((what) => `${what}=${activation?.[what]}`).join(" ");
    lines.push(`its copy: ${facts}; steps without an end: ${[...(activation?.steps?.keys() ?? [])]}`);
  }
  for (const line of lines) console.error(`[${key}] ${line}`);
  console.error(`[${key}] its process waits for: ${process.getActiveResourcesInfo().slice(0, 20)}`);
}

/** Gives the fork of a run, which an earlier life may have made. */
async function fork(client, parent, { by, at }) {
  const id = `${parent.key}/fork`;
  try {
    return await client.handle(id);
  } catch (error) {
    if (!(error instanceof ExecutionNotFound)) throw error;
  }
  const points = await (by === "entry" ? parent.entries() : parent.tasks());
  const point = points[at % points.length];
  if (point === undefined) return parent.fork({ id });
  try {
    return await parent.fork(by === "entry" ? { entry: point.id, id } : { op: point.op, id });
  } catch (error) {
    // What it did for a request to stop belongs to no fork.
    if (!(error instanceof InvalidArgument)) throw error;
    return parent.fork({ id });
  }
}

/** Starts a run, and its fork, and sees them to their ends. */
async function steer(client, { name, signals, cancel, fork: how }) {
  const handle = await client.start(generated, name, { id: name });
  const own = follow(handle, cancel, signals);
  if (how !== null) {
    await (how.when === null ? own : sleep(how.when));
    await follow(await fork(client, handle, how), null, signals);
  }
  await own;
}

if (life.kill_ms !== null) setTimeout(() => process.kill(process.pid, "SIGKILL"), life.kill_ms);
const serves = { agents: [generated], tasks: [work, fails, decide], maxParked: life.max_parked ?? undefined };
if (life.url === null) {
  await dieAll(life, serves, lives, explain);
} else {
  const client = await connect(life.url);
  const worker = await client.worker(serves).start();
  await Promise.all(life.programs.map((program) => steer(client, program)));
  await worker.close();
  await client.close();
}
process.exit(0);
