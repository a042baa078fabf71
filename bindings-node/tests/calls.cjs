// Takes a trip of seven days where a rule allows it, and dies (10); goes on with it under a stricter rule (5).
// calls.cjs URL RULE

const { agent, connect, task } = require("@flovyn/sdk");
const { z } = require("zod");

const [url, rule] = [process.argv[2], Number(process.argv[3])];
const book = task("book", async () => "booked");
const travels = agent("travels", { version: "1", input: z.object({ days: z.number().max(rule) }) }, async (ctx, trip) => {
  const done = await book();
  await ctx.flush();
  if (rule === 10) process.exit(9);
  return [done, trip.days];
});

(async () => {
  const client = await connect(url);
  await client.worker({ agents: [travels] }).start();
  const handle = rule === 10 ? await client.start(travels, { days: 7 }, { id: "trip" }) : await client.handle("trip", travels);
  console.log(JSON.stringify(await handle.result({ timeoutMs: 40_000 })));
  await client.close();
})();
