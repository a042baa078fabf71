// The session: who is signed in, how one signs in and out. The cookie is the browser's; the page never sees it.
import { problemOf, unreachable } from "@flovyn/react/client";
import { setOrg } from "./client";

export interface Session {
  readonly org: string;
  readonly name: string;
  readonly scopes: string;
  readonly expiresAt: string | null;
}

async function ask(method: "GET" | "POST" | "DELETE", body?: object): Promise<unknown> {
  const request: RequestInit = { method, credentials: "same-origin" };
  if (body) Object.assign(request, { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  let response: Response;
  try {
    response = await fetch("/api/session", request);
  } catch {
    throw unreachable();
  }
  const told: unknown = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) throw problemOf(response.status, told);
  return told;
}

function known(told: unknown): Session {
  const session = told as Session;
  setOrg(session.org);
  return session;
}

/** The session that the browser has. */
export async function currentSession(): Promise<Session> {
  return known(await ask("GET"));
}

/** An issuer of OpenID Connect that signs people in, as the server names it. */
export interface Issuer {
  readonly label: string;
  readonly href: string;
}

/** The issuer by which people sign in; none where the server has none, or does not answer. */
export async function signInIssuer(): Promise<Issuer | null> {
  const answer = await fetch("/api/session/methods", { credentials: "same-origin" }).catch(() => null);
  if (!answer?.ok) return null;
  return ((await answer.json()) as { oidc?: Issuer | null }).oidc ?? null;
}

/** Signs in with the code of a link, or with a key. */
export async function signIn(by: { code: string } | { token: string }): Promise<Session> {
  return known(await ask("POST", by));
}

export async function signOut(): Promise<void> {
  await ask("DELETE");
}
