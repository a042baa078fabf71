// The generator's agents in TypeScript's runtime; README.md says what a life is. One life on standard input, what came of
// it on the output.

import { pbkdf2 } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { openSync, readFileSync, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect as dial, createServer } from "node:net";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
const { agent, AgentCancelled, connect, ExecutionClosed, task, TaskFailed, Timeout } = require("@flovyn/sdk");

const life = JSON.parse(readFileSync(0, "utf8"));
const programs = new Map(life.programs.map((program) => [program.name, program]));
const log = openSync(life.log, "a");
let place = 0;

/** Writes down what happened; the process may end here. */
function note(...words) {
  writeSync(log, `${JSON.stringify([life.number, ...words])}\n`);
  place += 1;
  if (place === life.kill_at) process.kill(process.pid, "SIGKILL");
}

// ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const work = task("work", async ({ run, number, ms }) => {
  note("start", run, number);
  if (ms > 0) await sleep(ms);
  return number;
});

const fails = task("fails", async ({ run, number }) => {
  note("start", run, number);
  throw new Error(String(number));
});

const decide = task("decide", async ({ run, number, seen }) => {
  note("decide", run, number, seen);
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
    case "event":
      for (let turn = 0; turn * 10 <= ms; turn++) await readFile(process.argv[1]);
      break;
    default:
      await new Promise((resolve) => foreign.emit("please", ms, resolve));
  }
}

// ── the agent ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** One life of one program. */
class Run {
  seen = [];
  /** Losers of races, which go on: nothing ends a promise. */
  losers = [];

  constructor(ctx, program) {
    this.ctx = ctx;
    this.name = program.name;
    this.program = program;
  }

  async main() {
    const background = this.program.background.map((node) => this.begin(node));
    for (const node of this.program.body) await this.do(node);
    await Promise.all(background);
    await Promise.all(this.losers);
    return this.seen;
  }

  /** Begins a node whose end is looked at later: what it rejects with until then is nobody's fault. */
  begin(node) {
    const doing = this.do(node);
    doing.catch(() => undefined);
    return doing;
  }

  /** Does one node. */
  async do([kind, ...rest]) {
    switch (kind) {
      case "step":
        this.seen.push(await work({ run: this.name, number: rest[0], ms: rest[1] }));
        break;
      case "fail":
        try {
          await fails({ run: this.name, number: rest[0] });
        } catch (error) {
          if (!(error instanceof TaskFailed)) throw error;
          this.seen.push(`failed ${error.message}`);
        }
        break;
      case "decide":
        await work({ run: this.name, number: -rest[0], ms: 0 });
        await decide({ run: this.name, number: rest[0], seen: [...this.seen] });
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
        await outside(...rest);
        break;
      case "seq":
        for (const node of rest[0]) await this.do(node);
        break;
      case "all":
        await this.all(...rest);
        break;
      case "race":
        await this.race(rest[0]);
        break;
      case "pool":
        await this.pool(...rest);
        break;
      case "timeout": {
        const [ms, body, number] = rest;
        const doing = this.begin(body);
        const timer = new Promise((resolve) => setTimeout(resolve, Math.min(ms, 200), "late"));
        if (body[0] !== "never") await doing;
        else await Promise.race([doing, timer]);
        this.seen.push(await work({ run: this.name, number, ms: 0 }));
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
    const [value] = await Promise.all([this.nest(depth - 1, body)]);
    return value;
  }

  /** Does all at once. */
  async all(variant, nodes) {
    const doing = nodes.map((node) => this.begin(node));
    switch (variant % 4) {
      case 0:
        await Promise.all(doing);
        break;
      case 1: {
        const refused = (await Promise.allSettled(doing)).find(({ status }) => status === "rejected");
        if (refused) throw refused.reason;
        break;
      }
      case 2:
        for await (const _ of doing);
        break;
      default:
        await Promise.any(doing);
        await Promise.all(doing);
    }
  }

  /** Goes on with the first; the others go on beside. */
  async race(nodes) {
    const doing = nodes.map((node) => this.begin(node));
    this.losers.push(...doing);
    await Promise.race(doing);
  }

  /** Lets some workers do what is in a queue. */
  async pool(workers, nodes) {
    const left = [...nodes];
    const worker = async () => {
      while (left.length > 0) await this.do(left.shift());
    };
    await Promise.all(Array.from({ length: workers }, worker));
  }
}

const generated = agent("generated", { version: life.version }, async (ctx, name) =>
  new Run(ctx, programs.get(name)).main(),
);

// ── a life ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Starts a run, sends what it is sent, and waits for its end. */
async function steer(client, { name, signals, cancel }) {
  const handle = await client.start(generated, name, { id: name });
  for (const [number, [ms, signal, value]] of signals.entries()) {
    await sleep(ms);
    try {
      await handle.signal(signal, value, { idempotencyKey: String(number) });
    } catch (error) {
      if (!(error instanceof ExecutionClosed)) throw error;
      break;
    }
  }
  if (cancel !== null && life.number > 1) {
    await sleep(cancel);
    await handle.cancel({ timeoutMs: 5_000 });
  }
  try {
    return { name, result: await handle.result({ timeoutMs: life.timeout * 1e3 }) };
  } catch (error) {
    return error instanceof AgentCancelled ? { name, cancelled: true } : { name, error: String(error) };
  }
}

if (life.kill_ms !== null) setTimeout(() => process.kill(process.pid, "SIGKILL"), life.kill_ms);
const client = await connect(life.url);
const tasks = [work, fails, decide];
const worker = await client.worker({ agents: [generated], tasks, maxParked: life.max_parked ?? undefined }).start();
const steering = life.programs.map(async (program) => console.log(JSON.stringify(await steer(client, program))));
await Promise.all(steering);
await worker.close();
await client.close();
process.exit(0);
