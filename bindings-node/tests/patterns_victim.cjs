// A process that serves a family of agents until it kills itself at a marked moment.
// patterns_victim.cjs URL LOG FAKE_URL: the delegate's tool and the successor take notes in LOG; with HOLD it dies there. The
// parent's code is not there to name them: it waits for the child, or is gone with its handoff.

const { appendFileSync } = require("node:fs");

const { agent, run, task } = require("@flovyn/sdk");
const { reactAgent, tool } = require("@flovyn/sdk/toolkit");

const [, , url, log, fakeUrl] = process.argv;
const providers = { fake: { api: "anthropic-messages", baseUrl: fakeUrl } };

function mark(text) {
  if (process.env.HOLD === text) process.kill(process.pid, "SIGKILL");
  appendFileSync(log, `${text}\n`);
}

const look = task("look", async ({ at }) => {
  mark(`look at ${at}`);
  return `${at} are there`;
});
const parameters = { type: "object", properties: { at: { type: "string" } }, required: ["at"] };
const tools = [tool(look, { description: "Looks at something.", parameters, effect: "read" })];
const closer = agent("closer", { description: "Sums up." }, async (ctx, how) => {
  mark("close");
  const said = (await ctx.messages()).filter(({ role, entryType }) => role === "assistant" && entryType === "message");
  return `${how}, after ${said.length} answers`;
});
const scout = reactAgent("scout", { model: "fake/any", description: "Looks at animals.", tools, providers });
const lead = reactAgent("lead", { model: "fake/any", delegates: [scout], handoffs: [closer], providers });

run(lead, "What is there?", { id: "family", url }).then((outcome) => console.log(outcome));
