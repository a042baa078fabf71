// A process that is killed in the middle of its steps. victim.cjs URL LOG COUNT: each step is a line of LOG.

const { appendFileSync } = require("node:fs");

const { agent, run, task } = require("@flovyn/sdk");

const [, , url, log, count] = process.argv;

const step = task("step", async (number) => {
  appendFileSync(log, `start ${number}\n`);
  await new Promise((resolve) => setTimeout(resolve, 2));
  appendFileSync(log, `end ${number}\n`);
  return number * 2;
});

const counter = agent("counter", async (ctx, count) => {
  let total = 0;
  for (let number = 0; number < count; number++) {
    total += await step(number);
    appendFileSync(log, `done ${number}\n`);
    ctx.appendEntry("assistant", number);
  }
  return total;
});

run(counter, Number(count), { id: "count", url }).then((total) => console.log(total));
