// A machine of a server that is killed and started again. daemon_victim.cjs URL KEY WORKSPACE

const { appendFileSync } = require("node:fs");
const { join } = require("node:path");

const { agent, daemon, task } = require("@flovyn/sdk");

const [, , serverUrl, authToken, workspace] = process.argv;

const writeLine = task("write-line", (line) => {
  appendFileSync(join(machine.workspaces[0], "lines"), `${line}\n`);
  return line.length;
});

const writer = agent("writer", async (ctx, line) => {
  const first = await writeLine(line);
  return first + (await writeLine(await ctx.waitForSignal("more")));
});

const machine = daemon({ serverUrl, authToken, workspaces: [workspace], agents: [writer], tasks: [writeLine] });

async function main() {
  await machine.start();
  console.log(`serves ${machine.name}`);
  await machine.run();
  console.log("ended");
}

main().catch((error) => console.log(`${error.code}: ${error.message}`));
