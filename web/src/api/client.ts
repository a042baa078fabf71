// Requests to the server: typed by its OpenAPI document, same-origin, with problems as exceptions.
import { createClient as createFlovynClient, problemOf, unreachable } from "@flovyn/react/client";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Run = Schemas["AgentExecution"];
export type RunTree = Schemas["AgentExecutionTree"];
export type Entry = Schemas["Entry"];
export type Task = Schemas["Task"];
export type Checkpoint = Schemas["Checkpoint"];

/** All requests go to the origin of the page, with its cookie; no token is ever here. */
export const api = createClient<paths>({ baseUrl: globalThis.location?.origin ?? "", credentials: "same-origin" });

let org = "default";

/** The org of the session, as paths name it. */
export function currentOrg(): string {
  return org;
}

export function setOrg(name: string): void {
  org = name;
}

const signedOut = new Set<() => void>();

/** Calls back when the server no longer knows the session. */
export function onSignedOut(call: () => void): () => void {
  signedOut.add(call);
  return () => signedOut.delete(call);
}

export function tellSignedOut(): void {
  for (const call of signedOut) call();
}

/** The same for what runs and questions are read and steered with; of the org that the session has by then. */
export const flovyn = createFlovynClient({ org: currentOrg, onUnauthorized: tellSignedOut });

interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of an answer, or its problem. */
export async function answer<T>(asked: Promise<Answered<T>>): Promise<T> {
  let answered: Answered<T>;
  try {
    answered = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable();
  }
  const { data, error, response } = answered;
  if (response.ok) return data as T;
  if (response.status === 401) tellSignedOut();
  throw problemOf(response.status, error);
}

/** The same object without what is undefined, as queries want it. */
export function given<T extends object>(values: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
