// Dies while it pays, so that nobody knows whether that took effect. doubt.cjs URL

const { agent, run, task } = require("@flovyn/sdk");

const pay = task("pay", { sideEffects: "at_most_once" }, async () => process.exit(9));
const buys = agent("buys", { version: "1" }, async () => pay());

run(buys, undefined, { id: "bought", url: process.argv[2] });
