// A program whose disk is full. full_disk.cjs HOW URL FILLER.

const { randomBytes } = require("node:crypto");
const { rmSync } = require("node:fs");

const { agent, connect, run, task } = require("@flovyn/sdk");

const [, , how, url, filler] = process.argv;

const page = task("page", async (n) => `${n} ${randomBytes(80_000).toString("hex")}`);
const writer = agent("writer", async (_, count) => {
  for (let n = 0; n < count; n++) await page(n);
  return count;
});

const ways = {
  async goesOn() {
    const client = await connect(url);
    await client.worker({ agents: [writer] }).start();
    const handle = await client.start(writer, 40, { id: "run" });
    await handle.result({ timeoutMs: 4_000 }).catch((error) => console.log("late:", error.message));
    rmSync(filler);
    console.log("result:", await handle.result({ timeoutMs: 60_000 }));
    // What was refused last may be tried again for a while.
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    await client.close();
  },
  async run() {
    await run(writer, 40, { id: "run", url, timeoutMs: 4_000 }).catch((error) => console.log(error.code, error.message));
  },
  async returns() {
    const client = await connect(url);
    await client.worker({ agents: [writer] }).start();
    const handle = await client.start(writer, 40, { id: "run" });
    await handle.result({ timeoutMs: 4_000 }).catch((error) => console.log("late:", error.message));
    await client.close();
    console.log("closed");
  },
};

ways[how]();
