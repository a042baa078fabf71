// Hono on Node, with the route handlers of routes.mts.
//
// FLOVYN_URL=sqlite:agents.db node hono_app.mjs PORT

import type { Server } from "node:http";

import { serve } from "@hono/node-server";
import { Hono } from "hono";

import { approve, events, flovyn, GET, POST } from "./routes.mjs";

const app = new Hono();
app.post("/runs/:id", (c) => POST(c.req.raw, c.req.param("id")));
app.get("/runs/:id", (c) => GET(c.req.raw, c.req.param("id")));
app.get("/runs/:id/events", (c) => events(c.req.raw, c.req.param("id")));
app.post("/runs/:id/approval", (c) => approve(c.req.raw, c.req.param("id")));

const client = await flovyn();
const server = serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(process.argv[2] ?? 3000) });

process.once("SIGTERM", () => {
  server.close();
  // Readers of events would hold it open until their runs end; they come back with Last-Event-ID, here or elsewhere.
  (server as Server).closeAllConnections();
  void client.close();
});
