// W5 in Node: a crowd of waiting agents, what they cost, and how fast a signal reaches them. Usage: w5.mjs AGENTS
//
// A fifth of them (200 at most) is signalled one at a time, the rest back to back; at most 500 run at once.

import { setTimeout as sleep } from "node:timers/promises";

import { emit, flovyn, percentile, rssMb, sizes, Span, url } from "./measure.mjs";

const { agent, connect } = flovyn;
const WARM_UP = 20;
const RUNNING = 500;
const IDLE_MS = 3_000;
const BATCH = 100;
const [agents] = sizes;
/** When each agent's code went on, by its number, and who waits for that. */
const resumed = new Map();
const waiting = new Map();
const arrived = new Set();

const waiter = agent("waiter", { version: "1" }, async (ctx, number) => {
  arrived.add(number);
  await ctx.waitForSignal("go");
  resumed.set(number, performance.now());
  waiting.get(number)?.();
  return number;
});

const client = await connect(url);
const worker = await client.worker({ agents: [waiter], maxAgents: RUNNING }).start();

/** Starts the agents and returns when all of them wait. */
async function start(first, last) {
  for (let from = first; from < last; from += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, last - from) }, (_, place) => from + place);
    await Promise.all(batch.map((number) => client.start(waiter, number, { id: `waiter-${number}` })));
  }
  for (let number = first; number < last; number++) while (!arrived.has(number)) await sleep(10);
  await sleep(500);
}

/** The handles of the agents, so that looking them up is no part of a latency. */
async function handles(first, last) {
  const found = [];
  for (let number = first; number < last; number++) found.push([number, await client.handle(`waiter-${number}`)]);
  return found;
}

async function until(number) {
  while (!resumed.has(number)) await new Promise((resolve) => waiting.set(number, resolve));
  return resumed.get(number);
}

/** Signals one agent after the other, each when the one before has resumed; gives the latencies in ms. */
async function paced(crowd) {
  const latencies = [];
  for (const [number, handle] of crowd) {
    const sent = performance.now();
    await handle.signal("go", { number });
    latencies.push((await until(number)) - sent);
  }
  return latencies;
}

/** Signals the agents back to back, as fast as a signal is acknowledged; gives the latencies in ms. */
async function burst(crowd) {
  const sent = [];
  for (const [number, handle] of crowd) {
    sent.push([number, performance.now()]);
    await handle.signal("go", { number });
  }
  const latencies = [];
  for (const [number, at] of sent) latencies.push((await until(number)) - at);
  return latencies;
}

await start(agents, agents + WARM_UP);
await burst(await handles(agents, agents + WARM_UP));

const idleMb = rssMb();
let span = new Span();
await start(0, agents);
const startS = span.wall;
const waitingMb = rssMb();
span = new Span();
await sleep(IDLE_MS);
const idleCpu = span.cpu / span.wall;

const crowd = await handles(0, agents);
const few = Math.min(Math.floor(agents / 5), 200);
const oneAtATime = await paced(crowd.slice(0, few));
span = new Span();
const backToBack = await burst(crowd.slice(few));
emit({
  start_s: startS,
  paced_p50_ms: percentile(oneAtATime, 0.5),
  paced_p99_ms: percentile(oneAtATime, 0.99),
  burst_p50_ms: percentile(backToBack, 0.5),
  burst_p99_ms: percentile(backToBack, 0.99),
  burst_per_s: (agents - few) / span.wall,
  rss_mb: waitingMb,
  kb_per_agent: ((waitingMb - idleMb) * 1024) / agents,
  idle_cpu_percent: idleCpu * 100,
});
await worker.close();
await client.close();
