// Lives of the generator's agents in TypeScript's runtime that end at commits, within one process: by the world of the
// SDK's testing tools.

import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(import.meta.url);
const { kill, TestWorld } = require("../../bindings-node/dist/testing/harness.js");
const { hub } = require("../../bindings-node/dist/hub.js");

const AT_A_TIME = 6;
const ENDED = new Set(["COMPLETED", "FAILED", "CANCELLED"]);

/** Lets each program die where it says, in a world of its own, and prints what came of it. */
export async function dieAll(life, serves, lives, explain) {
  const left = [...life.programs];
  const one = async ({ name, ...program }) => {
    const limit = performance.now() + life.timeout * 1e3;
    try {
      console.log(JSON.stringify({ name, result: await die({ name, ...program }, serves, lives, limit) }));
    } catch (error) {
      explain(name);
      console.log(JSON.stringify({ name, error: String(error) }));
    }
  };
  const worker = async () => {
    while (left.length > 0) await one(left.shift());
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
}

/** Lets a program die at some of its commits; gives what came of it. */
async function die({ name, crashes, signals }, serves, lives, limit) {
  const world = new TestWorld();
  for (const [number, point] of [...crashes, undefined].entries()) {
    lives.set(name, number + 1);
    const client = world.startProcess();
    if (point !== undefined) client.native.crashAt(...point);
    const handle = await client.start(serves.agents[0], name, { id: name });
    for (const [at, [, signal, value]] of signals.entries()) {
      await handle.signal(signal, value, { idempotencyKey: String(at) });
    }
    await client.worker(serves).start();
    if (await ended(world, client, handle, limit)) {
      const result = await handle.result({ timeoutMs: 10_000 });
      await client.close();
      return result;
    }
    await kill(client);
  }
  throw new Error("its last life ended by itself");
}

/** Waits for the end of a run, or of its life: true for the run. Time passes while it waits. */
async function ended(world, client, handle, limit) {
  const over = new AbortController();
  let dead = false;
  const end = hub
    .call((hub, token) => client.native.crashed(hub, token), over.signal)
    .then(
      () => void (dead = true),
      () => undefined,
    );
  try {
    for (;;) {
      const status = await Promise.race([handle.status(), end]);
      if (dead) return false;
      if (ENDED.has(status)) return true;
      if (performance.now() > limit) throw new Error(`it has not ended: ${status}`);
      if (status === "WAITING") await world.jump();
      await Promise.race([sleep(5), end]);
    }
  } finally {
    over.abort(new Error("the run goes on"));
  }
}
