// What people do to a run: decide, say, stop, resume, retry, fork.
import { answer, api, currentOrg } from "./client";
import type { Run, Schemas } from "./client";
import { APPROVAL, INPUT, USER_MESSAGE } from "./waiting";

const path = (id: string) => ({ org: currentOrg(), id });

export type Delivery = "next_step" | "next_turn" | "now";

/** Sends a signal. With a key it is sent once, however often it is asked for; another value under the key is refused. */
export async function sendSignal(run: string, name: string, value: unknown, options: { delivery?: Delivery; key?: string } = {}): Promise<void> {
  const body: Schemas["Signal"] = { signalName: name, signalValue: value as never };
  if (options.delivery) body.delivery = options.delivery;
  if (options.key) body.idempotencyKey = options.key;
  await answer(api.POST("/api/orgs/{org}/agent-executions/{id}/signal", { params: { path: path(run) }, body }));
}

/** Decides whether a call may run. The key is that of the question, so the first decision stands and another one is refused. */
export function decide(run: string, asked: { id: string; hash: string }, approved: boolean, reason: string): Promise<void> {
  const value = { id: asked.id, hash: asked.hash, approved, ...(reason ? { reason } : {}) };
  return sendSignal(run, APPROVAL, value, { key: `approval ${asked.id} ${asked.hash}`.slice(0, 200) });
}

/** Answers the questions of a server. A refused answer may be given again, so this has no key. */
export function respond(run: string, asked: { id: string; hash: string }, responses: Record<string, unknown>): Promise<void> {
  return sendSignal(run, INPUT, { id: asked.id, hash: asked.hash, responses });
}

/** Says something to a run of the built-in agent. */
export function sayTo(run: string, text: string, delivery: Delivery): Promise<void> {
  return sendSignal(run, USER_MESSAGE, { text, delivery }, { delivery, key: crypto.randomUUID() });
}

export async function stop(run: string, mode: "graceful" | "hard"): Promise<Run> {
  return answer(api.POST("/api/orgs/{org}/agent-executions/{id}/cancel", { params: { path: path(run) }, body: { mode } }));
}

export async function resume(run: string, body: Schemas["Resume"]): Promise<unknown> {
  return answer(api.POST("/api/orgs/{org}/agent-executions/{id}/resume", { params: { path: path(run) }, body }));
}

export async function retry(run: string, body: Schemas["Resume"]): Promise<unknown> {
  return answer(api.POST("/api/orgs/{org}/agent-executions/{id}/retry", { params: { path: path(run) }, body }));
}

export async function decideDivergence(run: string, decision: "continue" | "fork" | "stay"): Promise<unknown> {
  return answer(api.POST("/api/orgs/{org}/agent-executions/{id}/divergence", { params: { path: path(run) }, body: { decision } }));
}

export async function resolveDoubt(run: string, body: Schemas["Resolve"]): Promise<unknown> {
  return answer(api.POST("/api/orgs/{org}/agent-executions/{id}/resolve", { params: { path: path(run) }, body }));
}

export type ForkPoint = Schemas["ForkPoint"];

export async function fork(run: string, point: ForkPoint): Promise<Run> {
  return answer(api.POST("/api/orgs/{org}/agent-executions/{id}/fork", { params: { path: path(run) }, body: point }));
}

export async function remove(run: string): Promise<void> {
  await answer(api.POST("/api/orgs/{org}/agent-executions/{id}/delete", { params: { path: path(run) } }));
}
