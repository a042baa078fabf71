// What people do to a run: decide, say, stop, resume, retry, fork.
import * as steer from "@flovyn/react/client";
import type { ApprovalTerms, Asked, SignalOptions } from "@flovyn/react/client";
import { answer, api, currentOrg, flovyn } from "./client";
import type { Run, Schemas } from "./client";

const path = (id: string) => ({ org: currentOrg(), id });

export type Delivery = steer.Delivery;

export const sendSignal = (run: string, name: string, value: unknown, options?: SignalOptions): Promise<void> => steer.sendSignal(flovyn, run, name, value, options);
export const decide = (run: string, asked: Asked, approved: boolean, reason: string, terms: ApprovalTerms = {}): Promise<void> => steer.decide(flovyn, run, asked, approved, reason, terms);
export const respond = (run: string, asked: Asked, responses: Record<string, unknown>): Promise<void> => steer.respond(flovyn, run, asked, responses);
export const sayTo = (run: string, text: string, delivery: Delivery): Promise<void> => steer.sayTo(flovyn, run, text, delivery);
export const endTurn = (run: string): Promise<void> => steer.endTurn(flovyn, run);
export const stop = (run: string, mode: "graceful" | "hard"): Promise<Run> => steer.stop(flovyn, run, mode);
export const resume = (run: string, body: Schemas["Resume"]): Promise<unknown> => steer.resume(flovyn, run, body);
export const retry = (run: string, body: Schemas["Resume"]): Promise<unknown> => steer.retry(flovyn, run, body);

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
