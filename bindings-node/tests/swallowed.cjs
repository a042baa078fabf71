// Agents whose code goes on when their copy is put away. swallowed.cjs HOW WHEN: the process must end by itself.

const { agent, connect, task } = require("@flovyn/sdk");

const [, , how, when] = process.argv;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const short = task("short", async () => undefined);

/** What is done over and over, whatever is thrown. */
const loops = {
  step: async () => short(),
  sleep: async (ctx) => ctx.sleep(1),
  signal: async (ctx) => ctx.waitForSignal("never"),
  once: async (ctx) => ctx.once("once", () => 1),
  hasSignal: async (ctx) => ctx.hasSignal("some"),
  drain: async (ctx) => ctx.drainSignals("some"),
  checkpoint: async (ctx) => ctx.flush(),
  messages: async (ctx) => {
    await ctx.messages();
    await ctx.sleep(1);
  },
  // What is thrown at once keeps the code from the step, until it has been thrown often enough.
  entry: async (ctx) => {
    ctx.appendEntry("user", "again");
    await short();
  },
  usage: async (ctx) => {
    ctx.recordUsage("model", {});
    await short();
  },
  check: async (ctx) => {
    await ctx.checkCancellation();
    await short();
  },
  budget: async (ctx) => {
    await ctx.remainingBudget();
    await short();
  },
};

/** What calls without anybody who awaits it, so that nobody catches what is thrown. */
const alone = {
  timer: (ctx) =>
    setInterval(function () {
      if (away && ++rounds === 5) clearInterval(this);
      ctx.appendEntry("user", "again");
    }, 1),
  "async timer": (ctx) =>
    setInterval(async function () {
      if (away && ++rounds === 5) clearInterval(this);
      await null;
      ctx.appendEntry("user", "again");
    }, 1),
  branch: async (ctx) => {
    while (!away || ++rounds < 5) {
      await pause(1);
      ctx.appendEntry("user", "again");
    }
  },
  "timer of a failing program": () =>
    setInterval(() => {
      if (away) throw new RangeError("the program's own");
    }, 1),
  "async timer of a failing program": () =>
    setInterval(async () => {
      if (away) throw new RangeError("the program's own");
    }, 1),
};

let away = false;
let atWork;
const working = new Promise((resolve) => (atWork = resolve));
let worker;
let closed;
let rounds = 0;
const swallower = agent("swallower", async (ctx) => {
  await short();
  console.log("at work");
  atWork();
  if (alone[how] !== undefined) {
    alone[how](ctx);
    return ctx.waitForSignal("never");
  }
  if (how === "interval") {
    // Nobody catches what is thrown in a timer.
    const timer = setInterval(() => {
      short().catch(() => undefined);
      if (away && ++rounds === 5) clearInterval(timer);
    }, 1);
    return ctx.waitForSignal("never");
  }
  // Only a copy that waits for something else than its context is there to go on.
  if (when === "idle") while (!away) await pause(1);
  if (when === "unheard") {
    // The engine has put the copy away, and the loop has not had the turn to hear of it.
    closed = worker.close(0);
    for (let turn = 0; turn < 20; turn++) await null;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  }
  for (;;) {
    try {
      await loops[how](ctx);
    } catch {
      continue;
    }
  }
});

async function main() {
  const client = await connect("memory:");
  worker = await client.worker({ agents: [swallower] }).start();
  await client.start(swallower);
  await working;
  await pause(50);
  await (closed ?? worker.close(0));
  away = true;
  await pause(50);
  console.log("the loop turns");
  await client.close();
}

main();
