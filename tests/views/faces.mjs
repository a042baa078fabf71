// What TypeScript shows of a run: prints it as JSON. Usage: faces.mjs URL ID; the token is in FLOVYN_TOKEN.

import { createRequire } from "node:module";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
const { connect } = require("@flovyn/sdk");

const [url, id] = process.argv.slice(2);
const client = await connect(url);
const handle = await client.handle(id);
const events = [];
for await (const event of handle.stream()) events.push(event);
const shown = {
  run: await handle.describe(),
  tasks: await handle.tasks(),
  entries: await handle.entries(),
  checkpoints: await handle.checkpoints(),
  events,
};
console.log(JSON.stringify(shown));
await client.close();
