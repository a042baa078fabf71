// W1 in Node: one agent, one small durable step after the other. Usage: w1.mjs STEPS

import { emit, flovyn, percentile, sizes, Span, STEP_RESULT, storedBytes, url } from "./measure.mjs";

const { agent, connect, task } = flovyn;
const WARM_UP = 20;
const [steps] = sizes;
const times = [];

const tiny = task("tiny", async () => STEP_RESULT);
const sequential = agent("sequential", { version: "1" }, async (_, steps) => {
  for (let number = 0; number < steps; number++) {
    const start = performance.now();
    await tiny(number);
    times.push(performance.now() - start);
  }
  return steps;
});

const client = await connect(url);
const worker = await client.worker({ agents: [sequential], tasks: [tiny] }).start();
await (await client.start(sequential, WARM_UP, { id: "warm-up" })).result();
times.length = 0;
const span = new Span();
await (await client.start(sequential, steps, { id: "measured" })).result();
emit({
  p50_us: percentile(times, 0.5) * 1e3,
  p99_us: percentile(times, 0.99) * 1e3,
  steps_per_s: steps / span.wall,
  cpu_us: (span.cpu / steps) * 1e6,
  stored_bytes: storedBytes(),
});
await worker.close();
await client.close();
