// Processes that end in different ways. endings.cjs HOW URL.

const { agent, connect, run, task } = require("@flovyn/sdk");

const [, , how, url] = process.argv;

const work = task("work", async (ms) => {
  console.log("at work");
  await new Promise((resolve) => setTimeout(resolve, ms));
  return 1;
});
const one = agent("one", async (_, ms) => work(ms));

const two = agent("two", async (ctx) => ctx.waitForSignal("more"));

const flaky = task("flaky", { retries: 3 }, async () => {
  console.log("failed once");
  throw new Error("not yet");
});
const retrier = agent("retrier", async () => flaky());

const ways = {
  async retry() {
    await run(retrier, undefined, { id: "again", url });
  },
  async unclosed() {
    const client = await connect(url);
    const worker = await client.worker({ agents: [one] }).start();
    console.log("result", await (await client.start(one, 1)).result());
    await worker.close();
  },
  async closed() {
    const client = await connect(url);
    await client.worker({ agents: [one] }).start();
    await client.start(one, 60_000);
    await client.close();
    console.log("closed");
    // The task's own timer: it is the program's, not ours.
    setImmediate(() => process.exit(process.getActiveResourcesInfo().filter((name) => name === "Timeout").length > 1 ? 3 : 0));
  },
  async idle() {
    const client = await connect(url);
    await client.worker({ agents: [one], tasks: [work] }).start();
    console.log("ready");
  },
  async serve() {
    const client = await connect(url);
    await client.start(two, undefined, { id: "wait" });
    await client.start(one, 60_000, { id: "work" });
    await client.worker({ agents: [one, two] }).run();
    console.log("run() has ended");
    await client.close();
    process.exit(0);
  },
  async heard() {
    process.on("SIGINT", () => console.log("heard"));
    await run(one, 60_000, { id: "work", url }).catch((error) => console.log("run() has ended:", error.code));
    process.exit(0);
  },
  async run() {
    await run(one, 60_000, { id: "work", url });
  },
};

ways[how]();
