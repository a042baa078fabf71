// W2 in Node: many agents at once, each a few small durable steps. Usage: w2.mjs AGENTS STEPS

import { emit, flovyn, percentile, rssMb, sizes, Span, STEP_RESULT, url } from "./measure.mjs";

const { agent, connect, task } = flovyn;
const [agents, steps] = sizes;
const times = [];

const tiny = task("tiny", async () => STEP_RESULT);
const fewSteps = agent("few_steps", { version: "1" }, async (_, steps) => {
  for (let number = 0; number < steps; number++) {
    const start = performance.now();
    await tiny(number);
    times.push(performance.now() - start);
  }
  return steps;
});

const client = await connect(url);
const worker = await client.worker({ agents: [fewSteps], tasks: [tiny], maxAgents: agents, maxTasks: agents }).start();
const run = async (id) => (await client.start(fewSteps, steps, { id })).result();
await run("warm-up");
times.length = 0;
const span = new Span();
const results = await Promise.all(Array.from({ length: agents }, (_, number) => run(`agent-${number}`)));
emit({
  steps_per_s: (agents * steps) / span.wall,
  step_p50_ms: percentile(times, 0.5),
  step_p99_ms: percentile(times, 0.99),
  cpu_s: span.cpu,
  rss_peak_mb: rssMb(true),
  wrong: results.filter((result) => result !== steps).length,
});
await worker.close();
await client.close();
