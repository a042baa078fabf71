// A process that serves agents and does nothing else; as many as wanted may share a backend.
//
// FLOVYN_URL=sqlite:agents.db node worker.mjs
//
// SIGTERM and Ctrl-C give its runs back at once, and others go on with them.

import { connect } from "@flovyn/sdk";

import { researcher } from "./agents.mjs";

const client = await connect();
await client.worker({ agents: [researcher] }).run();
await client.close();
