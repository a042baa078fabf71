// An agent whose branches wait outside of its context: watched_victim.cjs URL SHAPE [KILL]. Prints what it decided.

const { spawn } = require("node:child_process");
const { pbkdf2 } = require("node:crypto");
const { EventEmitter, once } = require("node:events");
const { readFile } = require("node:fs/promises");
const { connect: dial, createServer } = require("node:net");
const { setImmediate, setTimeout: sleep } = require("node:timers/promises");
const { Worker } = require("node:worker_threads");
const { agent, connect, task } = require("@flovyn/sdk");

const [, , url, shape, kill] = process.argv;

const ping = task("ping", async (n) => n);
const pay = task("pay", async (what) => {
  console.log("paid", what);
});

/** Opened elsewhere, as a pool of connections is: nobody can tell that an agent waits for it. */
const pool = new EventEmitter();

async function wait() {
  switch (shape) {
    case "timer":
      return new Promise((resolve) => setTimeout(resolve, 50));
    case "immediate":
      for (let turn = 0; turn < 40; turn++) await setImmediate();
      return;
    case "ticks":
      for (let turn = 0; turn < 40; turn++) await new Promise((resolve) => process.nextTick(resolve));
      return;
    case "file":
      for (let turn = 0; turn < 5; turn++) await readFile(__filename);
      return;
    case "thread":
      return new Promise((resolve) => pbkdf2("a", "b", 20_000, 32, "sha256", resolve));
    case "worker":
      return once(new Worker("", { eval: true }), "exit");
    case "process":
      return once(spawn(process.execPath, ["-e", ""]), "exit");
    case "pool":
      return new Promise((resolve) => pool.emit("please", resolve));
    case "socket": {
      const server = createServer((socket) => socket.end()).listen(0, "127.0.0.1");
      await once(server, "listening");
      const socket = dial(server.address().port, "127.0.0.1").resume();
      await once(socket, "close");
      server.close();
      return;
    }
    default:
      throw new Error(shape);
  }
}

const watched = agent("watched", { onDivergence: "fail" }, async (ctx) => {
  const seen = [];
  const beat = async () => {
    for (let n = 0; n < 3; n++) {
      await wait();
      seen.push(await ping(n));
    }
  };
  const background = beat();
  const said = await ctx.waitForSignal("go");
  await pay(`${said} after ${seen.length}`);
  if (kill) process.kill(process.pid, "SIGKILL");
  await background;
  return `${said} ${seen.length}`;
});

async function main() {
  const asked = [];
  pool.on("please", (answer) => asked.push(answer));
  const serving = setInterval(() => asked.shift()?.(), 30);
  const client = await connect(url);
  const worker = await client.worker({ agents: [watched], tasks: [ping, pay] }).start();
  const handle = await client.start(watched, null, { id: "one" });
  if (kill) {
    while ((await handle.tasks()).filter((one) => one.status === "COMPLETED").length < 3) await sleep(10);
    await handle.signal("go", "said", { idempotencyKey: "go" });
  }
  console.log("result", await handle.result({ timeoutMs: 30_000 }));
  clearInterval(serving);
  await worker.close();
  await client.close();
}

void main();
