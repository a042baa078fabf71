// `cluster`: processes that share a port and a database. Each opens its own client; any of them may serve any run, and the
// others go on with what one leaves behind.
//
// FLOVYN_URL=sqlite:agents.db node cluster_app.mjs PORT

import cluster from "node:cluster";

if (cluster.isPrimary) {
  for (let each = 0; each < 2; each++) cluster.fork();
  let ending = false;
  cluster.on("exit", () => {
    if (!ending) cluster.fork();
  });
  process.once("SIGTERM", () => {
    ending = true;
    for (const worker of Object.values(cluster.workers ?? {})) {
      worker?.process.kill("SIGTERM");
      // The channel to the primary holds a process open, too.
      worker?.disconnect();
    }
  });
} else {
  // Nothing of it is opened in the primary, which serves nobody.
  await import("./hono_app.mjs");
}
