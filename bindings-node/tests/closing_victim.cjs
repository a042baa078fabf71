// An agent that waits for a connection to close, which is active no more; killed before the loop tells of its end.

const { AsyncResource } = require("node:async_hooks");
const { once } = require("node:events");
const { connect: dial, createServer } = require("node:net");
const { agent, connect, task } = require("@flovyn/sdk");

const [url, kill] = process.argv.slice(2);
/** Runs nothing of the agent's. */
const elsewhere = new AsyncResource("elsewhere");
const step = task("step", async (name) => name);

/** Holds the loop up until the store knows what the run waits for. */
function die() {
  for (const end = Date.now() + 300; Date.now() < end; );
  process.kill(process.pid, "SIGKILL");
}

(async () => {
  const server = createServer((socket) => socket.resume());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const closing = agent("closing", async (ctx) => {
    const socket = dial(server.address().port, "127.0.0.1");
    await once(socket, "connect");
    await step("connected");
    const closed = once(socket, "close");
    socket.destroy();
    void ctx.waitForSignal("never").then(() => undefined);
    if (kill) elsewhere.runInAsyncScope(() => setImmediate(die));
    await closed;
    return step("closed");
  });
  const client = await connect(url);
  const worker = await client.worker({ agents: [closing], tasks: [step] }).start();
  const handle = await client.start(closing, null, { id: "one" });
  console.log(await handle.result({ timeoutMs: 10_000 }));
  await worker.close();
  await client.close();
  server.close();
})();
