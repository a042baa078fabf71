// The scenarios' agent in TypeScript's language: runs a program of ops. interpreter.mjs URL ID PROGRAM [KILL_AT]: dies in
// its n-th step.

import { createRequire } from "node:module";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
const { agent, run, task, TaskFailed } = require("@flovyn/sdk");

const [, , url, id, text, killAt] = process.argv;
let steps = 0;

class Refused extends Error {}

function count() {
  steps += 1;
  if (steps === Number(killAt)) process.kill(process.pid, "SIGKILL");
}

const double = task("double", async (x) => (count(), x * 2));
const echo = task("echo", async (value) => (count(), value));
const fails = task("fails", { noRetry: [Refused] }, async (why) => {
  count();
  throw new Refused(why);
});

/** Does one op. */
async function step(ctx, [op, ...rest], found) {
  const name = rest.at(-1);
  const [one, two] = rest;
  switch (op) {
    case "task":
      found[name] = await double(one);
      break;
    case "echo":
      found[name] = await echo(one);
      break;
    case "keyed":
      found[name] = await double.options({ key: two })(one);
      break;
    case "fails":
      try {
        await fails(one);
      } catch (error) {
        if (!(error instanceof TaskFailed)) throw error;
        found[name] = [error.type, error.reason];
      }
      break;
    case "all":
      found[name] = await Promise.all(one.map((value) => double(value)));
      break;
    case "entry":
      ctx.appendEntry(one, two);
      break;
    case "signal":
      found[name] = await ctx.waitForSignal(one);
      break;
    case "has":
      found[name] = await ctx.hasSignal(one);
      break;
    case "drain":
      found[name] = await ctx.drainSignals(one);
      break;
    case "sleep":
      await ctx.sleep(one * 1000);
      break;
    case "once":
      found[name] = await ctx.once(one, double, two);
      break;
    case "usage":
      ctx.recordUsage(one, { inputTokens: two, outputTokens: rest[2] });
      break;
    case "random":
      found[name] = [ctx.random(), ctx.randomUuid()];
      break;
    default:
      throw new Error(`unknown op ${op}`);
  }
}

const linear = agent("linear", { version: "1" }, async (ctx, program) => {
  const found = {};
  for (const op of program.ops) await step(ctx, op, found);
  return found;
});

const looping = agent("looping", { version: "1", state: () => ({}) }, async (ctx, program) => {
  for (;;) {
    const { at = 0, found = {} } = ctx.state;
    if (at >= program.ops.length) return found;
    await step(ctx, program.ops[at], found);
    await ctx.checkpoint({ at: at + 1, found });
  }
});

const program = JSON.parse(text);
console.log(JSON.stringify(await run({ linear, looping }[program.agent], program, { id, url })));
