// A thread that serves, and ends without closing what it has opened; the main thread goes on with its runs.

const { isMainThread, parentPort, Worker, workerData } = require("node:worker_threads");
const { agent, connect, task } = require("@flovyn/sdk");

const tick = task("tick", async () => new Promise((resolve) => setTimeout(resolve, 5)));
const waits = agent("waits", async (ctx) => ctx.waitForSignal("go"));
const works = agent("works", async (ctx) => {
  while (!(await ctx.hasSignal("go"))) await tick();
  return "worked";
});

async function serve(client) {
  await client.worker({ agents: [waits, works], tasks: [tick] }).start();
}

/** What the thread does. */
async function inside({ url, how }) {
  const client = await connect(url);
  await serve(client);
  const waiting = await client.start(waits, undefined, { id: "waits" });
  const working = await client.start(works, undefined, { id: "works" });
  while ((await waiting.status()) !== "WAITING" || (await working.tasks()).length < 3);
  parentPort.postMessage("serving");
  if (how === "exits") process.exit(0);
  if (how === "throws") throw new Error("the thread's own");
}

async function main(url, how) {
  const thread = new Worker(__filename, { workerData: { url, how } });
  const ended = new Promise((resolve) => thread.once("exit", resolve));
  thread.once("error", (error) => console.log(error.message));
  await new Promise((resolve) => thread.once("message", resolve));
  if (how === "is terminated") await thread.terminate();
  await ended;
  const client = await connect(url);
  await serve(client);
  for (const id of ["waits", "works"]) {
    const handle = await client.handle(id);
    await handle.signal("go", "gone");
    console.log(await handle.result({ timeoutMs: 25_000 }));
  }
  await client.close();
}

if (isMainThread) void main(...process.argv.slice(2));
else void inside(workerData);
