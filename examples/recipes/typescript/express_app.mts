// Express: client and worker beside the server, events piped to the response, an end in order.
//
// FLOVYN_URL=sqlite:agents.db node express_app.mjs PORT

import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { connect, ExecutionExists, ExecutionNotFound } from "@flovyn/sdk";
import express, { type ErrorRequestHandler } from "express";

import { researcher } from "./agents.mjs";

const client = await connect();
await client.worker({ agents: [researcher] }).start();
const app = express();

app.post("/runs/:id", async (request, response) => {
  const handle = await client.start(researcher, String(request.query["topic"]), { id: request.params.id });
  response.status(202).json({ id: handle.key, status: await handle.status() });
});

app.get("/runs/:id", async (request, response) => {
  const handle = await client.handle(request.params.id, researcher);
  const status = await handle.status();
  response.json({ id: handle.key, status, output: status === "COMPLETED" ? await handle.result() : null });
});

app.get("/runs/:id/events", async (request, response) => {
  const handle = await client.handle(request.params.id);
  response.type("text/event-stream");
  const sent = Readable.fromWeb(handle.sse({ after: request.get("Last-Event-ID") }) as never);
  // A reader that goes away ends the stream, and that is no error.
  await pipeline(sent, response).catch(() => undefined);
});

app.post("/runs/:id/approval", async (request, response) => {
  const handle = await client.handle(request.params.id);
  await handle.signal("approval", request.query["yes"] === "true", { idempotencyKey: "approval" });
  response.status(204).end();
});

const told: ErrorRequestHandler = (error, _request, response, next) => {
  const status = error instanceof ExecutionNotFound ? 404 : error instanceof ExecutionExists ? 409 : undefined;
  if (status === undefined) next(error);
  else response.status(status).json({ message: (error as Error).message });
};
app.use(told);

const server = app.listen(Number(process.argv[2] ?? 3000), "127.0.0.1");

process.once("SIGTERM", () => {
  server.close();
  // Readers of events would hold it open until their runs end; they come back with Last-Event-ID, here or elsewhere.
  server.closeAllConnections();
  void client.close();
});
