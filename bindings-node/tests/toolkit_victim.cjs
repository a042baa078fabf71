// A process with a built-in agent that is killed in the middle of its tools, or ends by itself.
// toolkit_victim.cjs URL LOG FAKE_URL: each tool is a line of LOG; HOLD names the one that does not end. With ASK=1 it is an
// agent of its own that asks a model.

const { appendFileSync } = require("node:fs");

const { agent, connect, run, task } = require("@flovyn/sdk");
const { fakeLlm, turn } = require("@flovyn/sdk/testing");
const { llm, reactAgent, tool } = require("@flovyn/sdk/toolkit");

const IDLE_MS = 1_000;
const [, , url, log, fakeUrl] = process.argv;

const slow = task("slow", async ({ step }) => {
  appendFileSync(log, `start ${step}\n`);
  if (process.env.HOLD === String(step)) await new Promise((resolve) => setTimeout(resolve, 60_000));
  appendFileSync(log, `end ${step}\n`);
  return `step ${step} is done`;
});
const parameters = { type: "object", properties: { step: { type: "integer" } }, required: ["step"] };
const tools = [tool(slow, { description: "Takes a step.", parameters, effect: "read" })];

/** Works to the end of the one run. */
async function work() {
  const providers = { fake: { api: "anthropic-messages", baseUrl: fakeUrl } };
  const walker = reactAgent("walker", { model: "fake/any", tools, providers });
  const outcome = await run(walker, "Take three steps.", { id: "walk", url });
  console.log(outcome.text);
}

/** Asks a model from an agent of its own, whose worker was told of no model. */
async function ask() {
  const asker = agent("asker", async () => (await llm.generate("Well?", { model: "anthropic/any" })).text);
  console.log(await run(asker, undefined, { id: "ask", url }));
}

/** Leaves a model and a client open, idles, says what CPU that took, and ends. */
async function idle() {
  const fake = fakeLlm([turn("Done by itself.")]);
  const walker = reactAgent("walker", { model: "fake/any", tools });
  const client = await connect(url);
  const worker = await client.worker({ agents: [walker] }).start();
  console.log((await (await client.start(walker, "Go.")).result()).text);
  const [before, since] = [process.cpuUsage(), performance.now()];
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const { user, system } = process.cpuUsage(before);
  console.error((user + system) / 1e3, performance.now() - since);
  await worker.close();
}

const main = process.env.ASK === "1" ? ask : fakeUrl === "" ? idle : work;
main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
