// Route handlers of the web's own Request and Response, as Next.js, Remix, SvelteKit and Bun take them. Modules of a
// development server are loaded anew after each edit: `shared` keeps one client and one worker, with the newest functions.
//
// In Next.js: app/runs/[id]/route.ts exports these with `runtime = "nodejs"`, and next.config.ts says
// `serverExternalPackages: ["@flovyn/sdk"]`.

import { type Client, ExecutionExists, ExecutionNotFound, shared } from "@flovyn/sdk";

import { researcher } from "./agents.mjs";

/** The one client of this process, which serves what the present modules declare. */
export const flovyn = (): Promise<Client> => shared(undefined, { agents: [researcher] });

/** POST /runs/:id?topic=…: the same id again is the same run, so a caller may repeat this. */
export async function POST(request: Request, id: string): Promise<Response> {
  const topic = new URL(request.url).searchParams.get("topic") ?? "otters";
  try {
    const handle = await (await flovyn()).start(researcher, topic, { id });
    return Response.json({ id, status: await handle.status() }, { status: 202 });
  } catch (error) {
    if (error instanceof ExecutionExists) return Response.json({ message: error.message }, { status: 409 });
    throw error;
  }
}

/** GET /runs/:id */
export async function GET(_: Request, id: string): Promise<Response> {
  try {
    const handle = await (await flovyn()).handle(id, researcher);
    const status = await handle.status();
    return Response.json({ id, status, output: status === "COMPLETED" ? await handle.result() : null });
  } catch (error) {
    if (error instanceof ExecutionNotFound) return Response.json({ message: error.message }, { status: 404 });
    throw error;
  }
}

/** GET /runs/:id/events: an EventSource resumes by itself behind the last event that it has seen. */
export async function events(request: Request, id: string): Promise<Response> {
  const handle = await (await flovyn()).handle(id);
  const after = request.headers.get("last-event-id") ?? undefined;
  return new Response(handle.sse({ after }), { headers: { "content-type": "text/event-stream" } });
}

/** POST /runs/:id/approval?yes=true */
export async function approve(request: Request, id: string): Promise<Response> {
  const yes = new URL(request.url).searchParams.get("yes") === "true";
  await (await (await flovyn()).handle(id)).signal("approval", yes, { idempotencyKey: "approval" });
  return new Response(null, { status: 204 });
}
